// What an instruction set's translation unit offers: a table of functions over ranges of work.
// Threads, buffers and plans are the executor's business.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "vt/cpu/vocabulary.h"
#include "vt/ir/dtype.h"

namespace vt::cpu {

// out = x w^T [+ bias] [+ residual] for some panels of one weight.
struct LinearArgs {
  const std::byte* x = nullptr;  // rows of Q8_A32 (formats.h) or of f32; of bf16 for brain_linear
  int64_t x_stride = 0;          // bytes
  int64_t rows = 0;              // of x
  int64_t k = 0;
  const std::byte* w = nullptr;  // panels
  int64_t panel_bytes = 0;
  int64_t n = 0;  // rows of the weight; the last panel may be padded
  float* out = nullptr;
  int64_t out_stride = 0;  // floats
  const float* bias = nullptr;
  const float* residual = nullptr;
  int64_t residual_stride = 0;
  const int32_t* out_rows = nullptr;  // where each row of x goes; none: to the row of its number
};
// Panels [begin, end). `scratch` has LinearScratchBytes(k).
using LinearFn = void (*)(const LinearArgs&, int64_t begin, int64_t end, std::byte* scratch);
// Two panels unpacked to codes or floats, their scales and minima, and the sums of a few rows of x;
// or four panels unpacked to bf16, the codes and scales of one, and sums (brain_kernels.h).
constexpr int64_t LinearScratchBytes(int nr, int64_t k) {
  return int64_t{nr} * k * 10 + k * 8 + (36 << 10);
}

// Row `lane` of a panel as f32.
using ReadRowFn = void (*)(const std::byte* panel, int lane, int64_t k, float* out,
                           std::byte* scratch);

// One layer of a paged cache. A block holds, for each head, K transposed [head_dim][pitch] and V
// [block_size][head_dim], pitch = block_size rounded up to 16; of a latent cache, whose vectors are
// keys and, their first numbers, values, only the latter.
struct KvLayer {
  std::byte* data = nullptr;
  int64_t block_bytes = 0;
  int64_t block_size = 16, pitch = 16;
  int64_t kv_heads = 0, head_dim = 0;
  bool half = true;    // 16 bits, else f32
  bool brain = false;  // bf16 instead of f16
  bool latent = false;
};

struct AttentionArgs {
  const float* q = nullptr;  // [tokens][heads][head_dim]
  int64_t q_stride = 0;      // floats between tokens
  float* out = nullptr;
  int64_t out_stride = 0;
  KvLayer kv;
  int64_t heads = 0, value_dim = 0;
  float scale = 1, softcap = 0;
  int64_t window = 0;
  bool chunked = false;
  bool causal = true;
  const float* sinks = nullptr;  // [heads]: a score of no key, or none
  // The first key that a query at `position` sees (ir::AttentionAttrs::First).
  int64_t First(int64_t position) const {
    if (window <= 0) return 0;
    const int64_t first = chunked ? position - position % window : position - window + 1;
    return first > 0 ? first : 0;
  }
};
// Queries [token_begin, token_end) of one request, the heads of one KV head, against the keys
// [key_begin, key_end). positions are those of the tokens. Writes the output or, when `partial` is
// given, for each (token, head of the group): max, sum, value_dim unnormalised values.
struct AttentionTile {
  int64_t token_begin = 0, token_end = 0;
  const int32_t* positions = nullptr;  // by token
  const int32_t* block_table = nullptr;
  int64_t kv_head = 0;
  int64_t key_begin = 0, key_end = 0;
  bool first = true;  // of the parts of its keys: the sinks are in it
  float* partial = nullptr;
};
using AttentionFn = void (*)(const AttentionArgs&, const AttentionTile&, std::byte* scratch);
inline constexpr int64_t kAttentionKeys = 64;  // keys a tile
inline constexpr int64_t kAttentionQueries =
    48;  // rows (token, head) a tile; more when one token has more heads
constexpr int64_t AttentionScratchBytes(int64_t group, int64_t head_dim) {
  const int64_t rows = kAttentionQueries + group + 8;
  return 4 * (rows * (2 * head_dim + kAttentionKeys + 16 + 4) +
              2 * (kAttentionKeys + 16) * (head_dim + 16)) +
         4096;
}

// Which experts a token goes to: ir::RouterAttrs with the logits' number.
struct RouterArgs {
  int64_t experts = 0, top_k = 1;
  bool sigmoid = false, root = false, normalise = false;
  float scale = 1;
  int64_t groups = 1, top_groups = 1;
  bool group_max = false;
  const float *bias = nullptr, *scales = nullptr;
};
// Of one token: weights and ids [top_k]. `chosen`: the ids, or none. `scratch` has
// RouterScratchFloats.
using RouterFn = void (*)(const RouterArgs&, const float* logits, const float* chosen,
                          float* weights, int32_t* ids, float* scratch);
constexpr int64_t RouterScratchFloats(int64_t experts) { return 3 * experts + 64; }

// A filter along a request's tokens: tokens [first, first + count) of x and y, channels [begin,
// end). `read` and `write` are the slots' rows [width - 1][channels]; none to read: zeros, none to
// write: nothing is kept. They may be the same.
struct ConvArgs {
  const float* x = nullptr;
  int64_t x_stride = 0;
  float* y = nullptr;
  int64_t y_stride = 0;
  const float* w = nullptr;  // [channels][width]
  int64_t channels = 0, width = 0;
  bool silu = false;  // of the result
};
struct ConvTile {
  int64_t first = 0, count = 0, begin = 0, end = 0;
  const float* read = nullptr;
  float* write = nullptr;
};
using ConvFn = void (*)(const ConvArgs&, const ConvTile&, float* scratch);
inline constexpr int64_t kConvChannels = 512;  // a tile, at most
constexpr int64_t ConvScratchFloats(int64_t width) { return 2 * width * kConvChannels; }

// The gated delta rule for tokens [first, first + count) of one request and one head. `read` and
// `write`: the head's state [k_dim][v_dim] in the slots, as for a filter.
struct DeltaArgs {
  const float* qkv = nullptr;
  int64_t qkv_stride = 0;
  const float *a = nullptr, *b = nullptr;  // [tokens][v_heads]
  int64_t a_stride = 0, b_stride = 0;
  const float *rate = nullptr, *dt = nullptr;  // [v_heads]; the rate is exp'd and negated if log_a
  float* y = nullptr;                          // [tokens][v_heads][v_dim]
  int64_t y_stride = 0;
  int64_t k_heads = 0, v_heads = 0, k_dim = 0, v_dim = 0;
  bool log_a = true, tiled = false;
  float eps = 1e-6f;
  // What follows, if anything: rms_norm of a head's values by `norm`, times silu of the gate.
  const float* norm = nullptr;
  float norm_eps = 0, norm_offset = 0;
  const float* gate = nullptr;  // [tokens][v_heads][v_dim]
  int64_t gate_stride = 0;
};
struct DeltaTile {
  int64_t first = 0, count = 0, head = 0;
  const float* read = nullptr;
  float* write = nullptr;
};
using DeltaFn = void (*)(const DeltaArgs&, const DeltaTile&, float* scratch);
// Tokens that go together, and those whose queries and keys are kept at a time.
inline constexpr int64_t kDeltaBlock = 4, kDeltaTokens = 32;
constexpr int64_t DeltaScratchFloats(int64_t k_dim, int64_t v_dim) {
  const int64_t columns = v_dim + 64;
  return k_dim * columns + (kDeltaBlock + kDeltaTokens) * 2 * k_dim + 2 * columns;
}

enum class Binary : uint8_t { kAdd, kSub, kMul, kDiv };
enum class Activate : uint8_t {
  kSilu,
  kGeluTanh,
  kGelu,
  kRelu,
  kSigmoid,
  kTanh,
  kExp,
  kSoftplus,
  kSquaredRelu,
  kQuickGelu
};

struct KernelSet {
  std::string name;  // "avx2"
  int nr = 8;
  bool pairs = false;  // panels of bf16 weights are [k / 2][nr][2]
  LinearFn linear[ir::kDTypeCount] = {};
  ReadRowFn read_row[ir::kDTypeCount] = {};
  // Linears over rows of bf16, in which weights count as bf16 too. They are taken for steps of at
  // least `brain_tokens` tokens; weights of bf16 always take them.
  LinearFn brain_linear[ir::kDTypeCount] = {};
  int64_t brain_tokens = 0;

  // Rows of n floats. Outputs may be their inputs.
  void (*quantize)(const float* x, int64_t n, std::byte* out) = nullptr;
  void (*to_brain)(const float* x, int64_t n, std::byte* out) = nullptr;  // bf16
  void (*rms_norm)(const float* x, const float* w, float eps, float offset, int64_t n,
                   float* y) = nullptr;
  void (*layer_norm)(const float* x, const float* w, const float* b, float eps, float offset,
                     int64_t n, float* y) = nullptr;
  void (*binary)(Binary op, const float* a, const float* b, int64_t n, float* y) = nullptr;
  void (*scale)(const float* x, float multiply, float add, int64_t n, float* y) = nullptr;
  void (*clamp)(const float* x, float low, float high, int64_t n, float* y) = nullptr;
  void (*activate)(Activate fn, const float* x, int64_t n, float* y) = nullptr;
  void (*act_mul)(Activate fn, const float* g, const float* u, int64_t n, float* y) = nullptr;
  void (*softcap)(const float* x, float inverse, float cap, int64_t n, float* y) = nullptr;
  void (*softmax)(const float* x, int64_t n, bool log, float* y) = nullptr;
  // cos and sin: rotary / 2 values each.
  void (*rope)(const float* x, const float* cos, const float* sin, int64_t rotary, bool interleaved,
               int64_t n, float* y) = nullptr;
  int32_t (*argmax)(const float* x, int64_t n) = nullptr;
  VocabularyKernels vocabulary;

  RouterFn router = nullptr;
  // sum over j < count of weights[j] * x[j * stride + i], of n values.
  void (*weighted_sum)(const float* x, int64_t stride, const float* weights, int64_t count,
                       int64_t n, float* y) = nullptr;
  // y += factor * x
  void (*add_scaled)(const float* x, float factor, int64_t n, float* y) = nullptr;
  ConvFn causal_conv = nullptr;
  DeltaFn gated_delta = nullptr;

  // K and V of one token ([kv_heads][head_dim] each) into a slot; of a latent cache k alone.
  void (*kv_write)(const KvLayer& kv, const float* k, const float* v, int64_t slot) = nullptr;
  AttentionFn attention = nullptr;
  // `count` values of a token's row of a latent cache, from `begin` on.
  void (*kv_read)(const KvLayer& kv, int64_t slot, int64_t begin, int64_t count,
                  float* out) = nullptr;
  void (*kv_store)(const KvLayer& kv, int64_t slot, int64_t begin, int64_t count,
                   const float* x) = nullptr;
  float (*dot)(const float* a, const float* b, int64_t n) = nullptr;
  // Joins `parts` partial results, `part_stride` floats apart, of value_dim each.
  void (*attention_join)(const float* partial, int64_t parts, int64_t part_stride,
                         int64_t value_dim, float* out) = nullptr;
};

// One a translation unit; those of other architectures do not exist.
KernelSet KernelsScalar();
#if defined(__x86_64__)
KernelSet KernelsAvx2();
KernelSet KernelsAvx512();
KernelSet KernelsAvx512Vnni();
KernelSet KernelsAvx512Bf16();
KernelSet KernelsAmx();
#endif

}  // namespace vt::cpu
