// Reference functions of caches of entries and of residuals of several streams.
#pragma once

#include <vector>

#include "vt/ir/interpreter.h"

namespace vt::ir {

base::Result<std::vector<Tensor>> Compress(const CompressAttrs& a,
                                           const std::vector<const Tensor*>& in, const KvState& raw,
                                           KvState& entries, int64_t block_size);
base::Result<std::vector<Tensor>> IndexEntries(const EntryAttrs& a,
                                               const std::vector<const Tensor*>& in,
                                               const KvState& entries, int64_t block_size);
base::Result<std::vector<Tensor>> EntryAttention(const EntryAttrs& a,
                                                 const std::vector<const Tensor*>& in,
                                                 const KvState& window, const KvState& entries,
                                                 int64_t block_size);
base::Result<std::vector<Tensor>> HyperCollapse(const HyperAttrs& a,
                                                const std::vector<const Tensor*>& in);
Tensor HyperExpand(const Tensor& x, const Tensor& y, const Tensor& gates);

}  // namespace vt::ir
