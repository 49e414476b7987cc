// After the configuration and code that DeepSeek-V4's authors published with its weights.
#include "vt/ir/evaluate_entries.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>

#include "base/strings.h"
#include "vt/ir/quant.h"

namespace vt::ir {
namespace {

using Tensors = base::Result<std::vector<Tensor>>;
using Row = std::vector<float>;

size_t Size(const Tensor& t, size_t dim) { return static_cast<size_t>(t.shape[dim].At({})); }
double Sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

// Rows of one request in a paged state.
struct Pages {
  const KvState& state;
  const Tensor& table;
  size_t request;
  int64_t block_size;

  int32_t Slot(int64_t position) const {
    const size_t width = Size(table, 1);
    const auto block = static_cast<size_t>(position / block_size);
    if (block >= width) return -1;
    return static_cast<int32_t>(table.i[request * width + block] * block_size +
                                position % block_size);
  }
  // Empty: never written.
  const Row& At(int64_t position) const {
    static const Row none;
    const auto found = state.k.find(Slot(position));
    return found == state.k.end() ? none : found->second;
  }
  // The values of an entry, from the last rows of its window.
  std::vector<double> Entry(int64_t entry, const EntryAttrs& a) const {
    std::vector<double> out;
    const auto piece = static_cast<size_t>(a.dim / a.rows), first = static_cast<size_t>(a.begin);
    for (int64_t i = a.rows; i > 0; --i) {
      const Row& row = At((entry + 1) * a.ratio - i);
      for (size_t j = 0; j < piece; ++j)
        out.push_back(first + j < row.size() ? row[first + j] : NAN);
    }
    return out;
  }
};

// f(request, token, its position) of each token of the step.
void ForEachToken(const Tensor& positions, const Tensor& starts,
                  const std::function<void(size_t, size_t, int64_t)>& f) {
  for (size_t r = 0; r + 1 < starts.i.size(); ++r) {
    const size_t end = std::min(static_cast<size_t>(starts.i[r + 1]), positions.i.size());
    for (auto t = static_cast<size_t>(starts.i[r]); t < end; ++t) f(r, t, positions.i[t]);
  }
}

double Dot(const float* q, const std::vector<double>& k) {
  double sum = 0;
  for (size_t i = 0; i < k.size(); ++i) sum += q[i] * k[i];
  return sum;
}

std::vector<double> Softmax(std::vector<double> x) {
  const double high = *std::max_element(x.begin(), x.end());
  double sum = 0;
  for (double& v : x) sum += v = std::exp(v - high);
  for (double& v : x) v /= sum;
  return x;
}

// The window that ends at `position`, pooled and normed.
std::vector<double> Pool(const CompressAttrs& a, const Pages& raw, int64_t position,
                         const Tensor& bias, const Tensor& norm) {
  const auto dim = static_cast<size_t>(a.dim), width = static_cast<size_t>(a.width());
  std::vector<double> out(dim);
  double squares = 0;
  for (size_t c = 0; c < dim; ++c) {
    std::vector<double> values, gates;
    const auto take = [&](int64_t window_end, size_t column) {
      for (int64_t j = 0; j < a.ratio; ++j) {
        const Row& row = raw.At(window_end - a.ratio + 1 + j);
        const auto value = static_cast<size_t>(a.values) + column,
                   gate = static_cast<size_t>(a.gates) + column;
        values.push_back(row.empty() ? NAN : row[value]);
        gates.push_back(row.empty() ? NAN
                                    : row[gate] + bias.f[static_cast<size_t>(j) * width + column]);
      }
    };
    take(position, width - dim + c);
    if (a.overlap && position >= a.ratio) take(position - a.ratio, c);
    const std::vector<double> shares = Softmax(gates);
    out[c] = std::inner_product(values.begin(), values.end(), shares.begin(), 0.0);
    squares += out[c] * out[c];
  }
  const double scale = 1 / std::sqrt(squares / static_cast<double>(dim) + a.eps);
  for (size_t c = 0; c < dim; ++c) out[c] *= scale * norm.f[c];
  return out;
}

void RotateEnd(const RopeAttrs& a, int64_t position, std::vector<double>& x) {
  const size_t half = a.frequencies.size(), begin = x.size() - 2 * half;
  for (size_t i = 0; i < half; ++i) {
    const double angle = static_cast<float>(position) * a.frequencies[i];
    double &p = x[begin + (a.interleaved ? 2 * i : i)],
           &q = x[begin + (a.interleaved ? 2 * i + 1 : i + half)];
    const double c = std::cos(angle) * a.magnitude, s = std::sin(angle) * a.magnitude, before = p;
    p = before * c - q * s;
    q = q * c + before * s;
  }
}

}  // namespace

Tensors Compress(const CompressAttrs& a, const std::vector<const Tensor*>& in, const KvState& raw,
                 KvState& entries, int64_t block_size) {
  const auto piece = static_cast<size_t>(a.dim / a.rows), begin = static_cast<size_t>(a.begin);
  ForEachToken(*in[2], *in[3], [&](size_t r, size_t, int64_t position) {
    if ((position + 1) % a.ratio != 0) return;
    std::vector<double> entry = Pool(a, {raw, *in[4], r, block_size}, position, *in[6], *in[7]);
    RotateEnd(a.rope, position + 1 - a.ratio, entry);
    const Pages pages{entries, *in[5], r, block_size};
    for (int64_t i = 0; i < a.rows; ++i) {
      Row& row = entries.k[pages.Slot(position + 1 - a.rows + i)];
      row.resize(std::max(row.size(), begin + piece));
      const auto from = entry.begin() + i * static_cast<long>(piece);
      std::vector<float> values(from, from + static_cast<long>(piece));
      if (entries.dtype != DType::kF32) {
        std::vector<std::byte> stored(
            static_cast<size_t>(Bytes(entries.dtype, static_cast<int64_t>(piece))));
        Quantize(entries.dtype, values.data(), stored.data(), static_cast<int64_t>(piece));
        Dequantize(entries.dtype, stored.data(), values.data(), static_cast<int64_t>(piece));
      }
      std::copy(values.begin(), values.end(), row.begin() + a.begin);
    }
  });
  return std::vector<Tensor>{Tensor{}};
}

Tensors IndexEntries(const EntryAttrs& a, const std::vector<const Tensor*>& in,
                     const KvState& entries, int64_t block_size) {
  const Tensor &q = *in[0], &weights = *in[1];
  const auto heads = static_cast<size_t>(a.heads), dim = static_cast<size_t>(a.dim),
             top = static_cast<size_t>(a.top_k);
  Tensor ids{.shape = {q.shape[0], Dim(a.top_k)}, .f = {}, .i = {}};
  ids.i.assign(Size(q, 0) * top, -1);
  ForEachToken(*in[3], *in[4], [&](size_t r, size_t t, int64_t position) {
    const Pages pages{entries, *in[5], r, block_size};
    std::vector<double> scores;
    for (int64_t e = 0; e < (position + 1) / a.ratio; ++e) {
      const std::vector<double> key = pages.Entry(e, a);
      double score = 0;
      for (size_t h = 0; h < heads; ++h) {
        const double dot = Dot(&q.f[(t * heads + h) * dim], key);
        score += weights.f[t * heads + h] * std::max(dot, 0.0);
      }
      scores.push_back(score);
    }
    std::vector<int32_t> order(scores.size());
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](int32_t i, int32_t j) {
      return scores[static_cast<size_t>(i)] > scores[static_cast<size_t>(j)];
    });
    order.resize(std::min(order.size(), top));
    std::sort(order.begin(), order.end());
    std::copy(order.begin(), order.end(), ids.i.begin() + static_cast<long>(t * top));
  });
  return std::vector<Tensor>{std::move(ids)};
}

Tensors EntryAttention(const EntryAttrs& a, const std::vector<const Tensor*>& in,
                       const KvState& window, const KvState& entries, int64_t block_size) {
  const Tensor &q = *in[0], &sinks = *in[7];
  const auto heads = static_cast<size_t>(a.heads), dim = static_cast<size_t>(a.dim);
  Tensor y{.shape = {q.shape[0], Dim(a.heads * a.dim)},
           .f = std::vector<float>(Size(q, 0) * heads * dim),
           .i = {}};
  ForEachToken(*in[3], *in[4], [&](size_t r, size_t t, int64_t position) {
    std::vector<std::vector<double>> keys;
    const Pages recent{window, *in[5], r, block_size}, old{entries, *in[6], r, block_size};
    for (int64_t p = std::max<int64_t>(0, position - a.window + 1); p <= position; ++p)
      keys.emplace_back(recent.At(p).begin(), recent.At(p).end());
    const int64_t complete = a.ratio > 0 ? (position + 1) / a.ratio : 0;
    for (int64_t e = 0; e < (a.top_k > 0 ? a.top_k : complete); ++e) {
      const int64_t entry =
          a.top_k > 0 ? in[8]->i[t * static_cast<size_t>(a.top_k) + static_cast<size_t>(e)] : e;
      if (entry >= 0 && entry < complete) keys.push_back(old.Entry(entry, a));
    }
    for (size_t h = 0; h < heads; ++h) {
      std::vector<double> scores;
      for (const auto& key : keys)
        scores.push_back(Dot(&q.f[(t * heads + h) * dim], key) * a.scale);
      scores.push_back(sinks.f[h]);
      const std::vector<double> shares = Softmax(scores);
      for (size_t c = 0; c < dim; ++c) {
        double sum = 0;
        for (size_t i = 0; i < keys.size(); ++i) sum += shares[i] * keys[i][c];
        y.f[(t * heads + h) * dim + c] = static_cast<float>(sum);
      }
    }
  });
  return std::vector<Tensor>{std::move(y)};
}

Tensors HyperCollapse(const HyperAttrs& a, const std::vector<const Tensor*>& in) {
  const Tensor &x = *in[0], &mix = *in[1], &base = *in[2], &scale = *in[3];
  const size_t tokens = Size(x, 0), streams = Size(x, 1), dim = Size(x, 2), mixes = Size(mix, 1);
  Tensor y{.shape = {x.shape[0], x.shape[2]}, .f = {}, .i = {}};
  Tensor gates{.shape = {x.shape[0], Dim(static_cast<int64_t>(mixes - streams))}, .f = {}, .i = {}};
  for (size_t t = 0; t < tokens; ++t) {
    const float* row = &x.f[t * streams * dim];
    double squares = 0;
    for (size_t i = 0; i < streams * dim; ++i) squares += static_cast<double>(row[i]) * row[i];
    const double norm = 1 / std::sqrt(squares / static_cast<double>(streams * dim) + a.norm_eps);
    std::vector<double> m(mixes);
    for (size_t i = 0; i < mixes; ++i)
      m[i] = mix.f[t * mixes + i] * norm * scale.f[std::min<size_t>(i / streams, 2)] + base.f[i];
    for (size_t d = 0; d < dim; ++d) {
      double sum = 0;
      for (size_t h = 0; h < streams; ++h) sum += (Sigmoid(m[h]) + a.eps) * row[h * dim + d];
      y.f.push_back(static_cast<float>(sum));
    }
    if (a.rounds == 0) continue;
    for (size_t h = 0; h < streams; ++h)
      gates.f.push_back(static_cast<float>(2 * Sigmoid(m[streams + h])));
    std::vector<std::vector<double>> matrix;
    for (size_t i = 0; i < streams; ++i) {
      const auto from = m.begin() + static_cast<long>((2 + i) * streams);
      matrix.push_back(Softmax({from, from + static_cast<long>(streams)}));
      for (double& v : matrix.back()) v += a.eps;
    }
    const auto divide = [&](bool columns) {
      for (size_t i = 0; i < streams; ++i) {
        double sum = a.eps;
        for (size_t j = 0; j < streams; ++j) sum += columns ? matrix[j][i] : matrix[i][j];
        for (size_t j = 0; j < streams; ++j) (columns ? matrix[j][i] : matrix[i][j]) /= sum;
      }
    };
    divide(true);
    for (int64_t round = 1; round < a.rounds; ++round) {
      divide(false);
      divide(true);
    }
    for (const auto& line : matrix) gates.f.insert(gates.f.end(), line.begin(), line.end());
  }
  std::vector<Tensor> out = {std::move(y)};
  if (a.rounds > 0) out.push_back(std::move(gates));
  return out;
}

Tensor HyperExpand(const Tensor& x, const Tensor& y, const Tensor& gates) {
  const size_t streams = Size(x, 1), dim = Size(x, 2), width = streams + streams * streams;
  Tensor out{.shape = x.shape, .f = std::vector<float>(x.f.size()), .i = {}};
  for (size_t i = 0; i < x.f.size(); ++i) {
    const size_t t = i / (streams * dim), k = i / dim % streams, d = i % dim;
    const float* g = &gates.f[t * width];
    double sum = static_cast<double>(g[k]) * y.f[t * dim + d];
    for (size_t j = 0; j < streams; ++j)
      sum += static_cast<double>(g[streams + j * streams + k]) * x.f[(t * streams + j) * dim + d];
    out.f[i] = static_cast<float>(sum);
  }
  return out;
}

}  // namespace vt::ir
