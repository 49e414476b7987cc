// One model's weights and configuration, whatever they are stored in: GGUF (whole or split),
// safetensors (single or sharded), or nothing (random weights for a config.json). Parsing only:
// nothing is unpacked or converted here.
//
//   auto checkpoint = Checkpoint::Open("SmolLM2.gguf", {});
//   for (const auto& [name, info] : (*checkpoint)->tensors()) { auto bytes =
//   (*checkpoint)->Data(name); ... DropPages(name); }
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "vllm/weights/config.h"
#include "vt/ir/dtype.h"

namespace vllm::weights {

class GgufMetadata;

struct OpenOptions {
  bool dummy =
      false;  // --load-format dummy: random weights; the path is a config.json or its folder
  std::string quantization;  // of dummy weights: a llama.cpp mix such as "Q4_K_M"; empty: the
                             // configuration's dtype
  uint64_t seed = 0;         // of dummy weights
};

// A range of a file.
struct TensorPiece {
  int file = 0;         // index into files(); below zero: made of stored codes and scales
  uint64_t offset = 0;  // from the file's begin
  uint64_t bytes = 0;
};

// "[2, 3]".
std::string ShapeText(const std::vector<int64_t>& shape);

struct TensorInfo {
  vt::ir::DType dtype = vt::ir::DType::kF32;
  std::vector<int64_t> shape;  // outermost first; empty for a scalar
  // Where its bytes are, in order; several for a tensor that is made of row ranges of others
  // (virtual_tensors.h). Empty for random weights.
  std::vector<TensorPiece> pieces;
  uint64_t bytes = 0;
  // Of a tensor whose values don't stand one after another in its one piece: values between
  // neighbours of each dimension (LayerTensors::View). Of block formats the last is 1.
  std::vector<int64_t> strides = {};
  // Of one with strides whose pieces are in a block format, and which is f32 when it is read: that
  // format.
  std::optional<vt::ir::DType> stored = std::nullopt;
};

// After Open, const methods are thread-safe.
class Checkpoint {
 public:
  // `path`: a .gguf (of a split model: any part), a folder with one GGUF model, or a folder with
  // config.json and
  // *.safetensors. Errors are one sentence that names file and field.
  static base::Result<std::unique_ptr<Checkpoint>> Open(const std::string& path,
                                                        const OpenOptions& options);
  virtual ~Checkpoint() = default;

  const Config& config() const { return config_; }

  // By canonical name (see name_map.h). Tensors of a GGUF that have no canonical name keep the
  // file's. GGUF's rope_freqs.weight is not here: it's in config().rope.
  const std::map<std::string, TensorInfo>& tensors() const { return tensors_; }
  const TensorInfo* Find(const std::string& name) const;

  // The tensor of that name, which must have that shape. Random weights: declares the tensor if
  // it's new, so this is not thread-safe there. Errors: kNotFound, kCorrupt for another shape.
  virtual base::Result<TensorInfo> Want(const std::string& name, const std::vector<int64_t>& shape);

  // A tensor's bytes. Files: a view of the map, valid as long as the checkpoint. Random weights:
  // made by the first call and valid until DropPages. Plain types are aligned to their size only
  // where the file aligns them: safetensors may not. A tensor of several pieces is copied together
  // by the first call; the copy is valid until DropPages. Errors: kNotFound.
  virtual base::Result<std::span<const std::byte>> Data(const std::string& name) const = 0;
  // Bytes [begin, end) of it, without a copy where one piece holds them: of a tensor of experts
  // [E, N, K] those of one expert. Where no piece holds them, valid until the next range of the
  // same tensor that none holds. REQUIRES: begin <= end <= the tensor's bytes.
  virtual base::Result<std::span<const std::byte>> Range(const std::string& name, uint64_t begin,
                                                         uint64_t end) const;

  // Where in files() the piece's bytes are; of one that is made, where all its codes are.
  virtual TensorPiece Stored(const TensorPiece& piece) const { return piece; }

  // The tensor's bytes are not needed for now: gives memory back. A later Data() brings the same
  // bytes.
  virtual void DropPages(const std::string& name) const = 0;
  // Likewise bytes [begin, end) of it, where they come from a file.
  virtual void DropBytes(const std::string&, int64_t /*begin*/, int64_t /*end*/) const {}

  bool is_gguf() const { return gguf() != nullptr; }
  virtual const GgufMetadata* gguf() const { return nullptr; }      // null unless is_gguf()
  const std::vector<std::string>& files() const { return files_; }  // paths
  const std::string& directory() const {
    return directory_;
  }  // where tokenizer.json and the like would be

 protected:
  Config config_;
  std::map<std::string, TensorInfo> tensors_;
  std::vector<std::string> files_;
  std::string directory_;
};

}  // namespace vllm::weights
