// Regular expressions of tokenizer files (Oniguruma's syntax, UTF-8), run by PCRE2 with JIT under
// limits: an expression that explodes ends in an error, not in a hang.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "base/result.h"

namespace vllm::text {

class Regex {
 public:
  // Errors: kUnsupported for syntax that PCRE2 reads differently or not at all; they quote the
  // pattern.
  static base::Result<std::unique_ptr<Regex>> Compile(std::string_view pattern);
  ~Regex();

  // One search state; belongs to one thread.
  class Matcher {
   public:
    explicit Matcher(const Regex& regex);
    ~Matcher();
    // The leftmost match in `text` at or after `from`.
    // REQUIRES: valid UTF-8, offsets at characters' starts. Returns whether there is one.
    base::Result<bool> Find(std::string_view text, size_t from, std::pair<size_t, size_t>* match);

   private:
    struct State;
    std::unique_ptr<State> state_;
  };

 private:
  Regex() = default;
  struct Code;
  std::unique_ptr<Code> code_;
};

// Oniguruma's pattern in PCRE2's words. Exposed for tests.
base::Result<std::string> TranslatePattern(std::string_view pattern);

}  // namespace vllm::text
