// Tensors that models ask for and files store otherwise: experts one by one or gate and up in one,
// projections interleaved by head. They are made of row ranges of what is stored, so model files
// read like the formula and nothing is copied before it is needed.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "vllm/weights/checkpoint.h"
#include "vllm/weights/config.h"

namespace vllm::weights {

// The stored tensors of one layer, for Family::make_tensors. Names are those after the layer's
// number: "self_attn.q_proj.weight". Errors name the stored tensor, kCorrupt for a shape that is
// not the configuration's.
class LayerTensors {
 public:
  using Shape = std::vector<int64_t>;
  struct Rows {
    int64_t begin, count;
  };
  struct Part {
    std::string name;
    int64_t rows;  // a group's
  };

  LayerTensors(std::map<std::string, TensorInfo>& tensors, std::string prefix)
      : tensors_(tensors), prefix_(std::move(prefix)) {}

  bool Has(const std::string& name) const;
  // Takes a stored tensor out; nothing when it isn't there.
  base::Result<std::optional<TensorInfo>> Take(const std::string& name, const Shape& shape);
  base::Status Put(const std::string& name, TensorInfo info, Shape shape);
  // The same bytes in another shape, where the tensor is there in the old one.
  void Reshape(const std::string& name, const Shape& old, Shape shape);
  struct Strided {
    std::string name;
    int64_t begin;  // the first value, of those stored
    Shape shape, strides;
  };
  // `from`, where it is there, holds values of all `parts`, each of which has its own steps through
  // them: transposed matrices, rows in turn. Parts of a block format begin at whole blocks; those
  // whose rows are no whole blocks become f32.
  base::Status View(const std::string& from, const Shape& shape, const std::vector<Strided>& parts);
  // `from`, where it is there, has for each of `groups` the rows of all parts in turn: they become
  // tensors of their own, parts of one name one after another. Shapes are [outer.., rows,
  // columns..]; the outer dimensions' product is `groups`, or there are none. A vector (a bias) has
  // no columns.
  base::Status Split(const std::string& from, int64_t groups, const std::vector<Part>& parts,
                     const Shape& columns, const Shape& outer = {});

  const std::string& prefix() const { return prefix_; }
  std::map<std::string, TensorInfo>& tensors() { return tensors_; }

 private:
  std::map<std::string, TensorInfo>& tensors_;
  std::string prefix_;
};

// Replaces stored tensors (by canonical name) by those that the family's model asks for: names
// become ours, ignored ones go, what the family makes is made, and then of experts
//   mlp.experts.<e>.gate_proj.weight .. or mlp.experts.gate_up_proj [E, 2N, K]
//       -> mlp.experts.gate_proj.weight, up_proj [E, N, K] and down_proj [E, K, N]
//   mlp.shared_expert_gate.weight [K] -> [1, K]
// Errors name the stored tensor: kCorrupt for a shape that is not the configuration's or experts
// beyond its count, kNotFound for a missing expert.
base::Status MakeVirtualTensors(const Config& config, std::map<std::string, TensorInfo>& tensors);

}  // namespace vllm::weights
