// Result<T>: a value, or an Error with a code and a sentence that says what is wrong and what to
// do. Used at room borders; exceptions do not cross them. Not thread-safe; movable.
#pragma once

#include <cassert>
#include <string>
#include <utility>
#include <variant>

namespace base {

enum class Code {
  kInvalidArgument,    // a wrong flag or call; programs exit with 2
  kNotFound,           // a file, shard, tensor or device that is not there
  kCorrupt,            // a file that breaks its format
  kUnsupported,        // well-formed, but not implemented here
  kResourceExhausted,  // memory, disk, KV blocks
  kUnavailable,        // no network, no driver
  kCancelled,
  kInternal,
};

struct Error {
  Code code = Code::kInternal;
  std::string message;  // one sentence, no trailing newline: names the file, the field, what to do

  // The same error with "prefix: " in front, for callers that know the file or tensor.
  Error In(const std::string& prefix) const { return {code, prefix + ": " + message}; }
};

template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}      // NOLINT: implicit
  Result(Error error) : state_(std::in_place_index<1>, std::move(error)) {}  // NOLINT: implicit

  bool ok() const { return state_.index() == 0; }
  explicit operator bool() const { return ok(); }

  // REQUIRES: ok()
  T& operator*() & { return std::get<0>(state_); }
  const T& operator*() const& { return std::get<0>(state_); }
  T&& operator*() && { return std::get<0>(std::move(state_)); }
  T* operator->() { return &std::get<0>(state_); }
  const T* operator->() const { return &std::get<0>(state_); }

  // REQUIRES: !ok()
  const Error& error() const { return std::get<1>(state_); }

 private:
  std::variant<T, Error> state_;
};

template <>
class [[nodiscard]] Result<void> {
 public:
  Result() = default;
  Result(Error error) : error_(std::move(error)), ok_(false) {}  // NOLINT: implicit

  bool ok() const { return ok_; }
  explicit operator bool() const { return ok_; }
  const Error& error() const {
    assert(!ok_);
    return error_;
  }

 private:
  Error error_;
  bool ok_ = true;
};

using Status = Result<void>;

}  // namespace base
