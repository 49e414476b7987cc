// Server-sent events out of the pieces in which a body comes.
#pragma once

#include <string>
#include <string_view>

namespace apps::bench {

class SseReader {
 public:
  // Calls `on_data` with the data of each event that is complete. Lines of one event are joined by
  // a newline; comments and other fields are left out.
  template <typename OnData>
  void Push(std::string_view piece, const OnData& on_data) {
    for (const char c : piece) {
      if (c == '\n') {
        if (!line_.empty() && line_.back() == '\r') line_.pop_back();
        EndLine(on_data);
      } else {
        line_ += c;
      }
    }
  }

 private:
  template <typename OnData>
  void EndLine(const OnData& on_data) {
    if (line_.empty()) {
      if (any_) on_data(std::string_view(data_));
      data_.clear();
      any_ = false;
    } else if (line_.compare(0, 5, "data:") == 0) {
      if (any_) data_ += '\n';
      any_ = true;
      data_.append(line_, line_.size() > 5 && line_[5] == ' ' ? 6 : 5);
    }
    line_.clear();
  }

  std::string line_, data_;
  bool any_ = false;  // the event has a data line
};

}  // namespace apps::bench
