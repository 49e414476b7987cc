// What is told of the choice of experts: the host side is router_steps.cc.
#pragma once

#include "vt/gpu/args.h"

namespace vt::gpu {

// The experts of a token and their weights (ir::RouterAttrs). A wave a token.
struct RouterArgs {
  const Header* header = nullptr;
  Rows logits;                                     // f32
  const float *bias = nullptr, *scales = nullptr;  // of all experts, or none
  // Instead of a choice by score: the row of each token, [vocabulary][chosen].
  const float* table = nullptr;
  const int32_t* tokens = nullptr;
  Count count;
  float* weights = nullptr;  // [tokens][chosen]
  int32_t* ids = nullptr;
  int32_t experts = 1, chosen = 1, groups = 1, top_groups = 1;
  int32_t group_max = 0;  // groups go by their best alone
  int32_t sigmoid = 0, root = 0, normalise = 0;
  float scale = 1;
  // Chosen by a wave in registers: no groups, no table, at most kRouterLane experts a lane and a
  // choice a lane.
  int32_t in_lanes = 0;
};
inline constexpr int kRouterLane = 16;
// The same in launches that have registers for few: those of experts' matrices.
inline constexpr int kRouterUpLane = 8;

// Of experts that are chosen by the launch that needs them first: each of its blocks finds the one
// that it needs, and a block a token writes ids and weights for those that come later.
struct RouterHere {
  RouterArgs router;
  const float* logits = nullptr;  // [tokens][experts]; none: they are chosen already
};

}  // namespace vt::gpu
