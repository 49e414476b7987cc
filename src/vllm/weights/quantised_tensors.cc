#include "vllm/weights/quantised_tensors.h"

#include <array>
#include <cstring>
#include <optional>
#include <string_view>
#include <utility>

#include "base/strings.h"

namespace vllm::weights {
namespace {

using base::Code;
using base::Error;
using base::Printable;
using base::Result;
using base::Status;
using vt::ir::DType;
using Method = Quantisation::Method;
using Order = QuantisedTensor::Order;
using Shape = std::vector<int64_t>;
using Tensors = std::map<std::string, TensorInfo>;

int64_t CountOf(const Shape& shape) {
  int64_t n = 1;
  for (const int64_t d : shape) n *= d;
  return n;
}
int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }
bool IsScale(DType t) { return t == DType::kF16 || t == DType::kBF16 || t == DType::kF32; }

class Joiner {
 public:
  Joiner(const Quantisation& how, const BytesOfPiece& bytes_of, Tensors& tensors)
      : how_(how), bytes_of_(bytes_of), tensors_(tensors) {}

  Result<std::vector<QuantisedTensor>> Run() {
    std::vector<std::pair<std::string, Status (Joiner::*)(const std::string&)>> found;
    for (const auto& [name, info] : tensors_) {
      for (const auto& [suffix, types, join] : kKinds) {
        const bool type = types[0] == info.dtype || types[1] == info.dtype;
        if (!type || !base::EndsWith(name, suffix)) continue;
        if (info.bytes == 0) return Fail(Code::kCorrupt, name, "it is empty").error();
        found.emplace_back(name.substr(0, name.size() - suffix.size()), join);
      }
    }
    for (const auto& [module, join] : found) {
      const Status status = (this->*join)(module);
      if (!status) return status.error();
    }
    const Status status = CheckLeft();
    if (!status) return status.error();
    return std::move(out_);
  }

 private:
  struct Kind {
    std::string_view suffix;
    std::array<DType, 2> types;
    Status (Joiner::*join)(const std::string& module);
  };
  static const std::array<Kind, 5> kKinds;

  Status Fail(Code code, const std::string& name, const std::string& why) const {
    return Error{code, fmt::format("tensor '{}': {}", Printable(name), why)};
  }
  std::optional<TensorInfo> Take(const std::string& name) {
    const auto it = tensors_.find(name);
    if (it == tensors_.end()) return std::nullopt;
    std::optional<TensorInfo> taken = std::move(it->second);
    tensors_.erase(it);
    return taken;
  }
  // A part that must be there in this shape.
  Status Part(const std::string& name, const Shape& shape, std::array<DType, 3> types,
              TensorInfo& out) {
    std::optional<TensorInfo> part = Take(name);
    if (!part)
      return Error{Code::kNotFound, fmt::format("tensor '{}' is missing", Printable(name))};
    if (part->shape != shape) {
      return Fail(Code::kCorrupt, name,
                  fmt::format("it has shape {}, to the weight's belongs {}", ShapeText(part->shape),
                              ShapeText(shape)));
    }
    bool known = false;
    for (const DType t : types) known = known || t == part->dtype;
    if (!known)
      return Fail(Code::kUnsupported, name,
                  fmt::format("{} is no type that it may have", vt::ir::Name(part->dtype)));
    out = *std::move(part);
    return {};
  }
  static constexpr std::array<DType, 3> kScales = {DType::kF16, DType::kBF16, DType::kF32};
  static constexpr std::array<DType, 3> kWords = {DType::kI32, DType::kI32, DType::kI32};

  // Of `name`, whose codes are [rows, columns].
  Status Start(const std::string& name, int64_t rows, int64_t columns, QuantisedTensor& t) const {
    if (columns % 32 != 0) {
      return Fail(
          Code::kUnsupported, name,
          fmt::format("rows of {} values are not implemented: multiples of 32 are", columns));
    }
    t.name = Printable(name);
    t.rows = rows;
    t.columns = columns;
    return {};
  }
  Status Finish(const std::string& module, QuantisedTensor t, Shape shape) {
    const auto bytes = static_cast<uint64_t>(t.rows * t.RowBytes());
    const int file = -1 - static_cast<int>(out_.size());
    TensorInfo info{t.type, std::move(shape), {{file, 0, bytes}}, bytes};
    const std::string name = module + ".weight";
    if (!tensors_.emplace(name, std::move(info)).second)
      return Fail(Code::kCorrupt, name, "it is stored twice, quantised and plain");
    out_.push_back(std::move(t));
    return {};
  }
  // x.g_idx: the group of each k. Only groups in order are blocks.
  Status TakeOrder(const std::string& name, const QuantisedTensor& t) {
    TensorInfo info;
    if (!tensors_.contains(name)) return {};
    const Status status = Part(name, {t.columns}, kWords, info);
    if (!status) return status;
    const std::span<const std::byte> bytes = bytes_of_(info.pieces[0]);
    for (int64_t k = 0; k < t.columns; ++k) {
      int32_t group;
      std::memcpy(&group, bytes.data() + 4 * k, 4);
      if (group != k / t.step) {
        return Fail(Code::kUnsupported, name,
                    "values are grouped out of order (desc_act, actorder), which is not "
                    "implemented; take a checkpoint without it or a GGUF");
      }
    }
    return {};
  }

  // x.qweight.
  Status JoinWords(const std::string& module) {
    const std::string name = module + ".qweight";
    const bool awq = how_.method == Method::kAwq;
    if (!awq && how_.method != Method::kGptq)
      return Fail(Code::kCorrupt, name, "quantization_config says neither awq nor gptq");
    const TensorInfo words = *Take(name);
    if (words.shape.size() != 2) return Fail(Code::kUnsupported, name, "it is no matrix");
    const int64_t each = 32 / how_.bits;  // codes of a word
    QuantisedTensor t;
    Status status =
        Start(name, words.shape[1] * (awq ? each : 1), words.shape[0] * (awq ? 1 : each), t);
    if (!status) return status;
    t.order = awq ? Order::kAwq : Order::kGptq;
    t.bits = how_.bits;
    t.flip = t.bits == 8 ? 0x80 : 0;
    t.type = t.bits == 8 ? DType::kQ8_0 : how_.symmetric ? DType::kQ4_0 : DType::kQ4_1;
    t.codes = words.pieces[0];
    t.step = how_.groups[0] == 0 ? t.columns : how_.groups[0];
    t.groups = CeilDiv(t.columns, t.step);
    t.stride = t.rows;
    t.row_stride = 1;
    if (t.rows % each != 0) {
      return Fail(Code::kUnsupported, name,
                  fmt::format("{} columns are not implemented: multiples of {} are", t.rows, each));
    }
    TensorInfo scales, zeros;
    status = Part(module + ".scales", {t.groups, t.rows}, kScales, scales);
    if (status) status = Part(module + ".qzeros", {t.groups, t.rows / each}, kWords, zeros);
    if (status) status = TakeOrder(module + ".g_idx", t);
    if (!status) return status;
    t.scales = scales.pieces[0];
    t.scale_type = scales.dtype;
    t.zeros = zeros.pieces[0];
    t.has_zeros = true;
    t.zeros_less_one = !awq && how_.zeros_less_one;
    return Finish(module, t, {t.rows, t.columns});
  }

  // The scale of the tensor, a row, a group of a row's values or a block of both.
  Status TakeScale(const std::string& name, QuantisedTensor& t) {
    const auto it = tensors_.find(name);
    if (it == tensors_.end())
      return Error{Code::kNotFound, fmt::format("tensor '{}' is missing", Printable(name))};
    const TensorInfo info = *Take(name);
    if (info.bytes == 0) return Fail(Code::kCorrupt, name, "it is empty");
    const bool power = info.dtype == DType::kU8 && t.type == DType::kF8_32;
    if (!IsScale(info.dtype) && !power)
      return Fail(Code::kUnsupported, name,
                  fmt::format("scales of {} are not implemented", vt::ir::Name(info.dtype)));
    t.scales = info.pieces[0];
    t.scale_type = info.dtype;
    const int64_t count = CountOf(info.shape);
    const bool blocks =
        how_.block_rows > 0 && info.shape == Shape{CeilDiv(t.rows, how_.block_rows),
                                                   CeilDiv(t.columns, how_.block_columns)};
    if (blocks) {
      t.row_step = how_.block_rows;
      t.step = how_.block_columns;
      t.groups = info.shape[1];
      t.row_stride = t.groups;
      t.stride = 1;
      return {};
    }
    if (count == 1) {
      t.step = t.columns;
      return {};
    }
    t.row_stride = t.stride = 1;
    if (info.shape == Shape{t.rows} || info.shape == Shape{t.rows, 1}) {
      t.step = t.columns;
      return {};
    }
    for (const int64_t group : how_.groups) {
      if (group == 0 || info.shape != Shape{t.rows, CeilDiv(t.columns, group)}) continue;
      t.step = group;
      t.groups = t.row_stride = info.shape[1];
      return {};
    }
    return Fail(Code::kCorrupt, name,
                fmt::format("its shape {} is neither one scale nor one a row, nor what "
                            "quantization_config's groups or blocks make of {}",
                            ShapeText(info.shape), ShapeText({t.rows, t.columns})));
  }

  // x.weight_packed of compressed-tensors, in words.
  Status JoinPacked(const std::string& module) {
    const std::string name = module + ".weight_packed";
    const TensorInfo words = *Take(name);
    TensorInfo shape;
    Status status =
        Part(module + ".weight_shape", {2}, {DType::kI64, DType::kI32, DType::kI64}, shape);
    if (!status) return status;
    int64_t rows = 0, columns = 0;
    const std::byte* p = bytes_of_(shape.pieces[0]).data();
    if (shape.dtype == DType::kI64) {
      std::memcpy(&rows, p, 8);
      std::memcpy(&columns, p + 8, 8);
    } else {
      int32_t v[2];
      std::memcpy(v, p, 8);
      rows = v[0];
      columns = v[1];
    }
    QuantisedTensor t;
    if (words.shape.size() == 2 && words.shape[0] == rows && columns > 0 && columns % 32 == 0) {
      for (const int bits : {4, 8}) {
        if (words.shape[1] == columns / 32 * bits) t.bits = bits;
      }
    }
    if (words.shape != Shape{rows, columns / 32 * t.bits}) {
      return Fail(Code::kUnsupported, name,
                  fmt::format("shape {} is not {} in 4 or 8 bits, in rows of a multiple of 32",
                              ShapeText(words.shape), ShapeText({rows, columns})));
    }
    status = Start(name, rows, columns, t);
    if (!status) return status;
    t.codes = words.pieces[0];
    t.flip = t.bits == 8 ? 0x80 : 0;
    t.type = t.bits == 8 ? DType::kQ8_0 : DType::kQ4_0;
    status = TakeScale(module + ".weight_scale", t);
    if (status) status = TakeOrder(module + ".weight_g_idx", t);
    if (!status) return status;
    const std::string zero = module + ".weight_zero_point";
    if (tensors_.contains(zero)) {
      TensorInfo zeros;
      if (t.bits == 8)
        return Fail(Code::kUnsupported, zero, "8-bit weights with zeros are not implemented");
      status = Part(zero, {CeilDiv(t.rows, 8), t.groups}, kWords, zeros);
      if (!status) return status;
      t.zeros = zeros.pieces[0];
      t.has_zeros = true;
      t.type = DType::kQ4_1;
    }
    return Finish(module, t, {t.rows, t.columns});
  }

  // x.weight, of bytes beside a scale.
  Status JoinBytes(const std::string& module) {
    const std::string name = module + ".weight";
    const TensorInfo codes = *Take(name);
    if (codes.shape.size() != 2) return Fail(Code::kUnsupported, name, "it is no matrix");
    std::string scale = name + "_scale";
    for (const std::string& other : {name + "_scale_inv", module + ".scale"}) {
      if (tensors_.contains(other)) scale = other;
    }
    // Bytes of two codes, which files may call integers: DeepSeek-V4's.
    const Shape exponents = {codes.shape[0], codes.shape[1] / 16};
    const auto found = tensors_.find(scale);
    if (codes.dtype == DType::kI8 && found != tensors_.end() && found->second.dtype == DType::kU8 &&
        found->second.shape == exponents) {
      return JoinFloats(module, name, scale, codes, {codes.shape[0], 2 * codes.shape[1]});
    }
    QuantisedTensor t;
    Status status = Start(name, codes.shape[0], codes.shape[1], t);
    if (!status) return status;
    t.bits = 8;
    t.codes = codes.pieces[0];
    t.type = codes.dtype == DType::kI8 ? DType::kQ8_0 : DType::kF8_32;
    status = TakeScale(scale, t);
    if (!status) return status;
    if (tensors_.contains(name + "_zero_point"))
      return Fail(Code::kUnsupported, name + "_zero_point",
                  "8-bit weights with zeros are not implemented");
    return Finish(module, t, {t.rows, t.columns});
  }

  // MXFP4: bytes of two codes, and an exponent for 32 of them.
  Status JoinFloats(const std::string& module, const std::string& name, const std::string& scale,
                    const TensorInfo& codes, Shape shape) {
    QuantisedTensor t;
    const int64_t columns = shape.empty() ? 0 : shape.back();
    Status status = Start(name, columns == 0 ? 0 : CountOf(shape) / columns, columns, t);
    if (!status) return status;
    Shape of_scales = shape;
    of_scales.back() /= 32;
    TensorInfo scales;
    status = Part(scale, of_scales, {DType::kU8, DType::kU8, DType::kU8}, scales);
    if (!status) return status;
    t.type = DType::kMXFP4;
    t.codes = codes.pieces[0];
    t.scales = scales.pieces[0];
    t.scale_type = DType::kU8;
    t.step = 32;
    t.stride = 1;
    t.row_stride = t.groups = t.columns / 32;
    return Finish(module, t, std::move(shape));
  }
  // x_blocks [.., K / 32, 16] and x_scales [.., K / 32].
  Status JoinMxBlocks(const std::string& module) {
    const std::string name = module + "_blocks";
    const TensorInfo codes = *Take(name);
    Shape shape = codes.shape;
    if (shape.size() < 3 || shape.back() != 16)
      return Fail(Code::kUnsupported, name,
                  fmt::format("shape {} has no blocks of 16 bytes", ShapeText(shape)));
    shape.pop_back();
    shape.back() *= 32;
    return JoinFloats(module, name, module + "_scales", codes, std::move(shape));
  }
  Status JoinMxRows(const std::string& module) {
    const std::string name = module + ".weight_packed";
    const TensorInfo codes = *Take(name);
    Shape shape = codes.shape;
    if (shape.empty()) return Fail(Code::kCorrupt, name, "it is no matrix");
    shape.back() *= 2;
    return JoinFloats(module, name, module + ".weight_scale", codes, std::move(shape));
  }

  // Parts without a weight, and scales of what is not rounded here.
  Status CheckLeft() {
    for (auto it = tensors_.begin(); it != tensors_.end();) {
      const std::string& name = it->first;
      const auto ends = [&](std::initializer_list<std::string_view> with) {
        for (const std::string_view s : with) {
          if (base::EndsWith(name, s)) return true;
        }
        return false;
      };
      if (ends({".input_scale", ".output_scale", ".q_scale", ".k_scale", ".v_scale", ".prob_scale",
                ".input_zero_point", ".activation_scale"})) {
        it = tensors_.erase(it);
        continue;
      }
      if (ends({".qzeros", ".scales", ".g_idx", ".weight_scale", ".weight_scale_inv",
                ".weight_zero_point", ".weight_shape", ".weight_g_idx"}) ||
          (how_.method == Method::kMxfp4 && ends({"_scales"}))) {
        return Fail(Code::kCorrupt, name, "the quantised weight that it belongs to is missing");
      }
      ++it;
    }
    return {};
  }

  const Quantisation& how_;
  const BytesOfPiece& bytes_of_;
  Tensors& tensors_;
  std::vector<QuantisedTensor> out_;
};

const std::array<Joiner::Kind, 5> Joiner::kKinds = {
    {{".qweight", {DType::kI32, DType::kI32}, &Joiner::JoinWords},
     {".weight_packed", {DType::kI32, DType::kI32}, &Joiner::JoinPacked},
     {".weight_packed", {DType::kU8, DType::kU8}, &Joiner::JoinMxRows},
     {".weight", {DType::kI8, DType::kF8_E4M3}, &Joiner::JoinBytes},
     {"_blocks", {DType::kU8, DType::kU8}, &Joiner::JoinMxBlocks}}};

}  // namespace

Result<std::vector<QuantisedTensor>> JoinQuantised(const Quantisation& how,
                                                   const BytesOfPiece& bytes_of, Tensors& tensors) {
  return Joiner(how, bytes_of, tensors).Run();
}

}  // namespace vllm::weights
