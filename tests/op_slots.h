// What slots hold: the words of the sampler's, and the floats of recurrent layers'. A step changes
// what it reads, so before it is run again its slots are put back, and after it they are compared
// with what the reference left.
#pragma once

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "vt/device/backend.h"
#include "vt/ir/interpreter.h"

namespace tests {

// The blocks that a request may have: the width of a block table; 0 without any.
int64_t BlocksOfTable(const vt::ir::Graph& g);

// The slots of one layer of a state group.
struct SlotLayer {
  int group = 0, layer = 0;
  void* device = nullptr;
  int64_t words = 0;           // a slot
  std::vector<int32_t> now{};  // all slots' words, as the step found them
  bool floats = false;
  // Of floats: pieces of a slot, each compared with its own largest value.
  std::vector<int64_t> pieces{};
};

class SlotStates {
 public:
  using States = std::map<std::pair<int, int>, vt::ir::KvState>;

  void Add(SlotLayer layer) { layers_.push_back(std::move(layer)); }
  bool Has(int group) const;

  // Puts the slots as they were when the step began.
  base::Status Reset(vt::Backend& backend, vt::Queue& queue);
  // Reads them: the step begins there, and the reference too.
  base::Status Begin(vt::Backend& backend, vt::Queue& queue, States& reference);
  // Reads what the step left in them, which must be what the reference left, floats within `bound`;
  // the next step begins there.
  base::Status End(vt::Backend& backend, vt::Queue& queue, States& reference, double bound);

 private:
  static base::Status Compare(const SlotLayer& l, const std::vector<int32_t>& got,
                              vt::ir::KvState& want, double bound);
  static void Take(const SlotLayer& l, vt::ir::KvState& reference);

  std::vector<SlotLayer> layers_;
};

}  // namespace tests
