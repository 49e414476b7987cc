#include "vllm/weights/virtual_tensors.h"

#include <cctype>
#include <string_view>
#include <utility>
#include <vector>

#include "base/strings.h"

namespace vllm::weights {
namespace {

using base::Code;
using base::Error;
using base::Printable;
using base::Result;
using base::Status;
using Tensors = std::map<std::string, TensorInfo>;
using Shape = std::vector<int64_t>;

std::string ShapeText(const Shape& shape) { return fmt::format("[{}]", fmt::join(shape, ", ")); }

struct Rows {
  int64_t begin, count;
};

// Those rows of `t`, which has `rows` in all, one after another.
TensorInfo Gather(const TensorInfo& t, int64_t rows, const std::vector<Rows>& ranges) {
  TensorInfo out{t.dtype, t.shape, {}, 0};
  const uint64_t row_bytes = t.bytes / static_cast<uint64_t>(rows);
  for (const Rows& r : ranges) {
    const TensorPiece piece{t.pieces[0].file,
                            t.pieces[0].offset + static_cast<uint64_t>(r.begin) * row_bytes,
                            static_cast<uint64_t>(r.count) * row_bytes};
    out.pieces.push_back(piece);
    out.bytes += piece.bytes;
  }
  return out;
}

class Layer {
 public:
  Layer(Tensors& tensors, std::string prefix) : tensors_(tensors), prefix_(std::move(prefix)) {}

  // Takes a stored tensor out; nothing when it isn't there. Errors: another shape.
  Result<std::optional<TensorInfo>> Take(const std::string& name, const Shape& shape) {
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
  Status Put(const std::string& name, TensorInfo info, Shape shape) {
    info.shape = std::move(shape);
    if (tensors_.emplace(prefix_ + name, std::move(info)).second) return {};
    return Error{Code::kCorrupt, fmt::format("tensor '{}' is there twice in different forms",
                                             Printable(prefix_ + name))};
  }
  // The same bytes under another name or shape, where the tensor is there in the old form.
  Status Reshape(const std::string& from, const Shape& old, const std::string& to,
                 const Shape& shape) {
    const auto it = tensors_.find(prefix_ + from);
    if (it == tensors_.end() || it->second.shape != old) return {};
    TensorInfo info = std::move(it->second);
    tensors_.erase(it);
    return Put(to, std::move(info), shape);
  }
  const std::string& prefix() const { return prefix_; }
  Tensors& tensors() { return tensors_; }

 private:
  Tensors& tensors_;
  std::string prefix_;
};

// experts.gate_up_proj [E, 2N, K]: an expert's gate rows, then its up rows.
Status SplitGateUp(const Config& c, Layer& layer) {
  const int64_t e = c.experts.count, n = c.experts.intermediate_size, k = c.hidden_size;
  Result<std::optional<TensorInfo>> both =
      layer.Take("mlp.experts.gate_up_proj.weight", {e, 2 * n, k});
  if (!both) return both.error();
  if (!*both) return {};
  std::vector<Rows> gate, up;
  for (int64_t i = 0; i < e; ++i) {
    gate.push_back({2 * n * i, n});
    up.push_back({2 * n * i + n, n});
  }
  const Status status =
      layer.Put("mlp.experts.gate_proj.weight", Gather(**both, 2 * n * e, gate), {e, n, k});
  if (!status) return status;
  return layer.Put("mlp.experts.up_proj.weight", Gather(**both, 2 * n * e, up), {e, n, k});
}

// experts.<e>.<name> [N, K], one by one.
Status JoinExperts(const Config& c, Layer& layer, const std::string& name, int64_t n, int64_t k) {
  const std::string joined = "mlp.experts." + name;
  if (layer.tensors().contains(layer.prefix() + joined)) return {};
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

Status MakeExperts(const Config& c, Layer& layer) {
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
  return layer.Reshape("mlp.shared_expert_gate.weight", {k}, "mlp.shared_expert_gate.weight",
                       {1, k});
}

// A head's query rows, then its gate rows; likewise the bias.
Status SplitQuery(const Config& c, Layer& layer) {
  const int64_t heads = c.num_heads, d = c.head_dim;
  for (const auto& [suffix, shape, half] :
       {std::tuple{"weight", Shape{2 * heads * d, c.hidden_size}, Shape{heads * d, c.hidden_size}},
        {"bias", Shape{2 * heads * d}, Shape{heads * d}}}) {
    Result<std::optional<TensorInfo>> both =
        layer.Take(std::string("self_attn.q_proj.") + suffix, shape);
    if (!both) return both.error();
    if (!*both) continue;
    std::vector<Rows> query, gate;
    for (int64_t h = 0; h < heads; ++h) {
      query.push_back({2 * d * h, d});
      gate.push_back({2 * d * h + d, d});
    }
    for (const auto& [name, rows] : {std::pair{"q_proj", &query}, {"q_gate", &gate}}) {
      const Status status = layer.Put(fmt::format("self_attn.{}.{}", name, suffix),
                                      Gather(**both, 2 * heads * d, *rows), half);
      if (!status) return status;
    }
  }
  return {};
}

// A part of each key head's rows.
struct Part {
  std::string name;
  int64_t rows;  // a key head's
};

// `from` has for each of `groups` key heads the rows of all parts in turn. Parts of one name are
// put one after another.
Status SplitByKeyHead(Layer& layer, const std::string& from, int64_t groups, int64_t columns,
                      const std::vector<Part>& parts) {
  int64_t each = 0;
  for (const Part& p : parts) each += p.rows;
  Result<std::optional<TensorInfo>> all = layer.Take(from, {groups * each, columns});
  if (!all) return all.error();
  if (!*all) return {};
  std::map<std::string, std::vector<Rows>> ranges;
  std::map<std::string, int64_t> rows;
  int64_t at = 0;
  for (const Part& p : parts) {
    for (int64_t g = 0; g < groups; ++g) ranges[p.name].push_back({g * each + at, p.rows});
    rows[p.name] += groups * p.rows;
    at += p.rows;
  }
  for (const auto& [name, list] : ranges) {
    const Status status =
        layer.Put(name, Gather(**all, groups * each, list), {rows[name], columns});
    if (!status) return status;
  }
  return {};
}

Status MakeDeltaNet(const Config& c, Layer& layer) {
  const DeltaNet& d = c.delta;
  const int64_t ratio = d.v_heads / d.k_heads, v = ratio * d.v_dim;
  const std::string p = "linear_attn.";
  Status status = SplitByKeyHead(layer, p + "in_proj_qkvz.weight", d.k_heads, c.hidden_size,
                                 {{p + "in_proj_qkv.weight", d.k_dim},
                                  {p + "in_proj_qkv.weight", d.k_dim},
                                  {p + "in_proj_qkv.weight", v},
                                  {p + "in_proj_z.weight", v}});
  if (!status) return status;
  status = SplitByKeyHead(layer, p + "in_proj_ba.weight", d.k_heads, c.hidden_size,
                          {{p + "in_proj_b.weight", ratio}, {p + "in_proj_a.weight", ratio}});
  if (!status) return status;
  return layer.Reshape(p + "conv1d.weight", {d.channels(), 1, d.conv_width}, p + "conv1d.weight",
                       {d.channels(), d.conv_width});
}

// Mixtral's own names, and experts in one tensor, which carry no ".weight".
std::string Renamed(std::string name) {
  const auto replace = [&](std::string_view from, std::string_view to) {
    const size_t at = name.find(from);
    if (at != std::string::npos) name.replace(at, from.size(), to);
  };
  replace(".block_sparse_moe.", ".mlp.");
  if (name.find(".mlp.experts.") == std::string::npos) return name;
  replace(".w1.weight", ".gate_proj.weight");
  replace(".w2.weight", ".down_proj.weight");
  replace(".w3.weight", ".up_proj.weight");
  if (base::EndsWith(name, ".gate_up_proj") || base::EndsWith(name, ".down_proj"))
    name += ".weight";
  return name;
}

}  // namespace

Status MakeVirtualTensors(const Config& c, Tensors& tensors) {
  if (c.sparse_layers.empty() && c.delta.k_heads == 0) return {};
  Tensors renamed;
  for (auto& [name, info] : tensors) {
    std::string now = Renamed(name);
    if (!renamed.emplace(now, std::move(info)).second)
      return Error{Code::kCorrupt,
                   fmt::format("tensor '{}' is there twice in different forms", Printable(now))};
  }
  tensors = std::move(renamed);
  for (int64_t i = 0; i < c.num_hidden_layers; ++i) {
    Layer layer(tensors, fmt::format("model.layers.{}.", i));
    Status status;
    if (c.IsSparse(i)) status = MakeExperts(c, layer);
    if (status && c.IsLinear(i)) status = MakeDeltaNet(c, layer);
    if (status && c.attention_gate && !c.IsLinear(i)) status = SplitQuery(c, layer);
    if (!status) return status;
  }
  return {};
}

}  // namespace vllm::weights
