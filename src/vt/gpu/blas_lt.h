// Matrix products of the vendor's library, cuBLASLt or hipBLASLt, opened at run time. Nothing is
// allocated on the device: the workspace is the caller's, and what Prepare returns only enqueues,
// so that it can be captured.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>

#include "base/result.h"
#include "vt/gpu/driver.h"
#include "vt/ir/dtype.h"

namespace vt::gpu {

// out = x w^T (+ add): x [rows, k], w [columns, k], out and add [rows, columns], rows `_stride`
// values apart. x, w and add are of `type`, out of out_type; with add that is the same one.
struct BlasProduct {
  int64_t rows = 0, columns = 0, k = 0;
  const void *x = nullptr, *w = nullptr;
  const void* add = nullptr;  // nullptr: nothing. May be out
  void* out = nullptr;
  int64_t x_stride = 0, w_stride = 0, add_stride = 0, out_stride = 0;
  ir::DType type = ir::DType::kBF16, out_type = ir::DType::kBF16;
  void* workspace = nullptr;
  int64_t workspace_bytes = 0;
};

// Thread-safe.
class BlasLt {
 public:
  // For the device that is current on this thread, as on those that use it. Errors: kUnavailable,
  // the library is not installed or does not work; linears do without.
  static base::Result<std::unique_ptr<BlasLt>> Open(bool cuda);
  ~BlasLt();
  BlasLt(const BlasLt&) = delete;

  // Nothing when the library has no kernel for this product. What is returned must not outlive
  // this.
  std::optional<std::function<base::Status(Stream)>> Prepare(const BlasProduct& p);

 private:
  struct Library;
  struct Call;
  BlasLt(std::unique_ptr<Library> library, void* handle);

  std::unique_ptr<Library> library_;
  void* handle_ = nullptr;
};

}  // namespace vt::gpu
