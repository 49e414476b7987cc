#include "vt/device/backend.h"

namespace vt {

base::Status Backend::EndCapture(Queue& q) {
  base::Result<GraphHandle> graph = EndCaptureGraph(q);
  if (!graph) return graph.error();
  if (current_graph_ != 0) DestroyGraph(current_graph_);
  current_graph_ = *graph;
  return {};
}

base::Status Backend::Replay(Queue& q) {
  if (current_graph_ == 0) {
    return base::Error{base::Code::kInternal, "Replay: no graph was captured on this device"};
  }
  return ReplayGraph(q, current_graph_);
}

}  // namespace vt
