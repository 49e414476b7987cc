// What the passes ask of a GPU, from its facts alone: no driver is needed, so that a plan can be
// made for a card that is not there.
#pragma once

#include <string>

#include "vt/gpu/context.h"
#include "vt/ir/target.h"

namespace vt::gpu {

class GpuTarget : public ir::Target {
 public:
  GpuTarget(DeviceFacts facts, ir::Rates rates) : facts_(std::move(facts)), rates_(rates) {}

  std::string TargetName() const override;
  bool Supports(const ir::Graph& graph, const ir::Node& node,
                const ir::Bucket& bucket) const override;
  int64_t WorkspaceBytes(const ir::Graph& graph, const ir::Bucket& bucket) const override;
  int64_t Launches(const ir::Plan& plan) const override;
  ir::DType ValueType() const override { return facts_.value_type; }
  ir::DType ActivationFormat(ir::DType weight, const ir::Bucket& bucket) const override;
  ir::DType HeldFormat(ir::DType stored) const override;
  ir::WeightLayout LayoutFor(ir::DType format, int64_t rows, int64_t columns,
                             ir::WeightUse use) const override;
  std::string PickKernel(const ir::Graph& graph, const ir::Node& node,
                         const ir::Bucket& bucket) const override;
  ir::Rates MachineRates() const override { return rates_; }

  const DeviceFacts& facts() const { return facts_; }

 private:
  DeviceFacts facts_;
  ir::Rates rates_;
};

// A card that plans can be made for by its name.
struct KnownCard {
  std::string name;  // "rx9060xt"
  DeviceProperties properties;
  bool cuda = false;
  ir::Rates rates;  // bytes a second, operations a second, seconds a launch
};
std::span<const KnownCard> KnownCards();
// Of the known card that this is; a guess for others.
ir::Rates RatesOf(const DeviceProperties& p);

// All launches of a plan, the step's beginning first. Errors name the node.
base::Result<std::vector<Launch>> CompilePlan(const ir::Plan& plan, const Bindings& bindings,
                                              const DeviceFacts& facts, const Constants& constants,
                                              RopeTables* rope_tables = nullptr);

}  // namespace vt::gpu
