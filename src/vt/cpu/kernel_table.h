// Fills a KernelSet with the kernels of the including translation unit's instruction set.
#pragma once

#include "vt/cpu/attention_kernels.h"
#include "vt/cpu/brain_kernels.h"
#include "vt/cpu/delta_kernels.h"
#include "vt/cpu/expert_kernels.h"
#include "vt/cpu/float8_kernels.h"
#include "vt/cpu/float_kernels.h"
#include "vt/cpu/quant_kernels.h"
#include "vt/cpu/row_kernels.h"
#include "vt/cpu/vocabulary_kernels.h"

namespace vt::cpu {
namespace {

template <ir::DType... T>
inline void AddQuantised(KernelSet& s) {
  ((s.linear[static_cast<int>(T)] = QuantLinear<T>,
    s.read_row[static_cast<int>(T)] = QuantReadRow<T>),
   ...);
}
template <ir::DType... T>
inline void AddPlain(KernelSet& s) {
  ((s.linear[static_cast<int>(T)] = FloatLinear<T>,
    s.read_row[static_cast<int>(T)] = FloatReadRow<T>),
   ...);
}

#if defined(__AMX_BF16__)
template <ir::DType... T>
inline void AddTiles(KernelSet& s) {
  ((s.brain_linear[static_cast<int>(T)] = TileLinear<T>), ...);
}
#endif

inline void FillKernels(KernelSet& s) {
  using enum ir::DType;
  s.nr = kNr;
  AddQuantised<kQ4_0, kQ4_1, kQ5_0, kQ5_1, kQ8_0, kQ2_K, kQ3_K, kQ4_K, kQ5_K, kQ6_K, kIQ4_NL,
               kIQ4_XS, kMXFP4>(s);
  AddPlain<kF32, kF16, kBF16>(s);
  s.linear[static_cast<int>(kF8_32)] = F8Linear;
  s.read_row[static_cast<int>(kF8_32)] = F8ReadRow;
#if defined(__AVX512BF16__)
  s.pairs = true;
  s.linear[static_cast<int>(kBF16)] = PairFloatLinear;
  s.read_row[static_cast<int>(kBF16)] = PairReadRow;
  s.brain_linear[static_cast<int>(kBF16)] = PairLinear;
#endif
#if defined(__AMX_BF16__)
  AddTiles<kBF16, kQ4_0, kQ4_1, kQ5_0, kQ5_1, kQ8_0, kQ2_K, kQ3_K, kQ4_K, kQ5_K, kQ6_K, kIQ4_NL,
           kIQ4_XS, kMXFP4, kF8_32>(s);
  s.brain_tokens = 32;
#endif
  s.quantize = QuantizeRow;
  s.to_brain = ToBrainRow;
  s.rms_norm = RmsNormRow;
  s.layer_norm = LayerNormRow;
  s.binary = BinaryRow;
  s.scale = ScaleRow;
  s.clamp = ClampRow;
  s.activate = ActivateRow;
  s.act_mul = ActMulRow;
  s.softcap = SoftCapRow;
  s.softmax = SoftmaxRow;
  s.rope = RopeRow;
  s.argmax = ArgMaxRow;
  s.vocabulary = VocabularyPasses();
  s.router = RouteToken;
  s.weighted_sum = WeightedSum;
  s.add_scaled = AddScaled;
  s.causal_conv = ConvTokens;
  s.gated_delta = DeltaTokens;
  s.kv_write = KvWriteToken;
  s.attention = Attend;
  s.kv_read = KvReadRow;
  s.kv_store = KvStoreRow;
  s.dot = Dot;
  s.attention_join = AttentionJoin;
}

}  // namespace
}  // namespace vt::cpu
