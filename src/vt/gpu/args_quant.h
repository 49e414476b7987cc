// What the kernels of quantised matrices are told, and how such a matrix stands on the device: the
// host side is quant_layout.cc and quant_steps.cc.
#pragma once

#include "vt/gpu/args_attention.h"
#include "vt/gpu/args_router.h"
#include "vt/gpu/args_rows.h"

namespace vt::gpu {

enum class QuantFormat : int32_t {
  kQ4_0,
  kQ4_1,
  kQ5_0,
  kQ5_1,
  kQ8_0,
  kQ2_K,
  kQ3_K,
  kQ4_K,
  kQ5_K,
  kQ6_K,
  kIQ4_NL,
  kIQ4_XS,
  kMXFP4,
  kF8_32,
  kPlain,  // values of the device's type, for tiles alone: rows in the low plane
};
inline constexpr int kQuantFormats = 14;  // of blocks

// A row is blocks of 32 values, eight of them a superblock in formats that have those. Its bits
// stand in up to four planes, each of them [rows] of a row's blocks one after the other:
//   low    the low 2, 4 or 8 bits of the codes of a block. Eight words of four codes each, c0..c7,
//          are stored as 8 bits: themselves; 4 bits: c0 | c4 << 4 .. c3 | c7 << 4; 2 bits:
//          c0 | c1 << 2 | c2 << 4 | c3 << 6, and so c4..c7
//   high   the bits above: 1 bit: c0 | c1 << 1 .. | c7 << 7; 2 bits: as the low plane of 2 bits
//   block  scales of a block
//   super  scales of a superblock
// so that lanes that have neighbouring blocks read neighbouring bytes.
//
// A value is scale * (code - zero) + min.
enum class QuantScale : int32_t {
  kHalf,        // block: f16 d
  kHalfMin,     // block: f16 d, f16 min
  kSuperMin,    // super: f16 d, f16 dmin, low 4 bits of 8 scales, of 8 mins, high 2 bits of both;
                // d * scale, -dmin * min
  kSuper,       // super: f16 d, high 2 bits of 8 scales, low 4 bits; d * (scale - 32)
  kPairs,       // block: i8 scale of 16 values each; super: f16 d
  kPairsMin,    // block: 4 bits of scale, of min, of 16 values each; super: f16 d, f16 dmin
  kSuperPairs,  // super: f16 d, 16 bits of nothing, low 4 bits of 16 scales, high 2 bits;
                // d * (scale - 32) of 16 values each
  kPower,       // block: u8 e; 2^(e - 128)
  kFloat,       // block: f32
};
// What codes are.
enum class QuantCodes : int32_t {
  kIntegers,
  kIQ4,  // places in IQ4's table
  kFP4,  // places in the table of 4-bit floats, which is twice what they are
  kF8,   // 8-bit floats: sums are of floats
};
struct QuantSpec {
  int low_bits, high_bits;
  int block, super;  // bytes
  int zero;
  QuantScale scale;
  QuantCodes codes = QuantCodes::kIntegers;
};
inline constexpr QuantSpec kQuantSpecs[kQuantFormats] = {
    {4, 0, 2, 0, 8, QuantScale::kHalf},                     // Q4_0
    {4, 0, 4, 0, 0, QuantScale::kHalfMin},                  // Q4_1
    {4, 1, 2, 0, 16, QuantScale::kHalf},                    // Q5_0
    {4, 1, 4, 0, 0, QuantScale::kHalfMin},                  // Q5_1
    {8, 0, 2, 0, 0, QuantScale::kHalf},                     // Q8_0: codes are i8
    {2, 0, 2, 4, 0, QuantScale::kPairsMin},                 // Q2_K
    {2, 1, 0, 16, 4, QuantScale::kSuperPairs},              // Q3_K
    {4, 0, 0, 16, 0, QuantScale::kSuperMin},                // Q4_K
    {4, 1, 0, 16, 0, QuantScale::kSuperMin},                // Q5_K
    {4, 2, 2, 2, 32, QuantScale::kPairs},                   // Q6_K
    {4, 0, 2, 0, 0, QuantScale::kHalf, QuantCodes::kIQ4},   // IQ4_NL
    {4, 0, 0, 8, 0, QuantScale::kSuper, QuantCodes::kIQ4},  // IQ4_XS
    {4, 0, 1, 0, 0, QuantScale::kPower, QuantCodes::kFP4},  // MXFP4
    {8, 0, 4, 0, 0, QuantScale::kFloat, QuantCodes::kF8},   // F8_32
};

struct QuantPlanes {
  const char *low = nullptr, *high = nullptr, *block = nullptr, *super = nullptr;
};
struct QuantMatrix {
  QuantPlanes planes;
  QuantFormat format = QuantFormat::kQ4_0;
  int32_t rows = 0;
};

// A quantised activation: the codes of all rows [most_rows][k], then of each block of 32 of them
// its scale and the sums of its halves' codes.
struct QuantSum {
  float scale = 0;
  int16_t sum[2] = {};
};
struct alignas(8) QuantPair {
  uint32_t v[2];
};
struct QuantRows {
  int8_t* codes = nullptr;
  QuantSum* sums = nullptr;
  int32_t most_rows = 1, blocks = 0;  // of 32 values a row
};

// y = quantize(f(x)): of rows of k values, eight a thread.
struct QuantizeArgs {
  const Header* header = nullptr;
  View x, b;  // b.rows.base: nullptr for none
  QuantRows y;
  Count count;
  RowFn fn = RowFn::kNone;  // fn(x) * b
};
inline constexpr int kQuantizeThreads = 128;

// The norm of rows: x / rms * (w + offset).
struct RowNorm {
  const float* w = nullptr;
  float eps = 0, offset = 0;
};

// s = x + add, which `sum` keeps; y = quantize(rms_norm(s, w)). A block a row.
struct QuantizeNormArgs {
  const Header* header = nullptr;
  View x, add, sum;  // add and sum may be absent
  QuantRows y;
  Count count;
  RowNorm norm;
};
inline constexpr int kQuantizeNormThreads = 512;

enum class ValueType : int32_t { kF32, kBF16, kF16 };

// Rows of the weights and their place in the output.
struct QuantSegment {
  QuantMatrix w;
  const float* bias = nullptr;  // [rows], or none
  int32_t column = 0;           // of the output, of the first row
  int32_t first_unit = 0;       // units of the segments before
};
inline constexpr int kQuantSegments = 4;

// n / by for n * by below 2^16, without a division.
struct QuantDivisor {
  constexpr QuantDivisor(int n = 1) : by(n), inverse(65536 / n + 1) {}
  int32_t by, inverse;
};

// Few rows of a quantised x: y = x W^T (+ bias) (+ residual), or act(x W0^T) * (x W1^T).
//
// A wave has units, one after the other: kQuantUnit rows of one segment, or for an act_mul half of
// them of segment 0 and half of segment 1, which are alike. Lanes have blocks of 32 values of k. A
// block takes `groups` units at a time. Where the grid has room for all units at once, the k of a
// unit may be split over `parts` waves. As many rows of x as the kernel's name says are taken at
// once; block_y() counts such groups.
struct QuantGemvArgs {
  const Header* header = nullptr;
  QuantRows x;
  Rows out, residual;  // residual.base: nullptr for none
  ValueType out_type = ValueType::kF32, residual_type = ValueType::kF32;
  QuantSegment segments[kQuantSegments];
  int32_t segment_count = 1;
  Count count;
  int32_t units = 1;
  QuantDivisor parts, groups;
  int32_t lanes = 0;  // of sums of experts: how many have a unit, a power of two up to a wave
  RowFn act = RowFn::kNone;  // else an act_mul's
};
inline constexpr int kQuantUnit = 2;
inline constexpr int kQuantGemvThreads = 256;
// Of a block that quantises its row for itself: as few as can be do.
inline constexpr int kQuantFromThreads = 768;
inline constexpr int kQuantFetch = 4;  // lines of a wave that are brought near at once
inline constexpr int kQuantExpertsUpThreads = 512;
// Of quant_experts_down: rows of a lane, and as many waves as experts of a token.
inline constexpr int kQuantDownRows = 8, kQuantDownWaves = 16;

// A row of values.
struct TypedRow {
  const void* p = nullptr;
  ValueType type = ValueType::kF32;
  int32_t aligned = 1;  // to 16 bytes
};

// The same of one row of x that each block quantises for itself: rms_norm(x), where there is a
// norm, else fn(x) * b, else x. (linear.x has only its size.)
struct QuantFromArgs {
  QuantGemvArgs linear;
  TypedRow x, b;  // b.p: nullptr for none
  RowFn fn = RowFn::kNone;
  RowNorm norm;          // w: nullptr for none
  int32_t x_offset = 0;  // of the quantised row in shared memory, behind the sums of waves
};

// The same where every row of out has a matrix of its own, by its id, of `experts` that stand
// expert_bytes apart: a row of x a row of out, or one for `chosen` rows of them. Without an expert
// a row is zeros. block_y() is the row of out.
//
// With weights, rows of out are sums of their `chosen` rows times their weights, and the parts of a
// block are such rows instead of shares of k. A shared expert, whose matrix is segment 1 and whose
// weight a token's gate, is one more of them.
struct QuantExpertArgs {
  QuantGemvArgs linear;
  const int32_t* ids = nullptr;
  const float* weights = nullptr;
  int64_t expert_bytes = 0;
  int32_t experts = 1, chosen = 1;
  int32_t shared_x = 0;  // x has a row for `chosen` ids
  QuantRows shared;      // of the shared expert: its row of a token; codes: nullptr for none
  Rows gate;
  ValueType gate_type = ValueType::kF32;
};

// Of an act_mul: its result, quantised: 32 values of it a block, one a unit. block_y() is a token's
// choice, or its shared expert, whose matrices are segments 2 and 3.
struct QuantExpertUpArgs {
  QuantExpertArgs experts;
  QuantRows y, shared_y;  // shared_y.codes: nullptr for none
  int32_t tokens = 1;     // of the bucket
  RouterHere here;        // with logits, block_y() counts blocks that write the choice too
};

// Many rows: y = x W^T (+ bias) (+ residual) of one segment, on matrix cores. Weights are unpacked
// to x's type in shared memory.
struct QuantTileArgs {
  const Header* header = nullptr;
  Rows x, out, residual;  // residual.base: nullptr for none; of x's type
  QuantSegment segment;
  Count count;
  int32_t k = 0, blocks = 0;  // blocks of 32 values a row of weights
  int32_t out_f32 = 0;
  int32_t packed = 0;  // rows of x can be read by 16 bytes
};
// Blocks of a kernel: rows of x by rows of the weights, waves, and stages of unpacked weights.
struct QuantTileShape {
  int rows, columns, waves, stages;
};
inline constexpr int kQuantStep = 64;  // values of k at once
inline constexpr QuantTileShape kQuantTileFew = {16, 64, 4, 2}, kQuantTileSome = {64, 64, 4, 2},
                                kQuantTileMany = {128, 64, 8, 2}, kQuantTile4 = {64, 64, 4, 1};

// Where every row of out has a matrix of its own: see QuantExpertArgs. Rows are dealt to tiles of
// one expert each on the device: `order` has rows of out, expert by expert, and tile t the `count`
// of them from `first` on.
struct QuantExpertTile {
  int32_t expert = 0, first = 0, count = 0, pad = 0;
};
struct QuantExpertTileArgs {
  QuantTileArgs linear;
  const QuantExpertTile* tiles = nullptr;
  const int32_t* order = nullptr;
  int64_t expert_bytes = 0;
  int32_t chosen = 1, shared_x = 0;
};

// Rows as values: y[i] = w[index[i]], zeros for rows that w does not have; without an index w[i].
struct QuantExpandArgs {
  const Header* header = nullptr;
  QuantMatrix w;
  int32_t blocks = 0;  // of 32 values a row
  const int32_t* index = nullptr;
  Rows y;
  Count count;
};
inline constexpr int kQuantExpandThreads = 128;

}  // namespace vt::gpu
