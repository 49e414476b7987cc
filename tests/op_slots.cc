#include "tests/op_slots.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/strings.h"

namespace tests {
namespace {

std::vector<float> ToFloats(const int32_t* words, size_t count) {
  std::vector<float> f(count);
  std::memcpy(f.data(), words, count * 4);
  return f;
}

}  // namespace

bool SlotStates::Has(int group) const {
  return std::any_of(layers_.begin(), layers_.end(),
                     [&](const SlotLayer& l) { return l.group == group; });
}

base::Status SlotStates::Reset(vt::Backend& backend, vt::Queue& queue) {
  for (const SlotLayer& l : layers_) {
    if (auto s = backend.CopyToDevice(queue, l.device, l.now.data(),
                                      static_cast<int64_t>(l.now.size() * 4));
        !s)
      return s;
  }
  return layers_.empty() ? base::Status{} : backend.Synchronize(queue);
}

void SlotStates::Take(const SlotLayer& l, vt::ir::KvState& reference) {
  const auto words = static_cast<size_t>(l.words);
  for (size_t slot = 0; slot * words < l.now.size(); ++slot) {
    const int32_t* p = &l.now[slot * words];
    if (l.floats) {
      reference.recurrent[static_cast<int32_t>(slot)] = ToFloats(p, words);
    } else {
      reference.slots[static_cast<int32_t>(slot)].assign(p, p + words);
    }
  }
}

base::Status SlotStates::Begin(vt::Backend& backend, vt::Queue& queue, States& reference) {
  for (SlotLayer& l : layers_) Take(l, reference[{l.group, l.layer}]);
  return Reset(backend, queue);
}

base::Status SlotStates::Compare(const SlotLayer& l, const std::vector<int32_t>& got,
                                 vt::ir::KvState& want, double bound) {
  const auto words = static_cast<size_t>(l.words);
  const auto wrong = [&](size_t slot, double error, size_t word = 0) {
    return base::Error{
        base::Code::kInternal,
        fmt::format("slot {} of layer {} is not as it should be from word {} on ({:.1e} off)", slot,
                    l.layer, word, error)};
  };
  for (size_t slot = 0; slot * words < got.size(); ++slot) {
    const int32_t* p = &got[slot * words];
    if (!l.floats) {
      const std::vector<int32_t>& right = want.slots[static_cast<int32_t>(slot)];
      if (!std::equal(p, p + words, right.begin(), right.end())) return wrong(slot, 1);
      continue;
    }
    const std::vector<float> floats = ToFloats(p, words);
    const std::vector<float>& right = want.recurrent[static_cast<int32_t>(slot)];
    size_t begin = 0;
    for (const int64_t size : l.pieces) {
      const size_t end = begin + static_cast<size_t>(size);
      double largest = 1e-30, error = 0;
      for (size_t i = begin; i < end; ++i) {
        if (std::isnan(floats[i]) != std::isnan(right[i])) return wrong(slot, INFINITY, i);
        if (std::isnan(right[i])) continue;  // nobody wrote it
        largest = std::max(largest, std::fabs(static_cast<double>(right[i])));
        error = std::max(error, std::fabs(static_cast<double>(floats[i]) - right[i]));
      }
      if (!(error <= bound * largest)) return wrong(slot, error / largest, begin);
      begin = end;
    }
  }
  return {};
}

base::Status SlotStates::End(vt::Backend& backend, vt::Queue& queue, States& reference,
                             double bound) {
  for (SlotLayer& l : layers_) {
    std::vector<int32_t> got(l.now.size());
    if (auto s =
            backend.CopyToHost(queue, got.data(), l.device, static_cast<int64_t>(got.size() * 4));
        !s)
      return s;
    if (auto s = backend.Synchronize(queue); !s) return s;
    if (auto s = Compare(l, got, reference[{l.group, l.layer}], bound); !s) return s;
    l.now = std::move(got);
  }
  return {};
}

int64_t BlocksOfTable(const vt::ir::Graph& g) {
  for (const vt::ir::Value& v : g.values) {
    for (size_t group = 0; group < g.state_groups.size(); ++group) {
      if (v.name == vt::ir::BlockTableName(static_cast<int>(group))) return v.shape[1].At({});
    }
  }
  return 0;
}

}  // namespace tests
