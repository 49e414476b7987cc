#include "vt/ir/interpreter.h"

#include "base/strings.h"

namespace vt::ir {

Interpreter::Interpreter(const Graph& graph, WeightData weights, int64_t block_size)
    : graph_(graph), weights_(std::move(weights)), block_size_(block_size) {}

base::Result<std::vector<Tensor>> Interpreter::Run(const Bucket& bucket,
                                                   const std::map<std::string, Tensor>& inputs) {
  const auto bad = [](const std::string& what) {
    return base::Error{base::Code::kInvalidArgument, what};
  };
  const auto shape_at = [&](const Shape& shape) {
    Shape s;
    for (const Dim& d : shape) s.emplace_back(d.At(bucket));
    return s;
  };
  const auto has_shape = [&](const Tensor& t, const Value& v) {
    const auto count = static_cast<size_t>(Elements(v.shape, bucket));
    return (v.dtype == DType::kI32 ? t.i.size() : t.f.size()) == count;
  };

  std::vector<Tensor> values(graph_.values.size());
  for (size_t v = 0; v < values.size(); ++v) {
    const Value& value = graph_.values[v];
    if (value.kind == ValueKind::kInput) {
      const auto found = inputs.find(value.name);
      if (found == inputs.end()) return bad(fmt::format("the step has no input {}", value.name));
      values[v] = found->second;
    } else if (value.kind == ValueKind::kWeight) {
      values[v].f = weights_(value);
    } else {
      continue;
    }
    values[v].shape = shape_at(value.shape);
    if (!has_shape(values[v], value)) {
      return bad(fmt::format("{} should have the shape {}", value.name, ToString(values[v].shape)));
    }
  }

  for (const Node& node : graph_.nodes) {
    std::vector<const Tensor*> args;
    KvState *state = nullptr, *first_state = nullptr;
    for (const ValueId v : node.inputs) {
      const Value& value = graph_.value(v);
      if (value.kind == ValueKind::kState) {
        first_state = state;
        state = &states_[{value.group, value.layer}];
        state->dtype = graph_.state_groups[static_cast<size_t>(value.group)].dtype;
      }
      args.push_back(value.kind == ValueKind::kState ? nullptr : &values[static_cast<size_t>(v)]);
    }
    auto results = Evaluate(node.op, node.attrs, args, state, block_size_, first_state);
    if (!results) return results.error().In(node.name);
    for (size_t i = 0; i < node.outputs.size(); ++i) {
      const Value& value = graph_.value(node.outputs[i]);
      if (value.kind == ValueKind::kState) continue;
      Tensor& result = values[static_cast<size_t>(node.outputs[i])];
      result = std::move((*results)[i]);
      result.shape = shape_at(value.shape);
      if (!has_shape(result, value))
        return bad(fmt::format("{} yields another shape than the graph says", node.name));
    }
  }
  return values;
}

}  // namespace vt::ir
