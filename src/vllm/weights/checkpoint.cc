#include "vllm/weights/checkpoint.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <mutex>
#include <set>
#include <unordered_map>
#include <utility>

#include "base/json.h"
#include "base/os/file.h"
#include "base/strings.h"
#include "vllm/weights/config_rope.h"
#include "vllm/weights/dummy.h"
#include "vllm/weights/family.h"
#include "vllm/weights/gguf.h"
#include "vllm/weights/mix.h"
#include "vllm/weights/name_map.h"
#include "vllm/weights/quantised_tensors.h"
#include "vllm/weights/safetensors.h"
#include "vllm/weights/virtual_tensors.h"
#include "vt/ir/quant.h"

namespace vllm::weights {
namespace {

using base::Code;
using base::Error;
using base::Printable;
using base::Result;
using base::Status;
using base::os::MappedFile;

std::string FolderOf(const std::string& path) {
  const size_t slash = path.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

// The values of whole blocks as f32.
std::vector<std::byte> Expand(std::span<const std::byte> blocks, vt::ir::DType from) {
  const vt::ir::DTypeInfo& block = vt::ir::Info(from);
  const int64_t count = static_cast<int64_t>(blocks.size()) / block.bytes * block.block;
  std::vector<float> values(static_cast<size_t>(count));
  vt::ir::Dequantize(from, blocks.data(), values.data(), count);
  const std::span<const std::byte> bytes = std::as_bytes(std::span<const float>(values));
  return {bytes.begin(), bytes.end()};
}

// The values of a tensor with strides, one after another.
std::vector<std::byte> GatherStrided(const TensorInfo& info, std::span<const std::byte> stored) {
  std::vector<std::byte> expanded;
  if (info.stored) stored = expanded = Expand(stored, *info.stored);
  std::vector<std::byte> out(info.bytes);
  const size_t rank = info.shape.size();
  // As many values as stand together are one.
  const int64_t run = info.strides.back() == 1 ? info.shape.back() : 1;
  const int64_t count = run == 1 ? info.shape.back() : 1;
  const auto size = static_cast<size_t>(vt::ir::Bytes(info.dtype, run));
  std::byte* to = out.data();
  std::vector<int64_t> at(rank, 0);
  while (to < out.data() + out.size()) {
    int64_t from = 0;
    for (size_t d = 0; d + 1 < rank; ++d) from += at[d] * info.strides[d];
    for (int64_t i = 0; i < count; ++i, to += size) {
      const int64_t value = from + i * info.strides.back();
      std::memcpy(to, stored.data() + vt::ir::Bytes(info.dtype, value), size);
    }
    for (size_t d = rank - 1; d-- > 0 && ++at[d] == info.shape[d];) at[d] = 0;
  }
  return out;
}

// Tensors in mapped files.
class MappedCheckpoint : public Checkpoint {
 public:
  Result<std::span<const std::byte>> Data(const std::string& name) const override {
    const TensorInfo* info = Find(name);
    if (info == nullptr)
      return Error{Code::kNotFound,
                   fmt::format("tensor '{}' is missing in {}", Printable(name), files_[0])};
    if (info->pieces.size() == 1 && info->strides.empty() && IsMapped(info->pieces[0]))
      return View(info->pieces[0]);
    const std::lock_guard lock(mutex_);
    const auto known = joined_.find(name);
    if (known != joined_.end()) return std::span<const std::byte>(known->second);
    std::vector<std::byte> bytes;
    if (info->strides.empty()) {
      const Status status = Append(*info, 0, info->bytes, bytes);
      if (!status) return status.error();
    } else if (IsMapped(info->pieces[0])) {
      bytes = GatherStrided(*info, View(info->pieces[0]));
    } else {
      const TensorPiece& p = info->pieces[0];
      std::vector<std::byte> made;
      const Status status = AppendMade(p, 0, p.bytes, made);
      if (!status) return status.error();
      bytes = GatherStrided(*info, made);
    }
    return std::span<const std::byte>(joined_.emplace(name, std::move(bytes)).first->second);
  }
  Result<std::span<const std::byte>> Range(const std::string& name, uint64_t begin,
                                           uint64_t end) const override {
    const TensorInfo* info = Find(name);
    if (info == nullptr) return Data(name);
    if (!info->strides.empty()) return Checkpoint::Range(name, begin, end);
    uint64_t at = 0;
    for (const TensorPiece& p : info->pieces) {
      if (begin >= at && end <= at + p.bytes && IsMapped(p))
        return View(p).subspan(begin - at, end - begin);
      at += p.bytes;
    }
    const std::lock_guard lock(mutex_);
    std::vector<std::byte>& bytes = ranges_[name];
    bytes.clear();
    const Status status = Append(*info, begin, end, bytes);
    if (!status) return status.error();
    return std::span<const std::byte>(bytes);
  }
  TensorPiece Stored(const TensorPiece& piece) const override {
    return IsMapped(piece) ? piece : QuantisedOf(piece).codes;
  }
  void DropPages(const std::string& name) const override {
    const TensorInfo* info = Find(name);
    if (info == nullptr) return;
    DropBytes(name, 0, static_cast<int64_t>(info->bytes));
    const std::lock_guard lock(mutex_);
    joined_.erase(name);
    ranges_.erase(name);
  }
  void DropBytes(const std::string& name, int64_t begin, int64_t end) const override {
    const TensorInfo* info = Find(name);
    if (info == nullptr) return;
    int64_t at = 0;  // of the piece in the tensor
    for (const TensorPiece& p : info->pieces) {
      const auto size = static_cast<int64_t>(p.bytes);
      const int64_t from = std::max(begin - at, int64_t{0}), to = std::min(end - at, size);
      if (from < to && !IsMapped(p)) {
        // Its rows may stand side by side there, so all of it or nothing.
        const QuantisedTensor& t = QuantisedOf(p);
        for (const TensorPiece& part : {t.codes, t.scales, t.zeros}) {
          if (to == size) maps_[static_cast<size_t>(part.file)].DropPages(part.offset, part.bytes);
        }
      } else if (from < to) {
        maps_[static_cast<size_t>(p.file)].DropPages(p.offset + static_cast<uint64_t>(from),
                                                     static_cast<size_t>(to - from));
      }
      at += size;
    }
  }

 protected:
  Status Map(const std::string& path) {
    Result<MappedFile> map = MappedFile::Open(path);
    if (!map) return map.error();
    maps_.push_back(*std::move(map));
    files_.push_back(path);
    return {};
  }
  // After all files are read.
  Status Finish() {
    const Status status = MakeVirtualTensors(config_, tensors_);
    return status ? CheckRouters() : status.error().In(files_[0]);
  }
  std::vector<MappedFile> maps_;
  std::vector<QuantisedTensor> quantised_;  // pieces with a file below zero are of these

  std::span<const std::byte> View(const TensorPiece& p) const {
    return maps_[static_cast<size_t>(p.file)].bytes().subspan(p.offset, p.bytes);
  }

 private:
  static bool IsMapped(const TensorPiece& p) { return p.file >= 0; }
  const QuantisedTensor& QuantisedOf(const TensorPiece& p) const {
    return quantised_[static_cast<size_t>(-1 - p.file)];
  }
  // Bytes [begin, end) of a tensor without strides, behind those of `out`.
  Status Append(const TensorInfo& info, uint64_t begin, uint64_t end,
                std::vector<std::byte>& out) const {
    out.reserve(end - begin);
    uint64_t at = 0;
    for (const TensorPiece& p : info.pieces) {
      const uint64_t from = std::max(begin, at), to = std::min(end, at + p.bytes);
      if (from < to && IsMapped(p)) {
        const std::span<const std::byte> part = View(p).subspan(from - at, to - from);
        out.insert(out.end(), part.begin(), part.end());
      } else if (from < to) {
        const Status status = AppendMade(p, from - at, to - at, out);
        if (!status) return status;
      }
      at += p.bytes;
    }
    return {};
  }
  // Likewise of a piece whose blocks are made: in whole rows.
  Status AppendMade(const TensorPiece& p, uint64_t begin, uint64_t end,
                    std::vector<std::byte>& out) const {
    const QuantisedTensor& t = QuantisedOf(p);
    const auto row = static_cast<uint64_t>(t.RowBytes());
    const uint64_t first = (p.offset + begin) / row, last = (p.offset + end + row - 1) / row;
    std::vector<std::byte> rows((last - first) * row);
    const Status status = MakeBlocks(
        t, [this](const TensorPiece& part) { return View(part); }, static_cast<int64_t>(first),
        static_cast<int64_t>(last - first), rows.data());
    if (!status) return status.error().In(files_[0]);
    const auto from = rows.begin() + static_cast<ptrdiff_t>(p.offset + begin - first * row);
    out.insert(out.end(), from, from + static_cast<ptrdiff_t>(end - begin));
    return {};
  }
  // A router that isn't a number chooses no expert, and a model without experts still writes text.
  Status CheckRouters() const {
    for (int64_t layer = 0; layer < config_.num_hidden_layers; ++layer) {
      const std::string name = fmt::format("model.layers.{}.mlp.gate.weight", layer);
      const TensorInfo* info = config_.IsSparse(layer) ? Find(name) : nullptr;
      if (info == nullptr) continue;
      int64_t count = 1;
      for (const int64_t n : info->shape) count *= n;
      const Result<std::span<const std::byte>> data = Data(name);
      if (!data) return data.error();
      const std::vector<std::byte> aligned(data->begin(), data->end());
      std::vector<float> values(static_cast<size_t>(count));
      vt::ir::Dequantize(info->dtype, aligned.data(), values.data(), count);
      if (!std::all_of(values.begin(), values.end(), [](float f) { return std::isfinite(f); })) {
        return Error{Code::kCorrupt,
                     fmt::format("{}: tensor '{}' holds values that are no numbers, so it can't "
                                 "choose experts",
                                 files_[0], name)};
      }
    }
    return {};
  }

  mutable std::mutex mutex_;
  // Guarded by mutex_: whole tensors, and the last range that was asked for of others.
  mutable std::map<std::string, std::vector<std::byte>> joined_, ranges_;
};

class GgufCheckpoint final : public MappedCheckpoint {
 public:
  const GgufMetadata* gguf() const override { return &parts_[0].metadata; }

  Status Load(const std::string& path) {
    const Result<std::vector<std::string>> paths = FindGgufParts(path);
    if (!paths) return paths.error();
    directory_ = FolderOf(paths->front());
    parts_.reserve(paths->size());
    for (size_t i = 0; i < paths->size(); ++i) {
      const std::string& file = (*paths)[i];
      Status status = Map(file);
      if (!status) return status;
      Result<GgufFile> part = ParseGguf(maps_.back().bytes());
      if (!part) return part.error().In(file);
      status = CheckPart(*part, i, paths->size());
      if (!status) return status.error().In(file);
      parts_.push_back(*std::move(part));
    }
    const Status status = CheckTotal();
    return status ? ReadModel() : status;
  }

 private:
  // A part knows its own place: names may have been changed, or parts joined.
  Status CheckPart(const GgufFile& part, size_t index, size_t count) {
    const Result<GgufSplit> split = SplitOf(part.metadata);
    if (!split) return split.error();
    const std::span<const std::byte> bytes = maps_.back().bytes();
    const bool more = part.data_end + 4 <= bytes.size();
    const bool gguf_follows = more && std::memcmp(bytes.data() + part.data_end, "GGUF", 4) == 0;
    if (gguf_follows || (more && split->count > 1)) {
      const std::string which = split->count > 1
                                    ? fmt::format("part {} of {}", split->no + 1, split->count)
                                    : "a GGUF file";
      return Error{
          Code::kCorrupt,
          fmt::format(
              "this is {} with data after it; parts must not be joined with cat: keep them as "
              "files of their own",
              which)};
    }
    if (split->count == 1 && count == 1) return {};
    if (split->count == 1) {
      return Error{
          Code::kCorrupt,
          fmt::format(
              "its name says part {} of {}, but it is a whole model or has lost its split.* keys",
              index + 1, count)};
    }
    if (count == 1) {
      return Error{Code::kInvalidArgument,
                   fmt::format("this is part {} of {}, but its name doesn't end in "
                               "-{:05}-of-{:05}.gguf, so the other parts can't "
                               "be found; give all parts their names back",
                               split->no + 1, split->count, split->no + 1, split->count)};
    }
    if (split->no != static_cast<int64_t>(index) || split->count != static_cast<int64_t>(count)) {
      return Error{
          Code::kCorrupt,
          fmt::format("out of order: its name says part {} of {}, its metadata part {} of {}",
                      index + 1, count, split->no + 1, split->count)};
    }
    return {};
  }

  Status CheckTotal() {
    const Result<GgufSplit> split = SplitOf(parts_[0].metadata);
    if (!split) return split.error().In(files_[0]);
    int64_t total = 0;
    for (const GgufFile& part : parts_) total += static_cast<int64_t>(part.tensors.size());
    if (split->count > 1 && split->tensors >= 0 && split->tensors != total) {
      return Error{Code::kCorrupt,
                   fmt::format("{}: split.tensors.count is {}, but the {} parts hold {}", files_[0],
                               split->tensors, split->count, total)};
    }
    return {};
  }

  Status ReadModel() {
    std::unordered_map<std::string_view, const GgufTensor*> by_name;
    for (size_t i = 0; i < parts_.size(); ++i) {
      for (const GgufTensor& t : parts_[i].tensors) {
        if (!by_name.emplace(t.name, &t).second) {
          return Error{Code::kCorrupt, fmt::format("{}: tensor '{}' is in another part too",
                                                   files_[i], Printable(t.name))};
        }
      }
    }
    Result<Config> config = ConfigFromGguf(parts_[0].metadata, [&](const std::string& name) {
      const auto it = by_name.find(name);
      return it == by_name.end() ? std::vector<int64_t>{} : it->second->shape;
    });
    if (!config) return config.error().In(files_[0]);
    config_ = *std::move(config);
    for (size_t i = 0; i < parts_.size(); ++i) {
      for (const GgufTensor& t : parts_[i].tensors) {
        if (IsRopeTensor(t.name)) {
          const Status status = ReadRopeTensor(t, i);
          if (!status) return status.error().In(files_[i]);
          continue;
        }
        TensorInfo info{t.dtype, t.shape, {{static_cast<int>(i), t.offset, t.bytes}}, t.bytes};
        tensors_.emplace(HfFromGguf(config_.family, t.name).value_or(t.name), std::move(info));
      }
    }
    if (config_.rope.type == "longrope") {
      const Status status = CheckRope("rope_factors_short.weight, rope_factors_long.weight",
                                      config_.max_position_embeddings, config_.rope);
      if (!status) return status.error().In(files_[0]);
    }
    return Finish();
  }

  static bool IsRopeTensor(std::string_view name) {
    return name == "rope_freqs.weight" || name == "rope_factors_short.weight" ||
           name == "rope_factors_long.weight";
  }

  // Divisors of the frequencies: of every context, or of longrope's two.
  Status ReadRopeTensor(const GgufTensor& t, size_t file) {
    if (t.dtype != vt::ir::DType::kF32 || t.shape.size() != 1) {
      return Error{Code::kCorrupt, fmt::format("tensor '{}' must be an f32 vector, not {} {}",
                                               t.name, vt::ir::Name(t.dtype), ShapeText(t.shape))};
    }
    std::vector<float> factors(static_cast<size_t>(t.shape[0]));
    std::memcpy(factors.data(), maps_[file].bytes().data() + t.offset, t.bytes);
    if (!std::all_of(factors.begin(), factors.end(), [](float f) { return f > 0 && f < 2e30f; })) {
      return Error{Code::kCorrupt, fmt::format("tensor '{}' must hold positive numbers", t.name)};
    }
    for (Rope* rope : {&config_.rope, &config_.rope_local}) {
      if (rope == &config_.rope_local && FamilyOf(config_).own_local_rope) continue;
      if (t.name == "rope_freqs.weight") {
        rope->frequency_factors = factors;
        continue;
      }
      rope->type = "longrope";
      (t.name == "rope_factors_short.weight" ? rope->short_factor : rope->long_factor)
          .assign(factors.begin(), factors.end());
    }
    return {};
  }

  std::vector<GgufFile> parts_;
};

class SafetensorsCheckpoint final : public MappedCheckpoint {
 public:
  Status Load(const std::string& folder) {
    directory_ = folder;
    Result<Config> config = ConfigFromDirectory(folder);
    if (!config) return config.error();
    config_ = *std::move(config);
    Status status = LoadTensors(folder);
    if (status) status = JoinQuantisedTensors();
    return status ? Finish() : status;
  }

 private:
  Status JoinQuantisedTensors() {
    const Result<Quantisation> how = ReadQuantisation(config_.raw);
    if (!how) return how.error();
    Result<std::vector<QuantisedTensor>> made = JoinQuantised(
        *how, [this](const TensorPiece& p) { return View(p); }, tensors_);
    if (!made) return made.error().In(files_[0]);
    quantised_ = *std::move(made);
    return {};
  }

  using Index = std::map<std::string, std::string>;

  Status LoadTensors(const std::string& folder) {
    const std::string index = folder + "/model.safetensors.index.json";
    if (base::os::FileExists(index)) return LoadShards(index);
    const std::string single = folder + "/model.safetensors";
    if (base::os::FileExists(single)) return AddFile(single, nullptr);
    const Result<std::vector<std::string>> names = base::os::ListDirectory(folder);
    if (!names) return names.error();
    std::vector<std::string> found;
    for (const std::string& name : *names) {
      if (base::EndsWith(name, ".safetensors")) found.push_back(name);
    }
    if (found.size() == 1) return AddFile(folder + "/" + found[0], nullptr);
    if (found.empty())
      return Error{Code::kNotFound,
                   fmt::format("{}: no *.safetensors file in this folder", folder)};
    return Error{
        Code::kNotFound,
        fmt::format("{}: model.safetensors.index.json is missing, so it isn't known which of {} "
                    "*.safetensors files belong to the model",
                    folder, found.size())};
  }

  Status LoadShards(const std::string& index_path) {
    const Result<std::string> text = base::os::ReadFile(index_path, size_t{256} << 20);
    if (!text) return text.error();
    const Result<Index> index = ParseSafetensorsIndex(*text);
    if (!index) return index.error().In(index_path);
    std::set<std::string> shards;
    for (const auto& [tensor, file] : *index) shards.insert(file);
    if (shards.empty()) return Error{Code::kCorrupt, index_path + ": field 'weight_map' is empty"};
    for (const std::string& shard : shards) {
      const std::string path = directory_ + "/" + shard;
      if (!base::os::FileExists(path)) {
        return Error{Code::kNotFound,
                     fmt::format("{}: shard {} is missing", index_path, Printable(shard))};
      }
      const Status status = AddFile(path, &*index);
      if (!status) return status;
    }
    for (const auto& [tensor, file] : *index) {
      if (!seen_.contains(tensor)) {
        return Error{Code::kNotFound, fmt::format("{}: tensor '{}' should be in {}, but isn't",
                                                  index_path, Printable(tensor), file)};
      }
    }
    return {};
  }

  // `index`: null for a single file.
  Status AddFile(const std::string& path, const Index* index) {
    Status status = Map(path);
    if (!status) return status;
    const int file = static_cast<int>(maps_.size()) - 1;
    Result<std::vector<SafetensorsTensor>> tensors = ParseSafetensors(maps_.back().bytes());
    if (!tensors) return tensors.error().In(path);
    const std::string base_name = path.substr(path.rfind('/') + 1);
    for (SafetensorsTensor& t : *tensors) {
      if (index != nullptr) {
        const auto it = index->find(t.name);
        if (it == index->end() || it->second != base_name) {
          return Error{
              Code::kCorrupt,
              fmt::format(
                  "{}: tensor '{}' isn't listed for this file in model.safetensors.index.json",
                  path, Printable(t.name))};
        }
        seen_.insert(t.name);
      }
      const std::optional<std::string> name = CanonicalName(t.name, config_.audio.mel_bins > 0);
      if (!name) continue;
      TensorInfo info{t.dtype, std::move(t.shape), {{file, t.offset, t.bytes}}, t.bytes};
      if (!tensors_.emplace(*name, std::move(info)).second) {
        return Error{Code::kCorrupt,
                     fmt::format("{}: tensor '{}' is there twice under different prefixes", path,
                                 Printable(*name))};
      }
    }
    return {};
  }

  std::set<std::string> seen_;  // names in shards, as in the index
};

// Random weights. Bytes are made when they are asked for, so a model larger than memory can be
// measured shard by shard.
class DummyCheckpoint final : public Checkpoint {
 public:
  Status Load(const std::string& path, const OpenOptions& options) {
    if (base::EndsWith(path, ".gguf")) {
      return Error{Code::kInvalidArgument, path +
                                               ": random weights (--load-format dummy) need a "
                                               "config.json or its folder, not a GGUF"};
    }
    directory_ = base::os::IsDirectory(path) ? path : FolderOf(path);
    seed_ = options.seed;
    Result<Config> config = ConfigFromDirectory(directory_);
    if (!config) return config.error();
    config_ = *std::move(config);
    if (!options.quantization.empty()) {
      Result<Mix> mix = Mix::FromName(options.quantization);
      if (!mix) return mix.error();
      mix_ = *mix;
    }
    const Result<std::map<std::string, std::vector<int64_t>>> expected = ExpectedTensors(config_);
    if (!expected) return expected.error().In(directory_ + "/config.json");
    model_ = {.layers = config_.num_hidden_layers,
              .heads_per_kv_head = config_.num_heads / config_.num_kv_heads,
              .tied_embeddings = !expected->contains("lm_head.weight"),
              .experts = config_.experts.count};
    for (const auto& [name, shape] : *expected) {
      const Result<TensorInfo> made = Want(name, shape);
      if (!made) return made.error();
    }
    return {};
  }

  Result<TensorInfo> Want(const std::string& name, const std::vector<int64_t>& shape) override {
    if (Find(name) != nullptr) return Checkpoint::Want(name, shape);
    TensorInfo info;
    info.shape = shape;
    info.dtype = config_.dtype;
    // A name that GGUF doesn't know is no matrix that a mix has a rule for: the plain rule by
    // shape.
    if (mix_)
      info.dtype = mix_->Choose(model_, GgufFromHf(config_.family, name).value_or(name), shape);
    int64_t elements = 1;
    for (const int64_t d : shape) {
      if (d < 0 || __builtin_mul_overflow(elements, d, &elements) ||
          elements > (int64_t{1} << 48)) {
        return Error{Code::kInvalidArgument, fmt::format("tensor '{}': a shape of {} is too large",
                                                         Printable(name), ShapeText(shape))};
      }
    }
    info.bytes = static_cast<uint64_t>(vt::ir::Bytes(info.dtype, elements));
    tensors_[name] = info;
    return info;
  }

  Result<std::span<const std::byte>> Data(const std::string& name) const override {
    const TensorInfo* info = Find(name);
    if (info == nullptr)
      return Error{Code::kNotFound, fmt::format("tensor '{}' is missing", Printable(name))};
    const std::lock_guard lock(mutex_);
    auto [it, fresh] = made_.try_emplace(name);
    if (fresh) {
      // Memory that another tensor had: new pages cost more than what is written into them.
      const auto used = std::ranges::find_if(
          free_, [&](const auto& bytes) { return bytes.capacity() >= info->bytes; });
      if (used != free_.end()) {
        it->second = std::move(*used);
        free_.erase(used);
      }
      it->second.resize(info->bytes);
      // Norm weights are about one, counting what the model adds to them.
      const float offset =
          base::EndsWith(name, "linear_attn.norm.weight") ? 0 : config_.norm_weight_offset;
      const float mean = base::EndsWith(name, "norm.weight") ? 1 - offset : 0;
      FillRandom(name, seed_, info->dtype, mean, it->second);
    }
    return std::span<const std::byte>(it->second);
  }

  void DropPages(const std::string& name) const override {
    const std::lock_guard lock(mutex_);
    const auto it = made_.find(name);
    if (it == made_.end()) return;
    free_.push_back(std::move(it->second));
    made_.erase(it);
    // Smallest first, so that the first that is large enough is taken; the largest ones stay.
    std::ranges::sort(free_, {}, [](const auto& bytes) { return bytes.capacity(); });
    if (free_.size() > kMostFree) free_.erase(free_.begin());
  }

 private:
  std::optional<Mix> mix_;
  MixModel model_;
  uint64_t seed_ = 0;
  mutable std::mutex mutex_;
  mutable std::map<std::string, std::vector<std::byte>> made_;  // guarded by mutex_
  static constexpr size_t kMostFree = 4;
  mutable std::vector<std::vector<std::byte>> free_;  // guarded by mutex_
};

template <typename T, typename... Arguments>
Result<std::unique_ptr<Checkpoint>> Load(const Arguments&... arguments) {
  auto checkpoint = std::make_unique<T>();
  const Status status = checkpoint->Load(arguments...);
  if (!status) return status.error();
  return std::unique_ptr<Checkpoint>(std::move(checkpoint));
}

}  // namespace

std::string ShapeText(const std::vector<int64_t>& shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

const TensorInfo* Checkpoint::Find(const std::string& name) const {
  const auto it = tensors_.find(name);
  return it == tensors_.end() ? nullptr : &it->second;
}

Result<std::span<const std::byte>> Checkpoint::Range(const std::string& name, uint64_t begin,
                                                     uint64_t end) const {
  const Result<std::span<const std::byte>> all = Data(name);
  if (!all) return all.error();
  return all->subspan(begin, end - begin);
}

Result<TensorInfo> Checkpoint::Want(const std::string& name, const std::vector<int64_t>& shape) {
  const TensorInfo* info = Find(name);
  if (info == nullptr)
    return Error{Code::kNotFound, fmt::format("tensor '{}' is missing", Printable(name))};
  if (info->shape != shape) {
    return Error{Code::kCorrupt,
                 fmt::format("tensor '{}' has shape {}, the configuration asks for {}",
                             Printable(name), ShapeText(info->shape), ShapeText(shape))};
  }
  return *info;
}

Result<std::unique_ptr<Checkpoint>> Checkpoint::Open(const std::string& given,
                                                     const OpenOptions& options) {
  std::string path = given;
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  if (path.empty()) return Error{Code::kInvalidArgument, "the model's path is empty"};
  if (options.dummy) return Load<DummyCheckpoint>(path, options);
  if (!options.quantization.empty()) {
    return Error{Code::kInvalidArgument,
                 "--quantization is for random weights (--load-format dummy); stored weights are "
                 "used as they are"};
  }
  if (!base::os::IsDirectory(path)) {
    if (!base::os::FileExists(path))
      return Error{Code::kNotFound, path + ": no such file or folder"};
    const bool folder_of = base::EndsWith(path, ".safetensors") ||
                           base::EndsWith(path, "/config.json") || path == "config.json";
    return folder_of ? Load<SafetensorsCheckpoint>(FolderOf(path)) : Load<GgufCheckpoint>(path);
  }
  const Result<std::vector<std::string>> names = base::os::ListDirectory(path);
  if (!names) return names.error();
  const auto any = [&](std::string_view suffix) {
    return std::any_of(names->begin(), names->end(),
                       [&](const std::string& n) { return base::EndsWith(n, suffix); });
  };
  if (any(".safetensors") || any(".safetensors.index.json"))
    return Load<SafetensorsCheckpoint>(path);
  if (any(".gguf")) return Load<GgufCheckpoint>(path);
  return Error{Code::kNotFound,
               fmt::format("{}: neither *.safetensors nor *.gguf in this folder{}", path,
                           any("config.json")
                               ? "; --load-format dummy makes random weights for its config.json"
                               : "")};
}

}  // namespace vllm::weights
