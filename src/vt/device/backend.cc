#include "vt/device/backend.h"

#include <algorithm>
#include <cstdlib>

#include "base/strings.h"

namespace vt {

base::Result<void*> Backend::AllocateHost(int64_t bytes) {
  void* p = std::malloc(static_cast<size_t>(std::max<int64_t>(bytes, 1)));
  if (p == nullptr) {
    return base::Error{base::Code::kResourceExhausted,
                       fmt::format("no memory for {} bytes on the host", bytes)};
  }
  return p;
}
void Backend::FreeHost(void* p) { std::free(p); }

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

base::Result<std::unique_ptr<ir::Target>> Platform::Describe(const std::string& card,
                                                             const std::string&) {
  return base::Error{base::Code::kNotFound,
                     fmt::format("{} knows no card '{}'", Name(), base::Printable(card))};
}

}  // namespace vt
