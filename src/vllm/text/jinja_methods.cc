// Methods of Python's str, list, tuple and dict that templates call. Those that would change a
// value are refused, as the immutable sandbox does.
#include <algorithm>
#include <span>

#include "base/strings.h"
#include "vllm/text/jinja_interpreter.h"
#include "vllm/text/jinja_text.h"

namespace vllm::text::jinja {
namespace {

struct Method {
  std::string_view name;
  MethodFunction call;  // null: the sandbox forbids it
};

const Str& Text(const Value& v, std::string_view method) {
  if (v.undefined()) FailUndefined(v);
  if (!v.string())
    Fail("TypeError", fmt::format("{}() needs a string, not '{}'", method, TypeName(v)));
  return v.str();
}

Value Piece(Interpreter& in, const Str& s, size_t begin, size_t end) {
  StrBuilder b(in.budget());
  b.AppendSlice(s, begin, end);
  return b.Take();
}

// A result made of the whole of `s` keeps its origin only where that is one.
Value Whole(Interpreter& in, const Str& s, std::string text) {
  in.budget().Charge(text.size() + sizeof(Str));
  return Value::String(std::move(text), s.AllRequest());
}

void Scan(Interpreter& in, const Str& s) { in.budget().Step(1 + s.text.size() / 64); }

Value StripSides(Interpreter& in, const Value& self, Args& args, std::string_view name, bool left,
                 bool right) {
  const std::vector<Value> a = BindArguments(args, name, {"chars"}, 0);
  const Str& s = self.str();
  Scan(in, s);
  std::u32string set;
  const bool spaces = a[0].missing() || a[0].none();
  if (!spaces) {
    const std::string_view chars = Text(a[0], name).text;
    for (size_t i = 0; i < chars.size();) set += NextChar(chars, i);
  }
  const auto drop = [&](char32_t c) {
    return spaces ? IsSpace(c) : set.find(c) != std::u32string::npos;
  };
  size_t begin = 0, end = s.text.size();
  while (left && begin < end) {
    size_t next = begin;
    if (!drop(NextChar(s.text, next))) break;
    begin = next;
  }
  while (right && end > begin) {
    const size_t before = PreviousChar(s.text, end);
    size_t i = before;
    if (!drop(NextChar(s.text, i))) break;
    end = before;
  }
  if (begin == 0 && end == s.text.size()) return self;
  return Piece(in, s, begin, end);
}

Value Strip(Interpreter& in, const Value& self, Args& a) {
  return StripSides(in, self, a, "strip", true, true);
}
Value LStrip(Interpreter& in, const Value& self, Args& a) {
  return StripSides(in, self, a, "lstrip", true, false);
}
Value RStrip(Interpreter& in, const Value& self, Args& a) {
  return StripSides(in, self, a, "rstrip", false, true);
}

// split and rsplit without a separator: runs of whitespace.
std::vector<std::pair<size_t, size_t>> SplitSpaces(std::string_view s, int64_t limit,
                                                   bool from_right) {
  std::vector<std::pair<size_t, size_t>> words;
  for (size_t i = 0; i < s.size();) {
    const size_t begin = i;
    if (IsSpace(NextChar(s, i))) continue;
    size_t end = i;
    while (i < s.size()) {
      size_t next = i;
      if (IsSpace(NextChar(s, next))) break;
      end = i = next;
    }
    words.emplace_back(begin, end);
  }
  const auto n = static_cast<int64_t>(words.size());
  if (limit < 0 || limit >= n) return words;
  // The rest stays one piece, without its outer whitespace on the side it was cut from.
  const auto keep = static_cast<size_t>(limit);
  if (from_right) {
    const size_t first = words.size() - keep;
    std::vector<std::pair<size_t, size_t>> r;
    r.emplace_back(0, words[first - 1].second);
    r.insert(r.end(), words.begin() + static_cast<ptrdiff_t>(first), words.end());
    return r;
  }
  words[keep].second = s.size();
  words.resize(keep + 1);
  return words;
}

Value SplitText(Interpreter& in, const Value& self, Args& args, bool from_right) {
  const std::vector<Value> a =
      BindArguments(args, from_right ? "rsplit" : "split", {"sep", "maxsplit"}, 0);
  const Str& s = self.str();
  Scan(in, s);
  const int64_t limit = a[1].missing() ? -1 : AsInt(a[1], "split()");
  std::vector<std::pair<size_t, size_t>> cuts;
  if (a[0].missing() || a[0].none()) {
    cuts = SplitSpaces(s.text, limit, from_right);
  } else {
    const std::string& separator = Text(a[0], "split").text;
    if (separator.empty()) Fail("ValueError", "empty separator");
    if (!from_right) {
      size_t begin = 0;
      for (int64_t n = 0; limit < 0 || n < limit; ++n) {
        const size_t at = s.text.find(separator, begin);
        if (at == std::string::npos) break;
        cuts.emplace_back(begin, at);
        begin = at + separator.size();
      }
      cuts.emplace_back(begin, s.text.size());
    } else {
      size_t end = s.text.size();
      for (int64_t n = 0; (limit < 0 || n < limit) && end >= separator.size(); ++n) {
        const size_t at = s.text.rfind(separator, end - separator.size());
        if (at == std::string::npos) break;
        cuts.emplace_back(at + separator.size(), end);
        end = at;
      }
      cuts.emplace_back(0, end);
      std::reverse(cuts.begin(), cuts.end());
    }
  }
  std::vector<Value> pieces;
  pieces.reserve(cuts.size());
  in.budget().Step(cuts.size());
  for (const auto& [b, e] : cuts) pieces.push_back(Piece(in, s, b, e));
  return MakeSeq(Kind::kList, std::move(pieces), in.budget());
}

Value Split(Interpreter& in, const Value& self, Args& args) {
  return SplitText(in, self, args, false);
}
Value RSplit(Interpreter& in, const Value& self, Args& args) {
  return SplitText(in, self, args, true);
}

bool LineBreak(char32_t c) {
  return (c >= 0x0A && c <= 0x0D) || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 ||
         c == 0x2029;
}

Value SplitLines(Interpreter& in, const Value& self, Args& args) {
  const std::vector<Value> a = BindArguments(args, "splitlines", {"keepends"}, 0);
  const Str& s = self.str();
  Scan(in, s);
  const bool keep = Truthy(a[0]);
  std::vector<Value> lines;
  size_t begin = 0;
  for (size_t i = 0; i < s.text.size();) {
    const size_t at = i;
    const char32_t c = NextChar(s.text, i);
    if (!LineBreak(c)) continue;
    if (c == '\r' && i < s.text.size() && s.text[i] == '\n') ++i;
    in.budget().Step();
    lines.push_back(Piece(in, s, begin, keep ? i : at));
    begin = i;
  }
  if (begin < s.text.size()) lines.push_back(Piece(in, s, begin, s.text.size()));
  return MakeSeq(Kind::kList, std::move(lines), in.budget());
}

// The part of a string that optional start and end arguments name, as bytes.
std::string_view Window(const Value& self, const Value& start, const Value& end, size_t& base) {
  const Str& s = self.str();
  const int64_t n = Length(self);
  const auto bound = [&](const Value& v, int64_t otherwise) {
    if (v.missing() || v.none()) return otherwise;
    int64_t i = AsInt(v, "a string method");
    if (i < 0) i = std::max<int64_t>(0, i + n);
    return i;
  };
  const int64_t b = bound(start, 0), e = std::min(bound(end, n), n);
  base = ByteOffset(s.text, b, s.ascii);
  if (b > n || e < b) {
    base = std::string_view::npos;
    return {};
  }
  return std::string_view(s.text).substr(base, ByteOffset(s.text, e, s.ascii) - base);
}

Value Affix(const Value& self, Args& args, bool prefix) {
  const std::string_view name = prefix ? "startswith" : "endswith";
  const std::vector<Value> a = BindArguments(args, name, {"affix", "start", "end"}, 1);
  size_t base;
  const std::string_view s = Window(self, a[1], a[2], base);
  if (base == std::string_view::npos) return Value::Bool(false);
  const auto matches = [&](const Value& v) {
    const std::string& t = Text(v, name).text;
    return prefix ? base::StartsWith(s, t) : base::EndsWith(s, t);
  };
  if (!a[0].Is(Kind::kTuple)) return Value::Bool(matches(a[0]));
  const auto& options = a[0].as<Seq>().items;
  return Value::Bool(std::any_of(options.begin(), options.end(), matches));
}

Value StartsWith(Interpreter&, const Value& self, Args& args) { return Affix(self, args, true); }
Value EndsWith(Interpreter&, const Value& self, Args& args) { return Affix(self, args, false); }

Value FindText(Interpreter& in, const Value& self, Args& args, std::string_view name, bool last,
               bool must) {
  const std::vector<Value> a = BindArguments(args, name, {"sub", "start", "end"}, 1);
  Scan(in, self.str());
  const std::string& sub = Text(a[0], name).text;
  size_t base;
  const std::string_view s = Window(self, a[1], a[2], base);
  size_t at = std::string_view::npos;
  if (base != std::string_view::npos) at = last ? s.rfind(sub) : s.find(sub);
  if (at == std::string_view::npos) {
    if (must) Fail("ValueError", "substring not found");
    return Value::Int(-1);
  }
  at += base;
  return Value::Int(self.str().ascii ? static_cast<int64_t>(at)
                                     : CountChars(std::string_view(self.text()).substr(0, at)));
}

Value Find(Interpreter& in, const Value& s, Args& a) {
  return FindText(in, s, a, "find", false, false);
}
Value RFind(Interpreter& in, const Value& s, Args& a) {
  return FindText(in, s, a, "rfind", true, false);
}
Value IndexOf(Interpreter& in, const Value& s, Args& a) {
  return FindText(in, s, a, "index", false, true);
}
Value RIndexOf(Interpreter& in, const Value& s, Args& a) {
  return FindText(in, s, a, "rindex", true, true);
}

Value CountText(Interpreter& in, const Value& self, Args& args) {
  const std::vector<Value> a = BindArguments(args, "count", {"sub", "start", "end"}, 1);
  Scan(in, self.str());
  const std::string& sub = Text(a[0], "count").text;
  size_t base;
  const std::string_view s = Window(self, a[1], a[2], base);
  if (base == std::string_view::npos) return Value::Int(0);
  if (sub.empty()) return Value::Int(CountChars(s) + 1);
  int64_t n = 0;
  for (size_t i = s.find(sub); i != std::string_view::npos; i = s.find(sub, i + sub.size())) ++n;
  return Value::Int(n);
}

Value Replace(Interpreter& in, const Value& self, Args& args) {
  const std::vector<Value> a = BindArguments(args, "replace", {"old", "new", "count"}, 2);
  const Str& s = self.str();
  Scan(in, s);
  const Str &old = Text(a[0], "replace"), &fresh = Text(a[1], "replace");
  int64_t limit = a[2].missing() ? -1 : AsInt(a[2], "replace()");
  StrBuilder out(in.budget());
  size_t done = 0;
  if (old.text.empty()) {
    for (size_t i = 0; limit != 0; --limit) {
      in.budget().Step();
      out.Append(fresh);
      if (i >= s.text.size()) {
        done = i;
        break;
      }
      const size_t begin = i;
      NextChar(s.text, i);
      out.AppendSlice(s, begin, i);
      done = i;
    }
  } else {
    for (size_t at; limit != 0 && (at = s.text.find(old.text, done)) != std::string::npos;
         --limit) {
      in.budget().Step();
      out.AppendSlice(s, done, at);
      out.Append(fresh);
      done = at + old.text.size();
    }
    if (done == 0) return self;
  }
  out.AppendSlice(s, done, s.text.size());
  return out.Take();
}

Value UpperOf(Interpreter& in, const Value& self, Args&) {
  return Whole(in, self.str(), Upper(self.text()));
}
Value LowerOf(Interpreter& in, const Value& self, Args&) {
  return Whole(in, self.str(), Lower(self.text()));
}
Value TitleOf(Interpreter& in, const Value& self, Args&) {
  return Whole(in, self.str(), Title(self.text()));
}
Value CapitalizeOf(Interpreter& in, const Value& self, Args&) {
  return Whole(in, self.str(), Capitalize(self.text()));
}
Value SwapCase(Interpreter& in, const Value& self, Args&) {
  std::string out;
  const std::string_view s = self.text();
  for (size_t i = 0; i < s.size();) {
    const size_t begin = i;
    const char32_t c = NextChar(s, i);
    const std::string_view one = s.substr(begin, i - begin);
    out += IsUpper(c) ? Lower(one) : IsLower(c) ? Upper(one) : std::string(one);
  }
  return Whole(in, self.str(), std::move(out));
}

Value Format(Interpreter& in, const Value& self, Args& args) {
  return BraceFormat(in, self.str(), args);
}
Value FormatMap(Interpreter& in, const Value& self, Args& args) {
  const std::vector<Value> a = BindArguments(args, "format_map", {"mapping"}, 1);
  if (!a[0].Is(Kind::kDict)) Fail("TypeError", "format_map() needs a mapping");
  Args named;
  for (const auto& [k, v] : a[0].as<Dict>().items) {
    if (k.string()) named.named.emplace_back(std::string(k.text()), v);
  }
  return BraceFormat(in, self.str(), named);
}

Value JoinText(Interpreter& in, const Value& self, Args& args) {
  const std::vector<Value> a = BindArguments(args, "join", {"iterable"}, 1);
  const auto items = Items(a[0], in.budget());
  StrBuilder out(in.budget());
  for (size_t i = 0; i < items->items.size(); ++i) {
    if (i > 0) out.Append(self.str());
    const Value& v = items->items[i];
    if (!v.string()) {
      Fail("TypeError",
           fmt::format("sequence item {}: expected str instance, {} found", i, TypeName(v)));
    }
    out.Append(v.str());
  }
  return out.Take();
}

template <bool (*kTest)(char32_t)>
Value AllChars(Interpreter& in, const Value& self, Args&) {
  Scan(in, self.str());
  const std::string_view s = self.text();
  for (size_t i = 0; i < s.size();) {
    if (!kTest(NextChar(s, i))) return Value::Bool(false);
  }
  return Value::Bool(!s.empty());
}
bool AlnumChar(char32_t c) { return IsAlpha(c) || IsNumeric(c); }

// At least one cased character, and none of the other case.
template <bool (*kOther)(char32_t)>
Value CaseIs(Interpreter& in, const Value& self, Args&) {
  Scan(in, self.str());
  const std::string_view s = self.text();
  bool cased = false;
  for (size_t i = 0; i < s.size();) {
    const char32_t c = NextChar(s, i);
    if (kOther(c)) return Value::Bool(false);
    cased |= IsCased(c);
  }
  return Value::Bool(cased);
}

Value IsTitle(Interpreter&, const Value& self, Args&) {
  const std::string_view s = self.text();
  bool inside = false, any = false;
  for (size_t i = 0; i < s.size();) {
    const char32_t c = NextChar(s, i);
    if (IsUpper(c) && inside) return Value::Bool(false);
    if (IsLower(c) && !inside) return Value::Bool(false);
    inside = IsCased(c);
    any |= inside;
  }
  return Value::Bool(any);
}
Value IsAsciiOnly(Interpreter&, const Value& self, Args&) { return Value::Bool(self.str().ascii); }

Value RemovePrefix(Interpreter& in, const Value& self, Args& args) {
  const std::vector<Value> a = BindArguments(args, "removeprefix", {"prefix"}, 1);
  const std::string& p = Text(a[0], "removeprefix").text;
  if (!base::StartsWith(self.text(), p)) return self;
  return Piece(in, self.str(), p.size(), self.text().size());
}
Value RemoveSuffix(Interpreter& in, const Value& self, Args& args) {
  const std::vector<Value> a = BindArguments(args, "removesuffix", {"suffix"}, 1);
  const std::string& p = Text(a[0], "removesuffix").text;
  if (!base::EndsWith(self.text(), p)) return self;
  return Piece(in, self.str(), 0, self.text().size() - p.size());
}

Value Part(Interpreter& in, const Value& self, Args& args, bool last) {
  const std::vector<Value> a = BindArguments(args, "partition", {"sep"}, 1);
  const Str& s = self.str();
  Scan(in, s);
  const std::string& separator = Text(a[0], "partition").text;
  if (separator.empty()) Fail("ValueError", "empty separator");
  const size_t at = last ? s.text.rfind(separator) : s.text.find(separator);
  const Value empty = Value::String("");
  std::vector<Value> r;
  if (at == std::string::npos) {
    r = last ? std::vector<Value>{empty, empty, self} : std::vector<Value>{self, empty, empty};
  } else {
    r = {Piece(in, s, 0, at), a[0], Piece(in, s, at + separator.size(), s.text.size())};
  }
  return MakeSeq(Kind::kTuple, std::move(r), in.budget());
}
Value Partition(Interpreter& in, const Value& self, Args& args) {
  return Part(in, self, args, false);
}
Value RPartition(Interpreter& in, const Value& self, Args& args) {
  return Part(in, self, args, true);
}

enum class Side { kLeft, kRight, kBoth };
template <Side kSide>
Value Pad(Interpreter& in, const Value& self, Args& args) {
  const std::vector<Value> a = BindArguments(args, "justify", {"width", "fillchar"}, 1);
  const int64_t width = AsInt(a[0], "width");
  const std::string fill = a[1].missing() ? " " : Text(a[1], "justify").text;
  if (CountChars(fill) != 1)
    Fail("TypeError", "the fill character must be exactly one character long");
  const int64_t missing = width - Length(self);
  if (missing <= 0) return self;
  if (static_cast<uint64_t>(missing) > in.budget().string_bytes) Budget::OutOfBytes();
  // Python's centre puts the odd blank on the left where the width is odd.
  int64_t left = kSide == Side::kLeft    ? 0
                 : kSide == Side::kRight ? missing
                                         : missing / 2 + (missing & width & 1);
  StrBuilder out(in.budget());
  for (int64_t i = 0; i < left; ++i) out.Append(fill);
  out.Append(self.str());
  for (int64_t i = left; i < missing; ++i) out.Append(fill);
  return out.Take();
}

Value ZFill(Interpreter& in, const Value& self, Args& args) {
  const std::vector<Value> a = BindArguments(args, "zfill", {"width"}, 1);
  const int64_t missing = AsInt(a[0], "zfill()") - Length(self);
  if (missing <= 0) return self;
  if (static_cast<uint64_t>(missing) > in.budget().string_bytes) Budget::OutOfBytes();
  const bool sign = !self.text().empty() && (self.text()[0] == '-' || self.text()[0] == '+');
  StrBuilder out(in.budget());
  out.AppendSlice(self.str(), 0, sign ? 1 : 0);
  out.Append(std::string(static_cast<size_t>(missing), '0'));
  out.AppendSlice(self.str(), sign ? 1 : 0, self.text().size());
  return out.Take();
}

Value ExpandTabs(Interpreter& in, const Value& self, Args& args) {
  const std::vector<Value> a = BindArguments(args, "expandtabs", {"tabsize"}, 0);
  const int64_t tab = a[0].missing() ? 8 : AsInt(a[0], "expandtabs()");
  if (tab > 4096) Fail("ValueError", "a tab size over 4096");
  std::string out;
  int64_t column = 0;
  const std::string_view s = self.text();
  for (size_t i = 0; i < s.size();) {
    const size_t begin = i;
    const char32_t c = NextChar(s, i);
    if (c == '\t') {
      const int64_t n = tab <= 0 ? 0 : tab - column % tab;
      in.budget().Charge(static_cast<uint64_t>(n));
      out.append(static_cast<size_t>(n), ' ');
      column += n;
      continue;
    }
    out.append(s.substr(begin, i - begin));
    column = c == '\n' || c == '\r' ? 0 : column + 1;
  }
  return Whole(in, self.str(), std::move(out));
}

// ---- dict, list, tuple

Value View(Interpreter& in, const Value& self, bool keys, bool values) {
  std::vector<Value> items;
  const Dict& d = self.as<Dict>();
  items.reserve(d.items.size());
  for (const auto& [k, v] : d.items) {
    items.push_back(keys && values ? MakeSeq(Kind::kTuple, {k, v}, in.budget()) : keys ? k : v);
  }
  return MakeSeq(Kind::kView, std::move(items), in.budget(),
                 keys && values ? "dict_items"
                 : keys         ? "dict_keys"
                                : "dict_values");
}
Value DictItems(Interpreter& in, const Value& self, Args& args) {
  BindArguments(args, "items", {}, 0);
  return View(in, self, true, true);
}
Value DictKeys(Interpreter& in, const Value& self, Args& args) {
  BindArguments(args, "keys", {}, 0);
  return View(in, self, true, false);
}
Value DictValues(Interpreter& in, const Value& self, Args& args) {
  BindArguments(args, "values", {}, 0);
  return View(in, self, false, true);
}
Value DictGet(Interpreter&, const Value& self, Args& args) {
  if (!args.named.empty()) Fail("TypeError", "dict.get() takes no keyword arguments");
  const std::vector<Value> a = BindArguments(args, "get", {"key", "default"}, 1);
  if (!Hashable(a[0])) Fail("TypeError", fmt::format("unhashable type: '{}'", TypeName(a[0])));
  if (const Value* v = self.as<Dict>().Find(a[0])) return *v;
  return a[1].missing() ? Value::None() : a[1];
}
Value Copy(Interpreter&, const Value& self, Args&) { return self; }

Value ListIndex(Interpreter& in, const Value& self, Args& args) {
  const std::vector<Value> a = BindArguments(args, "index", {"value", "start", "stop"}, 1);
  const auto& items = self.as<Seq>().items;
  const auto n = static_cast<int64_t>(items.size());
  in.budget().Step(items.size() / 8);
  const auto bound = [&](const Value& v, int64_t otherwise) {
    if (v.missing()) return otherwise;
    const int64_t i = AsInt(v, "index()");
    return std::clamp<int64_t>(i < 0 ? i + n : i, 0, n);
  };
  const int64_t stop = bound(a[2], n);
  for (int64_t i = bound(a[1], 0); i < stop; ++i) {
    if (Equal(items[static_cast<size_t>(i)], a[0])) return Value::Int(i);
  }
  Fail("ValueError", "the value is not in the list");
}
Value ListCount(Interpreter& in, const Value& self, Args& args) {
  const std::vector<Value> a = BindArguments(args, "count", {"value"}, 1);
  const auto& items = self.as<Seq>().items;
  in.budget().Step(items.size() / 8);
  return Value::Int(
      std::count_if(items.begin(), items.end(), [&](const Value& v) { return Equal(v, a[0]); }));
}

constexpr Method kStringMethods[] = {
    {"strip", Strip},
    {"lstrip", LStrip},
    {"rstrip", RStrip},
    {"split", Split},
    {"rsplit", RSplit},
    {"startswith", StartsWith},
    {"endswith", EndsWith},
    {"replace", Replace},
    {"splitlines", SplitLines},
    {"upper", UpperOf},
    {"lower", LowerOf},
    {"title", TitleOf},
    {"capitalize", CapitalizeOf},
    {"casefold", LowerOf},
    {"swapcase", SwapCase},
    {"format", Format},
    {"format_map", FormatMap},
    {"join", JoinText},
    {"find", Find},
    {"rfind", RFind},
    {"index", IndexOf},
    {"rindex", RIndexOf},
    {"count", CountText},
    {"isdigit", AllChars<IsDigit>},
    {"isalpha", AllChars<IsAlpha>},
    {"isalnum", AllChars<AlnumChar>},
    {"isspace", AllChars<IsSpace>},
    {"isdecimal", AllChars<IsDecimal>},
    {"isnumeric", AllChars<IsNumeric>},
    {"isupper", CaseIs<IsLower>},
    {"islower", CaseIs<IsUpper>},
    {"istitle", IsTitle},
    {"isascii", IsAsciiOnly},
    {"removeprefix", RemovePrefix},
    {"removesuffix", RemoveSuffix},
    {"partition", Partition},
    {"rpartition", RPartition},
    {"ljust", Pad<Side::kLeft>},
    {"rjust", Pad<Side::kRight>},
    {"center", Pad<Side::kBoth>},
    {"zfill", ZFill},
    {"expandtabs", ExpandTabs},
};
constexpr Method kDictMethods[] = {
    {"items", DictItems},    {"get", DictGet},   {"keys", DictKeys},   {"values", DictValues},
    {"copy", Copy},          {"pop", nullptr},   {"popitem", nullptr}, {"update", nullptr},
    {"setdefault", nullptr}, {"clear", nullptr},
};
constexpr Method kListMethods[] = {
    {"index", ListIndex}, {"count", ListCount}, {"copy", Copy},    {"append", nullptr},
    {"extend", nullptr},  {"insert", nullptr},  {"pop", nullptr},  {"remove", nullptr},
    {"clear", nullptr},   {"reverse", nullptr}, {"sort", nullptr},
};
constexpr Method kTupleMethods[] = {{"index", ListIndex}, {"count", ListCount}};

std::span<const Method> MethodsOf(Kind kind) {
  switch (kind) {
    case Kind::kString:
      return kStringMethods;
    case Kind::kDict:
      return kDictMethods;
    case Kind::kList:
      return kListMethods;
    case Kind::kTuple:
    case Kind::kRange:
      return kTupleMethods;
    default:
      return {};
  }
}

}  // namespace

MethodFunction FindMethod(const Value& self, std::string_view name, bool& mutates) {
  for (const Method& m : MethodsOf(self.kind())) {
    if (m.name != name) continue;
    mutates = m.call == nullptr;
    return m.call;
  }
  return nullptr;
}

}  // namespace vllm::text::jinja
