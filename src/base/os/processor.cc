#include "base/os/processor.h"

#if defined(__x86_64__) && defined(__linux__)

#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace base::os {
namespace {

struct Features {  // of CPUID's leaf 7
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
};
Features Leaf7(unsigned part) {
  Features f;
  if (__get_cpuid_count(7, part, &f.eax, &f.ebx, &f.ecx, &f.edx) == 0) return {};
  return f;
}

}  // namespace

bool HasAvx512Bf16() {
  return Leaf7(0).eax >= 1 && (Leaf7(1).eax >> 5 & 1) != 0 &&
         __builtin_cpu_supports("avx512f") != 0;
}

bool HasF16c() {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  return __get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0 && (ecx >> 29 & 1) != 0;
}

bool RequestTiles() {
  const unsigned edx = Leaf7(0).edx;  // bits 22, 24, 25: AMX-BF16, AMX-TILE, AMX-INT8
  if ((edx >> 22 & 1) == 0 || (edx >> 24 & 1) == 0 || (edx >> 25 & 1) == 0) return false;
  constexpr long kRequestPermission = 0x1023;  // ARCH_REQ_XCOMP_PERM, since Linux 5.16
  constexpr long kTileData = 18;               // XFEATURE_XTILEDATA
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

}  // namespace base::os

#else

namespace base::os {
bool HasAvx512Bf16() { return false; }
bool HasF16c() { return false; }
bool RequestTiles() { return false; }
}  // namespace base::os

#endif
