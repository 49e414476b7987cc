// The emulator of AMD's instructions as a process: tools/amd_emulator.py. It is there
// when TINYGRAD names a folder. Not thread-safe.
#pragma once

#include <sys/types.h>

#include <cstdio>
#include <string>

namespace hip {

class DeviceMemory;

class Emulator {
 public:
  // The process is started by the first request.
  explicit Emulator(const DeviceMemory& memory) : memory_(memory) {}
  ~Emulator();
  Emulator(const Emulator&) = delete;
  Emulator& operator=(const Emulator&) = delete;

  static bool Wanted();
  // "" or what went wrong. `id` names a module, `file` holds its code object.
  std::string Load(int id, const std::string& file);
  std::string Unload(int id);
  struct Shape {
    unsigned grid_x = 1, grid_y = 1, threads = 1, shared_bytes = 0;
  };
  std::string Launch(int id, const std::string& kernel, const Shape& shape, const void* arguments);

 private:
  std::string Start();
  std::string Ask(const std::string& request);

  const DeviceMemory& memory_;
  pid_t process_ = 0;
  FILE* to_ = nullptr;
  FILE* from_ = nullptr;
};

}  // namespace hip
