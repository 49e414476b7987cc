// Few rows of int8 activations by quantised weights: bound by the bytes of the weights and by how
// soon they are asked for.
//
// A lane has blocks of 32 values of k, so that what a wave asks for at once stands side by side; of
// kQuantUnit rows, so that x is read half as often. The first weights are asked for before the
// kernel waits for the one before it: no kernel writes weights.
//
// Most launches are so short that a multiprocessor runs each instruction for the first time: then
// code that is fetched costs more than code that is run. So a kernel knows the formats it will
// meet, what is rare stands apart, and what repeats is a loop.
#pragma once

#include "vt/gpu/tiles/quant_block.h"
#include "vt/gpu/tiles/quantize.h"
#include "vt/gpu/tiles/router.h"
#include "vt/gpu/tiles/rows_map.h"
#include "vt/gpu/tiles/wave_sums.h"

namespace vt::gpu {

GPU_FN QuantPlanes MovedBy(const QuantPlanes& p, int64_t bytes) {
  return {p.low + bytes, p.high + bytes, p.block + bytes, p.super + bytes};
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

// Formats: a QuantSet of those that segments have. kAct: whether there may be an act_mul. kShared:
// rows of few blocks may share a wave (a_.lanes), of one token. kAhead: weights are brought near
// some lines before they are loaded.
template <class Formats, int kTokens, bool kAct, bool kShared = false, bool kAhead = false>
class QuantGemv {
 public:
  // The units of a wave: every `step`-th before `end`.
  struct Units {
    int first, step, end;
  };
  // Where the weights of a unit stand, or those of it that an expert has, and what they multiply.
  struct Item {
    int unit = 0, segment = 0, choice = 0;
    float weight = 1;
  };
  struct Span {
    QuantRows x;
    int row, begin, end;  // the first row of x; blocks of k
  };

  GPU_FN explicit QuantGemv(const QuantGemvArgs& args)
      : a_(args),
        act_(kAct && args.act != RowFn::kNone),
        group_(Quotient(::gpu::wave(), args.parts)),
        part_(::gpu::wave() - group_ * args.parts.by) {}

  // Those of a wave of a grid that shares them all out.
  GPU_FN Units UnitsOfGrid() const {
    return {::gpu::block() * a_.groups.by + group_, ::gpu::blocks() * a_.groups.by, a_.units};
  }

  GPU_FN void Run() {
    ::gpu::launch_dependents();
    Begin(UnitsOfGrid(), a_.x.blocks);
    ::gpu::wait_predecessor();
    const int first = ::gpu::block_y() * kTokens;
    Expect(first);
    Finish(a_.x, first);
  }

  // The first weights of units are under way. A wave without a unit takes the last one's.
  GPU_FN void Begin(const Units& units, int blocks) {
    const int share = Quotient(blocks + a_.parts.by - 1, a_.parts);
    units_ = units;
    begin_ = part_ * share;
    end_ = ::gpu::min(begin_ + share, blocks);
    item_ = ItemOf(::gpu::min(units.first, units.end - 1));
    live_ = units.first < units.end && part_ == 0;
    Seek(item_.segment, item_.unit, 0, blocks);
    Load(item_, begin_);
  }
  // The next ones are brought near: as many as there is time for. All of a large matrix would drive
  // each other out again.
  GPU_FN void Fetch() {
    ahead_ = {item_, begin_};
    StepAhead();
#pragma unroll 1
    for (int left = kQuantFetch; left > 0; --left) TouchAhead();
  }
  // What the first unit's sums meet: to be called where the launch before has ended.
  GPU_FN void Expect(int first) {
    tokens_ = CountOf(a_.header, a_.count) - first;
    if (!kLate) added_ = Added(item_, first);
  }
  // y of rows of x from `first` on.
  GPU_FN void Finish(const QuantRows& x, int first) {
    Loop(
        item_,
        [&](const Item&) {
          return Span{x, first, begin_, end_};
        },
        [&](Item& next) {
          const int unit = next.unit + units_.step;
          if (unit >= units_.end) return false;
          next = ItemOf(unit);
          Seek(next.segment, unit, 0, blocks_);
          return true;
        },
        [&](const Item& item, float(&y)[kValues], const Item& next, bool more) {
          Write(item, first, SumOfParts(y));
          if (more && !kLate) added_ = Added(next, first);
        });
  }

  // See QuantExpertArgs. kTokens is 1.
  template <bool kSum>
  GPU_FN void RunExperts(const QuantExpertArgs& e) {
    ::gpu::launch_dependents();
    ::gpu::wait_predecessor();
    const int row = ::gpu::block_y();
    tokens_ = row < CountOf(a_.header, a_.count) ? 1 : 0;
    const int step = kSum ? a_.parts.by : 1;
    const int last = !kSum ? 1 : e.chosen + (e.shared.codes != nullptr ? 1 : 0);
    const int unit = (::gpu::block() * a_.groups.by + group_) * (::gpu::kWave / lanes()) +
                     ::gpu::lane() / lanes();
    Item item = ItemOf(::gpu::min(unit, a_.units - 1));
    live_ = unit < a_.units && part_ == 0;
    added_ = Added(item, row);
    const auto span = [&](const Item& i) {
      const bool shared = kSum && i.choice == e.chosen;
      const int pair = kSum ? row * e.chosen + i.choice : row;
      Span s{Either(shared, e.shared, a_.x), 0, 0, 0};
      s.row = shared ? row : e.shared_x != 0 ? pair / e.chosen : pair;
      const int share = kSum ? s.x.blocks : Quotient(s.x.blocks + a_.parts.by - 1, a_.parts);
      s.begin = kSum ? 0 : part_ * share;
      s.end = ::gpu::min(s.begin + share, s.x.blocks);
      return s;
    };
    // The item's choice or the next one that there is.
    const auto find = [&](Item& i) {
      for (; i.choice < last; i.choice += step) {
        const bool shared = kSum && i.choice == e.chosen;
        const int pair = kSum ? row * e.chosen + i.choice : row;
        const int id = shared ? 0 : e.ids[pair];
        if (id < 0 || id >= e.experts) continue;
        if (shared) i.segment = 1;
        if (kSum)
          i.weight = shared ? LoadAt(AddressOf(e.gate, e.gate_type, row, 0), e.gate_type)
                            : e.weights[pair];
        Seek(i.segment, i.unit, id * e.expert_bytes, span(i).x.blocks);
        return true;
      }
      return false;
    };
    const Item place = item;
    float sum[kValues] = {};
    item.choice = kSum ? part_ : 0;
    if (tokens_ != 0 && find(item)) {
      Load(item, span(item).begin);
      Loop(
          item, span,
          [&](Item& next) {
            next.choice += step;
            return find(next);
          },
          [&](const Item& i, float(&y)[kValues], const Item&, bool) {
#pragma unroll
            for (int r = 0; r < kValues; ++r) sum[r] += i.weight * y[r];
          });
    }
    Write(place, row, SumOfParts(sum));
  }

  // See QuantExpertUpArgs. kTokens is 1, and k is not split.
  GPU_FN void RunExpertsUp(const QuantExpertUpArgs& u) {
    const QuantExpertArgs& e = u.experts;
    ::gpu::launch_dependents();
    // What needs no memory comes before the wait: arguments too are far away at first.
    const int choices = e.chosen + (u.shared_y.codes != nullptr ? 1 : 0);
    int token = ::gpu::block_y() / choices;
    const int j = ::gpu::block_y() - token * choices;
    if (token >= u.tokens) {  // a block a token that writes the choice
      ::gpu::wait_predecessor();
      token = ::gpu::block_y() - u.tokens * choices;
      if (::gpu::block() == 0 && ::gpu::wave() == 0 && token < CountOf(a_.header, a_.count))
        ChooseInLanes<kRouterUpLane>(u.here.router, u.here.logits + token * u.here.router.experts,
                                     token);
      return;
    }
    const bool shared = j == e.chosen;
    const QuantRows y = Either(shared, u.shared_y, u.y);
    if (::gpu::block() >= y.blocks) return;
    const int pair = token * e.chosen + j, first = ::gpu::block() * 32;
    Item item{first + ::gpu::wave(), shared ? 2 : 0};
    ::gpu::wait_predecessor();
    const int count = CountOf(a_.header, a_.count);
    int id = 0;
    if (!shared && u.here.logits != nullptr) {
      id = ChooseHere(u.here, token, j, reinterpret_cast<int*>(partial() + 32));
    } else if (!shared) {
      id = e.ids[pair];
    }
    if (token >= count) return;  // here: the choice need not wait for the count
    if (id >= 0 && id < e.experts) {
      const int64_t moved = id * e.expert_bytes;
      const auto seek = [&](int unit) { Seek(item.segment, unit, moved, a_.x.blocks); };
      seek(item.unit);
      Load(item, 0);
#pragma unroll 1
      for (int unit = item.unit; unit < first + 32; unit += ::gpu::waves()) {
        seek(unit);
#pragma unroll 1
        for (int line = 0; line < a_.x.blocks; line += ::gpu::kWave) Touch(item.segment, line);
      }
      seek(item.unit);
      const Span x{a_.x, e.shared_x != 0 || shared ? token : pair, 0, a_.x.blocks};
      Loop(
          item, [&](const Item&) { return x; },
          [&](Item& next) {
            next.unit += ::gpu::waves();
            if (next.unit >= first + 32) return false;
            seek(next.unit);
            return true;
          },
          [&](const Item& i, float(&z)[kValues], const Item&, bool) {
            const float v = Activated(SumsOfWave(z));
            if (::gpu::lane() == 0) partial()[i.unit - first] = v;
          });
    } else {
      for (int i = ::gpu::wave(); i < 32; i += ::gpu::waves()) partial()[i] = 0;
    }
    ::gpu::sync();
    if (::gpu::wave() != 0) return;
    float v[kQuantizeValues];
    const int at = ::gpu::lane() % 4 * kQuantizeValues;
#pragma unroll
    for (int i = 0; i < kQuantizeValues; ++i) v[i] = partial()[at + i];
    QuantizeValues(v, y, shared ? token : pair, first + at, ::gpu::lane() < 4);
  }

 private:
  static constexpr int kValues = kQuantUnit * kTokens;  // [tokens][rows of a unit]
  // Beside so many sums there are no registers for what can be found again.
  static constexpr bool kLate = kTokens == 8;
  static constexpr int kLanes = ::gpu::kWave / kValues;  // that have the same of them, summed

  // That have a row's blocks side by side.
  GPU_FN int lanes() const { return kShared ? a_.lanes : ::gpu::kWave; }
  GPU_FN int lane() const { return kShared ? ::gpu::lane() & (a_.lanes - 1) : ::gpu::lane(); }

  // By value: a pointer to one of two arguments would put both into memory.
  GPU_FN static QuantRows Either(bool first, const QuantRows& a, const QuantRows& b) {
    return {first ? a.codes : b.codes, first ? a.sums : b.sums, first ? a.most_rows : b.most_rows,
            first ? a.blocks : b.blocks};
  }
  GPU_FN static float* partial() { return reinterpret_cast<float*>(::gpu::shared()); }

  GPU_FN Item ItemOf(int unit) const {
    Item item;
    item.unit = unit;
#pragma unroll
    for (int i = 1; i < kQuantSegments; ++i)
      if (i < a_.segment_count && !act_ && unit >= a_.segments[i].first_unit) item.segment = i;
    return item;
  }
  GPU_FN int RowOfUnit(const QuantSegment& segment, int unit) const {
    return act_ ? unit : (unit - segment.first_unit) * kQuantUnit;
  }

  // Loads are of this unit from here on, of rows of so many blocks.
  GPU_FN void Seek(int segment, int unit, int64_t moved, int blocks) {
    const QuantSegment& s = a_.segments[segment];
    const int row = RowOfUnit(s, unit);
    planes_ = MovedBy(s.w.planes, moved);
    blocks_ = blocks;
    place_[0] = row * blocks;
    place_[1] = (act_ ? row : ::gpu::min(row + 1, s.w.rows - 1)) * blocks;
    // Both matrices of an act_mul are alike.
    if (act_) apart_ = a_.segments[segment + 1].w.planes.low - s.w.planes.low;
  }
  // f(tag of the format, planes, block of row r of the unit).
  template <class F>
  GPU_FN void EachRow(int segment, int line, F f) const {
    const int b = ::gpu::min(line + lane(), blocks_ - 1);
    WithFormat(Formats(), a_.segments[segment].w.format, [&](auto tag) {
#pragma unroll
      for (int r = 0; r < kQuantUnit; ++r)
        f(tag, kAct && r == 1 ? MovedBy(planes_, apart_) : planes_, place_[r] + b, r);
    });
  }
  GPU_FN void Load(const Item& item, int line) {
    if (kLate) Seek(item.segment, item.unit, 0, blocks_);
    EachRow(item.segment, line, [&](auto tag, const QuantPlanes& p, int at, int r) {
      words_[r] = LoadWords<decltype(tag)::kFormat>(p, at);
    });
  }
  // A place some lines before that of the loads.
  struct Ahead {
    Item item;
    int line = 0;
  };
  GPU_FN void StepAhead() {
    ahead_.line += ::gpu::kWave;
    if (ahead_.line < end_) return;
    ahead_.line = begin_;
    ahead_.item.unit += units_.step;
    if (ahead_.item.unit < units_.end) ahead_.item = ItemOf(ahead_.item.unit);
  }
  GPU_FN void TouchAhead() {
    if (ahead_.item.unit >= units_.end) return;
    const QuantSegment& s = a_.segments[ahead_.item.segment];
    const int row = RowOfUnit(s, ahead_.item.unit),
              b = ::gpu::min(ahead_.line + ::gpu::lane(), blocks_ - 1);
    WithFormat(Formats(), s.w.format, [&](auto tag) {
#pragma unroll
      for (int r = 0; r < kQuantUnit; ++r)
        PrefetchWords<decltype(tag)::kFormat>(s.w.planes,
                                              ::gpu::min(row + r, s.w.rows - 1) * blocks_ + b);
    });
    StepAhead();
  }
  GPU_FN void Touch(int segment, int line) const {
    EachRow(segment, line, [&](auto tag, const QuantPlanes& p, int at, int) {
      PrefetchWords<decltype(tag)::kFormat>(p, at);
    });
  }

  // Item after item, line after line, while the next ones' weights are under way; those of the
  // first are. advance(item) makes it the next one and seeks it, or says that there is none.
  // done(item, y, next): the lanes' sums.
  template <class SpanOf, class Advance, class Done>
  GPU_FN void Loop(Item item, SpanOf span, Advance advance, Done done) {
    float y[kValues] = {};
    for (int line = span(item).begin;;) {
      const Span x = span(item);
      Item next = item;
      int next_line = line + lanes();
      const bool last = next_line >= x.end;
      bool more = true;
      if (last) {
        more = advance(next);
        next_line = span(next).begin;
      }
      Multiply(a_.segments[item.segment].w.format, x, line, y);
      if (more) Load(next, next_line);
      if constexpr (kAhead) TouchAhead();
      if (last) {
        done(item, y, next, more);
        if (!more) return;
#pragma unroll
        for (int i = 0; i < kValues; ++i) y[i] = 0;
      }
      item = next;
      line = next_line;
    }
  }

  // y += the product of what has been loaded.
  GPU_FN void Multiply(QuantFormat format, const Span& span, int line, float (&y)[kValues]) const {
    const int at = line + lane(), b = ::gpu::min(at, span.x.blocks - 1);
    WithFormat(Formats(), format, [&](auto tag) {
      constexpr QuantFormat kF = decltype(tag)::kFormat;
      if constexpr (kTokens == 1) {
        const QuantX x(span.x, span.row, b, at < span.end);
#pragma unroll
        for (int r = 0; r < kQuantUnit; ++r) {
          int codes[8];
          CodesOf<kF>(words_[r], codes);
          y[r] += DotOf<kF>(codes, ScalesOf<kF>(words_[r], b), x);
        }
      } else {
        int codes[kQuantUnit][8];
        QuantScales scales[kQuantUnit];
#pragma unroll
        for (int r = 0; r < kQuantUnit; ++r) {
          CodesOf<kF>(words_[r], codes[r]);
          scales[r] = ScalesOf<kF>(words_[r], b);
        }
#pragma unroll
        for (int m = 0; m < kTokens; ++m) {
          const QuantX x(span.x, ::gpu::min(span.row + m, span.x.most_rows - 1), b, at < span.end);
#pragma unroll
          for (int r = 0; r < kQuantUnit; ++r)
            y[m * kQuantUnit + r] += DotOf<kF>(codes[r], scales[r], x);
        }
      }
    });
  }

  // Which of a unit's values this lane has the sum of, and whether it is the first that has.
  GPU_FN int Value() const {
    return kShared ? lane() >= a_.lanes / 2 ? 1 : 0 : ::gpu::lane() / kLanes;
  }
  GPU_FN bool IsFirst() const {
    return kShared ? (lane() & (a_.lanes / 2 - 1)) == 0 : ::gpu::lane() % kLanes == 0;
  }
  GPU_FN float SumOfLanes(const float (&y)[kValues]) const {
    if constexpr (!kShared) return SumsOfWave(y);
    const int half = a_.lanes / 2;
    const bool upper = (lane() & half) != 0;
    float v = (upper ? y[1] : y[0]) + ::gpu::shuffle_xor(upper ? y[0] : y[1], half);
#pragma unroll 1
    for (int m = half / 2; m > 0; m /= 2) v += ::gpu::shuffle_xor(v, m);
    return v;
  }

  // Of Value(), over its lanes and in part 0 over those that share the unit.
  GPU_FN float SumOfParts(const float (&y)[kValues]) const {
    float v = SumOfLanes(y);
    if (a_.parts.by == 1) return v;
    const int units = ::gpu::kWave / lanes();
    float* mine = partial() + (::gpu::wave() * units + ::gpu::lane() / lanes()) * kValues + Value();
    if (IsFirst()) *mine = v;
    ::gpu::sync();
    if (part_ == 0) {
#pragma unroll 2
      for (int p = 1; p < a_.parts.by; ++p) v += mine[p * units * kValues];
    }
    return v;
  }
  // act(row 0's) * row 1's, where row 0's is.
  GPU_FN float Activated(float v) const {
    const float other = ::gpu::shuffle_xor(v, kLanes);
    return Activation(a_.act, v) * other;
  }

  // The output that this lane writes of an item.
  struct Place {
    int token, row, column;
  };
  GPU_FN Place PlaceOf(const Item& item) const {
    const int i = Value(), r = i % kQuantUnit;
    const QuantSegment& s = a_.segments[item.segment];
    Place place{i / kQuantUnit, RowOfUnit(s, item.unit) + (act_ ? 0 : r), 0};
    place.column = s.column + place.row;
    const bool mine = live_ && IsFirst() && !(act_ && r != 0);
    if (!mine || place.row >= s.w.rows || place.token >= tokens_) place.row = -1;
    return place;
  }
  // Bias and residual.
  GPU_FN float Added(const Item& item, int first) const {
    const Place place = PlaceOf(item);
    float v = 0;
    if (place.row >= 0) {
      const float* bias = a_.segments[item.segment].bias;
      if (bias != nullptr) v = bias[place.row];
      if (a_.residual.base != nullptr)
        v += LoadAt(AddressOf(a_.residual, a_.residual_type, first + place.token, place.column),
                    a_.residual_type);
    }
    return v;
  }
  GPU_FN void Write(const Item& item, int first, float v) const {
    if (act_) v = Activated(v);
    const Place place = PlaceOf(item);
    if (place.row >= 0)
      StoreValue(a_.out, a_.out_type, first + place.token, place.column,
                 v + (kLate ? Added(item, first) : added_));
  }

  const QuantGemvArgs& a_;
  const bool act_;
  const int group_, part_;
  Units units_ = {};
  Item item_ = {};
  int begin_ = 0, end_ = 0;
  // Where loads are: the first blocks of a unit's rows, and a second matrix behind the first.
  QuantPlanes planes_ = {};
  int place_[kQuantUnit] = {}, blocks_ = 0;
  int64_t apart_ = 0;
  QuantWords words_[kQuantUnit];
  Ahead ahead_;
  bool live_ = false;  // this wave writes
  int tokens_ = 0;     // rows of x that there are
  float added_ = 0;
};

}  // namespace vt::gpu
