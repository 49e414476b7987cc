// Python's two ways of formatting: '%s' % values, and '{}'.format(values).
#include <algorithm>
#include <cmath>
#include <cstdio>

#include "base/strings.h"
#include "vllm/text/jinja_interpreter.h"
#include "vllm/text/jinja_text.h"

namespace vllm::text::jinja {
namespace {

constexpr int64_t kMaxWidth = 100'000;
constexpr int kMaxPrecision = 300;  // of a number's digits

struct Spec {
  std::string fill = " ";
  char align = '\0';  // < > = ^
  char sign = '-';    // - + or blank
  bool alternate = false, comma = false, underscore = false;
  int64_t width = 0;
  int64_t precision = -1;
  char type = '\0';
};

void AppendPadded(StrBuilder& out, const Str& body, const Spec& spec, char default_align,
                  size_t sign_size) {
  const int64_t missing =
      spec.width - (body.ascii ? static_cast<int64_t>(body.text.size()) : CountChars(body.text));
  const char align = spec.align != '\0' ? spec.align : default_align;
  int64_t left = 0, right = 0, inside = 0;
  if (missing > 0) {
    if (align == '<') right = missing;
    if (align == '>') left = missing;
    if (align == '=') inside = missing;
    if (align == '^') {
      left = missing / 2;
      right = missing - left;
    }
  }
  const auto fill = [&](int64_t n) {
    for (; n > 0; --n) out.Append(spec.fill);
  };
  fill(left);
  out.AppendSlice(body, 0, inside > 0 ? sign_size : 0);
  fill(inside);
  out.AppendSlice(body, inside > 0 ? sign_size : 0, body.text.size());
  fill(right);
}

std::string Grouped(const std::string& digits, char separator, size_t group) {
  std::string r;
  for (size_t i = 0; i < digits.size(); ++i) {
    if (i > 0 && (digits.size() - i) % group == 0) r += separator;
    r += digits[i];
  }
  return r;
}

std::string Digits(__int128 v, int base, bool upper) {
  auto u = v < 0 ? -static_cast<unsigned __int128>(v) : static_cast<unsigned __int128>(v);
  const char* const digits = upper ? "0123456789ABCDEF" : "0123456789abcdef";
  const auto divisor = static_cast<unsigned __int128>(base);
  std::string s;
  do {
    const unsigned __int128 rest = u / divisor;
    s += digits[static_cast<size_t>(u - rest * divisor)];
    u = rest;
  } while (u > 0);
  std::reverse(s.begin(), s.end());
  return s;
}

void AppendNumber(StrBuilder& out, bool negative, std::string prefix, std::string digits,
                  const Spec& spec) {
  std::string sign = negative ? "-" : spec.sign == '+' ? "+" : spec.sign == ' ' ? " " : "";
  sign += prefix;
  if (spec.comma || spec.underscore) {
    const size_t end = std::min(digits.find_first_not_of("0123456789abcdefABCDEF"), digits.size());
    const bool decimal = prefix.empty() && spec.type != 'x' && spec.type != 'X' &&
                         spec.type != 'b' && spec.type != 'o';
    digits = Grouped(digits.substr(0, end), spec.comma ? ',' : '_', decimal ? 3 : 4) +
             digits.substr(end);
  }
  Str body;
  body.text = sign + digits;
  AppendPadded(out, body, spec, '>', sign.size());
}

void AppendInteger(StrBuilder& out, __int128 v, const Spec& spec) {
  const char t = spec.type;
  const int base = t == 'x' || t == 'X' ? 16 : t == 'o' ? 8 : t == 'b' ? 2 : 10;
  std::string prefix;
  if (spec.alternate && base != 10) prefix = std::string("0") + t;
  std::string digits = Digits(v, base, t == 'X');
  AppendNumber(out, v < 0, prefix, std::move(digits), spec);
}

void AppendFloat(StrBuilder& out, double d, const Spec& spec) {
  char type = spec.type;
  int precision =
      spec.precision < 0 ? 6 : static_cast<int>(std::min<int64_t>(spec.precision, kMaxPrecision));
  const double magnitude = std::fabs(d);
  std::string digits;
  if (std::isnan(d) || std::isinf(d)) {
    digits = std::isnan(d) ? "nan" : "inf";
    if (type == 'F' || type == 'E' || type == 'G') digits = Upper(digits);
  } else if (type == '\0' && spec.precision < 0) {
    digits = FloatRepr(magnitude);
  } else {
    const bool percent = type == '%';
    if (type == '\0' || type == 'n') type = 'g';
    if (percent) type = 'f';
    const std::string format = std::string("%") + (spec.alternate ? "#" : "") + ".*" + type;
    char buffer[720];  // 309 digits before the point, kMaxPrecision after it
    std::snprintf(buffer, sizeof(buffer), format.c_str(), precision,
                  percent ? magnitude * 100 : magnitude);
    digits = buffer;
    if (spec.type == '\0' && digits.find_first_of(".e") == std::string::npos) digits += ".0";
    if (percent) digits += '%';
  }
  AppendNumber(out, std::signbit(d) && !std::isnan(d), "", std::move(digits), spec);
}

// The [[fill]align][sign][#][0][width][,][.precision][type] of format().
Spec ParseSpec(std::string_view s) {
  Spec spec;
  size_t i = 0;
  const auto is_align = [](char c) { return c == '<' || c == '>' || c == '=' || c == '^'; };
  size_t after = 0;
  if (!s.empty()) NextChar(s, after);
  if (after > 0 && after < s.size() && is_align(s[after])) {
    spec.fill = std::string(s.substr(0, after));
    spec.align = s[after];
    i = after + 1;
  } else if (!s.empty() && is_align(s[0])) {
    spec.align = s[i++];
  }
  const auto at = [&](std::string_view set) {
    return i < s.size() && set.find(s[i]) != std::string_view::npos;
  };
  if (at("+- ")) spec.sign = s[i++];
  if (at("#")) {
    spec.alternate = true;
    ++i;
  }
  if (at("0")) {
    if (spec.align == '\0') {
      spec.fill = "0";
      spec.align = '=';
    }
    ++i;
  }
  const auto number = [&] {
    int64_t v = 0;
    while (at("0123456789")) {
      v = v * 10 + (s[i++] - '0');
      if (v > kMaxWidth) Fail("ValueError", fmt::format("a format width over {}", kMaxWidth));
    }
    return v;
  };
  spec.width = number();
  if (at(",")) {
    spec.comma = true;
    ++i;
  } else if (at("_")) {
    spec.underscore = true;
    ++i;
  }
  if (at(".")) {
    ++i;
    if (!at("0123456789")) Fail("ValueError", "format specifier missing precision");
    spec.precision = number();
  }
  if (i < s.size()) spec.type = s[i++];
  if (i < s.size()) Fail("ValueError", "invalid format specifier");
  return spec;
}

void AppendText(StrBuilder& out, const Value& text, const Spec& spec) {
  Value body = text;
  if (spec.precision >= 0) {
    body = Slice(text, Value::None(), Value::Int(spec.precision), Value::None(), out.budget());
  }
  AppendPadded(out, body.str(), spec, '<', 0);
}

void AppendFormatted(StrBuilder& out, const Value& v, std::string_view spec_text) {
  if (spec_text.empty()) {
    AppendStr(v, out);
    return;
  }
  const Spec spec = ParseSpec(spec_text);
  if (v.string()) {
    if (spec.type != '\0' && spec.type != 's')
      Fail("ValueError", "unknown format code for a string");
    if (spec.align == '=' && spec.fill != "0")
      Fail("ValueError", "'=' alignment not allowed in string format specifier");
    Spec text = spec;
    if (text.align == '=') text.align = '<';
    AppendText(out, v, text);
  } else if (v.number()) {
    constexpr std::string_view kFloatTypes = "eEfFgG%";
    if (v.Is(Kind::kFloat) ||
        (spec.type != '\0' && kFloatTypes.find(spec.type) != std::string_view::npos)) {
      if (spec.type != '\0' && spec.type != 'n' &&
          kFloatTypes.find(spec.type) == std::string_view::npos) {
        Fail("ValueError", "unknown format code for a float");
      }
      AppendFloat(out, v.AsDouble(), spec);
    } else if (spec.type == 'c') {
      std::string c;
      if (v.wide() < 0 || v.wide() > 0x10FFFF)
        Fail("OverflowError", "%c arg not in range(0x110000)");
      AppendUtf8(static_cast<char32_t>(v.wide()), c);
      AppendText(out, Value::String(c), spec);
    } else if (std::string_view("\0dxXobn", 7).find(spec.type) != std::string_view::npos) {
      AppendInteger(out, v.wide(), spec);
    } else {
      Fail("ValueError", "unknown format code for an integer");
    }
  } else {
    Fail("TypeError",
         fmt::format("unsupported format string passed to {}.__format__", TypeName(v)));
  }
}

class BraceFormatter {
 public:
  BraceFormatter(Interpreter& in, Args& args) : in_(in), args_(args) {}

  // Replacement fields may stand inside format specifiers, one level deep.
  void Run(const Str& format, size_t begin, size_t end, int level, StrBuilder& out) {
    const std::string_view s = std::string_view(format.text).substr(0, end);
    size_t done = begin;
    for (size_t i = begin; i < s.size();) {
      if (s[i] != '{' && s[i] != '}') {
        ++i;
        continue;
      }
      out.AppendSlice(format, done, i);
      if (i + 1 < s.size() && s[i + 1] == s[i]) {
        out.Append(s.substr(i, 1));
        i += 2;
      } else if (s[i] == '}') {
        Fail("ValueError", "Single '}' encountered in format string");
      } else {
        if (level > 1) Fail("ValueError", "Max string recursion exceeded");
        i = Field(format, i + 1, end, level, out);
      }
      done = i;
    }
    out.AppendSlice(format, done, end);
  }

 private:
  size_t Field(const Str& format, size_t begin, size_t end, int level, StrBuilder& out) {
    in_.budget().Step();
    const std::string_view s = format.text;
    int open = 1;
    size_t close = begin;
    for (; close < end; ++close) {
      if (s[close] == '{') ++open;
      if (s[close] == '}' && --open == 0) break;
    }
    if (close >= end) Fail("ValueError", "expected '}' before end of string");
    size_t name_end = begin;
    while (name_end < close && s[name_end] != '!' && s[name_end] != ':') {
      if (s[name_end] == '[') {
        while (name_end < close && s[name_end] != ']') ++name_end;
      }
      if (name_end < close) ++name_end;
    }
    Value v = Lookup(s.substr(begin, name_end - begin));
    size_t at = name_end;
    if (at < close && s[at] == '!') {
      const char conversion = at + 1 < close ? s[at + 1] : '\0';
      if (conversion == 's') {
        v = ToStr(v, in_.budget());
      } else if (conversion == 'r' || conversion == 'a') {
        StrBuilder b(in_.budget());
        AppendRepr(v, b);
        v = b.Take();
      } else {
        Fail("ValueError", "unknown conversion specifier in a format string");
      }
      at += 2;
    }
    if (at < close && s[at] == ':') {
      StrBuilder spec(in_.budget());
      Run(format, at + 1, close, level + 1, spec);
      AppendFormatted(out, v, spec.text());
    } else {
      AppendFormatted(out, v, {});
    }
    return close + 1;
  }

  Value Lookup(std::string_view field) {
    size_t i = std::min(field.find_first_of(".["), field.size());
    const std::string_view first = field.substr(0, i);
    Value v;
    const bool number =
        !first.empty() && first.find_first_not_of("0123456789") == std::string_view::npos;
    if (first.empty() || number) {
      const size_t n =
          number ? static_cast<size_t>(std::stoul(std::string(first.substr(0, 9)))) : next_++;
      if (n >= args_.positional.size()) {
        Fail("IndexError",
             fmt::format("Replacement index {} out of range for positional args tuple", n));
      }
      v = args_.positional[n];
    } else {
      for (const auto& [name, value] : args_.named) {
        if (name == first) v = value;
      }
      if (v.missing()) Fail("KeyError", "'" + std::string(first) + "'");
    }
    while (i < field.size()) {
      if (field[i] == '.') {
        const size_t end = std::min(field.find_first_of(".[", i + 1), field.size());
        v = in_.GetAttribute(v, field.substr(i + 1, end - i - 1));
        i = end;
      } else {
        const size_t end = field.find(']', i);
        if (field[i] != '[' || end == std::string_view::npos)
          Fail("ValueError", "bad field name in a format string");
        const std::string_view key = field.substr(i + 1, end - i - 1);
        const bool index = !key.empty() && key.size() < 10 &&
                           key.find_first_not_of("0123456789") == std::string_view::npos;
        v = in_.GetItem(
            v, index ? Value::Int(std::stol(std::string(key))) : Value::String(std::string(key)));
        i = end + 1;
      }
    }
    return v;
  }

  Interpreter& in_;
  Args& args_;
  size_t next_ = 0;
};

void AppendPercent(StrBuilder& out, const Value& v, Spec spec) {
  switch (spec.type) {
    case 's':
      AppendText(out, ToStr(v, out.budget()), spec);
      return;
    case 'r':
    case 'a': {
      StrBuilder b(out.budget());
      AppendRepr(v, b);
      AppendText(out, b.Take(), spec);
      return;
    }
    case 'c': {
      std::string c;
      if (v.string() && Length(v) == 1) {
        c = v.text();
      } else if (v.integer() && v.wide() >= 0 && v.wide() <= 0x10FFFF) {
        AppendUtf8(static_cast<char32_t>(v.wide()), c);
      } else {
        Fail("TypeError", "%c requires int or char");
      }
      AppendText(out, Value::String(c), spec);
      return;
    }
    case 'd':
    case 'i':
    case 'u':
    case 'x':
    case 'X':
    case 'o': {
      if (v.undefined()) FailUndefined(v);
      if (!v.number() ||
          (!v.integer() && spec.type != 'd' && spec.type != 'i' && spec.type != 'u')) {
        Fail("TypeError",
             fmt::format("%{} format: a real number is required, not {}", spec.type, TypeName(v)));
      }
      __int128 i = 0;
      if (v.integer()) {
        i = v.wide();
      } else {
        if (!(std::fabs(v.float_value()) < 1e37))
          Fail("OverflowError", "cannot convert this float to an integer");
        i = static_cast<__int128>(v.float_value());
      }
      if (spec.type == 'i' || spec.type == 'u') spec.type = 'd';
      AppendInteger(out, i, spec);
      return;
    }
    case 'e':
    case 'E':
    case 'f':
    case 'F':
    case 'g':
    case 'G':
      if (v.undefined()) FailUndefined(v);
      if (!v.number()) Fail("TypeError", fmt::format("must be real number, not {}", TypeName(v)));
      AppendFloat(out, v.AsDouble(), spec);
      return;
    default:
      Fail("ValueError", "unsupported format character in a % format");
  }
}

}  // namespace

Value BraceFormat(Interpreter& in, const Str& format, Args& args) {
  StrBuilder out(in.budget());
  BraceFormatter(in, args).Run(format, 0, format.text.size(), 0, out);
  return out.Take();
}

Value PercentFormat(Interpreter& in, const Str& format, const Value& values) {
  StrBuilder out(in.budget());
  const std::string_view s = format.text;
  std::vector<Value> list{values};
  if (values.Is(Kind::kTuple)) list = values.as<Seq>().items;
  size_t used = 0;
  bool by_key = false;
  const auto next = [&]() -> Value {
    if (used >= list.size()) Fail("TypeError", "not enough arguments for format string");
    return list[used++];
  };
  size_t done = 0;
  for (size_t i = s.find('%'); i != std::string_view::npos; i = s.find('%', i)) {
    in.budget().Step();
    out.AppendSlice(format, done, i);
    Spec spec;
    Value keyed;
    ++i;
    if (i < s.size() && s[i] == '(') {
      const size_t close = s.find(')', i);
      if (close == std::string_view::npos) Fail("ValueError", "incomplete format key");
      if (!values.Is(Kind::kDict)) Fail("TypeError", "format requires a mapping");
      const std::string_view key = s.substr(i + 1, close - i - 1);
      const Value* v = values.as<Dict>().Find(key);
      if (v == nullptr) Fail("KeyError", "'" + std::string(key) + "'");
      keyed = *v;
      by_key = true;
      i = close + 1;
    }
    for (; i < s.size() && std::string_view("-+ #0").find(s[i]) != std::string_view::npos; ++i) {
      if (s[i] == '-') spec.align = '<';
      if (s[i] == '+') spec.sign = '+';
      if (s[i] == ' ' && spec.sign != '+') spec.sign = ' ';
      if (s[i] == '#') spec.alternate = true;
      if (s[i] == '0' && spec.align == '\0') {
        spec.fill = "0";
        spec.align = '=';
      }
    }
    if (spec.align == '<') spec.fill = " ";
    const auto number = [&] {
      if (i < s.size() && s[i] == '*') {
        ++i;
        return AsInt(next(), "* in a format");
      }
      int64_t v = 0;
      while (i < s.size() && s[i] >= '0' && s[i] <= '9' && v <= kMaxWidth)
        v = v * 10 + (s[i++] - '0');
      return v;
    };
    spec.width = number();
    if (i < s.size() && s[i] == '.') {
      ++i;
      spec.precision = std::max<int64_t>(0, number());
    }
    if (spec.width > kMaxWidth)
      Fail("ValueError", fmt::format("a format width over {}", kMaxWidth));
    if (i >= s.size()) Fail("ValueError", "incomplete format");
    spec.type = s[i++];
    done = i;
    if (spec.type == '%') {
      out.Append("%");
      continue;
    }
    if (spec.align == '=' && std::string_view("src").find(spec.type) != std::string_view::npos) {
      spec.align = '>';
      spec.fill = " ";
    } else if (spec.align == '\0') {
      spec.align = '>';
    }
    AppendPercent(out, by_key && !keyed.missing() ? keyed : next(), spec);
  }
  out.AppendSlice(format, done, s.size());
  const bool may_have_more = by_key || values.Is(Kind::kDict) || values.Is(Kind::kList);
  if (used < list.size() && !may_have_more) {
    Fail("TypeError", "not all arguments converted during string formatting");
  }
  return out.Take();
}

}  // namespace vllm::text::jinja
