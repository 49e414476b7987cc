#include "vllm/weights/family.h"

#include <functional>
#include <utility>

#include "base/strings.h"
#include "vt/ir/builder.h"

namespace vllm::weights {
namespace {

// Built during static initialisation, read-only afterwards.
std::map<std::string_view, Family>& Table() {
  static std::map<std::string_view, Family> table;
  return table;
}

}  // namespace

void RegisterFamily(Family family) { Table().emplace(family.name, std::move(family)); }

const Family* FindFamily(std::string_view name) {
  const auto it = Table().find(name);
  return it == Table().end() ? nullptr : &it->second;
}

std::vector<const Family*> Families() {
  std::vector<const Family*> out;
  for (const auto& [name, family] : Table()) out.push_back(&family);
  return out;
}

const Family& FamilyOf(const Config& config) {
  static const Family unknown;
  const Family* family = FindFamily(config.family);
  return family == nullptr ? unknown : *family;
}

base::Result<std::map<std::string, std::vector<int64_t>>> ExpectedTensors(const Config& c) {
  const Family& family = FamilyOf(c);
  if (family.build == nullptr) {
    return base::Error{base::Code::kUnsupported,
                       "model family '" + base::Printable(c.family) + "' is not implemented"};
  }
  const bool head = !c.tie_word_embeddings.value_or(family.tied);
  std::map<std::string, std::vector<int64_t>> asked;
  for (const BuildFunction build : {family.build, family.build_media}) {
    if (build == nullptr) continue;
    vt::ir::Builder builder(
        c.family,
        [&](const std::string& name) -> std::optional<vt::ir::WeightInfo> {
          if (!head || name != "lm_head.weight") return std::nullopt;
          return vt::ir::WeightInfo{vt::ir::DType::kF32, {c.vocab_size, c.hidden_size}};
        },
        {});
    builder.RecordInto(&asked);
    const vt::ir::ValueId end = build(builder, {c, c.max_position_embeddings});
    const base::Result<vt::ir::Graph> graph = builder.Finish({end});
    if (!graph) return graph.error();
  }
  return asked;
}

}  // namespace vllm::weights
