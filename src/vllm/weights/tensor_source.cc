#include "vllm/weights/tensor_source.h"

#include <algorithm>
#include <charconv>
#include <unordered_map>

#include "base/os/file.h"
#include "base/strings.h"
#include "vllm/weights/gguf.h"
#include "vllm/weights/safetensors_source.h"
#include "vt/ir/quant.h"

namespace vllm::weights {
namespace {

using base::Code;
using base::Error;
using base::Printable;
using base::Result;
using base::Status;

class GgufSource final : public TensorSource {
 public:
  bool is_gguf() const override { return true; }

  Status Load(const std::string& path) {
    const Result<std::vector<std::string>> parts = FindGgufParts(path);
    if (!parts) return parts.error();
    files_ = *parts;
    maps_.reserve(files_.size());
    for (size_t i = 0; i < files_.size(); ++i) {
      const Status status = AddPart(i);
      if (!status) return status.error().In(files_[i]);
    }
    if (tensors_.empty()) return Error{Code::kCorrupt, files_[0] + ": holds no tensors"};
    return {};
  }

  void Read(const Tensor& t, int64_t first, int64_t rows, float* out) const override {
    const Place& place = places_.at(t.name);
    const auto begin = static_cast<size_t>(vt::ir::Bytes(t.dtype, first * t.Row()));
    vt::ir::Dequantize(t.dtype, maps_[place.file].bytes().data() + place.offset + begin, out,
                       rows * t.Row());
  }
  std::span<const std::byte> Stored(const Tensor& t) const override {
    const Place& place = places_.at(t.name);
    return maps_[place.file].bytes().subspan(place.offset, place.bytes);
  }
  void Drop(const Tensor& t) const override {
    const Place& place = places_.at(t.name);
    maps_[place.file].DropPages(place.offset, place.bytes);
  }

 private:
  struct Place {
    size_t file = 0, offset = 0, bytes = 0;
  };

  Status AddPart(size_t index) {
    Result<base::os::MappedFile> map = base::os::MappedFile::Open(files_[index]);
    if (!map) return map.error();
    maps_.push_back(*std::move(map));
    const Result<GgufFile> file = ParseGguf(maps_.back().bytes());
    if (!file) return file.error();
    const Result<GgufSplit> split = SplitOf(file->metadata);
    if (!split) return split.error();
    if (split->count != static_cast<int64_t>(files_.size()) ||
        split->no != static_cast<int64_t>(index)) {
      return Error{Code::kCorrupt,
                   fmt::format("its metadata says part {} of {}, its name part {} of {}",
                               split->no + 1, split->count, index + 1, files_.size())};
    }
    for (const GgufTensor& t : file->tensors) {
      if (!places_.emplace(t.name, Place{index, t.offset, t.bytes}).second)
        return Error{Code::kCorrupt,
                     fmt::format("tensor '{}' is in another part too", Printable(t.name))};
      tensors_.push_back({t.name, t.dtype, t.shape});
    }
    if (index > 0) return {};
    for (const std::string_view key : file->metadata.keys()) {
      if (base::StartsWith(key, "split.") || key == "general.alignment" ||
          key == "general.file_type" || key == "general.quantization_version")
        continue;
      keys_.Copy(key, *file->metadata.Find(key));
    }
    return ReadMixModel(file->metadata);
  }

  // One number, or the largest of a number a layer.
  static Result<int64_t> Largest(const GgufMetadata& m, const std::string& key, int64_t fallback) {
    const GgufValue* v = m.Find(key);
    if (v == nullptr || v->type != GgufType::kArray) return m.Int(key, fallback);
    const Result<std::vector<int64_t>> list = m.Ints(key);
    if (!list) return list.error();
    return list->empty() ? fallback : *std::max_element(list->begin(), list->end());
  }

  Status ReadMixModel(const GgufMetadata& m) {
    const Result<std::string_view> architecture = m.String("general.architecture");
    if (!architecture) return architecture.error();
    const auto key = [&](const char* name) { return fmt::format("{}.{}", *architecture, name); };
    const Result<int64_t> layers = m.Int(key("block_count"), 0);
    const Result<int64_t> heads = Largest(m, key("attention.head_count"), 1);
    const Result<int64_t> experts = m.Int(key("expert_count"), 0);
    for (const Result<int64_t>* r : {&layers, &heads, &experts}) {
      if (!*r) return r->error();
    }
    const Result<int64_t> kv_heads = Largest(m, key("attention.head_count_kv"), *heads);
    if (!kv_heads) return kv_heads.error();
    mix_model_.layers = *layers;
    mix_model_.heads_per_kv_head = *kv_heads > 0 ? *heads / *kv_heads : 1;
    mix_model_.experts = *experts;
    return {};
  }

  std::vector<base::os::MappedFile> maps_;
  std::unordered_map<std::string, Place> places_;
};

// What the mix's rules look at and the tensors say.
void CompleteMixModel(const std::vector<TensorSource::Tensor>& tensors, MixModel& model) {
  model.tied_embeddings = true;
  for (const TensorSource::Tensor& t : tensors) {
    if (t.name == "output.weight") model.tied_embeddings = false;
    if (!Mix::IsValue(t.name) || !base::StartsWith(t.name, "blk.")) continue;
    int64_t layer = 0;
    std::from_chars(t.name.data() + 4, t.name.data() + t.name.size(), layer);
    model.value_layers.push_back(layer);
  }
  std::vector<int64_t>& layers = model.value_layers;
  std::sort(layers.begin(), layers.end());
  layers.erase(std::unique(layers.begin(), layers.end()), layers.end());
}

}  // namespace

int64_t TensorSource::Tensor::Count() const {
  int64_t n = 1;
  for (const int64_t d : shape) n *= d;
  return n;
}

int64_t TensorSource::vocab_size() const {
  for (const Tensor& t : tensors_) {
    if (t.name == "token_embd.weight" && t.shape.size() == 2) return t.shape[0];
  }
  return 0;
}

Result<std::unique_ptr<TensorSource>> TensorSource::Open(const std::string& path) {
  std::unique_ptr<TensorSource> out;
  bool gguf = !base::EndsWith(path, ".safetensors") && !base::EndsWith(path, "config.json");
  if (base::os::IsDirectory(path)) {
    const Result<std::vector<std::string>> names = base::os::ListDirectory(path);
    if (!names) return names.error();
    const auto any = [&](std::string_view suffix) {
      return std::any_of(names->begin(), names->end(),
                         [&](const std::string& n) { return base::EndsWith(n, suffix); });
    };
    const bool safetensors = any(".safetensors") || any(".safetensors.index.json");
    if (!safetensors && !any(".gguf"))
      return Error{Code::kNotFound, path + ": neither *.safetensors nor *.gguf in this folder"};
    gguf = !safetensors;
  } else if (!base::os::FileExists(path)) {
    return Error{Code::kNotFound, path + ": no such file or folder"};
  }
  if (gguf) {
    auto source = std::make_unique<GgufSource>();
    const Status status = source->Load(path);
    if (!status) return status.error();
    out = std::move(source);
  } else {
    Result<std::unique_ptr<TensorSource>> source = OpenSafetensorsSource(path);
    if (!source) return source.error();
    out = *std::move(source);
  }
  CompleteMixModel(out->tensors_, out->mix_model_);
  return out;
}

}  // namespace vllm::weights
