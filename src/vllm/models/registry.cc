#include "vllm/models/registry.h"

#include <utility>

#include "base/strings.h"

namespace vllm::models {

Registration::Registration(BuildFunction build, std::vector<weights::Family> families) {
  for (weights::Family& family : families) {
    family.build = build;
    weights::RegisterFamily(std::move(family));
  }
}

base::Result<BuildFunction> FindFamily(const std::string& family) {
  if (const weights::Family* found = weights::FindFamily(family)) return found->build;
  return base::Error{base::Code::kUnsupported,
                     fmt::format("model family '{}' is not implemented; these are: {}",
                                 base::Printable(family), fmt::join(FamilyNames(), ", "))};
}

std::vector<std::string> FamilyNames() {
  std::vector<std::string> names;
  for (const weights::Family* family : weights::Families()) names.emplace_back(family->name);
  return names;
}

}  // namespace vllm::models
