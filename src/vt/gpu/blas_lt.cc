#include "vt/gpu/blas_lt.h"

#include <array>
#include <cstring>
#include <string>
#include <vector>

#include "base/os/module.h"
#include "base/strings.h"

namespace vt::gpu {
namespace {

// What differs between the two. Numbers: cublasLt.h of CUDA 11 to 13, hipblaslt.h of ROCm 6.
// hipBLASLt has not been run here.
struct Names {
  std::string label, prefix;
  std::vector<std::string> libraries;
  int compute_f32, transposed, transpose_a;
  // Of a preference: most bytes of workspace; alignment of A, the three others follow (-1: there is
  // no such choice).
  int most_workspace, alignment_a;
  size_t algorithm_bytes;
};

const Names& CublasLt() {
  static const Names names = {
      .label = "cuBLASLt",
      .prefix = "cublasLt",
      .libraries = {"libcublasLt.so.13", "libcublasLt.so.12", "libcublasLt.so.11",
                    "/usr/local/cuda/lib64/libcublasLt.so"},
      .compute_f32 = 68,
      .transposed = 1,
      .transpose_a = 3,
      .most_workspace = 1,
      .alignment_a = 5,
      .algorithm_bytes = 64};
  return names;
}
const Names& HipblasLt() {
  static const Names names = {
      .label = "hipBLASLt",
      .prefix = "hipblasLt",
      .libraries = {"libhipblaslt.so.1", "libhipblaslt.so.0", "libhipblaslt.so"},
      .compute_f32 = 2,
      .transposed = 112,
      .transpose_a = 0,
      .most_workspace = 1,
      .alignment_a = -1,
      .algorithm_bytes = 24};
  return names;
}

// cudaDataType and hipDataType agree.
int TypeNumber(ir::DType t) { return t == ir::DType::kBF16 ? 14 : t == ir::DType::kF16 ? 2 : 0; }

// The result of a heuristic: the algorithm, bytes of workspace (size_t), a status (int), and more.
using HeuristicResult = std::array<std::byte, 256>;

// Largest power of two up to 256 that divides the address and the distance of rows.
uint32_t AlignmentOf(const void* p, int64_t stride, ir::DType type) {
  const uint64_t bits =
      reinterpret_cast<uintptr_t>(p) | static_cast<uint64_t>(stride * ir::Info(type).bytes) | 256;
  return static_cast<uint32_t>(bits & (~bits + 1));
}

}  // namespace

struct BlasLt::Library {
  const Names* names = nullptr;
  int (*create)(void**) = nullptr;
  int (*destroy)(void*) = nullptr;
  int (*product_create)(void**, int compute, int scale) = nullptr;
  int (*product_set)(void*, int attribute, const void*, size_t) = nullptr;
  int (*product_destroy)(void*) = nullptr;
  int (*layout_create)(void**, int type, uint64_t rows, uint64_t columns, int64_t ld) = nullptr;
  int (*layout_destroy)(void*) = nullptr;
  int (*preference_create)(void**) = nullptr;
  int (*preference_set)(void*, int attribute, const void*, size_t) = nullptr;
  int (*preference_destroy)(void*) = nullptr;
  int (*heuristic)(void* handle, void* product, void* a, void* b, void* c, void* d,
                   void* preference, int wanted, void* results, int* found) = nullptr;
  int (*multiply)(void* handle, void* product, const void* alpha, const void* a, void* a_layout,
                  const void* b, void* b_layout, const void* beta, const void* c, void* c_layout,
                  void* d, void* d_layout, const void* algorithm, void* workspace, size_t bytes,
                  void* stream) = nullptr;
};

// A product made ready. To the library matrices are by column: out^T [columns, rows] = w x^T.
struct BlasLt::Call {
  const Library& lib;
  void* handle;
  BlasProduct p;
  void *product = nullptr, *a = nullptr, *b = nullptr, *c = nullptr, *d = nullptr;
  HeuristicResult result = {};
  size_t workspace_bytes = 0;

  Call(const Library& library, void* lt, const BlasProduct& of) : lib(library), handle(lt), p(of) {}
  Call(const Call&) = delete;
  ~Call() {
    if (product != nullptr) lib.product_destroy(product);
    for (void* layout : {a, b, c, d}) {
      if (layout != nullptr) lib.layout_destroy(layout);
    }
  }

  bool Describe() {
    const int32_t transposed = lib.names->transposed;
    const int type = TypeNumber(p.type), out = TypeNumber(p.out_type);
    const auto n = static_cast<uint64_t>(p.columns), m = static_cast<uint64_t>(p.rows),
               k = static_cast<uint64_t>(p.k);
    const int64_t c_stride = p.add != nullptr ? p.add_stride : p.out_stride;
    return lib.product_create(&product, lib.names->compute_f32, TypeNumber(ir::DType::kF32)) == 0 &&
           lib.product_set(product, lib.names->transpose_a, &transposed, sizeof transposed) == 0 &&
           lib.layout_create(&a, type, k, n, p.w_stride) == 0 &&
           lib.layout_create(&b, type, k, m, p.x_stride) == 0 &&
           lib.layout_create(&c, out, n, m, c_stride) == 0 &&
           lib.layout_create(&d, out, n, m, p.out_stride) == 0;
  }

  bool Choose() {
    void* preference = nullptr;
    if (lib.preference_create(&preference) != 0) return false;
    const auto most = static_cast<uint64_t>(p.workspace_bytes);
    bool ok = lib.preference_set(preference, lib.names->most_workspace, &most, sizeof most) == 0;
    if (lib.names->alignment_a >= 0) {
      const void* c_data = p.add != nullptr ? p.add : p.out;
      const int64_t c_stride = p.add != nullptr ? p.add_stride : p.out_stride;
      const uint32_t alignment[] = {
          AlignmentOf(p.w, p.w_stride, p.type), AlignmentOf(p.x, p.x_stride, p.type),
          AlignmentOf(c_data, c_stride, p.out_type), AlignmentOf(p.out, p.out_stride, p.out_type)};
      for (int i = 0; i < 4; ++i)
        ok = ok && lib.preference_set(preference, lib.names->alignment_a + i, &alignment[i],
                                      sizeof alignment[i]) == 0;
    }
    int found = 0;
    ok = ok && lib.heuristic(handle, product, a, b, c, d, preference, 1, &result, &found) == 0 &&
         found > 0;
    lib.preference_destroy(preference);
    if (!ok) return false;
    int state = 0;
    std::memcpy(&workspace_bytes, &result[lib.names->algorithm_bytes], sizeof workspace_bytes);
    std::memcpy(&state, &result[lib.names->algorithm_bytes + sizeof(size_t)], sizeof state);
    return state == 0 && workspace_bytes <= most;
  }

  base::Status Enqueue(Stream stream) const {
    const float one = 1, beta = p.add != nullptr ? 1 : 0;
    const int error =
        lib.multiply(handle, product, &one, p.w, a, p.x, b, &beta, p.add != nullptr ? p.add : p.out,
                     c, p.out, d, &result, p.workspace, workspace_bytes, stream);
    if (error == 0) return {};
    return base::Error{base::Code::kInternal,
                       fmt::format("{}: the product [{}, {}] x [{}, {}]^T failed with status {}",
                                   lib.names->label, p.rows, p.k, p.columns, p.k, error)};
  }
};

BlasLt::BlasLt(std::unique_ptr<Library> library, void* handle)
    : library_(std::move(library)), handle_(handle) {}

BlasLt::~BlasLt() { library_->destroy(handle_); }

base::Result<std::unique_ptr<BlasLt>> BlasLt::Open(bool cuda) {
  auto lib = std::make_unique<Library>();
  lib->names = cuda ? &CublasLt() : &HipblasLt();
  void* module = nullptr;
  for (const std::string& file : lib->names->libraries) {
    const auto opened = base::os::OpenModule(file);
    if (!opened) continue;
    module = *opened;
    break;
  }
  if (module == nullptr) {
    return base::Error{base::Code::kUnavailable,
                       fmt::format("{} is not installed ({} was not found)", lib->names->label,
                                   lib->names->libraries.front())};
  }
  base::Status status;
  const auto find = [&](auto& function, const char* name) {
    const auto symbol = base::os::FindSymbol(module, lib->names->prefix + name);
    if (symbol) {
      function = reinterpret_cast<std::decay_t<decltype(function)>>(*symbol);
    } else if (status) {
      status = base::Error{base::Code::kUnavailable,
                           fmt::format("{} has no {}{}: install a newer one", lib->names->label,
                                       lib->names->prefix, name)};
    }
  };
  find(lib->create, "Create");
  find(lib->destroy, "Destroy");
  find(lib->product_create, "MatmulDescCreate");
  find(lib->product_set, "MatmulDescSetAttribute");
  find(lib->product_destroy, "MatmulDescDestroy");
  find(lib->layout_create, "MatrixLayoutCreate");
  find(lib->layout_destroy, "MatrixLayoutDestroy");
  find(lib->preference_create, "MatmulPreferenceCreate");
  find(lib->preference_set, "MatmulPreferenceSetAttribute");
  find(lib->preference_destroy, "MatmulPreferenceDestroy");
  find(lib->heuristic, "MatmulAlgoGetHeuristic");
  find(lib->multiply, "Matmul");
  if (!status) return status.error();
  void* handle = nullptr;
  if (const int error = lib->create(&handle); error != 0) {
    return base::Error{base::Code::kUnavailable, fmt::format("{} does not start on this device: {}",
                                                             lib->names->label, error)};
  }
  return std::unique_ptr<BlasLt>(new BlasLt(std::move(lib), handle));
}

std::optional<std::function<base::Status(Stream)>> BlasLt::Prepare(const BlasProduct& p) {
  auto call = std::make_shared<Call>(*library_, handle_, p);
  if (!call->Describe() || !call->Choose()) return std::nullopt;
  return [call](Stream stream) { return call->Enqueue(stream); };
}

}  // namespace vt::gpu
