// What the kernels of few rows share: how their rows of activations come into shared memory, with
// the norms before them, and which output a thread has.
#pragma once

#include "vt/gpu/args_linear.h"
#include "vt/gpu/tiles/common.h"
#include "vt/gpu/tiles/rows_map.h"

namespace vt::gpu {

// Rows are scaled by the norm's factor late, after the product, which then need not wait for the
// sum of squares; but f16 might not hold them unscaled.
template <class T>
inline constexpr bool kScaledLate = true;
template <>
inline constexpr bool kScaledLate<::gpu::f16> = false;

// Row i of rows that the host has made sure follow one another evenly.
template <class T>
GPU_FN T* EvenRow(const Rows& x, int i) {
  return static_cast<T*>(x.base) + i * static_cast<int>(x.stride);
}

// N values, a multiple of 16 bytes.
template <int N, class T>
GPU_FN void LoadPacked(const T* from, float (&v)[N]) {
  constexpr int kCount = ::gpu::Pack<T>::kCount;
#pragma unroll
  for (int j = 0; j < N; j += kCount) {
    const auto p = *reinterpret_cast<const ::gpu::Pack<T>*>(from + j);
#pragma unroll
    for (int i = 0; i < kCount; ++i) v[j + i] = ::gpu::to_float(p.v[i]);
  }
}
// The first `count` of them one by one, zeros behind.
template <int N, class T>
GPU_FN void LoadSome(const T* from, int count, float (&v)[N]) {
#pragma unroll
  for (int i = 0; i < N; ++i) v[i] = i < count ? ::gpu::to_float(from[i]) : 0;
}
template <class T>
GPU_FN void StorePacked(T* to, const float (&v)[::gpu::Pack<T>::kCount]) {
  ::gpu::Pack<T> p;
#pragma unroll
  for (int i = 0; i < ::gpu::Pack<T>::kCount; ++i) p.v[i] = ::gpu::from_float<T>(v[i]);
  *reinterpret_cast<::gpu::Pack<T>*>(to) = p;
}

// The rows of x (or s) in shared memory, and what their norms need. Rows are dealt to the waves of
// the block; few rows have several waves each.
template <class T, LinearInput kInput>
class StagedRows {
 public:
  static constexpr bool kSandwich = kInput == LinearInput::kNormAddNorm;
  static constexpr bool kNormed = kInput == LinearInput::kNorm || kSandwich;
  static constexpr int kCount = ::gpu::Pack<T>::kCount;

  GPU_FN explicit StagedRows(const SkinnyArgs& args)
      : a_(args),
        rows_(reinterpret_cast<T*>(::gpu::shared())),
        sums_(reinterpret_cast<float*>(rows_ + args.most_rows * args.staged_pitch)),
        waves_a_row_(1 << args.waves_a_row_log2),
        row_(::gpu::wave() >> args.waves_a_row_log2),
        rows_at_once_(::gpu::waves() >> args.waves_a_row_log2),
        begin_(((::gpu::wave() & (waves_a_row_ - 1)) * ::gpu::kWave + ::gpu::lane()) * kCount),
        step_(waves_a_row_ * ::gpu::kWave * kCount) {}

  GPU_FN const T* row(int i) const { return rows_ + i * a_.staged_pitch; }

  // What the rows are multiplied by after the product. After a sync() that follows Stage.
  GPU_FN float late_scale(int i) const {
    return kNormed && kScaledLate<T> ? Scale(last_sums(), i, last_eps()) : 1;
  }

  // The norms' weights come from far away: they are asked for before wait_predecessor().
  GPU_FN void Prefetch() const {
    if (!kNormed) return;
    for (int i = ::gpu::thread() * 32; i < a_.k; i += ::gpu::threads() * 32) {
      ::gpu::prefetch(a_.weight1 + i);
      if (kSandwich) ::gpu::prefetch(a_.weight2 + i);
    }
  }

  // The sum of squares of a wave's last row is left to Finish(), after the products: they need not
  // wait for it.
  GPU_FN void Finish() {
    if (kNormed && pending_ >= 0) Keep(last_sums(), pending_, pending_sum_);
    pending_ = -1;
  }

  // `tokens`: rows whose s is written. Ends with a sync().
  GPU_FN void Stage(int tokens) {
    if (kSandwich && a_.pitch <= step_ && a_.most_rows <= rows_at_once_) {
      StageAtOnce(tokens);
    } else {
      StageByChunks(tokens);
    }
    if (!kScaledLate<T>) Finish();
    ::gpu::sync();
    if (!kNormed || kScaledLate<T>) return;
    for (int m = row_; m < a_.most_rows; m += rows_at_once_) {
      const float scale = Scale(last_sums(), m, last_eps());
      for (int at = begin_; at < a_.pitch; at += step_) {
        float v[kCount], w[kCount];
        T* to = rows_ + m * a_.staged_pitch + at;
        LoadPacked(to, v);
        LoadSome(last_weight() + at, a_.k - at, w);
#pragma unroll
        for (int i = 0; i < kCount; ++i) v[i] *= scale * (w[i] + last_offset());
        StorePacked(to, v);
      }
    }
    ::gpu::sync();
  }

 private:
  GPU_FN float* last_sums() const {
    return kSandwich ? sums_ + a_.most_rows * ::gpu::waves() : sums_;
  }
  GPU_FN const float* last_weight() const { return kSandwich ? a_.weight2 : a_.weight1; }
  GPU_FN float last_offset() const { return kSandwich ? a_.offset2 : a_.offset1; }
  GPU_FN float last_eps() const { return kSandwich ? a_.eps2 : a_.eps1; }
  GPU_FN bool Whole(int at) const { return a_.packed != 0 && at + kCount <= a_.k; }

  // What a thread makes kCount staged values of.
  struct Chunk {
    float x[kCount], add[kCount], w1[kCount], w[kCount];
  };
  GPU_FN void LoadX(const T* row, int at, float (&v)[kCount]) const {
    if (Whole(at)) {
      LoadPacked(row + at, v);
    } else {
      LoadSome(row + at, a_.k - at, v);
    }
  }
  // All loads before anything is done with one.
  GPU_FN Chunk Ask(int m, int at) const {
    const T* x = EvenRow<const T>(a_.x, m);
    const T* r = kSandwich ? EvenRow<const T>(a_.add, m) : nullptr;
    Chunk c;
    if (Whole(at)) {
      LoadPacked(x + at, c.x);
      if (kNormed) LoadPacked(last_weight() + at, c.w);
      if (kSandwich) {
        LoadPacked(r + at, c.add);
        LoadPacked(a_.weight1 + at, c.w1);
      }
    } else {
      LoadSome(x + at, a_.k - at, c.x);
      if (kNormed) LoadSome(last_weight() + at, a_.k - at, c.w);
      if (kSandwich) {
        LoadSome(r + at, a_.k - at, c.add);
        LoadSome(a_.weight1 + at, a_.k - at, c.w1);
      }
    }
    return c;
  }
  GPU_FN static float SquaresOf(const float (&v)[kCount]) {
    float sum = 0;
#pragma unroll
    for (int i = 0; i < kCount; ++i) sum += v[i] * v[i];
    return sum;
  }
  // Into shared memory; the squares of what the last norm is of. scale: of the first of two.
  GPU_FN float Put(Chunk& c, int m, int at, int tokens, float scale) const {
    if (kSandwich) {
      // s as the type holds it.
#pragma unroll
      for (int i = 0; i < kCount; ++i)
        c.x[i] = ::gpu::to_float(
            ::gpu::from_float<T>(c.add[i] + c.x[i] * scale * (c.w1[i] + a_.offset1)));
      if (Mine(m, at) && m < tokens) StoreSum(EvenRow<T>(a_.sum, m) + at, a_.k - at, c.x);
    }
    const float squares = kNormed ? SquaresOf(c.x) : 0;
    if (kNormed && kScaledLate<T>) {
#pragma unroll
      for (int i = 0; i < kCount; ++i) c.x[i] *= c.w[i] + last_offset();
    }
    StorePacked(rows_ + m * a_.staged_pitch + at, c.x);
    return squares;
  }

  // A row of one chunk a thread stays in registers while the first norm's sum is made.
  GPU_FN void StageAtOnce(int tokens) {
    const bool mine = row_ < a_.most_rows, some = mine && begin_ < a_.pitch;
    Chunk c = {};
    if (some) c = Ask(row_, begin_);
    if (mine) Keep(sums_, row_, SquaresOf(c.x));
    ::gpu::sync();
    if (!mine) return;
    const float scale = Scale(sums_, row_, a_.eps1);
    pending_sum_ = some ? Put(c, row_, begin_, tokens, scale) : 0;
    pending_ = row_;
  }

  GPU_FN void StageByChunks(int tokens) {
    if (kSandwich) {
      for (int m = row_; m < a_.most_rows; m += rows_at_once_) {
        float sum = 0;
        for (int at = begin_; at < a_.pitch; at += step_) {
          float v[kCount];
          LoadX(EvenRow<const T>(a_.x, m), at, v);
          sum += SquaresOf(v);
        }
        Keep(sums_, m, sum);
      }
      ::gpu::sync();
    }
    for (int m = row_; m < a_.most_rows; m += rows_at_once_) {
      if (kNormed && pending_ >= 0) Finish();
      const float scale = kSandwich ? Scale(sums_, m, a_.eps1) : 1;
      float sum = 0;
      for (int at = begin_; at < a_.pitch; at += step_) {
        Chunk c = Ask(m, at);
        sum += Put(c, m, at, tokens, scale);
      }
      pending_sum_ = sum;
      pending_ = m;
    }
  }

  // Every block has every row; each writes its share of s.
  GPU_FN bool Mine(int m, int at) const {
    const int span = ::gpu::kWave * kCount;
    return (m * ((a_.pitch + span - 1) / span) + at / span) % ::gpu::blocks() == ::gpu::block();
  }
  GPU_FN void StoreSum(T* to, int count, const float (&v)[kCount]) const {
    if (a_.packed != 0 && count >= kCount) {
      StorePacked(to, v);
    } else {
#pragma unroll
      for (int i = 0; i < kCount; ++i)
        if (i < count) to[i] = ::gpu::from_float<T>(v[i]);
    }
  }
  GPU_FN void Keep(float* sums, int m, float sum) const {
    sum = ::gpu::wave_sum(sum);
    if (::gpu::lane() == 0) sums[m * waves_a_row_ + (::gpu::wave() & (waves_a_row_ - 1))] = sum;
  }
  GPU_FN float Scale(const float* sums, int m, float eps) const {
    float sum = 0;
    for (int i = 0; i < waves_a_row_; ++i) sum += sums[m * waves_a_row_ + i];
    return ::gpu::rsqrt(sum * a_.inverse_k + eps);
  }

  const SkinnyArgs& a_;
  T* rows_;
  float* sums_;
  int waves_a_row_, row_, rows_at_once_, begin_, step_;
  int pending_ = -1;
  float pending_sum_ = 0;
};

template <class Args>
GPU_FN bool IsActMul(const Args& a) {
  return a.act != RowFn::kNone;
}

// The segment that a unit is of: an act_mul's has both.
template <class Args>
GPU_FN int SegmentOf(const Args& a, int unit) {
  int s = 0;
#pragma unroll
  for (int i = 1; i < kLinearSegments; ++i)
    if (i < a.segment_count && !IsActMul(a) && unit >= a.segments[i].first_unit) s = i;
  return s;
}

// Where an output value is: value i of units side by side, tokens outermost.
struct SkinnyItem {
  int token, group, column;  // column of the unit
  int segment, row;          // of the weights; row < 0: outside
};
template <int kColumns>
GPU_FN SkinnyItem ItemOf(const SkinnyArgs& a, int first_unit, int i) {
  const int columns = IsActMul(a) ? kColumns / 2 : kColumns;
  SkinnyItem item;
  item.column = IsActMul(a) ? i % (kColumns / 2) : i % kColumns;
  i = IsActMul(a) ? i / (kColumns / 2) : i / kColumns;
  item.token = i * a.groups_inverse >> 16;
  item.group = i - item.token * a.groups;
  const int unit = first_unit + item.group;
  item.segment = SegmentOf(a, unit);
  const LinearSegment& segment = a.segments[item.segment];
  item.row = (unit - segment.first_unit) * columns + item.column;
  if (unit >= a.units || item.row >= segment.rows) item.row = -1;
  return item;
}

// Of the sums of a unit's columns (sum(column)) what the item is, before anything is added.
template <int kColumns, class F>
GPU_FN float ProductOf(const SkinnyArgs& a, const SkinnyItem& item, F sum) {
  float v[1] = {sum(item.column)};
  if (!IsActMul(a)) return v[0];
  ApplyFn(a.act, 1, 0, v);
  return v[0] * sum(item.column + kColumns / 2);
}
GPU_FN float BiasOf(const SkinnyArgs& a, const SkinnyItem& item) {
  const float* p = a.segments[item.segment].bias;
  return p == nullptr ? 0 : p[item.row];
}
template <class T>
GPU_FN T ResidualOf(const SkinnyArgs& a, const SkinnyItem& item) {
  return EvenRow<const T>(a.residual, item.token)[a.segments[item.segment].column + item.row];
}
template <class T>
GPU_FN void StoreItem(const SkinnyArgs& a, const SkinnyItem& item, float v) {
  const int column = a.segments[item.segment].column + item.row;
  if (a.out_f32 != 0) {
    EvenRow<float>(a.out, item.token)[column] = v;
  } else {
    EvenRow<T>(a.out, item.token)[column] = ::gpu::from_float<T>(v);
  }
}

// Where the count of a step's rows stands; of kOne, any place.
GPU_FN const int32_t* CounterOf(const Header* h, Count c) {
  const int32_t* first = &h->tokens;
  return first + (c.of == Of::kRequests ? 1 : c.of == Of::kOutputs ? 2 : 0);
}

GPU_FN int TokensOf(const SkinnyArgs& a, int counted) {
  return ::gpu::min(a.count.of == Of::kOne ? a.count.times : counted * a.count.times, a.most_rows);
}

}  // namespace vt::gpu
