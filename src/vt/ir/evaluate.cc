// The reference functions: plain loops, f32 values, double accumulation.
#include <algorithm>
#include <cmath>

#include "base/strings.h"
#include "vt/ir/evaluate_entries.h"
#include "vt/ir/evaluate_hybrid.h"
#include "vt/ir/fused.h"
#include "vt/ir/interpreter.h"
#include "vt/ir/quant.h"
#include "vt/ir/sampling.h"

namespace vt::ir {
namespace {

using Tensors = base::Result<std::vector<Tensor>>;

int64_t Size(const Tensor& t, size_t dim) { return t.shape[dim].At({}); }
int64_t Last(const Tensor& t) { return t.shape.back().At({}); }

base::Error Bad(const std::string& what) { return {base::Code::kInvalidArgument, what}; }

double Apply(Activation fn, double x) {
  switch (fn) {
    case Activation::kSilu:
      return x / (1 + std::exp(-x));
    case Activation::kGeluTanh:
      return 0.5 * x * (1 + std::tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)));
    case Activation::kGelu:
      return 0.5 * x * (1 + std::erf(x * 0.7071067811865476));
    case Activation::kRelu:
      return x > 0 ? x : 0;
    case Activation::kSigmoid:
      return 1 / (1 + std::exp(-x));
    case Activation::kTanh:
      return std::tanh(x);
    case Activation::kExp:
      return std::exp(x);
    case Activation::kSoftplus:
      return x > 20 ? x : std::log1p(std::exp(x));  // e^-20 is below an f32 ulp
    case Activation::kSquaredRelu:
      return x > 0 ? x * x : 0;
    case Activation::kQuickGelu:
      return x / (1 + std::exp(-1.702 * x));
  }
  return x;
}

// x with fn(value, index) applied.
template <typename F>
Tensor Map(const Tensor& x, F fn) {
  Tensor y{.shape = x.shape, .f = std::vector<float>(x.f.size()), .i = {}};
  for (size_t i = 0; i < x.f.size(); ++i)
    y.f[i] = static_cast<float>(fn(static_cast<double>(x.f[i]), i));
  return y;
}

// fn(row in, row out, width) for each vector of the last dimension.
template <typename F>
Tensor Rowwise(const Tensor& x, F fn) {
  Tensor y{.shape = x.shape, .f = std::vector<float>(x.f.size()), .i = {}};
  const auto width = static_cast<size_t>(Last(x));
  for (size_t i = 0; i < x.f.size(); i += width) fn(&x.f[i], &y.f[i], width);
  return y;
}

Tensor Binary(Op op, const Tensor& a, const Tensor& b) {
  return Map(a, [&](double x, size_t i) {
    const double y = b.f[i % b.f.size()];  // [D] repeats over the rows
    switch (op) {
      case Op::kAdd:
        return x + y;
      case Op::kSub:
        return x - y;
      case Op::kMul:
        return x * y;
      default:
        return x / y;
    }
  });
}

Tensors TakeRows(const Tensor& table, const Tensor& ids, const char* what, int64_t count = 1) {
  const auto width = static_cast<size_t>(Last(table));
  const int64_t rows = Size(table, 0) - (count - 1);
  Tensor y{.shape = {Size(ids, 0), count * Last(table)}, .f = {}, .i = {}};
  for (const int32_t id : ids.i) {
    if (id < 0 || id >= rows) return Bad(fmt::format("{} {} is not below {}", what, id, rows));
    const auto row = table.f.begin() + static_cast<long>(static_cast<size_t>(id) * width);
    y.f.insert(y.f.end(), row, row + static_cast<long>(width) * count);
  }
  return std::vector<Tensor>{std::move(y)};
}

Tensors StateRows(const Tensor& rows, const Tensor* x, const KvState& state) {
  if (state.recurrent.empty()) return Bad("the state has no rows");
  const size_t width = state.recurrent.begin()->second.size();
  Tensor y{.shape = {Size(rows, 0), static_cast<int64_t>(width)}, .f = {}, .i = {}};
  for (size_t t = 0; t < rows.i.size(); ++t) {
    if (rows.i[t] < 0 && x == nullptr) {
      y.f.resize(y.f.size() + width);
    } else if (rows.i[t] < 0) {
      const auto from = x->f.begin() + static_cast<long>(t * width);
      y.f.insert(y.f.end(), from, from + static_cast<long>(width));
    } else {
      const auto found = state.recurrent.find(rows.i[t]);
      if (found == state.recurrent.end()) return Bad(fmt::format("row {} is not there", rows.i[t]));
      y.f.insert(y.f.end(), found->second.begin(), found->second.end());
    }
  }
  return std::vector<Tensor>{std::move(y)};
}

Tensor Linear(const LinearAttrs& a, const std::vector<const Tensor*>& in) {
  const Tensor& x = *in[0];
  const auto k = static_cast<size_t>(Last(x));
  const size_t rows = x.f.size() / k;
  int64_t n = 0;
  for (int s = 0; s < a.segments; ++s) n += Size(*in[static_cast<size_t>(1 + s)], 0);
  Tensor y{.shape = x.shape, .f = {}, .i = {}};
  y.shape.back() = Dim(n);
  y.f.reserve(rows * static_cast<size_t>(n));
  for (size_t r = 0; r < rows; ++r) {
    for (int s = 0; s < a.segments; ++s) {
      const Tensor& w = *in[static_cast<size_t>(1 + s)];
      for (size_t o = 0; o < w.f.size() / k; ++o) {
        const float *p = x.f.data() + r * k, *q = w.f.data() + o * k;
        double sum = 0;
        for (size_t i = 0; i < k; ++i) sum += static_cast<double>(p[i]) * q[i];
        if (a.bias) sum += in[static_cast<size_t>(1 + a.segments + s)]->f[o];
        y.f.push_back(static_cast<float>(sum));
      }
    }
  }
  return y;
}

Tensor RmsNorm(const NormAttrs& a, const Tensor& x, const Tensor* w) {
  return Rowwise(x, [&](const float* in, float* out, size_t d) {
    double squares = 0;
    for (size_t i = 0; i < d; ++i) squares += static_cast<double>(in[i]) * in[i];
    const double scale = 1 / std::sqrt(squares / static_cast<double>(d) + a.eps);
    for (size_t i = 0; i < d; ++i)
      out[i] = static_cast<float>(in[i] * scale * (w != nullptr ? w->f[i] + a.weight_offset : 1));
  });
}

Tensor LayerNorm(const NormAttrs& a, const Tensor& x, const Tensor& w, const Tensor* b) {
  return Rowwise(x, [&](const float* in, float* out, size_t d) {
    double sum = 0, squares = 0;
    for (size_t i = 0; i < d; ++i) sum += in[i];
    const double mean = sum / static_cast<double>(d);
    for (size_t i = 0; i < d; ++i) squares += (in[i] - mean) * (in[i] - mean);
    const double scale = 1 / std::sqrt(squares / static_cast<double>(d) + a.eps);
    for (size_t i = 0; i < d; ++i) {
      out[i] = static_cast<float>((in[i] - mean) * scale * (w.f[i] + a.weight_offset) +
                                  (b != nullptr ? b->f[i] : 0));
    }
  });
}

Tensor Softmax(const Tensor& x, bool logarithm) {
  return Rowwise(x, [&](const float* in, float* out, size_t d) {
    const double high = *std::max_element(in, in + d);
    if (high == -INFINITY) {  // nothing is possible: zeros, never NaN
      std::fill_n(out, d, logarithm ? -INFINITY : 0.0f);
      return;
    }
    double sum = 0;
    for (size_t i = 0; i < d; ++i) sum += std::exp(in[i] - high);
    for (size_t i = 0; i < d; ++i) {
      out[i] = static_cast<float>(logarithm ? in[i] - high - std::log(sum)
                                            : std::exp(in[i] - high) / sum);
    }
  });
}

Tensor Rope(const RopeAttrs& a, const Tensor& x, const Tensor& positions) {
  Tensor y = x;
  const auto heads = static_cast<size_t>(Size(x, 1)), d = static_cast<size_t>(Size(x, 2));
  const auto half = static_cast<size_t>(a.rotary_dim / 2);
  for (size_t t = 0; t < positions.i.size(); ++t) {
    for (size_t i = 0; i < half; ++i) {
      // The angle is an f32 product, as in the models' own code: at position 100000 a double's
      // differs visibly.
      const float angle = static_cast<float>(positions.i[t]) * a.frequencies[i];
      const double magnitude = a.MagnitudeAt(positions.i[t]);
      const double c = std::cos(static_cast<double>(angle)) * magnitude;
      const double s = std::sin(static_cast<double>(angle)) * magnitude;
      for (size_t h = 0; h < heads; ++h) {
        const size_t base = (t * heads + h) * d;
        const size_t p = base + (a.interleaved ? 2 * i : i),
                     q = base + (a.interleaved ? 2 * i + 1 : i + half);
        y.f[p] = static_cast<float>(x.f[p] * c - x.f[q] * s);
        y.f[q] = static_cast<float>(x.f[q] * c + x.f[p] * s);
      }
    }
  }
  return y;
}

std::vector<float> RoundRow(const float* row, size_t width, DType t) {
  std::vector<float> out(row, row + width);
  if (t == DType::kF32) return out;
  std::vector<std::byte> stored(static_cast<size_t>(Bytes(t, static_cast<int64_t>(width))));
  Quantize(t, row, stored.data(), static_cast<int64_t>(width));
  Dequantize(t, stored.data(), out.data(), static_cast<int64_t>(width));
  return out;
}

// v is null where one vector is both.
void KvWrite(KvState& state, const Tensor& k, const Tensor* v, const Tensor& slots) {
  const auto width = static_cast<size_t>(Size(k, 1) * Size(k, 2));
  for (size_t t = 0; t < slots.i.size(); ++t) {
    const int32_t slot = slots.i[t];
    if (slot < 0) continue;  // padding
    state.k[slot] = RoundRow(&k.f[t * width], width, state.dtype);
    if (v != nullptr) state.v[slot] = RoundRow(&v->f[t * width], width, state.dtype);
  }
}

// One head of one query over the cached positions [begin, end) of its request. The sink is a score
// of no key (gpt-oss's): -infinity for none.
void AttendOne(const AttentionAttrs& a, const float* q, float* out,
               const std::vector<const float*>& keys, const std::vector<const float*>& rows,
               double sink) {
  const auto d = static_cast<size_t>(a.head_dim), dv = static_cast<size_t>(a.value_dim());
  std::vector<double> scores(keys.size());
  double high = sink;
  for (size_t i = 0; i < keys.size(); ++i) {
    double dot = 0;
    for (size_t j = 0; j < d; ++j) dot += static_cast<double>(q[j]) * keys[i][j];
    double s = dot * a.scale;
    if (a.softcap != 0) s = a.softcap * std::tanh(s / a.softcap);
    scores[i] = s;
    high = std::max(high, s);
  }
  double sum = sink > -INFINITY ? std::exp(sink - high) : 0;
  std::vector<double> mean(dv);
  for (size_t i = 0; i < keys.size(); ++i) {
    const double p = std::exp(scores[i] - high);
    sum += p;
    for (size_t j = 0; j < dv; ++j) mean[j] += p * rows[i][j];
  }
  for (size_t j = 0; j < dv; ++j) out[j] = sum > 0 ? static_cast<float>(mean[j] / sum) : 0;
}

Tensors Attention(const AttentionAttrs& a, const std::vector<const Tensor*>& in, KvState& state,
                  int64_t block_size) {
  const Tensor &q = *in[0], &positions = *in[2], &starts = *in[3], &lens = *in[4], &table = *in[5];
  const int64_t tokens = Size(q, 0), requests = Size(lens, 0), max_blocks = Size(table, 1);
  const auto wide = static_cast<size_t>(a.value_dim());
  const auto row = static_cast<size_t>(a.heads) * wide;
  Tensor y{.shape = {tokens, a.heads * a.value_dim()},
           .f = std::vector<float>(static_cast<size_t>(tokens) * row),
           .i = {}};  // padding: zeros
  for (int64_t r = 0; r < requests; ++r) {
    const int64_t len = lens.i[static_cast<size_t>(r)];
    if (len > max_blocks * block_size)
      return Bad(fmt::format("request {} is longer than its block table", r));
    const int64_t end = std::min<int64_t>(starts.i[static_cast<size_t>(r + 1)], tokens);
    for (int64_t t = starts.i[static_cast<size_t>(r)]; t < end; ++t) {
      const int64_t position = positions.i[static_cast<size_t>(t)];
      const int64_t last = a.causal ? std::min(position + 1, len) : len;
      const int64_t first = a.First(position);
      std::vector<const std::vector<float>*> k, v;
      for (int64_t p = first; p < last; ++p) {
        const int32_t block = table.i[static_cast<size_t>(r * max_blocks + p / block_size)];
        const auto slot = static_cast<int32_t>(block * block_size + p % block_size);
        const auto key = state.k.find(slot);
        if (key == state.k.end())
          return Bad(fmt::format("request {} reads slot {}, which was never written", r, slot));
        k.push_back(&key->second);
        v.push_back(a.latent() ? &key->second : &state.v.at(slot));
      }
      for (int64_t h = 0; h < a.heads; ++h) {
        const auto offset = static_cast<size_t>(h / (a.heads / a.kv_heads) * a.head_dim);
        std::vector<const float*> keys, rows;
        for (size_t i = 0; i < k.size(); ++i) {
          keys.push_back(k[i]->data() + offset);
          rows.push_back(v[i]->data() + offset);
        }
        AttendOne(a, &q.f[static_cast<size_t>((t * a.heads + h) * a.head_dim)],
                  &y.f[static_cast<size_t>(t) * row + static_cast<size_t>(h) * wide], keys, rows,
                  a.sinks ? in[6]->f[static_cast<size_t>(h)] : -INFINITY);
      }
    }
  }
  return std::vector<Tensor>{std::move(y)};
}

Tensor Reshape(const ReshapeAttrs& a, const Tensor& x) {
  Tensor y{.shape = a.shape, .f = x.f, .i = x.i};
  int64_t known = 1;
  for (const Dim& d : a.shape) known *= d.sym == Sym::kOne ? d.At({}) : 1;
  const auto count = static_cast<int64_t>(std::max(x.f.size(), x.i.size()));
  for (Dim& d : y.shape) {
    if (d.sym != Sym::kOne) d = Dim(known == 0 ? 0 : count / known);
  }
  return y;
}

Tensor Slice(const SliceAttrs& a, const Tensor& x) {
  Tensor y{.shape = x.shape, .f = {}, .i = {}};
  y.shape.back() = Dim(a.size);
  const auto width = static_cast<size_t>(Last(x));
  for (size_t r = 0; r < x.f.size(); r += width) {
    const auto begin = x.f.begin() + static_cast<long>(r) + a.begin;
    y.f.insert(y.f.end(), begin, begin + a.size);
  }
  return y;
}

Tensor Concat(const Tensor& a, const Tensor& b) {
  Tensor y{.shape = a.shape, .f = {}, .i = {}};
  y.shape.back() = Dim(Last(a) + Last(b));
  const size_t rows = a.f.size() / static_cast<size_t>(Last(a));
  for (size_t r = 0; r < rows; ++r) {
    const auto pa = a.f.begin() + static_cast<long>(r) * Last(a),
               pb = b.f.begin() + static_cast<long>(r) * Last(b);
    y.f.insert(y.f.end(), pa, pa + Last(a));
    y.f.insert(y.f.end(), pb, pb + Last(b));
  }
  return y;
}

Tensor ArgMaxRows(const Tensor& logits) {
  Tensor y{.shape = {Size(logits, 0)}, .f = {}, .i = {}};
  const auto vocabulary = static_cast<size_t>(Last(logits));
  for (size_t i = 0; i < logits.f.size(); i += vocabulary)
    y.i.push_back(ArgMax(&logits.f[i], Last(logits)));
  return y;
}

int32_t* SlotWords(KvState& state, const SamplerLayout& layout, int32_t slot) {
  std::vector<int32_t>& words = state.slots[slot];
  words.resize(static_cast<size_t>(layout.words()));
  return words.data();
}

Tensor TokenFeed(const SamplerAttrs& a, const Tensor& ids, KvState& state) {
  Tensor y = ids;
  for (int32_t& id : y.i) {
    if (id < 0) id = SlotWords(state, a.layout, -1 - id)[SamplerLayout::last_token_offset()];
  }
  return y;
}

Tensors Sample(const SamplerAttrs& a, const Tensor& logits, const Tensor& params, KvState& state) {
  const int64_t rows = Size(logits, 0), vocabulary = Last(logits);
  Tensor y{.shape = {rows}, .f = {}, .i = {}};
  for (int64_t o = 0; o < rows; ++o) {
    const SamplingRow row =
        UnpackSamplingRow(&params.f[static_cast<size_t>(o) * kSampleParamCount]);
    if (row.length < 0 || row.length > a.layout.history || row.prompt_length < 0 ||
        row.bias_words < 0 || row.bad_word_words < 0 ||
        int64_t{row.bias_words} + row.bad_word_words > a.layout.lists) {
      return Bad(fmt::format("row {} has lengths outside its slot", o));
    }
    int32_t* words = row.slot >= 0 ? SlotWords(state, a.layout, row.slot) : nullptr;
    y.i.push_back(SampleToken(&logits.f[static_cast<size_t>(o * vocabulary)], vocabulary, row,
                              words, a.layout));
    if (words != nullptr && row.forced < 0) RecordToken(row, a.layout, y.i.back(), words);
  }
  return std::vector<Tensor>{std::move(y), Tensor{}};
}

Tensors TopLogprobsRows(const Tensor& logits, const Tensor& params, const Tensor& tokens) {
  const int64_t rows = Size(logits, 0), vocabulary = Last(logits);
  Tensor values{.shape = {rows, kLogprobValues}, .f = {}, .i = {}};
  Tensor ids{.shape = {rows, kBestTokens}, .f = {}, .i = {}};
  values.f.resize(static_cast<size_t>(rows) * kLogprobValues);
  ids.i.resize(static_cast<size_t>(rows) * kBestTokens);
  for (size_t o = 0; o < static_cast<size_t>(rows); ++o) {
    const SamplingRow row = UnpackSamplingRow(&params.f[o * kSampleParamCount]);
    if (row.logprobs >= 0 && (tokens.i[o] < 0 || tokens.i[o] >= vocabulary))
      return Bad(fmt::format("token {} is not below {}", tokens.i[o], vocabulary));
    TopLogprobs(&logits.f[o * static_cast<size_t>(vocabulary)], vocabulary, row, tokens.i[o],
                &values.f[o * kLogprobValues], &ids.i[o * kBestTokens]);
  }
  return std::vector<Tensor>{std::move(values), std::move(ids)};
}

Tensors Fused(Op op, const FusedAttrs& attrs, const std::vector<const Tensor*>& in, KvState* state,
              int64_t block_size) {
  const FusedDefinition& def = DefinitionOf(op);
  std::vector<Tensor> results(2 * def.parts.size());
  std::vector<const Tensor*> pointers;
  for (const Tensor& t : results) pointers.push_back(&t);
  for (size_t p = 0; p < ComputedParts(def); ++p) {
    const std::vector<const Tensor*> args =
        ArgumentsOf(def, p, pointers, std::span<const Tensor* const>(in));
    auto r = Evaluate(def.parts[p].op, attrs.parts[p], args, state, block_size);
    if (!r) return r.error();
    results[p] = std::move((*r)[0]);
    if (r->size() > 1) results[def.parts.size() + p] = std::move((*r)[1]);
  }
  std::vector<Tensor> out;
  for (const int o : def.outputs) out.push_back(results[ResultIndex(def, o)]);
  return out;
}

}  // namespace

Tensors Evaluate(Op op, const Attrs& attrs, const std::vector<const Tensor*>& in, KvState* state,
                 int64_t block_size, KvState* first_state) {
  const auto one = [](Tensor t) { return std::vector<Tensor>{std::move(t)}; };
  if (IsFused(op)) return Fused(op, attrs.as<FusedAttrs>(), in, state, block_size);
  switch (op) {
    case Op::kEmbed:
      return TakeRows(*in[0], *in[1], "token id");
    case Op::kGather:
      return TakeRows(
          *in[0], *in[1], "output row",
          std::holds_alternative<GatherAttrs>(attrs.v) ? attrs.as<GatherAttrs>().count : 1);
    case Op::kStateRows:
      return StateRows(*in[1], in.size() > 2 ? in[2] : nullptr, *state);
    case Op::kLinear:
      return one(Linear(attrs.as<LinearAttrs>(), in));
    case Op::kAdd:
    case Op::kSub:
    case Op::kMul:
    case Op::kDiv:
      return one(Binary(op, *in[0], *in[1]));
    case Op::kScale: {
      const auto& a = attrs.as<ScaleAttrs>();
      return one(Map(*in[0], [&](double x, size_t) { return x * a.multiply + a.add; }));
    }
    case Op::kUnary: {
      const Activation fn = attrs.as<UnaryAttrs>().fn;
      return one(Map(*in[0], [&](double x, size_t) { return Apply(fn, x); }));
    }
    case Op::kClamp: {
      const auto& a = attrs.as<ClampAttrs>();
      return one(Map(*in[0], [&](double x, size_t) {
        return std::min<double>(std::max<double>(x, a.low), a.high);
      }));
    }
    case Op::kRmsNorm:
      return one(RmsNorm(attrs.as<NormAttrs>(), *in[0], in.size() > 1 ? in[1] : nullptr));
    case Op::kLayerNorm:
      return one(LayerNorm(attrs.as<NormAttrs>(), *in[0], *in[1], in.size() > 2 ? in[2] : nullptr));
    case Op::kSoftmax:
      return one(Softmax(*in[0], false));
    case Op::kLogSoftmax:
      return one(Softmax(*in[0], true));
    case Op::kRope:
      return one(Rope(attrs.as<RopeAttrs>(), *in[0], *in[1]));
    case Op::kKvWrite:
      KvWrite(*state, *in[1], in.size() == 4 ? in[2] : nullptr, *in.back());
      return one({});
    case Op::kAttention:
      return Attention(attrs.as<AttentionAttrs>(), in, *state, block_size);
    case Op::kReshape:
      return one(Reshape(attrs.as<ReshapeAttrs>(), *in[0]));
    case Op::kSlice:
      return one(Slice(attrs.as<SliceAttrs>(), *in[0]));
    case Op::kConcat:
      return one(Concat(*in[0], *in[1]));
    case Op::kConvert:
    case Op::kQuantize: {
      const DType t = attrs.as<ConvertAttrs>().dtype;
      return one(
          {.shape = in[0]->shape, .f = RoundRow(in[0]->f.data(), in[0]->f.size(), t), .i = {}});
    }
    case Op::kRouter:
    case Op::kHashRouter:
      return RouteExperts(attrs.as<RouterAttrs>(), in, op == Op::kHashRouter);
    case Op::kHeadLinear:
      return one(HeadLinear(*in[0], *in[1]));
    case Op::kGroupedLinear:
      return GroupedLinear(attrs.as<GroupedLinearAttrs>(), in);
    case Op::kExpertBias: {
      const auto width = static_cast<size_t>(Last(*in[2]));
      return one(Map(*in[0], [&](double x, size_t i) {
        const int32_t id = in[1]->i[i / width];
        return id < 0 ? x : x + in[2]->f[static_cast<size_t>(id) * width + i % width];
      }));
    }
    case Op::kExpertSum:
      return one(ExpertSum(*in[0], *in[1]));
    case Op::kScaleRows: {
      const auto width = static_cast<size_t>(Last(*in[0]));
      return one(Map(*in[0], [&](double x, size_t i) { return x * in[1]->f[i / width]; }));
    }
    case Op::kCausalConv:
      return CausalConv(attrs.as<ConvAttrs>(), in, *state);
    case Op::kGatedDelta:
      return GatedDelta(attrs.as<DeltaAttrs>(), in, *state);
    case Op::kCompress:
      return Compress(attrs.as<CompressAttrs>(), in, *first_state, *state, block_size);
    case Op::kIndexEntries:
      return IndexEntries(attrs.as<EntryAttrs>(), in, *state, block_size);
    case Op::kEntryAttention:
      return EntryAttention(attrs.as<EntryAttrs>(), in, *first_state, *state, block_size);
    case Op::kHyperCollapse:
      return HyperCollapse(attrs.as<HyperAttrs>(), in);
    case Op::kHyperExpand:
      return one(HyperExpand(*in[0], *in[1], *in[2]));
    case Op::kArgMax:
      return one(ArgMaxRows(*in[0]));
    case Op::kTokenFeed:
      return one(TokenFeed(attrs.as<SamplerAttrs>(), *in[0], *state));
    case Op::kSample:
      return Sample(attrs.as<SamplerAttrs>(), *in[0], *in[1], *state);
    case Op::kTopLogprobs:
      return TopLogprobsRows(*in[0], *in[1], *in[2]);
    default:
      return Bad(fmt::format("{} has no reference function", Name(op)));
  }
}

}  // namespace vt::ir
