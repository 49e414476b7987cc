#include "vllm/text/regex.h"

#define PCRE2_CODE_UNIT_WIDTH 8  // the library wants it before its header
#include <pcre2.h>

#include "base/strings.h"

namespace vllm::text {
namespace {

// White_Space; PCRE2's \s also takes U+180E, which lost that property in Unicode 6.3.
constexpr std::string_view kSpaces =
    R"(\x{9}-\x{d}\x{20}\x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000})";

// A search makes at most this many steps a match attempt; published patterns need a few per
// character of a word.
constexpr uint32_t kMatchLimit = 10'000'000;
constexpr uint32_t kHeapLimitKiB = 64 * 1024;
constexpr size_t kJitStackMin = 32 * 1024;
constexpr size_t kJitStackMax = 16 * 1024 * 1024;
constexpr size_t kMaxPatternBytes = 1 << 16;

base::Error Bad(std::string_view pattern, std::string_view why) {
  return {base::Code::kUnsupported, fmt::format("regex \"{}\": {}", base::Printable(pattern), why)};
}

}  // namespace

base::Result<std::string> TranslatePattern(std::string_view p) {
  std::string out;
  out.reserve(p.size() + 64);
  bool in_class = false;
  for (size_t i = 0; i < p.size(); ++i) {
    const char c = p[i];
    if (c == '\\') {
      if (i + 1 == p.size()) return Bad(p, "ends in a backslash");
      const char e = p[++i];
      if (e == 's') {
        out += in_class ? std::string(kSpaces) : fmt::format("[{}]", kSpaces);
      } else if (e == 'S') {
        if (in_class) return Bad(p, "\\S inside brackets is not implemented");
        out += fmt::format("[^{}]", kSpaces);
      } else if (e == 'h') {  // Oniguruma: a hexadecimal digit
        out += in_class ? "0-9a-fA-F" : "[0-9a-fA-F]";
      } else if (e == 'H' || e == 'R' || e == 'X' || e == 'G' || e == 'K' || e == 'g' || e == 'k' ||
                 e == 'y' || e == 'Y' || e == 'C' || e == 'M') {
        return Bad(p, fmt::format("\\{} is not implemented", e));
      } else {
        out += c;
        out += e;
        if ((e == 'p' || e == 'P' || e == 'x') && i + 1 < p.size() && p[i + 1] == '{') {
          const size_t close = p.find('}', i);
          if (close == std::string_view::npos) return Bad(p, "unterminated {}");
          out += p.substr(i + 1, close - i);
          i = close;
        }
      }
    } else if (in_class) {
      if (c == ']') {
        in_class = false;
        out += c;
      } else if (c == '[') {
        if (i + 1 < p.size() && p[i + 1] == ':') {  // [:alpha:]
          const size_t end = p.find(":]", i);
          if (end == std::string_view::npos) return Bad(p, "unterminated [: :]");
          out += p.substr(i, end + 2 - i);
          i = end + 1;
        } else {
          return Bad(p, "brackets inside brackets are not implemented");
        }
      } else if (c == '&' && i + 1 < p.size() && p[i + 1] == '&') {
        return Bad(p, "&& inside brackets is not implemented");
      } else {
        out += c;
      }
    } else if (c == '[') {
      in_class = true;
      out += c;
      if (i + 1 < p.size() && p[i + 1] == '^') out += p[++i];
      if (i + 1 < p.size() && p[i + 1] == ']') {
        out += "\\]";
        ++i;
      }
    } else if (c == '}' && i + 1 < p.size() && p[i + 1] == '+') {
      return Bad(p, "a + behind {} means different things to different engines");
    } else {
      out += c;
    }
  }
  return out;
}

struct Regex::Code {
  pcre2_code* code = nullptr;
  bool jit = false;
};

Regex::~Regex() {
  if (code_ != nullptr && code_->code != nullptr) pcre2_code_free(code_->code);
}

base::Result<std::unique_ptr<Regex>> Regex::Compile(std::string_view pattern) {
  if (pattern.size() > kMaxPatternBytes) return Bad(pattern, "is longer than 64 KiB");
  auto translated = TranslatePattern(pattern);
  if (!translated.ok()) return translated.error();
  int number = 0;
  PCRE2_SIZE offset = 0;
  // Oniguruma's ^ and $ are those of lines.
  const uint32_t options = PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C;
  pcre2_code* code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(translated->data()),
                                   translated->size(), options, &number, &offset, nullptr);
  if (code == nullptr) {
    PCRE2_UCHAR message[160];
    pcre2_get_error_message(number, message, sizeof message);
    return Bad(pattern, reinterpret_cast<const char*>(message));
  }
  std::unique_ptr<Regex> r(new Regex);
  r->code_ = std::make_unique<Code>();
  r->code_->code = code;
  r->code_->jit = pcre2_jit_compile(code, PCRE2_JIT_COMPLETE) == 0;
  return r;
}

struct Regex::Matcher::State {
  const Regex::Code* code = nullptr;
  pcre2_match_data* data = nullptr;
  pcre2_match_context* context = nullptr;
  pcre2_jit_stack* stack = nullptr;
};

Regex::Matcher::Matcher(const Regex& regex) : state_(std::make_unique<State>()) {
  state_->code = regex.code_.get();
  state_->data = pcre2_match_data_create_from_pattern(regex.code_->code, nullptr);
  state_->context = pcre2_match_context_create(nullptr);
  pcre2_set_match_limit(state_->context, kMatchLimit);
  pcre2_set_heap_limit(state_->context, kHeapLimitKiB);
  if (regex.code_->jit) {
    state_->stack = pcre2_jit_stack_create(kJitStackMin, kJitStackMax, nullptr);
    pcre2_jit_stack_assign(state_->context, nullptr, state_->stack);
  }
}

Regex::Matcher::~Matcher() {
  pcre2_match_data_free(state_->data);
  pcre2_match_context_free(state_->context);
  if (state_->stack != nullptr) pcre2_jit_stack_free(state_->stack);
}

base::Result<bool> Regex::Matcher::Find(std::string_view text, size_t from,
                                        std::pair<size_t, size_t>* match) {
  const auto subject = reinterpret_cast<PCRE2_SPTR>(text.data());
  int rc = pcre2_match(state_->code->code, subject, text.size(), from, PCRE2_NO_UTF_CHECK,
                       state_->data, state_->context);
  if (rc ==
      PCRE2_ERROR_JIT_STACKLIMIT) {  // the interpreter keeps its backtracking on the (limited) heap
    rc = pcre2_match(state_->code->code, subject, text.size(), from,
                     PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT, state_->data, state_->context);
  }
  if (rc == PCRE2_ERROR_NOMATCH) return false;
  if (rc < 0) {
    PCRE2_UCHAR message[160];
    pcre2_get_error_message(rc, message, sizeof message);
    return base::Error{base::Code::kResourceExhausted,
                       fmt::format("the tokenizer's regex gives up on this text: {}",
                                   reinterpret_cast<const char*>(message))};
  }
  const PCRE2_SIZE* v = pcre2_get_ovector_pointer(state_->data);
  if (v[1] < v[0])
    return base::Error{base::Code::kUnsupported, "the tokenizer's regex uses \\K in a lookaround"};
  *match = {v[0], v[1]};
  return true;
}

}  // namespace vllm::text
