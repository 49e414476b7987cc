#include "vllm/text/jinja_lexer.h"

#include <charconv>
#include <cstdlib>

#include "base/strings.h"
#include "vllm/text/jinja_text.h"

namespace vllm::text::jinja {
namespace {

bool AsciiSpace(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }
bool Digit(char c) { return c >= '0' && c <= '9'; }
bool NameStart(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' ||
         static_cast<unsigned char>(c) >= 0x80;
}

// Every newline becomes \n, and one at the very end goes away.
std::string NormalizeNewlines(std::string_view source) {
  std::string out;
  out.reserve(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] == '\r') {
      if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
      out += '\n';
    } else {
      out += source[i];
    }
  }
  if (!out.empty() && out.back() == '\n') out.pop_back();
  return out;
}

class Lexer {
 public:
  explicit Lexer(std::string_view source) : source_(NormalizeNewlines(source)) {}

  std::vector<Token> Run() {
    while (pos_ < source_.size()) Root();
    Emit(Tok::kEnd, {}, pos_);
    return std::move(tokens_);
  }

 private:
  [[noreturn]] void Error(size_t at, std::string message) {
    Locate(at);
    throw Failure{"TemplateSyntaxError", std::move(message), base::Code::kCorrupt, line_,
                  Column(at)};
  }

  // Positions only grow, but for errors; so lines are counted as the text goes by.
  void Locate(size_t at) {
    if (at < counted_) {
      counted_ = line_start_ = 0;
      line_ = 1;
    }
    for (; counted_ < at; ++counted_) {
      if (source_[counted_] == '\n') {
        ++line_;
        line_start_ = counted_ + 1;
      }
    }
  }
  int Column(size_t at) const { return static_cast<int>(at - line_start_) + 1; }

  Token& Emit(Tok type, std::string text, size_t at) {
    Locate(at);
    Token t;
    t.type = type;
    t.text = std::move(text);
    t.line = line_;
    t.column = Column(at);
    tokens_.push_back(std::move(t));
    return tokens_.back();
  }

  bool At(std::string_view s, size_t at) const {
    return std::string_view(source_).substr(at, s.size()) == s;
  }

  void EmitData(size_t begin, size_t end) {
    if (end > begin) Emit(Tok::kData, source_.substr(begin, end - begin), begin);
  }

  // Text before a tag that starts at `tag`, with the tag's sign: '-' strips all whitespace, '+' and
  // {{ none, else the blanks of a line that holds nothing before the tag.
  size_t TextEnd(size_t begin, size_t tag, char sign, bool variable) const {
    size_t end = tag;
    if (sign == '-') {
      // Python's rstrip: Unicode whitespace too.
      while (end > begin) {
        size_t p = PreviousChar(source_, end);
        size_t q = p;
        if (p < begin || !IsSpace(NextChar(source_, q))) break;
        end = p;
      }
      return end;
    }
    if (sign == '+' || variable) return end;
    size_t line = tag;
    while (line > begin && source_[line - 1] != '\n') --line;
    if (line == begin && !line_starting_) return end;
    for (size_t i = line; i < tag;) {
      if (!IsSpace(NextChar(source_, i))) return end;
    }
    return line;
  }

  void SkipSpaces() {
    while (pos_ < source_.size()) {
      size_t p = pos_;
      if (!IsSpace(NextChar(source_, p))) return;
      pos_ = p;
    }
  }

  void AfterTag() { line_starting_ = pos_ > 0 && source_[pos_ - 1] == '\n'; }

  // At a block's end mark ("%}", "-%}", "+%}")? Moves past it and the whitespace it takes.
  bool BlockEnd(std::string_view mark, bool trims) {
    if (At(mark, pos_)) {
      pos_ += mark.size();
      if (trims && pos_ < source_.size() && source_[pos_] == '\n') ++pos_;
      return true;
    }
    if (pos_ + 1 > source_.size() || !At(mark, pos_ + 1)) return false;
    if (source_[pos_] == '-') {
      pos_ += 1 + mark.size();
      SkipSpaces();
      return true;
    }
    if (source_[pos_] == '+' && trims) {
      pos_ += 1 + mark.size();
      return true;
    }
    return false;
  }

  char Sign(size_t at) const {
    return at < source_.size() && (source_[at] == '-' || source_[at] == '+') ? source_[at] : '\0';
  }

  void Root() {
    const size_t begin = pos_;
    size_t tag = begin;
    for (;; ++tag) {
      tag = source_.find('{', tag);
      if (tag == std::string::npos || tag + 1 >= source_.size()) {
        EmitData(begin, source_.size());
        pos_ = source_.size();
        return;
      }
      if (source_[tag + 1] == '{' || source_[tag + 1] == '%' || source_[tag + 1] == '#') break;
    }
    const char kind = source_[tag + 1];
    const char sign = Sign(tag + 2);
    const bool variable = kind == '{';
    EmitData(begin, TextEnd(begin, tag, sign, variable));
    pos_ = tag + 2 + (sign != '\0');
    if (kind == '#') {
      Comment(tag);
    } else if (variable) {
      Emit(Tok::kVariableBegin, {}, tag);
      Inside(tag, true);
    } else if (RawBegin()) {
      Raw(tag);
    } else {
      Emit(Tok::kBlockBegin, {}, tag);
      Inside(tag, false);
    }
    AfterTag();
  }

  void Comment(size_t tag) {
    const size_t begin = pos_;
    for (size_t i = begin;; ++i) {
      i = source_.find("#}", i);
      if (i == std::string::npos) Error(tag, "missing end of comment tag");
      pos_ = i;
      if (i > begin && (source_[i - 1] == '-' || source_[i - 1] == '+')) pos_ = i - 1;
      if (BlockEnd("#}", true)) return;
    }
  }

  // After "{%": is this the raw tag? If so, moves past its end.
  bool RawBegin() {
    size_t p = pos_;
    while (p < source_.size() && AsciiSpace(source_[p])) ++p;
    if (!At("raw", p)) return false;
    p += 3;
    while (p < source_.size() && AsciiSpace(source_[p])) ++p;
    if (At("-%}", p)) {
      pos_ = p + 3;
      SkipSpaces();
      return true;
    }
    if (!At("%}", p)) return false;
    pos_ = p + 2;
    return true;
  }

  void Raw(size_t tag) {
    const size_t begin = pos_;
    line_starting_ = begin > 0 && source_[begin - 1] == '\n';
    for (size_t i = begin;; ++i) {
      i = source_.find("{%", i);
      if (i == std::string::npos) Error(tag, "missing end of raw directive");
      const char sign = Sign(i + 2);
      pos_ = i + 2 + (sign != '\0');
      while (pos_ < source_.size() && AsciiSpace(source_[pos_])) ++pos_;
      if (!At("endraw", pos_)) continue;
      pos_ += 6;
      while (pos_ < source_.size() && AsciiSpace(source_[pos_])) ++pos_;
      if (!BlockEnd("%}", true)) continue;
      EmitData(begin, TextEnd(begin, i, sign, false));
      return;
    }
  }

  // The inside of {{ }} or {% %}.
  void Inside(size_t tag, bool variable) {
    std::string open;  // brackets not yet closed
    while (true) {
      if (pos_ >= source_.size())
        Error(tag, variable ? "'{{' is never closed" : "'{%' is never closed");
      const size_t at = pos_;
      if (open.empty() && (variable ? BlockEnd("}}", false) : BlockEnd("%}", true))) {
        Emit(variable ? Tok::kVariableEnd : Tok::kBlockEnd, {}, at);
        return;
      }
      const char c = source_[pos_];
      if (AsciiSpace(c)) {
        ++pos_;
      } else if (Digit(c)) {
        Number();
      } else if (NameStart(c)) {
        Name();
      } else if (c == '"' || c == '\'') {
        String(c);
      } else {
        Operator(open);
      }
    }
  }

  void Name() {
    const size_t begin = pos_;
    while (pos_ < source_.size() && (NameStart(source_[pos_]) || Digit(source_[pos_]))) ++pos_;
    for (size_t i = begin; i < pos_;) {
      const size_t at = i;
      const char32_t c = NextChar(source_, i);
      if (c >= 0x80 && IsSpace(c)) {
        if (at == begin) {
          pos_ = i;
          return;
        }
        pos_ = at;
        break;
      }
      if (c >= 0x80 && !IsAlpha(c)) Error(at, "invalid character in identifier");
    }
    Emit(Tok::kName, source_.substr(begin, pos_ - begin), begin);
  }

  void Number() {
    const size_t begin = pos_;
    const auto digits = [&](auto is_digit) {
      while (pos_ < source_.size() &&
             (is_digit(source_[pos_]) ||
              (source_[pos_] == '_' && pos_ + 1 < source_.size() && is_digit(source_[pos_ + 1])))) {
        ++pos_;
      }
    };
    int base = 10;
    if (source_[pos_] == '0' && pos_ + 2 < source_.size()) {
      const char b = static_cast<char>(source_[pos_ + 1] | 0x20);
      const bool follows = std::isxdigit(static_cast<unsigned char>(source_[pos_ + 2])) != 0 ||
                           source_[pos_ + 2] == '_';
      if (follows && (b == 'x' || b == 'o' || b == 'b')) base = b == 'x' ? 16 : b == 'o' ? 8 : 2;
    }
    bool is_float = false;
    if (base != 10) {
      pos_ += 2;
      digits([base](char c) {
        const int v = Digit(c)                                            ? c - '0'
                      : std::isxdigit(static_cast<unsigned char>(c)) != 0 ? (c | 0x20) - 'a' + 10
                                                                          : 99;
        return v < base;
      });
    } else {
      digits(Digit);
      const size_t p = pos_;
      if (At(".", p) && p + 1 < source_.size() && Digit(source_[p + 1]) && !AfterDot()) {
        ++pos_;
        digits(Digit);
        is_float = true;
      }
      size_t e = pos_;
      if (e < source_.size() && (source_[e] | 0x20) == 'e' && !AfterDot()) {
        ++e;
        if (e < source_.size() && (source_[e] == '+' || source_[e] == '-')) ++e;
        if (e < source_.size() && Digit(source_[e])) {
          pos_ = e;
          digits(Digit);
          is_float = true;
        }
      }
    }
    std::string s;
    for (size_t i = begin; i < pos_; ++i) {
      if (source_[i] != '_') s += source_[i];
    }
    if (is_float) {
      Emit(Tok::kFloat, s, begin).value = Value::Float(std::strtod(s.c_str(), nullptr));
      return;
    }
    __int128 v = 0;
    for (size_t i = base == 10 ? 0 : 2; i < s.size(); ++i) {
      const int digit = Digit(s[i]) ? s[i] - '0' : (s[i] | 0x20) - 'a' + 10;
      if (v > (static_cast<__int128>(1) << 120)) Error(begin, "integer literal is too large");
      v = v * base + digit;
    }
    Emit(Tok::kInteger, s, begin).value = Value::Wide(v);
  }

  // "x.0.1" is two subscripts, not a float.
  bool AfterDot() const {
    return !tokens_.empty() && tokens_.back().type == Tok::kOperator && tokens_.back().text == ".";
  }

  void String(char quote) {
    const size_t begin = pos_++;
    std::string s;
    while (true) {
      if (pos_ >= source_.size()) Error(begin, "string is never closed");
      const char c = source_[pos_++];
      if (c == quote) break;
      if (c != '\\') {
        s += c;
        continue;
      }
      if (pos_ >= source_.size()) Error(begin, "string is never closed");
      Escape(begin, source_[pos_++], s);
    }
    Emit(Tok::kString, std::move(s), begin);
  }

  void Escape(size_t begin, char c, std::string& s) {
    switch (c) {
      case '\n':
        return;
      case 'n':
        s += '\n';
        return;
      case 't':
        s += '\t';
        return;
      case 'r':
        s += '\r';
        return;
      case 'a':
        s += '\a';
        return;
      case 'b':
        s += '\b';
        return;
      case 'f':
        s += '\f';
        return;
      case 'v':
        s += '\v';
        return;
      case '\\':
      case '\'':
      case '"':
        s += c;
        return;
      case 'x':
        Hex(begin, 2, s);
        return;
      case 'u':
        Hex(begin, 4, s);
        return;
      case 'U':
        Hex(begin, 8, s);
        return;
      case 'N':
        Error(begin, "\\N{...} escapes are not supported");
      default:
        break;
    }
    if (c >= '0' && c <= '7') {
      char32_t v = static_cast<char32_t>(c - '0');
      for (int i = 0;
           i < 2 && pos_ < source_.size() && source_[pos_] >= '0' && source_[pos_] <= '7'; ++i) {
        v = v * 8 + static_cast<char32_t>(source_[pos_++] - '0');
      }
      AppendUtf8(v, s);
      return;
    }
    s += '\\';
    s += c;
  }

  uint32_t HexDigits(size_t begin, int n) {
    uint32_t v = 0;
    if (pos_ + static_cast<size_t>(n) > source_.size())
      Error(begin, "truncated escape in a string");
    const char* p = source_.data() + pos_;
    const auto r = std::from_chars(p, p + n, v, 16);
    if (r.ec != std::errc() || r.ptr != p + n) Error(begin, "bad hexadecimal escape in a string");
    pos_ += static_cast<size_t>(n);
    return v;
  }

  void Hex(size_t begin, int n, std::string& s) {
    uint32_t v = HexDigits(begin, n);
    if (v >= 0xD800 && v < 0xDC00 && At("\\u", pos_)) {
      pos_ += 2;
      const uint32_t low = HexDigits(begin, 4);
      if (low < 0xDC00 || low > 0xDFFF) Error(begin, "lone surrogate in a string");
      v = 0x10000 + ((v - 0xD800) << 10) + (low - 0xDC00);
    }
    if (v > 0x10FFFF) Error(begin, "escape beyond U+10FFFF in a string");
    AppendUtf8(v, s);
  }

  void Operator(std::string& open) {
    static constexpr std::string_view kTwo[] = {"//", "**", "==", "!=", ">=", "<="};
    static constexpr std::string_view kOne = "+-*/%~[](){}=<>.:|,;";
    const size_t at = pos_;
    for (const std::string_view op : kTwo) {
      if (At(op, pos_)) {
        pos_ += 2;
        Emit(Tok::kOperator, std::string(op), at);
        return;
      }
    }
    const char c = source_[pos_];
    if (kOne.find(c) == std::string_view::npos) {
      Error(at, fmt::format("unexpected character '{}'", base::Printable(std::string_view(&c, 1))));
    }
    if (c == '(' || c == '[' || c == '{') {
      open += c == '(' ? ')' : c == '[' ? ']' : '}';
    } else if (c == ')' || c == ']' || c == '}') {
      if (open.empty()) Error(at, fmt::format("unexpected '{}'", c));
      if (open.back() != c)
        Error(at, fmt::format("unexpected '{}', expected '{}'", c, open.back()));
      open.pop_back();
    }
    ++pos_;
    Emit(Tok::kOperator, std::string(1, c), at);
  }

  std::string source_;
  size_t pos_ = 0;
  bool line_starting_ = true;
  std::vector<Token> tokens_;
  size_t counted_ = 0, line_start_ = 0;
  int line_ = 1;
};

}  // namespace

std::vector<Token> Tokenize(std::string_view source) { return Lexer(source).Run(); }

}  // namespace vllm::text::jinja
