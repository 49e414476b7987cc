#include "vt/ir/op.h"

#include <array>
#include <cstddef>

namespace vt::ir {
namespace {

struct OpText {
  std::string_view name, meaning;
};
constexpr std::array<OpText, kOpCount> kText = {{
#define VT_OP(id, name, attrs, meaning) {name, meaning},
    VT_PRIMITIVE_OPS(VT_OP) VT_FUSED_OPS(VT_OP)
#undef VT_OP
}};

}  // namespace

std::string_view Name(Op op) { return kText[static_cast<size_t>(op)].name; }
std::string_view Meaning(Op op) { return kText[static_cast<size_t>(op)].meaning; }

}  // namespace vt::ir
