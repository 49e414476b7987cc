// Few rows of int8 activations by quantised weights: bound by the bytes of the weights and by how
// soon they are asked for.
//
// A lane has blocks of 32 values of k, so that what a wave asks for at once stands side by side; of
// kQuantUnit rows, so that x is read half as often. The first weights are asked for before the
// kernel waits for the one before it: no kernel writes weights.
#pragma once

#include "vt/gpu/tiles/quant_block.h"
#include "vt/gpu/tiles/quantize.h"
#include "vt/gpu/tiles/rows_map.h"

namespace vt::gpu {

// The sums of N values over the wave, N a power of two of at most kWave: lane l has the sum of
// value l / (kWave / N). Half of what a lane has is given away in each step.
template <int kMask = ::gpu::kWave / 2, int N>
GPU_FN float SumsOfWave(const float (&v)[N]) {
  if constexpr (kMask == 0) {
    return v[0];
  } else if constexpr (N == 1) {
    const float sum[1] = {v[0] + ::gpu::shuffle_xor(v[0], kMask)};
    return SumsOfWave<kMask / 2>(sum);
  } else {
    const bool upper = (::gpu::lane() & kMask) != 0;
    float sum[N / 2];
#pragma unroll
    for (int i = 0; i < N / 2; ++i) {
      const float give = upper ? v[i] : v[i + N / 2], keep = upper ? v[i + N / 2] : v[i];
      sum[i] = keep + ::gpu::shuffle_xor(give, kMask);
    }
    return SumsOfWave<kMask / 2>(sum);
  }
}

GPU_FN QuantPlanes MovedBy(const QuantPlanes& p, int64_t bytes) {
  return {p.low + bytes, p.high + bytes, p.block + bytes, p.super + bytes};
}

// By value: a pointer to one of two arguments would put both into memory.
GPU_FN QuantRows Either(bool first, const QuantRows& a, const QuantRows& b) {
  return {first ? a.codes : b.codes, first ? a.sums : b.sums, first ? a.most_rows : b.most_rows,
          first ? a.blocks : b.blocks};
}

GPU_FN int Quotient(int n, const QuantDivisor& d) { return n * d.inverse >> 16; }

// A block of x; unless valid, of zeros.
struct QuantX {
  ::gpu::Pack<int> codes[2];
  float scale;
  uint32_t sums;

  GPU_FN QuantX(const QuantRows& x, int row, int b, bool valid) {
    const int at = row * x.blocks + b;  // 32 bits: eight rows' pointers are too many registers
    const auto* p =
        reinterpret_cast<const ::gpu::Pack<int>*>(x.codes + static_cast<int64_t>(at) * 32);
    codes[0] = p[0];
    codes[1] = p[1];
    const auto words = *reinterpret_cast<const QuantPair*>(x.sums + at);
    scale = valid ? ::gpu::float_of(words.v[0]) : 0;
    sums = words.v[1];
  }
  GPU_FN int sum(int half) const { return static_cast<int16_t>(sums >> 16 * half); }
};

// Of 8-bit floats, which no integer product holds.
GPU_FN float F8Dot(const int (&codes)[8], const QuantX& x) {
  float sum = 0;
#pragma unroll
  for (int i = 0; i < 32; ++i) {
    const float q =
        static_cast<float>(static_cast<int8_t>(x.codes[i / 16].v[i / 4 % 4] >> i % 4 * 8));
    sum += HalfOf(F8Halves(codes[i / 4], i % 2 != 0) >> i % 4 / 2 * 16) * q;
  }
  return sum;
}

template <QuantFormat kF>
GPU_FN float DotOf(const int (&codes)[8], const QuantScales& s, const QuantX& x) {
  if constexpr (kQuantSpec<kF>.codes == QuantCodes::kF8)
    return s.scale[0] * F8Dot(codes, x) * x.scale;
  constexpr int kZero = kQuantSpec<kF>.zero;
  int dot[2] = {0, 0};
#pragma unroll
  for (int h = 0; h < 2; ++h) {
#pragma unroll
    for (int j = 0; j < 4; ++j) dot[h] = ::gpu::dot4(codes[4 * h + j], x.codes[h].v[j], dot[h]);
  }
  float v;
  if (kQuantPairs<kF>) {
    v = s.scale[0] * static_cast<float>(dot[0] - kZero * x.sum(0)) +
        s.scale[1] * static_cast<float>(dot[1] - kZero * x.sum(1));
    if (kQuantMin<kF>)
      v += s.min[0] * static_cast<float>(x.sum(0)) + s.min[1] * static_cast<float>(x.sum(1));
  } else {
    const int sum = x.sum(0) + x.sum(1);
    v = s.scale[0] * static_cast<float>(dot[0] + dot[1] - kZero * sum);
    if (kQuantMin<kF>) v += s.min[0] * static_cast<float>(sum);
  }
  return v * x.scale;
}

template <int kTokens>
class QuantGemv {
 public:
  GPU_FN explicit QuantGemv(const QuantGemvArgs& args)
      : a_(args),
        act_(args.act != RowFn::kNone),
        group_(Quotient(::gpu::wave(), args.parts)),
        part_(::gpu::wave() - group_ * args.parts.by),
        unit_(::gpu::block() * args.groups.by + group_) {}

  GPU_FN void Run() {
    ::gpu::launch_dependents();
    RunFrom(a_.x, ::gpu::block_y() * kTokens, [] { ::gpu::wait_predecessor(); });
  }

  // Of rows of x from `first` on. `wait` is called when the first weights are under way.
  template <class Wait>
  GPU_FN void RunFrom(const QuantRows& x, int first, Wait wait) {
    const int share = Quotient(x.blocks + a_.parts.by - 1, a_.parts);
    const int begin = part_ * share, end = ::gpu::min(begin + share, x.blocks);
    const Addition addition = AdditionOf(first);
    const auto waits = [&] {
      wait();
      added_ = addition.value();
    };
    float y[kValues] = {};
    if (unit_ < a_.units) {
      Multiply({segment(), 0, unit_}, x, first, begin, end, y, waits);
    } else {
      waits();
    }
    Keep(y);
    Write<false>(first, CountOf(a_.header, a_.count) - first);
  }

  // See QuantExpertArgs. kTokens is 1.
  template <bool kSum>
  GPU_FN void RunExperts(const QuantExpertArgs& e) {
    ::gpu::launch_dependents();
    ::gpu::wait_predecessor();
    const int row = ::gpu::block_y();
    const bool live = row < CountOf(a_.header, a_.count);
    const bool shares = kSum && e.shared.codes != nullptr;
    const int step = kSum ? a_.parts.by : 1, last = kSum ? e.chosen + (shares ? 1 : 0) : 1;
    float y[kValues] = {};
    for (int j = kSum ? part_ : 0; j < last; j += step) {
      const bool shared = kSum && j == e.chosen;
      const int pair = kSum ? row * e.chosen + j : row;
      const int id = !live ? -1 : shared ? 0 : e.ids[pair];
      if (unit_ >= a_.units || id < 0 || id >= e.experts) continue;
      const QuantRows x = Either(shared, e.shared, a_.x);
      const int share = kSum ? x.blocks : Quotient(x.blocks + a_.parts.by - 1, a_.parts);
      const int begin = kSum ? 0 : part_ * share, end = ::gpu::min(begin + share, x.blocks);
      float z[kValues] = {};
      Multiply({shared ? 1 : segment(), id * e.expert_bytes, unit_}, x,
               shared            ? row
               : e.shared_x != 0 ? pair / e.chosen
                                 : pair,
               begin, end, z, [] {});
      const float weight = !kSum    ? 1
                           : shared ? LoadAt(AddressOf(e.gate, e.gate_type, row, 0), e.gate_type)
                                    : e.weights[pair];
#pragma unroll
      for (int i = 0; i < kValues; ++i) y[i] += weight * z[i];
    }
    Keep(y);
    Write<true>(row, live ? 1 : 0);
  }

  // See QuantExpertUpArgs. kTokens is 1, and k is not split.
  GPU_FN void RunExpertsUp(const QuantExpertUpArgs& u) {
    const QuantExpertArgs& e = u.experts;
    ::gpu::launch_dependents();
    ::gpu::wait_predecessor();
    const int choices = e.chosen + (u.shared_y.codes != nullptr ? 1 : 0);
    const int token = ::gpu::block_y() / choices, j = ::gpu::block_y() % choices;
    const bool shared = j == e.chosen;
    const QuantRows y = Either(shared, u.shared_y, u.y);
    if (token >= CountOf(a_.header, a_.count) || ::gpu::block() >= y.blocks) return;
    const int pair = token * e.chosen + j, id = shared ? 0 : e.ids[pair];
    const bool exists = id >= 0 && id < e.experts;
    for (int i = ::gpu::wave(); i < 32; i += ::gpu::waves()) {
      float z[kValues] = {};
      if (exists) {
        Multiply({shared ? 2 : 0, id * e.expert_bytes, ::gpu::block() * 32 + i}, a_.x,
                 e.shared_x != 0 || shared ? token : pair, 0, a_.x.blocks, z, [] {});
      }
#pragma unroll
      for (int r = 0; r < kValues; ++r) z[r] = ::gpu::wave_sum(z[r]);
      float gate[1] = {z[0]};
      ApplyFn(a_.act, 1, 0, gate);
      if (::gpu::lane() == 0) partial()[i] = gate[0] * z[1];
    }
    ::gpu::sync();
    if (::gpu::wave() != 0) return;
    float v[kQuantizeValues];
    const int at = ::gpu::lane() % 4 * kQuantizeValues;
#pragma unroll
    for (int i = 0; i < kQuantizeValues; ++i) v[i] = partial()[at + i];
    QuantizeValues(v, y, shared ? token : pair, ::gpu::block() * 32 + at, ::gpu::lane() < 4);
  }

 private:
  static constexpr int kValues = kQuantUnit * kTokens;  // [tokens][rows of a unit]
  // Blocks of each row that a lane has asked for.
  static constexpr int kDepth = kTokens > 2 ? 1 : 2;

  GPU_FN int segment() const {
    int s = 0;
#pragma unroll
    for (int i = 1; i < kQuantSegments; ++i)
      if (i < a_.segment_count && !act_ && unit_ >= a_.segments[i].first_unit) s = i;
    return s;
  }

  // Where a unit's rows are: in segment s, or those of an act_mul in s and s + 1.
  struct Place {
    int s;
    int64_t moved;  // bytes behind the segment's beginning
    int unit;
  };
  // y += what blocks [begin, end) give, of rows of x from `first` on. `wait` is called when the
  // first weights are under way.
  template <class Wait>
  GPU_FN void Multiply(const Place& place, const QuantRows& x, int first, int begin, int end,
                       float (&y)[kValues], Wait wait) {
    QuantPlanes planes[kQuantUnit];
    int row[kQuantUnit];
#pragma unroll
    for (int r = 0; r < kQuantUnit; ++r) {
      const QuantSegment& segment = a_.segments[act_ ? place.s + r : place.s];
      planes[r] = MovedBy(segment.w.planes, place.moved);
      row[r] = ::gpu::min(act_ ? place.unit : (place.unit - segment.first_unit) * kQuantUnit + r,
                          segment.w.rows - 1);
    }
    // Here is the code of all formats: the kernel's arguments are not looked at.
    // 8-bit floats of more rows would keep 64 values at hand; QuantTokens() asks for one.
    WithFormat<kTokens == 1>(a_.segments[place.s].w.format, [&, x_rows = x](auto tag) {
      constexpr QuantFormat kF = decltype(tag)::kFormat;
      QuantRow<kF> from[kQuantUnit];
#pragma unroll
      for (int r = 0; r < kQuantUnit; ++r) from[r] = QuantRow<kF>(planes[r], row[r], x_rows.blocks);
      const auto load = [&](int line, QuantWords(&w)[kQuantUnit]) {
        const int b = ::gpu::min(line + ::gpu::lane(), x_rows.blocks - 1);
#pragma unroll
        for (int r = 0; r < kQuantUnit; ++r) w[r] = from[r].Load(b);
      };
      QuantWords w[kDepth][kQuantUnit];
#pragma unroll
      for (int d = 0; d < kDepth; ++d) load(begin + d * ::gpu::kWave, w[d]);
      wait();
      for (int line = begin; line < end; line += kDepth * ::gpu::kWave) {
#pragma unroll
        for (int d = 0; d < kDepth; ++d) {
          const int at = line + d * ::gpu::kWave;
          if (at >= end) break;
          const bool valid = at + ::gpu::lane() < end;
          const int b = ::gpu::min(at + ::gpu::lane(), x_rows.blocks - 1);
          const bool more = at + kDepth * ::gpu::kWave < end;
          const int next = ::gpu::min(b + kDepth * ::gpu::kWave, x_rows.blocks - 1);
          if constexpr (kTokens == 1) {
            const QuantX x(x_rows, first, b, valid);
#pragma unroll
            for (int r = 0; r < kQuantUnit; ++r) {
              int codes[8];
              CodesOf<kF>(w[d][r], codes);
              y[r] += DotOf<kF>(codes, ScalesOf<kF>(w[d][r], b), x);
              if (more) w[d][r] = from[r].Load(next);
            }
          } else {
            int codes[kQuantUnit][8];
            QuantScales scales[kQuantUnit];
#pragma unroll
            for (int r = 0; r < kQuantUnit; ++r) {
              CodesOf<kF>(w[d][r], codes[r]);
              scales[r] = ScalesOf<kF>(w[d][r], b);
              if (more && kTokens < 8) w[d][r] = from[r].Load(next);
            }
#pragma unroll
            for (int m = 0; m < kTokens; ++m) {
              const QuantX x(x_rows, ::gpu::min(first + m, x_rows.most_rows - 1), b, valid);
#pragma unroll
              for (int r = 0; r < kQuantUnit; ++r)
                y[m * kQuantUnit + r] += DotOf<kF>(codes[r], scales[r], x);
            }
            // Beside so many sums there is no register for both; other waves go on meanwhile.
#pragma unroll
            for (int r = 0; r < kQuantUnit; ++r)
              if (more && kTokens == 8) w[d][r] = from[r].Load(next);
          }
        }
      }
    });
  }

  // The sums of the wave into shared memory, [waves][tokens][rows of a unit].
  GPU_FN void Keep(float (&y)[kValues]) {
    constexpr int kLanes = ::gpu::kWave / kValues;
    const float sum = SumsOfWave(y);
    if (::gpu::lane() % kLanes == 0)
      partial()[::gpu::wave() * kValues + ::gpu::lane() / kLanes] = sum;
    ::gpu::sync();
  }
  GPU_FN static float* partial() { return reinterpret_cast<float*>(::gpu::shared()); }

  struct Item {
    int token, group, row_of_unit;
    int segment, row;  // row < 0: outside
  };
  GPU_FN Item ItemOf(int i) const {
    static_assert(kQuantUnit == 2);
    const int rows = act_ ? 1 : 2, n = act_ ? i : i / 2;
    Item item;
    item.row_of_unit = act_ ? 0 : i % 2;
    item.token = Quotient(n, a_.groups);
    item.group = n - item.token * a_.groups.by;
    const int unit = ::gpu::block() * a_.groups.by + item.group;
    item.segment = 0;
#pragma unroll
    for (int s = 1; s < kQuantSegments; ++s)
      if (s < a_.segment_count && !act_ && unit >= a_.segments[s].first_unit) item.segment = s;
    const QuantSegment& segment = a_.segments[item.segment];
    item.row = (unit - segment.first_unit) * rows + item.row_of_unit;
    if (unit >= a_.units || item.row >= segment.w.rows) item.row = -1;
    return item;
  }
  // What is added to an output: where a residual is, or nullptr.
  struct Addition {
    float bias = 0;
    const void* residual = nullptr;
    ValueType type = ValueType::kF32;

    GPU_FN float value() const {
      return residual != nullptr ? bias + LoadAt(residual, type) : bias;
    }
  };
  GPU_FN Addition Added(const Item& item, int first) const {
    const QuantSegment& segment = a_.segments[item.segment];
    Addition add;
    if (segment.bias != nullptr) add.bias = segment.bias[item.row];
    add.type = a_.residual_type;
    if (a_.residual.base != nullptr)
      add.residual =
          AddressOf(a_.residual, add.type, first + item.token, segment.column + item.row);
    return add;
  }
  // That of this thread's first output comes while there is time.
  GPU_FN Addition AdditionOf(int first) const {
    const Item item = ItemOf(::gpu::thread());
    const bool exists =
        item.row >= 0 && item.token < kTokens && first + item.token < a_.x.most_rows;
    return exists ? Added(item, first) : Addition{};
  }

  template <bool kExperts>
  GPU_FN void Write(int first, int tokens) const {
    const int outputs = ::gpu::min(tokens, kTokens) * a_.groups.by * (act_ ? 1 : kQuantUnit);
    for (int i = ::gpu::thread(); i < outputs; i += ::gpu::threads()) {
      const Item item = ItemOf(i);
      if (item.row < 0) continue;
      const auto sum = [&](int r) {
        float v = 0;
        for (int p = 0; p < a_.parts.by; ++p)
          v += partial()[(item.group * a_.parts.by + p) * kValues + item.token * kQuantUnit + r];
        return v;
      };
      float v = sum(item.row_of_unit);
      if (act_) {
        float gate[1] = {v};
        ApplyFn(a_.act, 1, 0, gate);
        v = gate[0] * sum(1);
      }
      v += !kExperts && i == ::gpu::thread() ? added_ : Added(item, first).value();
      StoreValue(a_.out, a_.out_type, first + item.token,
                 a_.segments[item.segment].column + item.row, v);
    }
  }

  const QuantGemvArgs& a_;
  const bool act_;
  const int group_, part_, unit_;
  float added_ = 0;
};

}  // namespace vt::gpu
