#include "vt/device/registry.h"

#include <algorithm>
#include <charconv>
#include <cstring>

#include "base/os/file.h"
#include "base/os/module.h"
#include "base/strings.h"

namespace vt {

// The compiler and this number stand for the layout of the classes that cross the seam.
const char* BuildId() { return "vllm.cpp seam 1 " __VERSION__; }

DeviceRegistry DeviceRegistry::Load(std::vector<std::string> folders) {
  DeviceRegistry registry;
  if (folders.empty()) folders.push_back(base::os::ProgramFolder());
  for (const std::string& folder : folders) {
    const base::Result<std::vector<std::string>> names = base::os::ListDirectory(folder);
    if (!names) {
      registry.problems_.push_back(names.error().message);
      continue;
    }
    for (const std::string& name : *names) {
      if (!base::StartsWith(name, "libvt_") || !base::EndsWith(name, ".so")) continue;
      const std::string path = folder + "/" + name;
      base::Result<void*> module = base::os::OpenModule(path);
      if (!module) {
        registry.problems_.push_back(module.error().message);
        continue;
      }
      base::Result<void*> symbol = base::os::FindSymbol(*module, "vt_module");
      if (!symbol) {
        registry.problems_.push_back(path + ": not a device module (" + symbol.error().message +
                                     ")");
        continue;
      }
      const ModuleEntry* entry = reinterpret_cast<ModuleFunction>(*symbol)();
      if (std::strcmp(entry->build_id, BuildId()) != 0) {
        registry.problems_.push_back(
            fmt::format("{}: made for another build ('{}', this is '{}'): build it again", path,
                        entry->build_id, BuildId()));
        continue;
      }
      registry.platforms_.emplace_back(entry->create());
    }
  }
  return registry;
}

std::vector<Platform*> DeviceRegistry::platforms() const {
  std::vector<Platform*> out;
  for (const auto& p : platforms_) out.push_back(p.get());
  return out;
}

base::Result<std::pair<Platform*, int>> DeviceRegistry::Find(const std::string& device) const {
  std::string found;
  for (const auto& p : platforms_) found += (found.empty() ? "" : ", ") + p->Name();
  for (const std::string& problem : problems_) found += "; " + problem;
  if (found.empty()) found = "none";

  if (device == "auto") {
    for (const char* name : {"cuda", "rocm", "vulkan", "cpu"}) {
      for (const auto& p : platforms_) {
        std::string why;
        if (p->Name() == name && !p->Devices(&why).empty()) return std::pair(p.get(), 0);
      }
    }
    return base::Error{base::Code::kNotFound, "no device found (modules: " + found + ")"};
  }
  const size_t colon = device.find(':');
  const std::string name = device.substr(0, colon);
  int index = 0;
  if (colon != std::string::npos) {
    const char* begin = device.data() + colon + 1;
    const char* end = device.data() + device.size();
    const auto [rest, error] = std::from_chars(begin, end, index);
    if (error != std::errc() || rest != end || index < 0) {
      return base::Error{base::Code::kInvalidArgument,
                         fmt::format("--device '{}': write a name and an index, like cuda:1",
                                     base::Printable(device))};
    }
  }
  for (const auto& p : platforms_) {
    if (p->Name() != name) continue;
    std::string why;
    const size_t count = p->Devices(&why).size();
    if (static_cast<size_t>(index) < count) return std::pair(p.get(), index);
    return base::Error{base::Code::kNotFound,
                       fmt::format("--device '{}': {}", device,
                                   count == 0 ? why : fmt::format("only {} of this kind", count))};
  }
  return base::Error{base::Code::kNotFound, fmt::format("--device '{}': no such device; found: {}",
                                                        base::Printable(device), found)};
}

}  // namespace vt
