// Filters that make or change text: tojson, trim, replace, indent, int, ...
#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "base/strings.h"
#include "vllm/text/jinja_filters.h"
#include "vllm/text/jinja_text.h"

namespace vllm::text::jinja {
namespace {

Value AsMarkup(const Value& text) {
  auto s = std::make_shared<Str>(text.str());
  s->markup = true;
  return Value::Of(std::move(s));
}

// A str method as a filter: whatever comes in is turned into text first.
Value Method(Interpreter& in, Args& args, std::string_view name) {
  const Value self = ToStr(args.positional[0], in.budget());
  args.positional.erase(args.positional.begin());
  bool mutates = false;
  return FindMethod(self, name, mutates)(in, self, args);
}

Value Trim(Interpreter& in, Args& args) { return Method(in, args, "strip"); }
Value UpperFilter(Interpreter& in, Args& args) { return Method(in, args, "upper"); }
Value LowerFilter(Interpreter& in, Args& args) { return Method(in, args, "lower"); }
Value CapitalizeFilter(Interpreter& in, Args& args) { return Method(in, args, "capitalize"); }

Value Center(Interpreter& in, Args& args) {
  if (args.positional.size() + args.named.size() < 2) args.positional.push_back(Value::Int(80));
  return Method(in, args, "center");
}

// Words begin after blanks, hyphens and opening brackets: unlike str.title, "don't" has one word.
Value TitleFilter(Interpreter& in, Args& args) {
  const std::vector<Value> a = BindArguments(args, "title", {"s"}, 1);
  const Value text = ToStr(a[0], in.budget());
  const std::string_view s = text.text();
  std::string out, word;
  const auto flush = [&] {
    if (word.empty()) return;
    size_t first = 0;
    NextChar(word, first);
    out += Upper(std::string_view(word).substr(0, first)) +
           Lower(std::string_view(word).substr(first));
    word.clear();
  };
  for (size_t i = 0; i < s.size();) {
    const size_t begin = i;
    const char32_t c = NextChar(s, i);
    if (IsSpace(c) || (c < 0x80 && std::string_view("-({[<").find(static_cast<char>(c)) !=
                                       std::string_view::npos)) {
      flush();
      out.append(s.substr(begin, i - begin));
    } else {
      word.append(s.substr(begin, i - begin));
    }
  }
  flush();
  in.budget().Charge(out.size());
  return Value::String(std::move(out), text.str().AllRequest());
}

Value StringFilter(Interpreter& in, Args& args) {
  const std::vector<Value> a = BindArguments(args, "string", {"object"}, 1);
  return ToStr(a[0], in.budget());
}

Value ReplaceFilter(Interpreter& in, Args& args) {
  std::vector<Value> a = BindArguments(args, "replace", {"s", "old", "new", "count"}, 3);
  Args inner;
  for (size_t i = 0; i < 3; ++i) inner.positional.push_back(ToStr(a[i], in.budget()));
  if (!a[3].missing() && !a[3].none()) inner.positional.push_back(a[3]);
  return Method(in, inner, "replace");
}

Value ToJson(Interpreter& in, Args& args) {
  const std::vector<Value> a =
      BindArguments(args, "tojson", {"x", "ensure_ascii", "indent", "separators", "sort_keys"}, 1);
  JsonStyle style;
  style.ascii = Truthy(a[1]);
  style.sort_keys = Truthy(a[4]);
  std::string indent;
  if (!a[2].missing() && !a[2].none()) {
    if (a[2].string()) {
      indent = a[2].text();
    } else {
      indent.assign(
          static_cast<size_t>(std::clamp<int64_t>(AsInt(a[2], "tojson(indent)"), 0, 1000)), ' ');
    }
    style.indent = &indent;
    style.item_separator = ",";
  }
  if (!a[3].missing() && !a[3].none()) {
    const auto pair = Items(a[3], in.budget());
    if (pair->items.size() != 2 || !pair->items[0].string() || !pair->items[1].string()) {
      Fail("ValueError", "tojson(separators) needs two strings");
    }
    style.item_separator = pair->items[0].text();
    style.key_separator = pair->items[1].text();
  }
  StrBuilder out(in.budget());
  AppendJson(a[0], style, out);
  return out.Take();
}

Value Indent(Interpreter& in, Args& args) {
  const std::vector<Value> a = BindArguments(args, "indent", {"s", "width", "first", "blank"}, 1);
  if (a[0].undefined()) FailUndefined(a[0]);
  if (!a[0].string())
    Fail("TypeError", fmt::format("indent needs a string, not '{}'", TypeName(a[0])));
  std::string pad = "    ";
  if (a[1].string()) {
    pad = a[1].text();
  } else if (!a[1].missing()) {
    const int64_t width = AsInt(a[1], "indent()");
    if (width > 100'000) Fail("ValueError", "indent by more than 100000");
    pad.assign(static_cast<size_t>(std::max<int64_t>(0, width)), ' ');
  }
  bool mutates = false;
  Args none;
  StrBuilder with_newline(in.budget());
  with_newline.Append(a[0].str());
  with_newline.Append("\n");
  const Value text = with_newline.Take();
  const Value lines = FindMethod(text, "splitlines", mutates)(in, text, none);
  StrBuilder out(in.budget());
  const auto& items = lines.as<Seq>().items;
  for (size_t i = 0; i < items.size(); ++i) {
    if (i > 0) out.Append("\n");
    const bool padded = i == 0 ? Truthy(a[2]) : Truthy(a[3]) || !items[i].text().empty();
    if (padded) out.Append(pad);
    out.Append(items[i].str());
  }
  return out.Take();
}

Value Safe(Interpreter& in, Args& args) {
  const std::vector<Value> a = BindArguments(args, "safe", {"value"}, 1);
  return AsMarkup(ToStr(a[0], in.budget()));
}

Value EscapeText(Interpreter& in, const Value& text) {
  StrBuilder out(in.budget());
  const Str& s = text.str();
  for (size_t i = 0; i < s.text.size(); ++i) {
    switch (s.text[i]) {
      case '&':
        out.Append("&amp;");
        break;
      case '<':
        out.Append("&lt;");
        break;
      case '>':
        out.Append("&gt;");
        break;
      case '\'':
        out.Append("&#39;");
        break;
      case '"':
        out.Append("&#34;");
        break;
      default:
        out.AppendSlice(s, i, i + 1);
    }
  }
  return AsMarkup(out.Take());
}

Value Escape(Interpreter& in, Args& args) {
  const std::vector<Value> a = BindArguments(args, "escape", {"value"}, 1);
  const Value text = ToStr(a[0], in.budget());
  return text.str().markup ? text : EscapeText(in, text);
}
Value ForceEscape(Interpreter& in, Args& args) {
  const std::vector<Value> a = BindArguments(args, "forceescape", {"value"}, 1);
  return EscapeText(in, ToStr(a[0], in.budget()));
}

std::string Quote(std::string_view s, std::string_view safe) {
  std::string out;
  for (const char c : s) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                       std::string_view("_.-~").find(c) != std::string_view::npos ||
                       safe.find(c) != std::string_view::npos;
    if (plain) {
      out += c;
    } else {
      out += fmt::format("%{:02X}", static_cast<unsigned>(static_cast<unsigned char>(c)));
    }
  }
  return out;
}

Value UrlEncode(Interpreter& in, Args& args) {
  const std::vector<Value> a = BindArguments(args, "urlencode", {"value"}, 1);
  if (a[0].string() || !Iterable(a[0]))
    return Value::String(Quote(ToStr(a[0], in.budget()).text(), "/"));
  std::vector<std::pair<Value, Value>> pairs;
  if (a[0].Is(Kind::kDict)) {
    pairs = a[0].as<Dict>().items;
  } else {
    const auto values = Items(a[0], in.budget());
    for (const Value& p : values->items) {
      const auto kv = Items(p, in.budget());
      if (kv->items.size() != 2) Fail("ValueError", "urlencode needs pairs");
      pairs.emplace_back(kv->items[0], kv->items[1]);
    }
  }
  std::string out;
  const auto part = [&](const Value& v) {
    std::string q;
    for (const char c : Quote(ToStr(v, in.budget()).text(), " ")) q += c == ' ' ? '+' : c;
    return q;
  };
  for (size_t i = 0; i < pairs.size(); ++i) {
    if (i > 0) out += '&';
    out += part(pairs[i].first) + "=" + part(pairs[i].second);
  }
  in.budget().Charge(out.size());
  return Value::String(std::move(out));
}

Value WordCount(Interpreter& in, Args& args) {
  const std::vector<Value> a = BindArguments(args, "wordcount", {"s"}, 1);
  const Value text = ToStr(a[0], in.budget());
  const std::string_view s = text.text();
  int64_t n = 0;
  bool inside = false;
  for (size_t i = 0; i < s.size();) {
    const char32_t c = NextChar(s, i);
    const bool word = IsAlpha(c) || IsNumeric(c) || c == '_';
    n += word && !inside;
    inside = word;
  }
  return Value::Int(n);
}

Value Truncate(Interpreter& in, Args& args) {
  const std::vector<Value> a =
      BindArguments(args, "truncate", {"s", "length", "killwords", "end", "leeway"}, 1);
  const int64_t length = a[1].missing() ? 255 : AsInt(a[1], "truncate()");
  const Value end = a[3].missing() ? Value::String("...") : ToStr(a[3], in.budget());
  const int64_t leeway = a[4].missing() || a[4].none() ? 5 : AsInt(a[4], "truncate()");
  if (length < Length(end) || leeway < 0)
    Fail("AssertionError", "truncate: the length is too short for its end mark");
  if (!a[0].string() && !a[0].undefined()) Fail("TypeError", "truncate needs a string");
  if (a[0].undefined() || Length(a[0]) <= length + leeway) return a[0];
  Value cut =
      Slice(a[0], Value::None(), Value::Int(length - Length(end)), Value::None(), in.budget());
  if (!Truthy(a[2])) {
    const size_t blank = cut.text().rfind(' ');
    if (blank != std::string_view::npos) {
      StrBuilder b(in.budget());
      b.AppendSlice(cut.str(), 0, blank);
      cut = b.Take();
    }
  }
  StrBuilder out(in.budget());
  out.Append(cut.str());
  out.Append(end.str());
  return out.Take();
}

Value FormatFilter(Interpreter& in, Args& args) {
  const Value format = ToStr(args.positional[0], in.budget());
  std::vector<Value> rest(args.positional.begin() + 1, args.positional.end());
  if (!rest.empty() && !args.named.empty()) {
    Fail("FilterArgumentError", "can't handle positional and keyword arguments at the same time");
  }
  if (args.named.empty())
    return PercentFormat(in, format.str(), MakeSeq(Kind::kTuple, std::move(rest), in.budget()));
  auto d = std::make_shared<Dict>();
  for (auto& [k, v] : args.named) d->Set(Value::String(k), v);
  return PercentFormat(in, format.str(), MakeDict(std::move(d), in.budget()));
}

std::string_view Stripped(std::string_view s) {
  size_t begin = 0;
  while (begin < s.size()) {
    size_t i = begin;
    if (!IsSpace(NextChar(s, i))) break;
    begin = i;
  }
  size_t end = s.size();
  while (end > begin) {
    const size_t p = PreviousChar(s, end);
    size_t i = p;
    if (!IsSpace(NextChar(s, i))) break;
    end = p;
  }
  return s.substr(begin, end - begin);
}

// int(text, base): signs, underscores between digits, a prefix where the base allows it.
bool ParseInteger(std::string_view s, int64_t base, __int128& v) {
  s = Stripped(s);
  bool negative = false;
  if (!s.empty() && (s[0] == '-' || s[0] == '+')) {
    negative = s[0] == '-';
    s.remove_prefix(1);
  }
  if (s.size() > 2 && s[0] == '0') {
    const char p = static_cast<char>(s[1] | 0x20);
    const int64_t of_prefix = p == 'x' ? 16 : p == 'o' ? 8 : p == 'b' ? 2 : 0;
    if (of_prefix != 0 && (base == of_prefix || base == 0)) {
      base = of_prefix;
      s.remove_prefix(s[2] == '_' ? 3 : 2);
    }
  }
  if (base == 0) base = 10;
  if (s.empty() || base < 2 || base > 36) return false;
  v = 0;
  bool digit_before = false;
  for (const char c : s) {
    if (c == '_' && digit_before) {
      digit_before = false;
      continue;
    }
    const int d = c >= '0' && c <= '9'                     ? c - '0'
                  : (c | 0x20) >= 'a' && (c | 0x20) <= 'z' ? (c | 0x20) - 'a' + 10
                                                           : 99;
    if (d >= base) return false;
    if (v > (static_cast<__int128>(1) << 120)) Fail("OverflowError", "an integer beyond 128 bits");
    v = v * base + d;
    digit_before = true;
  }
  if (!digit_before) return false;
  if (negative) v = -v;
  return true;
}

bool ParseFloat(std::string_view s, double& d) {
  s = Stripped(s);
  if (s.empty() || s.find_first_of("xXpP") != std::string_view::npos ||
      s.find('(') != std::string_view::npos)
    return false;
  std::string copy;
  for (size_t i = 0; i < s.size(); ++i) {
    if (s[i] != '_') copy += s[i];
  }
  char* end = nullptr;
  d = std::strtod(copy.c_str(), &end);
  return end == copy.c_str() + copy.size();
}

bool FloatToInt(double d, Value& v) {
  if (!(std::fabs(d) < 1e37)) return false;
  v = Value::Wide(static_cast<__int128>(d));
  return true;
}

Value Int(Interpreter&, Args& args) {
  const std::vector<Value> a = BindArguments(args, "int", {"value", "default", "base"}, 1);
  const Value fallback = a[1].missing() ? Value::Int(0) : a[1];
  Value v;
  if (a[0].undefined()) FailUndefined(a[0]);
  if (a[0].integer()) return Value::Wide(a[0].wide());
  if (a[0].Is(Kind::kFloat)) return FloatToInt(a[0].float_value(), v) ? v : fallback;
  if (!a[0].string()) return fallback;
  __int128 i;
  double d;
  if (ParseInteger(a[0].text(), a[2].missing() ? 10 : AsInt(a[2], "int()"), i))
    return Value::Wide(i);
  return ParseFloat(a[0].text(), d) && FloatToInt(d, v) ? v : fallback;
}

Value FloatFilter(Interpreter&, Args& args) {
  const std::vector<Value> a = BindArguments(args, "float", {"value", "default"}, 1);
  if (a[0].undefined()) FailUndefined(a[0]);
  if (a[0].number()) return Value::Float(a[0].AsDouble());
  double d;
  if (a[0].string() && ParseFloat(a[0].text(), d)) return Value::Float(d);
  return a[1].missing() ? Value::Float(0) : a[1];
}

// Wide structures are not wrapped over lines, as Python's pprint would.
Value PPrint(Interpreter& in, Args& args) {
  const std::vector<Value> a = BindArguments(args, "pprint", {"value"}, 1);
  StrBuilder out(in.budget());
  AppendRepr(a[0], out);
  return out.Take();
}

// The entities that escaping makes, back into characters.
std::string Unescaped(std::string_view s) {
  static constexpr std::pair<std::string_view, char> kEntities[] = {
      {"&lt;", '<'},  {"&gt;", '>'},   {"&#39;", '\''},
      {"&#34;", '"'}, {"&quot;", '"'}, {"&amp;", '&'}};
  std::string out;
  out.reserve(s.size());
  for (size_t i = 0; i < s.size();) {
    const auto* e = std::find_if(std::begin(kEntities), std::end(kEntities), [&](const auto& k) {
      return base::StartsWith(s.substr(i), k.first);
    });
    if (s[i] == '&' && e != std::end(kEntities)) {
      out += e->second;
      i += e->first.size();
    } else {
      out += s[i++];
    }
  }
  return out;
}

Value StripTags(Interpreter& in, Args& args) {
  const std::vector<Value> a = BindArguments(args, "striptags", {"value"}, 1);
  const Value text = ToStr(a[0], in.budget());
  std::string s(text.text());
  for (const auto& [open, close] :
       {std::pair<std::string_view, std::string_view>{"<!--", "-->"}, {"<", ">"}}) {
    std::string kept;
    size_t done = 0;
    for (size_t i = s.find(open); i != std::string::npos; i = s.find(open, done)) {
      const size_t end = s.find(close, i);
      if (end == std::string::npos) break;
      kept.append(s, done, i - done);
      done = end + close.size();
    }
    s = kept + s.substr(done);
  }
  std::string out;
  bool gap = false;
  for (size_t i = 0; i < s.size();) {
    const size_t begin = i;
    if (IsSpace(NextChar(s, i))) {
      gap = !out.empty();
      continue;
    }
    if (gap) out += ' ';
    gap = false;
    out.append(s, begin, i - begin);
  }
  out = Unescaped(out);
  in.budget().Charge(out.size());
  return Value::String(std::move(out), text.str().AllRequest());
}

Value XmlAttr(Interpreter& in, Args& args) {
  const std::vector<Value> a = BindArguments(args, "xmlattr", {"d", "autospace"}, 1);
  if (a[0].undefined()) FailUndefined(a[0]);
  if (!a[0].Is(Kind::kDict))
    Fail("AttributeError", fmt::format("'{}' object has no attribute 'items'", TypeName(a[0])));
  StrBuilder out(in.budget());
  for (const auto& [k, v] : a[0].as<Dict>().items) {
    if (v.none() || v.undefined()) continue;
    const Value key = ToStr(k, in.budget());
    if (key.text().find_first_of(" \t\n\r\f\v/>=") != std::string_view::npos) {
      Fail("ValueError", "invalid character in attribute name");
    }
    if (out.size() > 0 || a[1].missing() || Truthy(a[1])) out.Append(" ");
    out.Append(EscapeText(in, key).str());
    out.Append("=\"");
    out.Append(EscapeText(in, ToStr(v, in.budget())).str());
    out.Append("\"");
  }
  return out.Take();
}

Value FileSize(Interpreter& in, Args& args) {
  const std::vector<Value> a = BindArguments(args, "filesizeformat", {"value", "binary"}, 1);
  const bool binary = Truthy(a[1]);
  Args one;
  one.positional.push_back(a[0]);
  const double bytes = FloatFilter(in, one).AsDouble();
  const double base = binary ? 1024 : 1000;
  if (bytes == 1) return Value::String("1 Byte");
  if (bytes < base) return Value::String(fmt::format("{} Bytes", static_cast<int64_t>(bytes)));
  double unit = base;
  constexpr std::string_view kPrefixes = "kMGTPEZY";
  size_t i = 0;
  while (i + 1 < kPrefixes.size() && bytes >= unit * base) {
    unit *= base;
    ++i;
  }
  const char prefix = binary && i == 0 ? 'K' : kPrefixes[i];
  return Value::String(fmt::format("{:.1f} {}{}", bytes / unit, prefix, binary ? "iB" : "B"));
}

struct Named {
  std::string_view name;
  FilterFunction filter;
};

constexpr Named kFilters[] = {
    {"tojson", ToJson},
    {"trim", Trim},
    {"string", StringFilter},
    {"upper", UpperFilter},
    {"lower", LowerFilter},
    {"title", TitleFilter},
    {"capitalize", CapitalizeFilter},
    {"replace", ReplaceFilter},
    {"indent", Indent},
    {"int", Int},
    {"float", FloatFilter},
    {"safe", Safe},
    {"escape", Escape},
    {"e", Escape},
    {"forceescape", ForceEscape},
    {"urlencode", UrlEncode},
    {"wordcount", WordCount},
    {"truncate", Truncate},
    {"format", FormatFilter},
    {"pprint", PPrint},
    {"striptags", StripTags},
    {"center", Center},
    {"xmlattr", XmlAttr},
    {"filesizeformat", FileSize},
};

}  // namespace

FilterFunction FindTextFilter(std::string_view name) {
  for (const Named& f : kFilters) {
    if (f.name == name) return f.filter;
  }
  return nullptr;
}

}  // namespace vllm::text::jinja
