// The packed input buffer of a step: all of a step's data goes to the device in this one buffer.
//
// Header: i32 tokens, requests, outputs of this very step (at most the bucket's), and the row
// stride of its block tables. Then the inputs that the graph uses, in the order of fields(), each
// aligned to 16 bytes, sized for the bucket; block tables last, of which only R rows of the stride
// are in use. Rows past the step's counts are padding: slot -1, length 0.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "vt/ir/graph.h"

namespace vt {

struct StepHeader {
  int32_t tokens, requests, outputs;
  int32_t table_stride;  // entries; a host-addressable device has the table's whole width here
};

class StepLayout {
 public:
  // Fields of every kInput value of the graph: block tables last, else in value order.
  StepLayout(const ir::Graph& graph, const ir::Bucket& bucket);

  struct Field {
    std::string name;
    ir::ValueId value;
    int64_t offset;  // bytes from the start of the buffer
    int64_t count;   // i32 or f32 values in the bucket
  };
  const std::vector<Field>& fields() const { return fields_; }
  int64_t bytes() const { return bytes_; }
  // Offset of a field, or -1 when the graph does not use it.
  int64_t OffsetOf(const std::string& name) const;

 private:
  std::vector<Field> fields_;
  int64_t bytes_ = 0;
};

}  // namespace vt
