#include "vt/cpu/isa.h"

#include <algorithm>

#include "base/os/processor.h"
#include "base/strings.h"

namespace vt::cpu {
namespace {

struct Isa {
  const char* name;
  bool (*present)();
  KernelSet (*kernels)();
};

#if defined(__x86_64__)
bool Avx512() {
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
         __builtin_cpu_supports("fma") && base::os::HasF16c();
}
bool Vnni() { return Avx512() && __builtin_cpu_supports("avx512vnni") != 0; }
bool Bf16() { return Vnni() && base::os::HasAvx512Bf16(); }
bool Amx() { return Bf16() && base::os::RequestTiles(); }
#endif

// Best first. The compiler's checks include whether the operating system saves the registers.
std::vector<Isa> Isas() {
  std::vector<Isa> all;
#if defined(__x86_64__)
  all.push_back({"amx", Amx, KernelsAmx});
  all.push_back({"avx512_bf16", Bf16, KernelsAvx512Bf16});
  all.push_back({"avx512_vnni", Vnni, KernelsAvx512Vnni});
  all.push_back({"avx512", Avx512, KernelsAvx512});
  all.push_back({"avx2",
                 [] {
                   return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
                          base::os::HasF16c();
                 },
                 KernelsAvx2});
#endif
  all.push_back({"scalar", [] { return true; }, KernelsScalar});
  return all;
}

}  // namespace

std::vector<std::string> AvailableIsas() {
  std::vector<std::string> names;
  for (const Isa& i : Isas()) {
    if (i.present()) names.push_back(i.name);
  }
  return names;
}

base::Result<KernelSet> KernelsFor(const std::string& isa) {
  std::vector<std::string> known;
  for (const Isa& i : Isas()) {
    known.push_back(i.name);
    if (isa.empty() ? i.present() : isa == i.name) {
      if (!i.present()) {
        return base::Error{base::Code::kUnsupported,
                           fmt::format("this machine has no {} instructions; it has: {}", isa,
                                       fmt::join(AvailableIsas(), ", "))};
      }
      return i.kernels();
    }
  }
  return base::Error{base::Code::kInvalidArgument,
                     fmt::format("no instruction set is called \"{}\"; known are: {}",
                                 base::Printable(isa), fmt::join(known, ", "))};
}

}  // namespace vt::cpu
