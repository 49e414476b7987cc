// Values as text: Python's str and repr, and json.dumps.
#include <algorithm>
#include <charconv>
#include <cmath>

#include "base/strings.h"
#include "vllm/text/jinja_text.h"
#include "vllm/text/jinja_value.h"

namespace vllm::text::jinja {
namespace {

void AppendStringRepr(const Str& s, StrBuilder& out) {
  const bool single = s.text.find('\'') != std::string::npos;
  const char quote = single && s.text.find('"') == std::string::npos ? '"' : '\'';
  const bool request = !s.request.empty();
  std::string r;
  r.reserve(s.text.size() + 2);
  r += quote;
  for (size_t i = 0; i < s.text.size();) {
    const size_t begin = i;
    const char32_t c = NextChar(s.text, i);
    if (c == static_cast<unsigned char>(quote) || c == '\\') {
      r += '\\';
      r += static_cast<char>(c);
    } else if (c == '\n') {
      r += "\\n";
    } else if (c == '\r') {
      r += "\\r";
    } else if (c == '\t') {
      r += "\\t";
    } else if (IsPrintable(c)) {
      r.append(s.text, begin, i - begin);
    } else if (c < 0x100) {
      r += fmt::format("\\x{:02x}", static_cast<uint32_t>(c));
    } else if (c < 0x10000) {
      r += fmt::format("\\u{:04x}", static_cast<uint32_t>(c));
    } else {
      r += fmt::format("\\U{:08x}", static_cast<uint32_t>(c));
    }
  }
  r += quote;
  if (s.markup) r = "Markup(" + r + ")";
  out.Append(r, request);
}

void AppendJsonString(const Str& s, bool ascii, StrBuilder& out) {
  std::string r;
  r.reserve(s.text.size());
  for (size_t i = 0; i < s.text.size();) {
    const size_t begin = i;
    const char32_t c = NextChar(s.text, i);
    switch (c) {
      case '"':
        r += "\\\"";
        break;
      case '\\':
        r += "\\\\";
        break;
      case '\n':
        r += "\\n";
        break;
      case '\r':
        r += "\\r";
        break;
      case '\t':
        r += "\\t";
        break;
      case '\f':
        r += "\\f";
        break;
      case '\b':
        r += "\\b";
        break;
      default:
        if (c < 0x20) {
          r += fmt::format("\\u{:04x}", static_cast<uint32_t>(c));
        } else if (!ascii || c < 0x80) {
          r.append(s.text, begin, i - begin);
        } else if (c < 0x10000) {
          r += fmt::format("\\u{:04x}", static_cast<uint32_t>(c));
        } else {
          const uint32_t v = static_cast<uint32_t>(c) - 0x10000;
          r += fmt::format("\\u{:04x}\\u{:04x}", 0xD800 + (v >> 10), 0xDC00 + (v & 0x3FF));
        }
    }
  }
  out.Append("\"");
  out.Append(r, !s.request.empty());
  out.Append("\"");
}

std::string JsonFloat(double d) {
  if (std::isnan(d)) return "NaN";
  if (std::isinf(d)) return d > 0 ? "Infinity" : "-Infinity";
  return FloatRepr(d);
}

void AppendJsonKey(const Value& key, const JsonStyle& style, StrBuilder& out) {
  switch (key.kind()) {
    case Kind::kString:
      AppendJsonString(key.str(), style.ascii, out);
      return;
    case Kind::kNone:
      out.Append("\"null\"");
      return;
    case Kind::kBool:
      out.Append(key.bool_value() ? "\"true\"" : "\"false\"");
      return;
    case Kind::kInt:
    case Kind::kBigInt:
      out.Append("\"" + IntText(key.wide()) + "\"");
      return;
    case Kind::kFloat:
      out.Append("\"" + JsonFloat(key.float_value()) + "\"");
      return;
    default:
      Fail("TypeError",
           fmt::format("keys must be str, int, float, bool or None, not {}", TypeName(key)));
  }
}

void NewLine(const JsonStyle& style, int level, StrBuilder& out) {
  if (style.indent == nullptr) return;
  out.Append("\n");
  for (int i = 0; i < level; ++i) out.Append(*style.indent);
}

void AppendJoined(const std::vector<Value>& items, StrBuilder& out) {
  for (size_t i = 0; i < items.size(); ++i) {
    if (i > 0) out.Append(", ");
    AppendRepr(items[i], out);
  }
}

void AppendDictRepr(const std::vector<std::pair<Value, Value>>& items, StrBuilder& out) {
  out.Append("{");
  for (size_t i = 0; i < items.size(); ++i) {
    if (i > 0) out.Append(", ");
    AppendRepr(items[i].first, out);
    out.Append(": ");
    AppendRepr(items[i].second, out);
  }
  out.Append("}");
}

}  // namespace

std::string IntText(__int128 i) {
  if (i >= INT64_MIN && i <= INT64_MAX) return std::to_string(static_cast<int64_t>(i));
  unsigned __int128 u =
      i < 0 ? -static_cast<unsigned __int128>(i) : static_cast<unsigned __int128>(i);
  std::string s;
  for (; u > 0; u /= 10) s += static_cast<char>('0' + static_cast<int>(u % 10));
  if (i < 0) s += '-';
  std::reverse(s.begin(), s.end());
  return s;
}

// The shortest digits that read back as the same number; with an exponent outside 1e-4 .. 1e16, as
// Python has it.
std::string FloatRepr(double d) {
  if (std::isnan(d)) return "nan";
  if (std::isinf(d)) return d > 0 ? "inf" : "-inf";
  char buffer[64];
  const auto end =
      std::to_chars(buffer, buffer + sizeof(buffer), d, std::chars_format::scientific).ptr;
  std::string_view s(buffer, static_cast<size_t>(end - buffer));
  std::string out;
  if (s[0] == '-') {
    out = "-";
    s.remove_prefix(1);
  }
  const size_t e = s.find('e');
  const int exponent = std::stoi(std::string(s.substr(e + 1)));
  std::string digits(s.substr(0, 1));
  if (e > 2) digits += s.substr(2, e - 2);
  const int n = static_cast<int>(digits.size());
  if (exponent < -4 || exponent >= 16) {
    out += digits[0];
    if (n > 1) out += "." + digits.substr(1);
    out += fmt::format("e{}{:02}", exponent < 0 ? '-' : '+', std::abs(exponent));
  } else if (exponent < 0) {
    out += "0." + std::string(static_cast<size_t>(-exponent - 1), '0') + digits;
  } else if (n <= exponent + 1) {
    out += digits + std::string(static_cast<size_t>(exponent + 1 - n), '0') + ".0";
  } else {
    out += digits.substr(0, static_cast<size_t>(exponent + 1)) + "." +
           digits.substr(static_cast<size_t>(exponent + 1));
  }
  return out;
}

void AppendStr(const Value& v, StrBuilder& out) {
  switch (v.kind()) {
    case Kind::kString:
      out.Append(v.str());
      return;
    case Kind::kMissing:
    case Kind::kUndefined:
      return;
    default:
      AppendRepr(v, out);
  }
}

void AppendRepr(const Value& v, StrBuilder& out) {
  out.budget().CheckStack();  // a list in a namespace may hold that namespace
  switch (v.kind()) {
    case Kind::kMissing:
    case Kind::kUndefined:
      out.Append("Undefined");
      return;
    case Kind::kNone:
      out.Append("None");
      return;
    case Kind::kBool:
      out.Append(v.bool_value() ? "True" : "False");
      return;
    case Kind::kInt:
    case Kind::kBigInt:
      out.Append(IntText(v.wide()));
      return;
    case Kind::kFloat:
      out.Append(FloatRepr(v.float_value()));
      return;
    case Kind::kString:
      AppendStringRepr(v.str(), out);
      return;
    case Kind::kList:
      out.Append("[");
      AppendJoined(v.as<Seq>().items, out);
      out.Append("]");
      return;
    case Kind::kTuple:
      out.Append("(");
      AppendJoined(v.as<Seq>().items, out);
      out.Append(v.as<Seq>().items.size() == 1 ? ",)" : ")");
      return;
    case Kind::kRange:
      out.Append(v.as<Seq>().repr);
      return;
    case Kind::kView:
      out.Append(v.as<Seq>().repr);
      out.Append("([");
      AppendJoined(v.as<Seq>().items, out);
      out.Append("])");
      return;
    case Kind::kGenerator:
      out.Append("<generator object>");
      return;
    case Kind::kDict:
      AppendDictRepr(v.as<Dict>().items, out);
      return;
    case Kind::kNamespace: {
      out.Append("<Namespace {");
      bool first = true;
      for (const auto& [name, value] : v.as<Namespace>().attributes) {
        if (!first) out.Append(", ");
        first = false;
        out.Append("'" + name + "': ");
        // A namespace may hold itself.
        if (value.Is(Kind::kNamespace)) {
          out.Append("<Namespace>");
        } else {
          AppendRepr(value, out);
        }
      }
      out.Append("}>");
      return;
    }
    case Kind::kFunction:
      out.Append(v.as<Function>().repr);
      return;
    case Kind::kLoop:
      out.Append("<LoopContext>");
      return;
  }
}

Value ToStr(const Value& v, Budget& budget) {
  if (v.string()) return v;
  StrBuilder b(budget);
  AppendStr(v, b);
  return b.Take();
}

void AppendJson(const Value& v, const JsonStyle& style, StrBuilder& out, int level) {
  switch (v.kind()) {
    case Kind::kNone:
      out.Append("null");
      return;
    case Kind::kBool:
      out.Append(v.bool_value() ? "true" : "false");
      return;
    case Kind::kInt:
    case Kind::kBigInt:
      out.Append(IntText(v.wide()));
      return;
    case Kind::kFloat:
      out.Append(JsonFloat(v.float_value()));
      return;
    case Kind::kString:
      AppendJsonString(v.str(), style.ascii, out);
      return;
    case Kind::kList:
    case Kind::kTuple: {
      const auto& items = v.as<Seq>().items;
      if (items.empty()) {
        out.Append("[]");
        return;
      }
      out.Append("[");
      for (size_t i = 0; i < items.size(); ++i) {
        if (i > 0) out.Append(style.item_separator);
        NewLine(style, level + 1, out);
        AppendJson(items[i], style, out, level + 1);
      }
      NewLine(style, level, out);
      out.Append("]");
      return;
    }
    case Kind::kDict: {
      std::vector<std::pair<Value, Value>> sorted;
      const auto* items = &v.as<Dict>().items;
      if (items->empty()) {
        out.Append("{}");
        return;
      }
      if (style.sort_keys) {
        sorted = *items;
        std::stable_sort(sorted.begin(), sorted.end(),
                         [](const auto& a, const auto& b) { return Less(a.first, b.first); });
        items = &sorted;
      }
      out.Append("{");
      for (size_t i = 0; i < items->size(); ++i) {
        if (i > 0) out.Append(style.item_separator);
        NewLine(style, level + 1, out);
        AppendJsonKey((*items)[i].first, style, out);
        out.Append(style.key_separator);
        AppendJson((*items)[i].second, style, out, level + 1);
      }
      NewLine(style, level, out);
      out.Append("}");
      return;
    }
    default:
      Fail("TypeError", fmt::format("Object of type {} is not JSON serializable", TypeName(v)));
  }
}

}  // namespace vllm::text::jinja
