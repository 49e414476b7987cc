// Finds device modules (libvt_<name>.so beside the program or in given folders) and opens devices
// by name.
//
// A module exports one function, `vt_module`, returning a ModuleEntry. It is refused with a
// sentence when its build id is not that of this library.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "vt/device/backend.h"

namespace vt {

struct ModuleEntry {
  const char* build_id;
  const char* name;  // "cpu"
  Platform* (*create)();
};
using ModuleFunction = const ModuleEntry* (*)();

// Changes with every incompatible build of the core.
const char* BuildId();

class DeviceRegistry {
 public:
  // Loads every module found in `folders`; with none given, in the folder of the running program.
  static DeviceRegistry Load(std::vector<std::string> folders = {});

  std::vector<Platform*> platforms() const;
  // What could not be loaded and why, a sentence each.
  const std::vector<std::string>& problems() const { return problems_; }

  // "cpu", "cuda:1", "auto" (the first of cuda, rocm, vulkan, cpu that has a device). Errors name
  // what was found.
  base::Result<std::pair<Platform*, int>> Find(const std::string& device) const;

 private:
  std::vector<std::unique_ptr<Platform>> platforms_;
  std::vector<std::string> problems_;
};

}  // namespace vt
