// Launches of nodes with quantised matrices or activations.
#pragma once

#include <string>
#include <vector>

#include "vt/gpu/args_quant.h"
#include "vt/gpu/context.h"
#include "vt/gpu/quant_plan.h"

namespace vt::gpu {

// Held as stored, in the layout of quant_layout.h.
bool IsQuantMatrix(const ir::Value& v);

// Operands as kernels take them.
ValueType ValueTypeOf(ir::DType t);
View ViewOf(const Context& c, ir::ValueId id);
QuantRows QuantRowsOf(const Context& c, ir::ValueId id);
QuantMatrix QuantMatrixOf(const Context& c, ir::ValueId id);  // of experts: the first one

// What such a linear has: x, weights and biases one after the other in the output's columns.
struct QuantLinear {
  ir::ValueId x = ir::kNone, residual = ir::kNone, out = ir::kNone;
  std::vector<ir::ValueId> weights, biases;
  RowFn act = RowFn::kNone;  // of an act_mul of two weights of one format
};

// quantize, and what is fused before it.
void CompileQuantize(const Context& c, ir::NodeId id);
// embed.
void CompileQuantEmbed(const Context& c, ir::NodeId id);
// All values of a matrix to `to`, [rows][k] of the device's type.
void CompileQuantExpand(const Context& c, ir::NodeId id, ir::ValueId weight, void* to);
// Of x in int8 blocks.
void CompileQuantGemv(const Context& c, ir::NodeId id, const QuantLinear& l);
// The same of its weights from `begin` on, as many as one launch takes: `column` is the first's of
// the output, then that behind the last. Moves `begin` behind them. `from`: of one row of values.
struct QuantGemvLaunch {
  QuantGemvArgs args;
  QuantGemvPlan plan;
  std::string suffix;  // of its formats
  LaunchConfig config;
};
QuantGemvLaunch QuantGemvOf(const Context& c, const QuantLinear& l, const QuantRows& x,
                            const Rows& out, ValueType out_type, size_t& begin, int32_t& column,
                            bool from = false);

// --- of one row that is quantised in the same launch (quant_from_steps.cc)
bool IsQuantFrom(ir::Op op);
void CompileQuantFrom(const Context& c, ir::NodeId id);
bool SupportsQuantFrom(const ir::Graph& g, const ir::Node& n, const ir::Bucket& b,
                       const DeviceFacts& d);

// One of its weights beside x of the device's values; `column` of the output is its first.
void CompileQuantTile(const Context& c, ir::NodeId id, const QuantLinear& l, size_t weight,
                      int32_t column);

}  // namespace vt::gpu
