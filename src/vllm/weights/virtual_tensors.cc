#include "vllm/weights/virtual_tensors.h"

#include <algorithm>
#include <cctype>
#include <string_view>
#include <utility>
#include <vector>

#include "base/strings.h"
#include "vllm/weights/family.h"

namespace vllm::weights {
namespace {

using base::Code;
using base::Error;
using base::Printable;
using base::Result;
using base::Status;
using Tensors = std::map<std::string, TensorInfo>;
using Shape = std::vector<int64_t>;

// Those rows of `t`, which has `rows` in all, one after another.
TensorInfo Gather(const TensorInfo& t, int64_t rows,
                  const std::vector<LayerTensors::Rows>& ranges) {
  TensorInfo out{t.dtype, t.shape, {}, 0};
  const uint64_t row_bytes = t.bytes / static_cast<uint64_t>(rows);
  for (const LayerTensors::Rows& r : ranges) {
    const TensorPiece piece{t.pieces[0].file,
                            t.pieces[0].offset + static_cast<uint64_t>(r.begin) * row_bytes,
                            static_cast<uint64_t>(r.count) * row_bytes};
    out.pieces.push_back(piece);
    out.bytes += piece.bytes;
  }
  return out;
}

// experts.gate_up_proj [E, 2N, K]: an expert's gate rows, then its up rows.
Status SplitGateUp(const Config& c, LayerTensors& layer) {
  const int64_t n = c.experts.intermediate_size;
  return layer.Split("mlp.experts.gate_up_proj.weight", c.experts.count,
                     {{"mlp.experts.gate_proj.weight", n}, {"mlp.experts.up_proj.weight", n}},
                     {c.hidden_size}, {c.experts.count});
}

// experts.<e>.<name> [N, K], one by one.
Status JoinExperts(const Config& c, LayerTensors& layer, const std::string& name, int64_t n,
                   int64_t k) {
  const std::string joined = "mlp.experts." + name;
  if (layer.Has(joined)) return {};
  TensorInfo all;
  for (int64_t e = 0; e < c.experts.count; ++e) {
    const std::string one = fmt::format("mlp.experts.{}.{}", e, name);
    Result<std::optional<TensorInfo>> expert = layer.Take(one, {n, k});
    if (!expert) return expert.error();
    if (!*expert) {
      if (e == 0) return {};  // none at all: the builder says which tensor it misses
      return Error{Code::kNotFound,
                   fmt::format("tensor '{}{}' is missing: the configuration has {} experts",
                               layer.prefix(), one, c.experts.count)};
    }
    if (e == 0) all.dtype = (*expert)->dtype;
    if ((*expert)->dtype != all.dtype) {
      return Error{Code::kUnsupported,
                   fmt::format("tensor '{}{}' is {}, expert 0 is {}: experts of a layer that "
                               "differ in type are not implemented",
                               layer.prefix(), one, vt::ir::Name((*expert)->dtype),
                               vt::ir::Name(all.dtype))};
    }
    all.bytes += (*expert)->bytes;
    all.pieces.push_back((*expert)->pieces[0]);
  }
  return layer.Put(joined, std::move(all), {c.experts.count, n, k});
}

Status MakeExperts(const Config& c, LayerTensors& layer) {
  const int64_t n = c.experts.intermediate_size, k = c.hidden_size;
  Status status = SplitGateUp(c, layer);
  if (!status) return status;
  for (const auto& [name, rows, columns] : {std::tuple{"gate_proj.weight", n, k},
                                            {"up_proj.weight", n, k},
                                            {"down_proj.weight", k, n}}) {
    status = JoinExperts(c, layer, name, rows, columns);
    if (!status) return status;
  }
  // What is left of single experts has no place.
  const std::string experts = layer.prefix() + "mlp.experts.";
  const auto left = layer.tensors().lower_bound(experts + "0");
  if (left != layer.tensors().end() && base::StartsWith(left->first, experts) &&
      std::isdigit(static_cast<unsigned char>(left->first[experts.size()])) != 0) {
    return Error{Code::kCorrupt, fmt::format("tensor '{}' is of no use: the configuration has {} "
                                             "experts",
                                             Printable(left->first), c.experts.count)};
  }
  layer.Reshape("mlp.shared_expert_gate.weight", {k}, {1, k});
  return {};
}

// Of the layers after the last, which only predict further tokens. GGUF's names that nothing else
// has stay as they are.
bool IsNextN(const Family& family, const Config& c, const std::string& name) {
  for (int64_t i = 0; i < c.nextn_layers; ++i) {
    for (const std::string_view layers : {family.layers, std::string_view("blk.")}) {
      if (base::StartsWith(name, fmt::format("{}{}.", layers, c.num_hidden_layers + i)))
        return true;
    }
  }
  return false;
}

bool IsIgnored(const Family& family, const std::string& name) {
  return std::any_of(family.ignored.begin(), family.ignored.end(),
                     [&](std::string_view end) { return base::EndsWith(name, end); });
}

// A stored name as ours. Experts in one tensor carry no ".weight".
std::string Renamed(const Family& family, std::string name) {
  for (const auto& [from, to] : family.renames) {
    const bool begin = base::StartsWith(from, "^");
    const std::string_view part = begin ? from.substr(1) : from;
    const size_t at = name.find(part);
    if (at != std::string::npos && !(begin && at > 0)) name.replace(at, part.size(), to);
  }
  if (family.experts && name.find(".mlp.experts.") != std::string::npos &&
      (base::EndsWith(name, ".gate_up_proj") || base::EndsWith(name, ".down_proj"))) {
    name += ".weight";
  }
  return name;
}

}  // namespace

bool LayerTensors::Has(const std::string& name) const { return tensors_.contains(prefix_ + name); }

Result<std::optional<TensorInfo>> LayerTensors::Take(const std::string& name, const Shape& shape) {
  const auto it = tensors_.find(prefix_ + name);
  if (it == tensors_.end()) return std::optional<TensorInfo>();
  if (it->second.shape != shape) {
    return Error{
        Code::kCorrupt,
        fmt::format("tensor '{}' has shape {}, the configuration asks for {}",
                    Printable(prefix_ + name), ShapeText(it->second.shape), ShapeText(shape))};
  }
  std::optional<TensorInfo> taken = std::move(it->second);
  tensors_.erase(it);
  return taken;
}

Status LayerTensors::Put(const std::string& name, TensorInfo info, Shape shape) {
  info.shape = std::move(shape);
  if (tensors_.emplace(prefix_ + name, std::move(info)).second) return {};
  return Error{Code::kCorrupt, fmt::format("tensor '{}' is there twice in different forms",
                                           Printable(prefix_ + name))};
}

void LayerTensors::Reshape(const std::string& name, const Shape& old, Shape shape) {
  const auto it = tensors_.find(prefix_ + name);
  if (it != tensors_.end() && it->second.shape == old) it->second.shape = std::move(shape);
}

Status LayerTensors::View(const std::string& from, const Shape& shape,
                          const std::vector<Strided>& parts) {
  Result<std::optional<TensorInfo>> all = Take(from, shape);
  if (!all) return all.error();
  if (!*all) return {};
  const TensorInfo& stored = **all;
  for (const Strided& part : parts) {
    TensorInfo info{stored.dtype, part.shape, stored.pieces, 0, part.strides};
    int64_t count = 1;
    for (const int64_t n : part.shape) count *= n;
    const int block = vt::ir::Info(stored.dtype).block;
    if (part.begin % block != 0) {
      return Error{Code::kUnsupported,
                   fmt::format("tensor '{}{}': parts within blocks of {} are not "
                               "implemented",
                               prefix_, from, vt::ir::Name(stored.dtype))};
    }
    if (block > 1 && (part.strides.back() != 1 || part.shape.back() % block != 0)) {
      info.dtype = vt::ir::DType::kF32;
      info.stored = stored.dtype;
    }
    info.bytes = static_cast<uint64_t>(vt::ir::Bytes(info.dtype, count));
    if (!stored.pieces.empty()) {  // but of random weights
      const auto skipped = static_cast<uint64_t>(vt::ir::Bytes(stored.dtype, part.begin));
      info.pieces[0].offset += skipped;
      info.pieces[0].bytes -= skipped;
    }
    const Status status = Put(part.name, std::move(info), part.shape);
    if (!status) return status;
  }
  return {};
}

Status LayerTensors::Split(const std::string& from, int64_t groups, const std::vector<Part>& parts,
                           const Shape& columns, const Shape& outer) {
  const auto shaped = [&](int64_t rows) {
    Shape shape = outer;
    shape.push_back(rows);
    shape.insert(shape.end(), columns.begin(), columns.end());
    return shape;
  };
  // With outer dimensions they are the groups; without, a group's rows follow the last one's.
  const int64_t stacked = outer.empty() ? groups : 1;
  int64_t each = 0;
  for (const Part& p : parts) each += p.rows;
  Result<std::optional<TensorInfo>> all = Take(from, shaped(stacked * each));
  if (!all) return all.error();
  if (!*all) return {};
  std::map<std::string, std::vector<Rows>> ranges;
  std::map<std::string, int64_t> rows;
  int64_t at = 0;
  for (const Part& p : parts) {
    for (int64_t g = 0; g < groups; ++g) ranges[p.name].push_back({g * each + at, p.rows});
    rows[p.name] += stacked * p.rows;
    at += p.rows;
  }
  for (const auto& [name, list] : ranges) {
    const Status status = Put(name, Gather(**all, groups * each, list), shaped(rows[name]));
    if (!status) return status;
  }
  return {};
}

Status MakeVirtualTensors(const Config& c, Tensors& tensors) {
  const Family& family = FamilyOf(c);
  Tensors renamed;
  for (auto& [name, info] : tensors) {
    if (IsNextN(family, c, name) || IsIgnored(family, name)) continue;
    std::string now = Renamed(family, name);
    if (!renamed.emplace(now, std::move(info)).second)
      return Error{Code::kCorrupt,
                   fmt::format("tensor '{}' is there twice in different forms", Printable(now))};
  }
  tensors = std::move(renamed);
  for (int64_t i = 0; i < c.num_hidden_layers; ++i) {
    LayerTensors layer(tensors, fmt::format("{}{}.", family.layers, i));
    Status status;
    if (family.make_tensors != nullptr) status = family.make_tensors(c, i, layer);
    if (status && c.IsSparse(i)) status = MakeExperts(c, layer);
    if (!status) return status;
  }
  return {};
}

}  // namespace vllm::weights
