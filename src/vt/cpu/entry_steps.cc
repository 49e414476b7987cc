// Caches of which windows of tokens leave an entry (ir::CompressAttrs, EntryAttrs), and residuals
// of several streams: a chunk a token, or a token and some of its heads.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "vt/cpu/step.h"

namespace vt::cpu {
namespace {

using ir::Op;

constexpr float kNever = -std::numeric_limits<float>::infinity();

// Where the rows of a layer's tokens are.
struct Pages {
  KvLayer kv;
  const int32_t* table = nullptr;
  int64_t width = 0;

  int64_t Slot(int64_t request, int64_t position) const {
    return int64_t{table[request * width + position / kv.block_size]} * kv.block_size +
           position % kv.block_size;
  }
};

// What all these nodes know: their operands by place, and the tokens.
struct Node {
  const Context& c;
  const ir::Node& n;
  base::Status status;

  Node(const Context& context, ir::NodeId id)
      : c(context), n(c.plan.graph.nodes[static_cast<size_t>(id)]) {}
  template <typename T>
  T Take(base::Result<T> r) {
    if (r) return *r;
    if (status.ok()) status = r.error();
    return T{};
  }
  RowsView In(size_t i) { return Take(c.Rows(n.inputs[i])); }
  RowsView Out(size_t i = 0) { return Take(c.Rows(n.outputs[i])); }
  const float* Vector(size_t i) { return Take(c.Vector(n.inputs[i])); }
  const int32_t* Ids(size_t i) { return Take(c.Input(n.inputs[i])); }
  Pages PagesOf(size_t state, size_t table) {
    return {Take(c.Kv(n.inputs[state])), Ids(table),
            c.value(n.inputs[table]).shape[1].At(c.plan.bucket)};
  }
};

struct Tokens {
  const int32_t *positions = nullptr, *query_start = nullptr;
  // -1: the row is padding.
  int64_t RequestOf(int64_t token, const ir::Bucket& now) const {
    const auto* after = std::upper_bound(query_start, query_start + now.requests + 1, token);
    const int64_t r = after - query_start - 1;
    return r < now.requests ? r : -1;
  }
};

// Reads entries of one layer.
struct EntryReader {
  const KernelSet& kernels;
  ir::EntryAttrs attrs;
  Pages pages;

  int64_t Complete(int64_t position) const {
    return attrs.ratio > 0 ? (position + 1) / attrs.ratio : 0;
  }
  void Read(int64_t request, int64_t entry, float* out) const {
    const int64_t piece = attrs.dim / attrs.rows;
    const int64_t slot = pages.Slot(request, (entry + 1) * attrs.ratio - attrs.rows);
    for (int64_t i = 0; i < attrs.rows; ++i)
      kernels.kv_read(pages.kv, slot + i, attrs.begin, piece, out + i * piece);
  }
};

// f(request, token, part, scratch) for each real token and each of its parts.
template <typename F>
class TokenStep : public Step {
 public:
  TokenStep(ir::NodeId node, const Tokens& tokens, int64_t parts, int64_t floats, F fn)
      : Step(node), tokens_(tokens), parts_(parts), floats_(floats), fn_(std::move(fn)) {}
  int64_t Chunks(const ir::Bucket& now) const override { return now.tokens * parts_; }
  void Run(const ir::Bucket& now, int64_t chunk, std::byte* scratch) const override {
    const int64_t t = chunk / parts_, r = tokens_.RequestOf(t, now);
    if (r >= 0) fn_(r, t, chunk % parts_, reinterpret_cast<float*>(scratch));
  }
  int64_t ScratchBytes() const override { return 4 * floats_ + 64; }

 private:
  Tokens tokens_;
  int64_t parts_, floats_;
  F fn_;
};
template <typename F>
void Emit(Node& node, ir::NodeId id, const Tokens& tokens, int64_t parts, int64_t floats, Steps& to,
          F fn) {
  if (node.status)
    to.push_back(std::make_unique<TokenStep<F>>(id, tokens, parts, floats, std::move(fn)));
}

// The shares of a window's tokens a channel, and what they sum up to.
struct Pool {
  const KernelSet& k;
  const ir::CompressAttrs& a;
  const Pages& raw;
  const float* bias;

  // Values and gates (with their bias) of the window that ends at `position`, [ratio][dim] each.
  void Load(int64_t request, int64_t position, int64_t column, float* values, float* gates) const {
    for (int64_t j = 0; j < a.ratio; ++j, values += a.dim, gates += a.dim) {
      const int64_t slot = raw.Slot(request, position + 1 - a.ratio + j);
      k.kv_read(raw.kv, slot, a.values + column, a.dim, values);
      k.kv_read(raw.kv, slot, a.gates + column, a.dim, gates);
      k.add_scaled(bias + j * a.width() + column, 1, a.dim, gates);
    }
  }
  void Sum(int64_t count, float* values, float* gates, float* high, float* out) const {
    std::copy_n(gates, a.dim, high);
    for (int64_t j = 1; j < count; ++j) {
      for (int64_t c = 0; c < a.dim; ++c) high[c] = std::max(high[c], gates[j * a.dim + c]);
    }
    std::fill_n(out, a.dim, 0.0f);
    for (int64_t j = 0; j < count; ++j) {
      float *gate = gates + j * a.dim, *value = values + j * a.dim;
      k.binary(Binary::kSub, gate, high, a.dim, gate);
      k.activate(Activate::kExp, gate, a.dim, gate);
      k.binary(Binary::kMul, gate, value, a.dim, value);
      k.binary(Binary::kAdd, out, value, a.dim, out);
    }
    for (int64_t j = 1; j < count; ++j)
      k.binary(Binary::kAdd, gates, gates + j * a.dim, a.dim, gates);
    k.binary(Binary::kDiv, out, gates, a.dim, out);
  }
};

void CompileCompress(Node& o, ir::NodeId id, Steps& steps) {
  const auto& a = o.n.attrs.as<ir::CompressAttrs>();
  const Pages raw = o.PagesOf(0, 4), entries = o.PagesOf(1, 5);
  const Tokens tokens{o.Ids(2), o.Ids(3)};
  const float *bias = o.Vector(6), *norm = o.Vector(7);
  const int64_t windows = a.overlap ? 2 : 1, size = windows * a.ratio * a.dim;
  Emit(o, id, tokens, 1, 2 * size + 2 * a.dim, steps,
       [&k = o.c.kernels, a, raw, entries, tokens, bias, norm, size, rope = o.c.rope_table(a.rope)](
           int64_t r, int64_t t, int64_t, float* scratch) {
         const int64_t position = tokens.positions[t];
         if ((position + 1) % a.ratio != 0) return;
         float *values = scratch, *gates = scratch + size, *high = gates + size,
               *out = high + a.dim;
         const Pool pool{k, a, raw, bias};
         pool.Load(r, position, a.width() - a.dim, values, gates);
         const bool before = a.overlap && position >= a.ratio;
         if (before) {
           const int64_t next = a.ratio * a.dim;
           pool.Load(r, position - a.ratio, 0, values + next, gates + next);
         }
         pool.Sum((before ? 2 : 1) * a.ratio, values, gates, high, out);
         k.rms_norm(out, norm, a.eps, 0, a.dim, out);
         const int64_t first = position + 1 - a.ratio, n = a.rope.rotary_dim;
         float* end = out + a.dim - n;
         k.rope(end, rope->cos(first), rope->sin(first), n, a.rope.interleaved, n, end);
         const int64_t slot = entries.Slot(r, position + 1 - a.rows), piece = a.dim / a.rows;
         for (int64_t i = 0; i < a.rows; ++i)
           k.kv_store(entries.kv, slot + i, a.begin, piece, out + i * piece);
       });
}

void CompileIndex(Node& o, ir::NodeId id, Steps& steps) {
  const EntryReader reader{o.c.kernels, o.n.attrs.as<ir::EntryAttrs>(), o.PagesOf(2, 5)};
  const Tokens tokens{o.Ids(3), o.Ids(4)};
  const RowsView q = o.In(0), weights = o.In(1);
  auto* ids = reinterpret_cast<int32_t*>(o.Take(o.c.Arena(o.n.outputs[0])));
  Emit(o, id, tokens, 1, reader.attrs.dim, steps,
       [reader, tokens, q, weights, ids](int64_t r, int64_t t, int64_t, float* key) {
         const ir::EntryAttrs& a = reader.attrs;
         const int64_t complete = reader.Complete(tokens.positions[t]);
         int32_t* out = ids + t * a.top_k;
         std::fill_n(out, a.top_k, -1);
         if (complete <= a.top_k) return std::iota(out, out + complete, 0);
         thread_local std::vector<float> scores;
         thread_local std::vector<int32_t> order;
         scores.resize(static_cast<size_t>(complete));
         order.resize(static_cast<size_t>(complete));
         std::iota(order.begin(), order.end(), 0);
         for (int64_t e = 0; e < complete; ++e) {
           reader.Read(r, e, key);
           float score = 0;
           for (int64_t h = 0; h < a.heads; ++h) {
             const float dot = reader.kernels.dot(q.row(t * a.heads + h), key, a.dim);
             score += weights.row(t)[h] * std::max(dot, 0.0f);
           }
           scores[static_cast<size_t>(e)] = score == score ? score : kNever;
         }
         std::nth_element(
             order.begin(), order.begin() + a.top_k, order.end(), [](int32_t i, int32_t j) {
               const float x = scores[static_cast<size_t>(i)], y = scores[static_cast<size_t>(j)];
               return x != y ? x > y : i < j;
             });
         std::copy_n(order.begin(), a.top_k, out);
         std::sort(out, out + a.top_k);
       });
}

// Attention of some heads of a token, over one tile of keys after another.
struct EntryAttend {
  static constexpr int64_t kHeads = 16, kKeys = 32;
  EntryReader reader;
  Pages window;
  Tokens tokens;
  RowsView q, y;
  const float* sinks;
  const int32_t* ids;  // or none

  int64_t Floats() const { return kKeys * reader.attrs.dim + kKeys + reader.attrs.dim; }
  // The i-th key of a token: the window's, then entries. False: there is none.
  bool Key(int64_t r, int64_t t, int64_t i, float* out) const {
    const ir::EntryAttrs& a = reader.attrs;
    const int64_t position = tokens.positions[t], recent = std::min(position + 1, a.window);
    if (i < recent) {
      reader.kernels.kv_read(window.kv, window.Slot(r, position + 1 - recent + i), 0, a.dim, out);
      return true;
    }
    const int64_t entry = ids != nullptr ? ids[t * a.top_k + i - recent] : i - recent;
    if (entry < 0 || entry >= reader.Complete(position)) return false;
    reader.Read(r, entry, out);
    return true;
  }
  int64_t Keys(int64_t t) const {
    const int64_t position = tokens.positions[t];
    return std::min(position + 1, reader.attrs.window) +
           (ids != nullptr ? reader.attrs.top_k : reader.Complete(position));
  }
  void operator()(int64_t r, int64_t t, int64_t part, float* scratch) const {
    const ir::EntryAttrs& a = reader.attrs;
    const KernelSet& k = reader.kernels;
    const int64_t begin = part * kHeads, end = std::min(begin + kHeads, a.heads), all = Keys(t);
    float *keys = scratch, *shares = keys + kKeys * a.dim, *sum = shares + kKeys;
    float high[kHeads], total[kHeads];
    float* out = y.row(t);
    std::fill(out + begin * a.dim, out + end * a.dim, 0.0f);
    for (int64_t h = begin; h < end; ++h) {
      high[h - begin] = sinks[h];
      total[h - begin] = 1;
    }
    for (int64_t first = 0; first < all;) {
      int64_t count = 0;
      for (; first < all && count < kKeys; ++first) count += Key(r, t, first, keys + count * a.dim);
      for (int64_t h = begin; h < end && count > 0; ++h) {
        float& most = high[h - begin];
        float now = most;
        for (int64_t i = 0; i < count; ++i) {
          shares[i] = k.dot(q.row(t * a.heads + h), keys + i * a.dim, a.dim) * a.scale;
          now = std::max(now, shares[i]);
        }
        const float kept = std::exp(most - now);
        most = now;
        total[h - begin] *= kept;
        for (int64_t i = 0; i < count; ++i) {
          shares[i] = std::exp(shares[i] - now);
          total[h - begin] += shares[i];
        }
        float* row = out + h * a.dim;
        k.weighted_sum(keys, a.dim, shares, count, a.dim, sum);
        k.scale(row, kept, 0, a.dim, row);
        k.binary(Binary::kAdd, row, sum, a.dim, row);
      }
    }
    for (int64_t h = begin; h < end; ++h) {
      float* row = out + h * a.dim;
      k.scale(row, 1 / total[h - begin], 0, a.dim, row);
    }
  }
};

void CompileEntryAttention(Node& o, ir::NodeId id, Steps& steps) {
  const auto& a = o.n.attrs.as<ir::EntryAttrs>();
  const int32_t* ids =
      a.top_k > 0 ? reinterpret_cast<const int32_t*>(o.Take(o.c.Arena(o.n.inputs[8]))) : nullptr;
  const EntryAttend attend{{o.c.kernels, a, o.PagesOf(2, 6)},
                           o.PagesOf(1, 5),
                           {o.Ids(3), o.Ids(4)},
                           o.In(0),
                           o.Out(),
                           o.Vector(7),
                           ids};
  const int64_t parts = (a.heads + EntryAttend::kHeads - 1) / EntryAttend::kHeads;
  Emit(o, id, attend.tokens, parts, attend.Floats(), steps, attend);
}

// --- residuals of several streams

float Sigmoid(float x) { return 1 / (1 + std::exp(-x)); }

// Rows of H logits become a matrix whose rows and columns sum up to 1 or nearly so.
void Sinkhorn(int64_t n, const ir::HyperAttrs& a, float* m) {
  for (int64_t i = 0; i < n; ++i) {
    float* row = m + i * n;
    const float high = *std::max_element(row, row + n);
    float sum = 0;
    for (int64_t j = 0; j < n; ++j) sum += row[j] = std::exp(row[j] - high);
    for (int64_t j = 0; j < n; ++j) row[j] = row[j] / sum + a.eps;
  }
  const auto divide = [&](int64_t line, int64_t step) {
    for (int64_t i = 0; i < n; ++i) {
      float sum = a.eps;
      for (int64_t j = 0; j < n; ++j) sum += m[i * line + j * step];
      for (int64_t j = 0; j < n; ++j) m[i * line + j * step] /= sum;
    }
  };
  divide(1, n);
  for (int64_t round = 1; round < a.rounds; ++round) {
    divide(n, 1);
    divide(1, n);
  }
}

template <typename F>
class EachRow : public Step {
 public:
  EachRow(ir::NodeId node, const RowsView& rows, F fn)
      : Step(node), rows_(rows), fn_(std::move(fn)) {}
  int64_t Chunks(const ir::Bucket& now) const override { return rows_.count(now); }
  void Run(const ir::Bucket&, int64_t chunk, std::byte*) const override { fn_(chunk); }

 private:
  RowsView rows_;
  F fn_;
};
template <typename F>
void EmitRows(Node& node, ir::NodeId id, const RowsView& rows, Steps& steps, F fn) {
  if (node.status) steps.push_back(std::make_unique<EachRow<F>>(id, rows, std::move(fn)));
}

void CompileCollapse(Node& o, ir::NodeId id, Steps& steps) {
  const auto& a = o.n.attrs.as<ir::HyperAttrs>();
  const RowsView x = o.In(0), mix = o.In(1), y = o.Out();
  const RowsView gates = a.rounds > 0 ? o.Out(1) : RowsView{};
  const float *base = o.Vector(2), *scale = o.Vector(3);
  EmitRows(o, id, y, steps, [&k = o.c.kernels, a, x, mix, y, gates, base, scale](int64_t t) {
    const int64_t n = x.inner, all = n * x.width;
    const float* row = x.row(t * n);
    const float norm = 1 / std::sqrt(k.dot(row, row, all) / static_cast<float>(all) + a.norm_eps);
    const auto mixed = [&](int64_t i) {
      return mix.row(t)[i] * norm * scale[std::min<int64_t>(i / n, 2)] + base[i];
    };
    thread_local std::vector<float> shares;
    shares.resize(static_cast<size_t>(n));
    for (int64_t h = 0; h < n; ++h) shares[static_cast<size_t>(h)] = Sigmoid(mixed(h)) + a.eps;
    k.weighted_sum(row, x.width, shares.data(), n, x.width, y.row(t));
    if (a.rounds == 0) return;
    float* out = gates.row(t);
    for (int64_t h = 0; h < n; ++h) out[h] = 2 * Sigmoid(mixed(n + h));
    for (int64_t i = 0; i < n * n; ++i) out[n + i] = mixed(2 * n + i);
    Sinkhorn(n, a, out + n);
  });
}

void CompileExpand(Node& o, ir::NodeId id, Steps& steps) {
  const RowsView x = o.In(0), y = o.In(1), gates = o.In(2), out = o.Out();
  EmitRows(o, id, out, steps, [&k = o.c.kernels, x, y, gates, out](int64_t i) {
    const int64_t n = x.inner, t = i / n, stream = i % n;
    const float* g = gates.row(t);
    thread_local std::vector<float> shares;
    shares.resize(static_cast<size_t>(n));
    for (int64_t j = 0; j < n; ++j) shares[static_cast<size_t>(j)] = g[n + j * n + stream];
    k.weighted_sum(x.row(t * n), x.width, shares.data(), n, x.width, out.row(i));
    k.add_scaled(y.row(t), g[stream], x.width, out.row(i));
  });
}

}  // namespace

base::Status CompileEntries(const Context& c, ir::NodeId id, Steps& steps) {
  Node o(c, id);
  switch (o.n.op) {
    case Op::kCompress:
      CompileCompress(o, id, steps);
      break;
    case Op::kIndexEntries:
      CompileIndex(o, id, steps);
      break;
    case Op::kEntryAttention:
      CompileEntryAttention(o, id, steps);
      break;
    case Op::kHyperCollapse:
      CompileCollapse(o, id, steps);
      break;
    default:
      CompileExpand(o, id, steps);
  }
  return o.status;
}

}  // namespace vt::cpu
