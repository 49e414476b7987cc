#include "vllm/weights/quantize.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <thread>

#include "base/strings.h"
#include "vt/ir/quant.h"

namespace vllm::weights {
namespace {

using base::Code;
using base::Error;
using base::Printable;
using base::Result;
using base::Status;
using vt::ir::DType;

// Values that a thread encodes at a time: its copy as f32 (256 KiB) stays in the cache.
constexpr int64_t kPiece = 1 << 16;
// Pieces a thread before the disk gets them.
constexpr int64_t kPieces = 8;
// Bytes of a copy between two looks at the progress.
constexpr size_t kCopy = size_t{16} << 20;
constexpr float kLargestHalf = 65504;

bool IsInteger(DType t) {
  return t == DType::kI8 || t == DType::kU8 || t == DType::kI32 || t == DType::kI64;
}

// What stands in the way of encoding these values as `type`; empty: nothing.
std::string_view Trouble(const float* x, int64_t n, DType type) {
  float largest = 0;
  bool finite = true;
  for (int64_t i = 0; i < n; ++i) {
    finite = finite && std::isfinite(x[i]);
    largest = std::max(largest, std::fabs(x[i]));
  }
  if (type == DType::kF32 || type == DType::kBF16) return {};  // they hold what the source holds
  if (!finite) return "holds values that are no finite numbers: the model is broken";
  if (largest > kLargestHalf) return "holds values over 65504, which only F32 and BF16 can store";
  return {};
}

// Encodes one tensor and appends it, slab by slab.
class Encoder {
 public:
  Encoder(const TensorSource& source, int threads) : source_(source), threads_(threads) {}

  // `advance` gets the values done; false gives up.
  Status Encode(const TensorSource::Tensor& from, DType to, GgufWriter& writer,
                const std::function<bool(int64_t)>& advance) {
    const int64_t row = from.Row(), rows = row == 0 ? 0 : from.Count() / row;
    const int64_t piece = std::max<int64_t>(1, kPiece / std::max<int64_t>(row, 1));
    const int64_t slab = piece * kPieces * threads_;
    const int64_t row_bytes = vt::ir::Bytes(to, row);
    for (int64_t begin = 0; begin < rows; begin += slab) {
      const int64_t end = std::min(rows, begin + slab);
      out_.resize(static_cast<size_t>((end - begin) * row_bytes));
      std::atomic<int64_t> next = begin;
      std::atomic<const std::string_view*> trouble = nullptr;
      std::vector<std::string_view> troubles(static_cast<size_t>(threads_));
      const auto work = [&](int thread) {
        std::vector<float> values(static_cast<size_t>(std::min(piece, end - begin) * row));
        while (trouble.load() == nullptr) {
          const int64_t first = next.fetch_add(piece), n = std::min(piece, end - first);
          if (n <= 0) return;
          source_.Read(from, first, n, values.data());
          std::string_view& mine = troubles[static_cast<size_t>(thread)];
          mine = Trouble(values.data(), n * row, to);
          if (!mine.empty()) trouble = &mine;
          vt::ir::Quantize(to, values.data(), out_.data() + (first - begin) * row_bytes, n * row);
        }
      };
      std::vector<std::thread> others;
      const int64_t pieces = (end - begin + piece - 1) / piece;
      for (int t = 1; t < std::min<int64_t>(threads_, pieces); ++t) others.emplace_back(work, t);
      work(0);
      for (std::thread& t : others) t.join();
      if (trouble.load() != nullptr) {
        return Error{Code::kCorrupt,
                     fmt::format("tensor '{}' {}", Printable(from.name), *trouble.load())};
      }
      const Status status = writer.Append(out_);
      if (!status) return status;
      if (!advance((end - begin) * row)) return Error{Code::kCancelled, "interrupted"};
    }
    return {};
  }

 private:
  const TensorSource& source_;
  int threads_;
  std::vector<std::byte> out_;
};

Status Copy(std::span<const std::byte> bytes, int64_t values, GgufWriter& writer,
            const std::function<bool(int64_t)>& advance) {
  const auto whole = static_cast<double>(bytes.size());
  while (!bytes.empty()) {
    const std::span<const std::byte> piece = bytes.first(std::min(kCopy, bytes.size()));
    const Status status = writer.Append(piece);
    if (!status) return status;
    bytes = bytes.subspan(piece.size());
    const double share = static_cast<double>(piece.size()) / whole;
    if (!advance(static_cast<int64_t>(share * static_cast<double>(values))))
      return Error{Code::kCancelled, "interrupted"};
  }
  return {};
}

}  // namespace

Result<std::vector<GgufTensor>> PlanQuantization(const TensorSource& source, const Mix& mix,
                                                 bool allow_requantize) {
  std::vector<GgufTensor> plan;
  for (const TensorSource::Tensor& t : source.tensors()) {
    DType to = t.dtype;
    if (!IsInteger(t.dtype)) {
      if (!Mix::Keeps(t.name, t.shape)) {
        to = mix.Choose(source.mix_model(), t.name, t.shape);
      } else if (!source.is_gguf()) {
        to = DType::kF32;
      }
    }
    if (to != t.dtype && vt::ir::IsQuantised(t.dtype) && !allow_requantize) {
      return Error{
          Code::kInvalidArgument,
          fmt::format("tensor '{}' is {} already, and quantising it again to {} loses more "
                      "than quantising the original: take the model in F32, F16 or BF16, "
                      "or say --allow-requantize",
                      Printable(t.name), vt::ir::Name(t.dtype), vt::ir::Name(to))};
    }
    plan.push_back({.name = t.name, .dtype = to, .shape = t.shape});
  }
  return plan;
}

Status WriteQuantized(const TensorSource& source, const std::vector<GgufTensor>& plan,
                      const GgufKeys& keys, const std::string& path, const WriteOptions& options) {
  Result<GgufWriter> writer = GgufWriter::Create(path, keys, plan);
  if (!writer) return writer.error();
  int64_t total = 0, done = 0;
  for (const TensorSource::Tensor& t : source.tensors()) total += t.Count();
  const auto advance = [&](int64_t values) {
    done += values;
    const double share =
        static_cast<double>(done) / static_cast<double>(std::max<int64_t>(total, 1));
    return !options.progress || options.progress(std::min(share, 1.0));
  };
  Encoder encoder(source, std::max(options.threads, 1));
  for (size_t i = 0; i < plan.size(); ++i) {
    const TensorSource::Tensor& t = source.tensors()[i];
    const std::span<const std::byte> stored =
        plan[i].dtype == t.dtype ? source.Stored(t) : std::span<const std::byte>();
    const Status status = stored.empty() ? encoder.Encode(t, plan[i].dtype, *writer, advance)
                                         : Copy(stored, t.Count(), *writer, advance);
    if (!status) return status;
    source.Drop(t);
  }
  return writer->Finish();
}

}  // namespace vllm::weights
