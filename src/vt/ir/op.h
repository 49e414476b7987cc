// The op table: every operation, its arity and what it computes, in one place. Reference functions
// are in interpreter.cc, shape rules in shape.cc, costs in roofline.cc; fused ops are defined by
// primitives in fused.cc.
#pragma once

#include <cstdint>
#include <string_view>

namespace vt::ir {

// X(identifier, text name, attributes, what it computes)
#define VT_PRIMITIVE_OPS(X)                                                                        \
  X(Embed, "embed", none, "(table [V, D], ids [T]) -> [T, D]: rows of the table")                  \
  X(Linear, "linear", LinearAttrs,                                                                 \
    "(x [.., K], w0 [N0, K].., b0 [N0]..) -> [.., N0 + ..]: x w^T + b; beside x of bf16 w may "    \
    "be rounded to bf16")                                                                          \
  X(Add, "add", none, "(a, b) -> a + b; b of the same shape or [D]")                               \
  X(Sub, "sub", none, "(a, b) -> a - b")                                                           \
  X(Mul, "mul", none, "(a, b) -> a * b")                                                           \
  X(Div, "div", none, "(a, b) -> a / b")                                                           \
  X(Scale, "scale", ScaleAttrs, "x -> x * multiply + add")                                         \
  X(Unary, "unary", UnaryAttrs, "x -> fn(x)")                                                      \
  X(Clamp, "clamp", ClampAttrs, "x -> min(max(x, low), high)")                                     \
  X(RmsNorm, "rms_norm", NormAttrs,                                                                \
    "(x [.., D], w [D] if any) -> x / sqrt(mean(x^2) + eps) * (w + offset)")                       \
  X(LayerNorm, "layer_norm", NormAttrs,                                                            \
    "(x [.., D], w [D], b [D] if any) -> (x - mean) / std * w + b")                                \
  X(Softmax, "softmax", none, "x -> exp(x - max) / sum over the last dimension")                   \
  X(LogSoftmax, "log_softmax", none, "x -> x - logsumexp over the last dimension")                 \
  X(Rope, "rope", RopeAttrs, "(x [T, H, D], positions [T]) -> rotated pairs")                      \
  X(KvWrite, "kv_write", none,                                                                     \
    "(state, k [T, Hk, D], v [T, Hk, D], slots [T]) -> state; of a latent one without v")          \
  X(Attention, "attention", AttentionAttrs,                                                        \
    "(q [T, H, D], state, positions, query_start, seq_lens, block_table, sinks [H] if any) -> "    \
    "[T, H * Dv]")                                                                                 \
  X(HeadLinear, "head_linear", none,                                                               \
    "(x [T, H, K], w [H, N, K]) -> [T, H, N]: each head by a matrix of its own")                   \
  X(Gather, "gather", GatherAttrs,                                                                 \
    "(x [T, D], rows [O]) -> [O, n D]: the n rows from each of `rows` on, side by side")           \
  X(StateRows, "state_rows", none,                                                                 \
    "(state, rows [T], x [T, D] if any) -> [T, D]: slot rows[t] of the state; below 0 the row "    \
    "of x, or zeros")                                                                              \
  X(Reshape, "reshape", ReshapeAttrs, "x -> the same elements in another shape (a view)")          \
  X(Slice, "slice", SliceAttrs, "x [.., N] -> [.., size] (a view with the row stride of x)")       \
  X(Concat, "concat", none, "(a [.., N], b [.., M]) -> [.., N + M]")                               \
  X(Convert, "convert", ConvertAttrs, "x -> the same values in another plain dtype")               \
  X(Quantize, "quantize", ConvertAttrs, "x [.., K] -> activation blocks (Q8_A32)")                 \
  X(Router, "router", RouterAttrs,                                                                 \
    "(logits [T, E], bias [E] if any, scales [E] if any) -> (weights [T, k], ids i32 [T, k]): "    \
    "the experts of a token")                                                                      \
  X(GroupedLinear, "grouped_linear", GroupedLinearAttrs,                                           \
    "(x [T, K] or [T, k, K], ids [T, k], W0 [E, N0, K]..) -> [T, k, N0 + ..]: each by the "        \
    "matrix of its id; zeros for ids below 0")                                                     \
  X(ExpertBias, "expert_bias", none,                                                               \
    "(y [T, k, N], ids [T, k], b [E, N]) -> y + b[ids]; y for ids below 0")                        \
  X(ExpertSum, "expert_sum", none,                                                                 \
    "(y [T, k, N], weights [T, k]) -> [T, N]: the weighted sum over k")                            \
  X(ScaleRows, "scale_rows", none, "(x [.., N], s [.., 1]) -> x * s")                              \
  X(CausalConv, "causal_conv", ConvAttrs,                                                          \
    "(x [T, C], w [C, W], state, query_start, state_read, state_write) -> (y [T, C], state): "     \
    "a filter a channel along each request's tokens")                                              \
  X(GatedDelta, "gated_delta", DeltaAttrs,                                                         \
    "(qkv [T, C], a [T, Hv], b [T, Hv], A [Hv], dt [Hv], state, query_start, state_read, "         \
    "state_write) -> (y [T, Hv, Dv], state): the gated delta rule; see DeltaAttrs")                \
  X(Compress, "compress", CompressAttrs,                                                           \
    "(raw state, entries state, positions, query_start, seq_lens, raw table, entries table, bias " \
    "[ratio, C], w [D]) -> entries state: an entry where a window of tokens ends")                 \
  X(IndexEntries, "index_entries", EntryAttrs,                                                     \
    "(q [T, H, D], weights [T, H], entries state, positions, query_start, seq_lens, table) -> "    \
    "ids "                                                                                         \
    "i32 [T, k]: the best entries, rising; then -1")                                               \
  X(EntryAttention, "entry_attention", EntryAttrs,                                                 \
    "(q [T, H, D], window state, entries state, positions, query_start, seq_lens, window table, "  \
    "entries table, sinks [H], ids [T, k] if top_k) -> [T, H * D]: over a window and entries")     \
  X(HyperCollapse, "hyper_collapse", HyperAttrs,                                                   \
    "(x [T, H, D], mix [T, M], base [M], scale [3]) -> (y [T, D], gates f32 [T, H + H H]); "       \
    "without "                                                                                     \
    "rounds M is H, scale [1], and y is all")                                                      \
  X(HyperExpand, "hyper_expand", none,                                                             \
    "(x [T, H, D], y [T, D], gates [T, H + H H]) -> [T, H, D]: gate y + the gates' matrix^T x")    \
  X(HashRouter, "hash_router", RouterAttrs,                                                        \
    "(logits [T, E], table [V, k], ids [T]) -> (weights [T, k], ids i32 [T, k]): the experts "     \
    "that "                                                                                        \
    "the table has for a token")                                                                   \
  X(ArgMax, "argmax", none, "x [O, V] -> i32 [O]; ties to the lower id; NaN never wins")           \
  X(TokenFeed, "token_feed", SamplerAttrs,                                                         \
    "(ids [T], state) -> i32 [T]: ids below 0 become the last token of slot -1 - id")              \
  X(Sample, "sample", SamplerAttrs,                                                                \
    "(logits [O, V], params [O, 32], state) -> (tokens i32 [O], state); see sampling.h")           \
  X(TopLogprobs, "top_logprobs", none,                                                             \
    "(logits [O, V], params [O, 32], tokens [O]) -> (values [O, 22], ids i32 [O, 20])")

// Fused ops: each is defined by the primitives named here (fused.cc holds the definition as data).
#define VT_FUSED_OPS(X)                                                                           \
  X(AddRmsNorm, "add_rms_norm", FusedAttrs, "(a, b, w) -> (s = a + b, rms_norm(s, w))")           \
  X(RmsNormAdd, "rms_norm_add", FusedAttrs, "(x, w, r) -> r + rms_norm(x, w): Gemma's sandwich")  \
  X(ActMul, "act_mul", FusedAttrs, "(g, u) -> fn(g) * u")                                         \
  X(RmsNormRope, "rms_norm_rope", FusedAttrs, "(x, w, positions) -> rope(rms_norm(x, w))")        \
  X(LinearAdd, "linear_add", FusedAttrs, "(x, w, r) -> linear(x, w) + r")                         \
  X(RmsNormQuantize, "rms_norm_quantize", FusedAttrs, "(x, w) -> quantize(rms_norm(x, w))")       \
  X(AddRmsNormQuantize, "add_rms_norm_quantize", FusedAttrs,                                      \
    "(a, b, w) -> (s, quantize(rms_norm(s, w)))")                                                 \
  X(ActMulQuantize, "act_mul_quantize", FusedAttrs, "(g, u) -> quantize(fn(g) * u)")              \
  X(SoftCap, "softcap", FusedAttrs, "x -> c * tanh(x / c)")                                       \
  X(RopeKvWrite, "rope_kv_write", FusedAttrs,                                                     \
    "(q, k, v, positions, state, slots) -> (rope(q), state with rope(k) and v)")                  \
  X(NormRopeKvWrite, "norm_rope_kv_write", FusedAttrs,                                            \
    "(q, k, v, positions, state, slots, wq, wk) -> the same of rms_norm(q, wq), rms_norm(k, wk)") \
  X(RopeAttention, "rope_attention", FusedAttrs,                                                  \
    "(q, k, v, positions, state, slots, query_start, seq_lens, table, sinks if any) -> "          \
    "(attention, state): rope_kv_write and the attention over it")                                \
  X(NormRopeAttention, "norm_rope_attention", FusedAttrs,                                         \
    "(q, k, v, positions, state, slots, wq, wk, query_start, seq_lens, table, sinks if any) -> "  \
    "the same of norm_rope_kv_write")                                                             \
  X(LatentWrite, "latent_write", FusedAttrs,                                                      \
    "(x [T, 1, N + R], w [N], positions, state, slots) -> state with rms_norm(x[.. N], w), "      \
    "rope(x[N ..])")                                                                              \
  X(LatentQuery, "latent_query", FusedAttrs,                                                      \
    "(x [T, H, K + R], w [H, N, K], positions) -> [T, H, N + R]: head_linear(x[.. K], w), "       \
    "rope(x[K ..])")                                                                              \
  X(LatentQueryWrite, "latent_query_write", FusedAttrs,                                           \
    "(x, w, positions, y, w_norm, state, slots) -> (latent_query(x, w, positions), state): that " \
    "and latent_write(y, w_norm, positions, state, slots)")                                       \
  X(RmsNormLinear, "rms_norm_linear", FusedAttrs,                                                 \
    "(x, w, W0.., b0..) -> linear(rms_norm(x, w), W0.., b0..)")                                   \
  X(GatedDeltaNet, "gated_delta_net", FusedAttrs,                                                 \
    "(qkv, w_conv, state, query_start, state_read, state_write, a, b, A, dt, z, w_norm) -> (y, "  \
    "state): filter, fn, gated delta, rms_norm(.., w_norm) * fn(z)")                              \
  X(GroupedLinearActMul, "grouped_linear_act_mul", FusedAttrs,                                    \
    "(x, ids, W0, W1) -> fn(grouped(x, ids, W0)) * grouped(x, ids, W1)")                          \
  X(GroupedLinearSum, "grouped_linear_sum", FusedAttrs,                                           \
    "(x, ids, weights, W) -> expert_sum(grouped(x, ids, W), weights)")                            \
  X(LinearActMul, "linear_act_mul", FusedAttrs, "(x, W0, W1) -> fn(x W0^T) * (x W1^T)")           \
  X(RmsNormLinearActMul, "rms_norm_linear_act_mul", FusedAttrs,                                   \
    "(x, w, W0, W1) -> linear_act_mul(rms_norm(x, w), W0, W1)")                                   \
  X(NormAddNormLinear, "norm_add_norm_linear", FusedAttrs,                                        \
    "(x, w1, r, w2, W0.., b0..) -> (s = r + rms_norm(x, w1), linear(rms_norm(s, w2), W0.., "      \
    "b0..))")                                                                                     \
  X(NormAddNormLinearActMul, "norm_add_norm_linear_act_mul", FusedAttrs,                          \
    "(x, w1, r, w2, W0, W1) -> (s = r + rms_norm(x, w1), linear_act_mul(rms_norm(s, w2), W0, "    \
    "W1))")                                                                                       \
  X(RmsNormQuantizeLinear, "rms_norm_quantize_linear", FusedAttrs,                                \
    "(x, w, W0.., b0..) -> linear(quantize(rms_norm(x, w)), W0.., b0..)")                         \
  X(QuantizeLinearAdd, "quantize_linear_add", FusedAttrs,                                         \
    "(x, W, r) -> linear(quantize(x), W) + r")                                                    \
  X(ActMulQuantizeLinearAdd, "act_mul_quantize_linear_add", FusedAttrs,                           \
    "(g, u, W, r) -> linear(quantize(fn(g) * u), W) + r")                                         \
  X(NormRouter, "norm_router", FusedAttrs,                                                        \
    "(x, w, W, bias if any) -> (quantize(h), router(linear(h, W), bias)), h = rms_norm(x, w)")    \
  X(RmsNormRouter, "rms_norm_router", FusedAttrs,                                                 \
    "(x, w, W, bias if any) -> (h, router(linear(h, W), bias)), h = rms_norm(x, w)")              \
  X(NormRouterGate, "norm_router_gate", FusedAttrs,                                               \
    "(x, w, W, W1, bias if any) -> the same, and fn(linear(h, W1)): a shared expert's gate")      \
  X(GroupedLinearActMulQuantize, "grouped_linear_act_mul_quantize", FusedAttrs,                   \
    "(x, ids, W0, W1) -> quantize(grouped_linear_act_mul(x, ids, W0, W1))")                       \
  X(ExpertsUp, "experts_up", FusedAttrs,                                                          \
    "(x, ids, W0, W1, S0, S1) -> (grouped_linear_act_mul_quantize, the same by a shared expert: " \
    "quantize(linear_act_mul(x, S0, S1)))")                                                       \
  X(ExpertsActMul, "experts_act_mul", FusedAttrs,                                                 \
    "(x, ids, W0, W1, S0, S1) -> (grouped_linear_act_mul, the same by a shared expert: "          \
    "linear_act_mul(x, S0, S1))")                                                                 \
  X(GroupedLinearSumAdd, "grouped_linear_sum_add", FusedAttrs,                                    \
    "(x, ids, weights, W, r) -> r + grouped_linear_sum(x, ids, weights, W)")                      \
  X(GroupedLinearSumAddAdd, "grouped_linear_sum_add_add", FusedAttrs,                             \
    "(x, ids, weights, W, z, r) -> r + (z + grouped_linear_sum(x, ids, weights, W)): z of a "     \
    "shared expert")                                                                              \
  X(ExpertsDown, "experts_down", FusedAttrs,                                                      \
    "(x, ids, weights, W, z, S, gate, r) -> r + grouped_linear_sum(x, ids, weights, W) + gate * " \
    "linear(z, S)")                                                                               \
  X(ExpertsDownUngated, "experts_down_ungated", FusedAttrs,                                       \
    "(x, ids, weights, W, z, S, r) -> r + grouped_linear_sum(x, ids, weights, W) + linear(z, S)")

enum class Op : uint8_t {
#define VT_OP(id, ...) k##id,
  VT_PRIMITIVE_OPS(VT_OP) VT_FUSED_OPS(VT_OP)
#undef VT_OP
};

inline constexpr int kPrimitiveCount = 0
#define VT_OP(id, ...) +1
    VT_PRIMITIVE_OPS(VT_OP)
#undef VT_OP
    ;
inline constexpr int kOpCount = kPrimitiveCount
#define VT_OP(id, ...) +1
    VT_FUSED_OPS(VT_OP)
#undef VT_OP
    ;

// Of ops that write a state: which input is the version they take, and which output the next one.
struct StateWrite {
  int input = -1, output = -1;  // -1: the op writes no state
};
constexpr StateWrite WriteOf(Op op) {
  if (op == Op::kKvWrite) return {0, 0};
  if (op == Op::kCompress) return {1, 0};
  if (op == Op::kSample || op == Op::kCausalConv) return {2, 1};
  if (op == Op::kGatedDelta) return {5, 1};
  if (op == Op::kGatedDeltaNet) return {2, 1};
  if (op == Op::kLatentWrite) return {3, 0};
  if (op == Op::kLatentQueryWrite) return {5, 1};
  if (op == Op::kRopeKvWrite || op == Op::kNormRopeKvWrite || op == Op::kRopeAttention ||
      op == Op::kNormRopeAttention)
    return {4, 1};
  return {};
}
constexpr bool WritesState(Op op) { return WriteOf(op).input >= 0; }

std::string_view Name(Op op);
std::string_view Meaning(Op op);
inline bool IsFused(Op op) { return static_cast<int>(op) >= kPrimitiveCount; }

}  // namespace vt::ir
