// A model as a GGUF file would hold it, whatever it is stored in: tensors under GGUF's names and in
// its layout, read as f32 piece by piece, and the metadata that goes with them. For writers of GGUF
// files; the engine reads models through Checkpoint.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "vllm/weights/gguf_writer.h"
#include "vllm/weights/mix.h"
#include "vt/ir/dtype.h"

namespace vllm::weights {

// After Open, const methods are thread-safe.
class TensorSource {
 public:
  struct Tensor {
    std::string name;  // GGUF's
    vt::ir::DType dtype = vt::ir::DType::kF32;
    std::vector<int64_t> shape;  // outermost first
    int64_t Row() const { return shape.empty() ? 1 : shape.back(); }
    int64_t Count() const;
  };

  // `path`: a .gguf of any architecture (of a split model: any part), or a folder with config.json
  // and
  // *.safetensors of a family that we know.
  static base::Result<std::unique_ptr<TensorSource>> Open(const std::string& path);
  virtual ~TensorSource() = default;

  const std::vector<Tensor>& tensors() const { return tensors_; }
  // Without general.file_type. Of safetensors: without the tokenizer's, which is not this room's.
  const GgufKeys& keys() const { return keys_; }
  const MixModel& mix_model() const { return mix_model_; }
  const std::vector<std::string>& files() const { return files_; }
  virtual bool is_gguf() const = 0;
  // Rows of the token embedding: how many tokens the file must name.
  int64_t vocab_size() const;

  // Rows [first, first + rows) of a tensor (all but the last dimension flattened), as f32.
  virtual void Read(const Tensor& tensor, int64_t first, int64_t rows, float* out) const = 0;
  // A tensor's bytes, where a GGUF file may hold the very same; else empty.
  virtual std::span<const std::byte> Stored(const Tensor& tensor) const = 0;
  // Gives the memory of what was read back.
  virtual void Drop(const Tensor& tensor) const = 0;

 protected:
  std::vector<Tensor> tensors_;
  GgufKeys keys_;
  MixModel mix_model_;
  std::vector<std::string> files_;
};

}  // namespace vllm::weights
