// The oracle: runs a graph node by node in fp32, slowly and plainly. Fused ops run as their
// definitions.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "base/result.h"
#include "vt/ir/graph.h"

namespace vt::ir {

// f32 values (quantised activations as their dequantised values), or i32 ones.
struct Tensor {
  Shape shape;             // with constants only
  std::vector<float> f;    // of float types
  std::vector<int32_t> i;  // of kI32
};

// State of one layer. Of the KV cache by slot: key and value rows of [kv_heads * head_dim], f32
// (latent: k alone).
struct KvState {
  DType dtype = DType::kF32;  // values are rounded to this type when written
  std::map<int32_t, std::vector<float>> k, v;
  // Of slot groups instead: words of each slot; one that is not there is all zero.
  std::map<int32_t, std::vector<int32_t>> slots;
  std::map<int32_t, std::vector<float>> recurrent;  // of the recurrent group
};

class Interpreter {
 public:
  // Gives the f32 values of a weight (dequantised), row-major.
  using WeightData = std::function<std::vector<float>(const Value& weight)>;

  Interpreter(const Graph& graph, WeightData weights, int64_t block_size);

  // Runs one step. `inputs` by name (i32, as graph.h names them). KV states persist between calls.
  // Returns every value by id (states are empty).
  base::Result<std::vector<Tensor>> Run(const Bucket& bucket,
                                        const std::map<std::string, Tensor>& inputs);

  KvState& state(int group, int layer) { return states_[{group, layer}]; }

 private:
  const Graph& graph_;
  WeightData weights_;
  int64_t block_size_;
  std::map<std::pair<int, int>, KvState> states_;
};

// The reference function of one node: input tensors in, output tensors out (attention and KV writes
// take the state, as do the sampler's ops; in `inputs` the state's entry is null, and where an op
// writes a state its output is an empty tensor).
// In a reshape at most one dimension of the result may be symbolic. Errors: ids, rows or slots out
// of range.
// `state`: the last of its states; of two, the other is `first_state`.
base::Result<std::vector<Tensor>> Evaluate(Op op, const Attrs& attrs,
                                           const std::vector<const Tensor*>& inputs, KvState* state,
                                           int64_t block_size, KvState* first_state = nullptr);

}  // namespace vt::ir
