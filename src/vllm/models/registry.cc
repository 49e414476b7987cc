#include "vllm/models/registry.h"

#include <map>

#include "base/strings.h"

namespace vllm::models {
namespace {

// Built during static initialisation, read-only afterwards.
std::map<std::string, BuildFunction>& Table() {
  static std::map<std::string, BuildFunction> table;
  return table;
}

}  // namespace

Registration::Registration(BuildFunction build, std::initializer_list<const char*> families) {
  for (const char* family : families) Table().emplace(family, build);
}

base::Result<BuildFunction> FindFamily(const std::string& family) {
  const auto it = Table().find(family);
  if (it != Table().end()) return it->second;
  return base::Error{base::Code::kUnsupported,
                     fmt::format("model family '{}' is not implemented; these are: {}",
                                 base::Printable(family), fmt::join(FamilyNames(), ", "))};
}

std::vector<std::string> FamilyNames() {
  std::vector<std::string> names;
  for (const auto& [name, build] : Table()) names.push_back(name);
  return names;
}

}  // namespace vllm::models
