#include "vllm/weights/safetensors_source.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <map>

#include "base/strings.h"
#include "vllm/weights/checkpoint.h"
#include "vllm/weights/config_to_gguf.h"
#include "vllm/weights/family.h"
#include "vllm/weights/name_map.h"
#include "vt/ir/quant.h"

namespace vllm::weights {
namespace {

using base::Code;
using base::Error;
using base::Printable;
using base::Result;
using base::Status;
using vt::ir::DType;

constexpr std::string_view kRopeDivisors = "rope_freqs.weight";

class SafetensorsSource final : public TensorSource {
 public:
  bool is_gguf() const override { return false; }

  Status Load(const std::string& path) {
    Result<std::unique_ptr<Checkpoint>> opened = Checkpoint::Open(path, {});
    if (!opened) return opened.error();
    checkpoint_ = *std::move(opened);
    const Config& c = checkpoint_->config();
    files_ = checkpoint_->files();
    const Status status = ConfigToGguf(c, keys_);
    if (!status) return status.error().In(checkpoint_->directory() + "/config.json");
    std::error_code ec;
    const std::filesystem::path folder = std::filesystem::canonical(checkpoint_->directory(), ec);
    if (!ec) keys_.String("general.name", folder.filename().string());
    mix_model_ = {.layers = c.num_hidden_layers, .heads_per_kv_head = c.num_heads / c.num_kv_heads};
    return ReadTensors(c);
  }

  void Read(const Tensor& t, int64_t first, int64_t rows, float* out) const override {
    if (t.name == kRopeDivisors) {
      std::copy(divisors_.begin(), divisors_.end(), out);
      return;
    }
    const Origin& stored = origins_.at(t.name);
    const std::span<const std::byte> bytes = *checkpoint_->Data(stored.name);
    const int64_t row = t.Row();
    if (stored.heads == 0) {
      vt::ir::Dequantize(t.dtype, bytes.data() + vt::ir::Bytes(t.dtype, first * row), out,
                         rows * row);
    } else {
      // Values of a vector stand like rows of a matrix.
      const bool vector = t.shape.size() == 1;
      const int64_t width = vector ? 1 : row, begin = vector ? 0 : first, n = vector ? row : rows;
      for (int64_t i = 0; i < n; ++i) {
        const int64_t from = Uninterleaved(begin + i, stored);
        vt::ir::Dequantize(t.dtype, bytes.data() + vt::ir::Bytes(t.dtype, from * width),
                           out + i * width, width);
      }
    }
    if (stored.add != 0) {
      for (int64_t i = 0; i < rows * row; ++i) out[i] += stored.add;
    }
  }

  std::span<const std::byte> Stored(const Tensor& t) const override {
    if (t.name == kRopeDivisors) return std::as_bytes(std::span<const float>(divisors_));
    const Origin& stored = origins_.at(t.name);
    if (stored.heads != 0 || stored.add != 0) return {};
    return *checkpoint_->Data(stored.name);
  }

  void Drop(const Tensor& t) const override {
    const auto it = origins_.find(t.name);
    if (it != origins_.end()) checkpoint_->DropPages(it->second.name);
  }

 private:
  // How a tensor differs from what is stored.
  struct Origin {
    std::string name;
    int64_t heads = 0, head_dim = 0;  // of rows that GGUF interleaves; 0: as they are
    float add = 0;
  };

  // GGUF's llama rotates neighbouring rows, Hugging Face's rows half a head apart.
  static int64_t Uninterleaved(int64_t row, const Origin& s) {
    const int64_t head = row / s.head_dim, in = row % s.head_dim;
    return head * s.head_dim + in % 2 * (s.head_dim / 2) + in / 2;
  }

  Status ReadTensors(const Config& c) {
    const bool llama = c.family == "llama" || c.family == "mistral";
    const Result<std::map<std::string, std::vector<int64_t>>> expected = ExpectedTensors(c);
    if (!expected) return expected.error();
    for (const auto& [name, shape] : *expected) {
      // Without a word on it, a missing head is the embedding.
      if (name == "lm_head.weight" && !c.tie_word_embeddings && checkpoint_->Find(name) == nullptr)
        continue;
      const Result<TensorInfo> wanted = checkpoint_->Want(name, shape);
      if (!wanted) return wanted.error();
    }
    for (const auto& [name, info] : checkpoint_->tensors()) {
      if (base::EndsWith(name, "rotary_emb.inv_freq")) continue;  // follows from the configuration
      if (name == "lm_head.weight" && !expected->contains(name)) continue;  // tied
      const std::optional<std::string> gguf = GgufFromHf(c.family, name);
      if (!gguf) {
        return Error{Code::kUnsupported, fmt::format("{}: tensor '{}' has no name in GGUF for {}",
                                                     files_[0], Printable(name), c.family)};
      }
      if (info.dtype != DType::kF32 && info.dtype != DType::kF16 && info.dtype != DType::kBF16) {
        return Error{Code::kUnsupported,
                     fmt::format("{}: tensor '{}' is {}; f32, f16 and bf16 are converted",
                                 files_[0], Printable(name), vt::ir::Name(info.dtype))};
      }
      Origin stored{.name = name};
      const bool q = name.find("self_attn.q_proj.") != std::string::npos;
      const bool k = name.find("self_attn.k_proj.") != std::string::npos;
      if (llama && (q || k)) {
        stored.heads = q ? c.num_heads : c.num_kv_heads;
        stored.head_dim = c.head_dim;
      }
      if (base::EndsWith(name, "norm.weight")) stored.add = c.norm_weight_offset;
      tensors_.push_back({*gguf, info.dtype, info.shape});
      origins_.emplace(*gguf, std::move(stored));
    }
    divisors_ = RopeDivisors(c);
    if (!divisors_.empty()) {
      tensors_.push_back(
          {std::string(kRopeDivisors), DType::kF32, {static_cast<int64_t>(divisors_.size())}});
    }
    return {};
  }

  std::unique_ptr<Checkpoint> checkpoint_;
  std::map<std::string, Origin> origins_;  // by GGUF name
  std::vector<float> divisors_;
};

}  // namespace

Result<std::unique_ptr<TensorSource>> OpenSafetensorsSource(const std::string& path) {
  auto source = std::make_unique<SafetensorsSource>();
  const Status status = source->Load(path);
  if (!status) return status.error();
  return std::unique_ptr<TensorSource>(std::move(source));
}

}  // namespace vllm::weights
