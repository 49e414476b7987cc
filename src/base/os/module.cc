#include "base/os/module.h"

#include <dlfcn.h>
#include <sys/resource.h>
#include <unistd.h>

#include <filesystem>

namespace base::os {

Result<void*> OpenModule(const std::string& path) {
  void* module = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (module == nullptr) {
    const char* why = ::dlerror();
    return Error{Code::kUnavailable,
                 path + ": cannot be loaded: " + (why != nullptr ? why : "unknown reason")};
  }
  return module;
}

Result<void*> FindSymbol(void* module, const std::string& name) {
  void* symbol = ::dlsym(module, name.c_str());
  if (symbol == nullptr) return Error{Code::kNotFound, "symbol '" + name + "' is missing"};
  return symbol;
}

std::string ProgramFolder() {
  std::error_code ec;
  const auto exe = std::filesystem::read_symlink("/proc/self/exe", ec);
  return ec ? "." : exe.parent_path().string();
}

bool IsTerminal(int descriptor) { return ::isatty(descriptor) == 1; }

uint64_t PeakResidentBytes() {
  struct rusage usage {};
  ::getrusage(RUSAGE_SELF, &usage);
  return static_cast<uint64_t>(usage.ru_maxrss) * 1024;
}

}  // namespace base::os
