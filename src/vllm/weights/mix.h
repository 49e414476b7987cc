// llama.cpp's quantisation mixes: which format each tensor of a model gets under a name such as
// "Q4_K_M". The rules are those of llama.cpp without an importance matrix.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "vt/ir/dtype.h"

namespace vllm::weights {

// What a mix's rules look at, beside the tensor.
struct MixModel {
  int64_t layers = 0;
  int64_t heads_per_kv_head = 1;
  bool tied_embeddings = true;  // the model has no output.weight
  int64_t experts = 0;
  // The layers whose attention has a value matrix, which rules for it count; empty: all of them.
  std::vector<int64_t> value_layers = {};
};

class Mix {
 public:
  // "Q4_K_M", "q8_0", "BF16", ...; "Q2_K" and "Q3_K", "Q4_K", "Q5_K" alone mean the _M mix where
  // there is one. Errors: kInvalidArgument, listing the names.
  static base::Result<Mix> FromName(std::string_view name);
  static std::vector<std::string_view> Names();

  // The format of a tensor by its GGUF name and shape (outermost first); f32 for those it Keeps.
  vt::ir::DType Choose(const MixModel& model, std::string_view gguf_name,
                       const std::vector<int64_t>& shape) const;

  // Whether every mix leaves this tensor in the type it has: norms, biases, routers, and what else
  // is too small to be worth it.
  static bool Keeps(std::string_view gguf_name, const std::vector<int64_t>& shape);
  // Whether rules for the attention's value matrix are meant for it.
  static bool IsValue(std::string_view gguf_name);

  std::string_view name() const { return name_; }
  // GGUF's general.file_type.
  uint32_t file_type() const { return file_type_; }

 private:
  // kUniform: one format but for the output. kPlain: no quantisation.
  enum class Kind : uint8_t {
    kPlain,
    kUniform,
    kMXFP4,  // of experts; the rest has eight bits
    kQ2K,
    kQ2KS,
    kQ3KS,
    kQ3KM,
    kQ3KL,
    kQ4KS,
    kQ4KM,
    kQ5KS,
    kQ5KM,
    kQ6K,
    kIQ4
  };
  struct Entry;
  static std::span<const Entry> Table();  // in ascending size

  std::string_view name_;
  Kind kind_ = Kind::kPlain;
  uint32_t file_type_ = 0;
  vt::ir::DType base_ = vt::ir::DType::kF32;
};

}  // namespace vllm::weights
