// Arithmetic, slices and subscripts, with Python's rules.
#include <algorithm>
#include <cmath>

#include "base/strings.h"
#include "vllm/text/jinja_interpreter.h"
#include "vllm/text/jinja_text.h"

namespace vllm::text::jinja {
namespace {

[[noreturn]] void Unsupported(std::string_view op, const Value& a, const Value& b) {
  Fail("TypeError", fmt::format("unsupported operand type(s) for {}: '{}' and '{}'", op,
                                TypeName(a), TypeName(b)));
}

[[noreturn]] void TooLarge() { Fail("OverflowError", "an integer beyond 128 bits"); }

std::string_view Symbol(Op op) {
  switch (op) {
    case Op::kAdd:
      return "+";
    case Op::kSub:
      return "-";
    case Op::kMul:
      return "*";
    case Op::kDiv:
      return "/";
    case Op::kFloorDiv:
      return "//";
    case Op::kMod:
      return "%";
    default:
      return "** or pow()";
  }
}

__int128 FloorDivide(__int128 a, __int128 b) {
  const __int128 q = a / b;
  return (a % b != 0 && (a < 0) != (b < 0)) ? q - 1 : q;
}

Value IntPower(__int128 base, __int128 exponent) {
  if (exponent < 0) {
    if (base == 0) Fail("ZeroDivisionError", "0.0 cannot be raised to a negative power");
    return Value::Float(std::pow(static_cast<double>(base), static_cast<double>(exponent)));
  }
  if (base == 0 || base == 1) return Value::Wide(exponent == 0 ? 1 : base);
  if (base == -1) return Value::Int(exponent % 2 == 0 ? 1 : -1);
  if (exponent > 127) TooLarge();
  __int128 r = 1;
  for (int i = 0; i < static_cast<int>(exponent); ++i) {
    if (__builtin_mul_overflow(r, base, &r)) TooLarge();
  }
  return Value::Wide(r);
}

Value Integers(Op op, __int128 a, __int128 b) {
  __int128 r = 0;
  switch (op) {
    case Op::kAdd:
      if (__builtin_add_overflow(a, b, &r)) TooLarge();
      return Value::Wide(r);
    case Op::kSub:
      if (__builtin_sub_overflow(a, b, &r)) TooLarge();
      return Value::Wide(r);
    case Op::kMul:
      if (__builtin_mul_overflow(a, b, &r)) TooLarge();
      return Value::Wide(r);
    case Op::kDiv:
      if (b == 0) Fail("ZeroDivisionError", "division by zero");
      return Value::Float(static_cast<double>(a) / static_cast<double>(b));
    case Op::kFloorDiv:
      if (b == 0) Fail("ZeroDivisionError", "integer division or modulo by zero");
      if (b == -1) return Integers(Op::kSub, 0, a);
      return Value::Wide(FloorDivide(a, b));
    case Op::kMod:
      if (b == 0) Fail("ZeroDivisionError", "integer modulo by zero");
      if (b == -1) return Value::Int(0);
      return Value::Wide(a - FloorDivide(a, b) * b);
    default:
      return IntPower(a, b);
  }
}

Value Floats(Op op, double a, double b) {
  switch (op) {
    case Op::kAdd:
      return Value::Float(a + b);
    case Op::kSub:
      return Value::Float(a - b);
    case Op::kMul:
      return Value::Float(a * b);
    case Op::kDiv:
      if (b == 0) Fail("ZeroDivisionError", "float division by zero");
      return Value::Float(a / b);
    case Op::kFloorDiv:
      if (b == 0) Fail("ZeroDivisionError", "float floor division by zero");
      return Value::Float(std::floor(a / b));
    case Op::kMod: {
      if (b == 0) Fail("ZeroDivisionError", "float modulo");
      const double r = std::fmod(a, b);
      return Value::Float(r != 0 && (r < 0) != (b < 0) ? r + b : r);
    }
    default: {
      const double r = std::pow(a, b);
      if (std::isinf(r) && !std::isinf(a) && !std::isinf(b))
        Fail("OverflowError", "numerical result out of range");
      if (std::isnan(r) && !std::isnan(a) && !std::isnan(b))
        Fail("TypeError", "complex numbers are not supported");
      return Value::Float(r);
    }
  }
}

void AppendEscaped(const Str& s, StrBuilder& out) {
  size_t done = 0;
  for (size_t i = 0; i < s.text.size(); ++i) {
    const char* replacement = nullptr;
    switch (s.text[i]) {
      case '&':
        replacement = "&amp;";
        break;
      case '<':
        replacement = "&lt;";
        break;
      case '>':
        replacement = "&gt;";
        break;
      case '\'':
        replacement = "&#39;";
        break;
      case '"':
        replacement = "&#34;";
        break;
      default:
        continue;
    }
    out.AppendSlice(s, done, i);
    out.Append(replacement);
    done = i + 1;
  }
  out.AppendSlice(s, done, s.text.size());
}

Value Concatenate(const Value& a, const Value& b, Budget& budget) {
  StrBuilder out(budget);
  const bool markup = a.str().markup || b.str().markup;
  for (const Value* v : {&a, &b}) {
    if (markup && !v->str().markup) {
      AppendEscaped(v->str(), out);
    } else {
      out.Append(v->str());
    }
  }
  if (!markup) return out.Take();
  auto s = std::make_shared<Str>(*out.TakeStr());
  s->markup = true;
  return Value::Of(std::move(s));
}

Value Repeat(const Value& v, __int128 times, Budget& budget) {
  if (times < 0) times = 0;
  if (v.string()) {
    const size_t size = v.text().size();
    if (size > 0 && times > static_cast<__int128>(budget.string_bytes / size)) Budget::OutOfBytes();
    StrBuilder out(budget);
    if (size > 0) {
      for (__int128 i = 0; i < times; ++i) {
        budget.Step();
        out.Append(v.str());
      }
    }
    return out.Take();
  }
  const auto& items = v.as<Seq>().items;
  std::vector<Value> r;
  if (!items.empty()) {
    if (times > static_cast<__int128>(budget.bytes / (items.size() * sizeof(Value))))
      Budget::OutOfBytes();
    r.reserve(items.size() * static_cast<size_t>(times));
    for (__int128 i = 0; i < times; ++i) r.insert(r.end(), items.begin(), items.end());
  }
  return MakeSeq(v.kind(), std::move(r), budget);
}

Value Join(const Value& a, const Value& b, Budget& budget) {
  const auto &x = a.as<Seq>().items, &y = b.as<Seq>().items;
  std::vector<Value> r;
  r.reserve(x.size() + y.size());
  r.insert(r.end(), x.begin(), x.end());
  r.insert(r.end(), y.begin(), y.end());
  return MakeSeq(a.kind(), std::move(r), budget);
}

}  // namespace

Value Arithmetic(Op op, const Value& a, const Value& b, Interpreter& in) {
  if (a.number() && b.number()) {
    if (a.integer() && b.integer()) return Integers(op, a.wide(), b.wide());
    return Floats(op, a.AsDouble(), b.AsDouble());
  }
  // "..." % undefined formats it; every other operation on undefined is an error.
  if (op == Op::kMod && a.string()) return PercentFormat(in, a.str(), b);
  if (a.undefined()) FailUndefined(a);
  if (b.undefined()) FailUndefined(b);
  const auto list = [](const Value& v) { return v.Is(Kind::kList) || v.Is(Kind::kTuple); };
  if (op == Op::kAdd) {
    if (a.string() && b.string()) return Concatenate(a, b, in.budget());
    if (list(a) && a.kind() == b.kind()) return Join(a, b, in.budget());
    if (a.string())
      Fail("TypeError", fmt::format("can only concatenate str (not \"{}\") to str", TypeName(b)));
    if (list(a)) {
      Fail("TypeError", fmt::format("can only concatenate {} (not \"{}\") to {}", TypeName(a),
                                    TypeName(b), TypeName(a)));
    }
  } else if (op == Op::kMul) {
    if ((a.string() || list(a)) && b.integer()) return Repeat(a, b.wide(), in.budget());
    if ((b.string() || list(b)) && a.integer()) return Repeat(b, a.wide(), in.budget());
  }
  Unsupported(Symbol(op), a, b);
}

Value Negate(const Value& v, bool minus) {
  if (v.undefined()) FailUndefined(v);
  if (v.Is(Kind::kFloat)) return Value::Float(minus ? -v.float_value() : v.float_value());
  if (!v.integer())
    Fail("TypeError",
         fmt::format("bad operand type for unary {}: '{}'", minus ? '-' : '+', TypeName(v)));
  return Value::Wide(minus ? -v.wide() : v.wide());
}

Value Index(const Value& object, int64_t index, Budget& budget) {
  if (!object.string()) {
    const auto& items = object.as<Seq>().items;
    if (index < 0) index += static_cast<int64_t>(items.size());
    if (index < 0 || index >= static_cast<int64_t>(items.size())) return {};
    return items[static_cast<size_t>(index)];
  }
  const Str& s = object.str();
  if (!s.ascii) budget.Step(1 + s.text.size() / 64);
  const int64_t n = Length(object);
  if (index < 0) index += n;
  if (index < 0 || index >= n) return {};
  const size_t begin = ByteOffset(s.text, index, s.ascii);
  size_t end = begin;
  NextChar(s.text, end);
  StrBuilder b(budget);
  b.AppendSlice(s, begin, end);
  return b.Take();
}

Value Slice(const Value& object, const Value& start_value, const Value& stop_value,
            const Value& step_value, Budget& budget) {
  const bool sliceable = object.string() || (object.sequence() && !object.Is(Kind::kView) &&
                                             !object.Is(Kind::kGenerator));
  if (!sliceable)
    return Value::Undefined(fmt::format("{} has no element of this slice", ObjectRepr(object)));
  const int64_t n = Length(object);
  const auto clamp = [](const Value& v, int64_t low, int64_t high) {
    const __int128 w = v.wide();
    return static_cast<int64_t>(w < low ? low : w > high ? high : w);
  };
  const int64_t step = step_value.none() ? 1 : clamp(step_value, -INT32_MAX, INT32_MAX);
  if (step == 0) Fail("ValueError", "slice step cannot be zero");
  const int64_t low = step > 0 ? 0 : -1, high = step > 0 ? n : n - 1;
  const auto bound = [&](const Value& v, int64_t otherwise) {
    if (v.none()) return otherwise;
    int64_t i = clamp(v, -n - 1, n + 1);
    if (i < 0) i += n;
    return std::clamp(i, low, std::max(low, high));
  };
  const int64_t start = bound(start_value, step > 0 ? low : high);
  const int64_t stop = bound(stop_value, step > 0 ? high : low);

  if (!object.string()) {
    std::vector<Value> r;
    const auto& items = object.as<Seq>().items;
    for (int64_t i = start; step > 0 ? i < stop : i > stop; i += step)
      r.push_back(items[static_cast<size_t>(i)]);
    return MakeSeq(object.Is(Kind::kTuple) ? Kind::kTuple : Kind::kList, std::move(r), budget);
  }
  const Str& s = object.str();
  StrBuilder out(budget);
  budget.Step(1 + s.text.size() / 64);
  if (step == 1) {
    if (start < stop) {
      const size_t begin = ByteOffset(s.text, start, s.ascii);
      const size_t length =
          ByteOffset(std::string_view(s.text).substr(begin), stop - start, s.ascii);
      out.AppendSlice(s, begin, begin + length);
    }
    return out.Take();
  }
  std::vector<size_t> offsets;  // of every character
  if (!s.ascii) {
    budget.Charge(s.text.size() * sizeof(size_t));
    for (size_t i = 0; i < s.text.size(); NextChar(s.text, i)) offsets.push_back(i);
    offsets.push_back(s.text.size());
  }
  for (int64_t i = start; step > 0 ? i < stop : i > stop; i += step) {
    budget.Step();
    const auto k = static_cast<size_t>(i);
    out.AppendSlice(s, s.ascii ? k : offsets[k], s.ascii ? k + 1 : offsets[k + 1]);
  }
  return out.Take();
}

}  // namespace vllm::text::jinja
