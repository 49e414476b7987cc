#include "vllm/text/decoder.h"

#include <optional>

#include "base/strings.h"
#include "vllm/text/unicode.h"

namespace vllm::text {
namespace {

void ReplaceAll(std::string* s, std::string_view from, std::string_view to) {
  if (from.empty() || s->find(from) == std::string::npos) return;
  std::string out;
  size_t done = 0;
  for (size_t at; (at = s->find(from, done)) != std::string::npos; done = at + from.size()) {
    out.append(*s, done, at - done).append(to);
  }
  out.append(*s, done, s->size() - done);
  *s = std::move(out);
}

void ReplaceRegex(std::string* s, const Regex& regex, std::string_view to) {
  Regex::Matcher matcher(regex);
  std::string out;
  size_t done = 0;
  for (size_t from = 0; from <= s->size();) {
    std::pair<size_t, size_t> m;
    auto found = matcher.Find(*s, from, &m);
    if (!found.ok() || !*found) break;
    out.append(*s, done, m.first - done).append(to);
    done = from = m.second;
    if (m.first == m.second)
      from += from < s->size() ? Utf8Length(static_cast<uint8_t>((*s)[from])) : 1;
  }
  out.append(*s, done, s->size() - done);
  *s = std::move(out);
}

void ApplyReplace(const DecoderStep& step, std::string* s) {
  if (step.regex == nullptr) {
    ReplaceAll(s, step.from, step.to);
  } else if (IsValidUtf8(*s)) {
    ReplaceRegex(s, *step.regex, step.to);
  }
}

// English spacing around punctuation and contractions, as BERT's decoder tidies it.
void TidySpaces(std::string* s) {
  const std::pair<const char*, const char*> rules[] = {
      {" .", "."},   {" ?", "?"},     {" !", "!"},    {" ,", ","},
      {" ' ", "'"},  {" n't", "n't"}, {" 'm", "'m"},  {" do not", " don't"},
      {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"}};
  for (const auto& [from, to] : rules) ReplaceAll(s, from, to);
}

// The byte of "<0x0A>", or -1.
int ByteOfToken(std::string_view t) {
  if (t.size() != 6 || t.substr(0, 3) != "<0x" || t[5] != '>') return -1;
  int value = 0;
  for (const char c : t.substr(3, 2)) {
    const int digit = c >= '0' && c <= '9'   ? c - '0'
                      : c >= 'A' && c <= 'F' ? c - 'A' + 10
                      : c >= 'a' && c <= 'f' ? c - 'a' + 10
                                             : -1;
    if (digit < 0) return -1;
    value = value * 16 + digit;
  }
  return value;
}

}  // namespace

// One step of a stream: tokens in, tokens to the next stage.
class DecoderState::Stage {
 public:
  virtual ~Stage() = default;
  virtual void Push(std::string token) = 0;
  virtual void Finish() {}
  Stage* next = nullptr;
  std::string* out = nullptr;  // of the last stage

 protected:
  void Emit(std::string token) {
    if (next != nullptr) next->Push(std::move(token));
  }
};

namespace {

using Stage = DecoderState::Stage;

class Sink : public Stage {
 public:
  void Push(std::string token) override {
    if (IsValidUtf8(token)) {
      out->append(token);
    } else {
      AppendLossy(token, out);
    }
  }
};

class ByteLevelStage : public Stage {
 public:
  void Push(std::string token) override {
    std::string bytes;
    held_ += StandInsToBytes(token, &bytes) ? bytes : token;
    std::string text;
    std::string_view rest = held_;
    while (!rest.empty()) {
      size_t bad;
      bool incomplete;
      const size_t good = ValidPrefix(rest, &bad, &incomplete);
      text.append(rest.substr(0, good));
      rest.remove_prefix(good);
      if (incomplete || bad == 0) break;
      text.append("\xEF\xBF\xBD");
      rest.remove_prefix(bad);
    }
    held_ = std::string(rest);
    if (!text.empty()) Emit(std::move(text));
  }
  void Finish() override {
    if (!held_.empty()) Emit("\xEF\xBF\xBD");
    held_.clear();
  }

 private:
  std::string held_;  // the beginning of a character
};

class ByteFallbackStage : public Stage {
 public:
  void Push(std::string token) override {
    if (const int byte = ByteOfToken(token); byte >= 0) {
      run_.push_back(static_cast<char>(byte));
      return;
    }
    Finish();
    Emit(std::move(token));
  }
  void Finish() override {
    if (run_.empty()) return;
    if (IsValidUtf8(run_)) {
      Emit(std::move(run_));
    } else {
      for (size_t i = 0; i < run_.size(); ++i) Emit("\xEF\xBF\xBD");
    }
    run_.clear();
  }

 private:
  std::string run_;
};

class ReplaceStage : public Stage {
 public:
  // Behind a Fuse the pattern may lie across tokens: then all of the text is waited for.
  ReplaceStage(const DecoderStep& step, bool fused) : step_(step), fused_(fused) {}
  void Push(std::string token) override {
    if (fused_) {
      held_ += token;
      return;
    }
    ApplyReplace(step_, &token);
    Emit(std::move(token));
  }
  void Finish() override {
    if (!fused_) return;
    ApplyReplace(step_, &held_);
    Emit(std::move(held_));
    held_.clear();
  }

 private:
  const DecoderStep& step_;
  bool fused_;
  std::string held_;
};

class StripStage : public Stage {
 public:
  StripStage(const DecoderStep& step, bool fused) : step_(step), fused_(fused), left_(step.start) {}
  void Push(std::string token) override {
    const std::string& c = step_.from;
    if (!fused_) {
      size_t begin = 0, end = token.size();
      for (size_t n = 0; n < step_.start && token.compare(begin, c.size(), c) == 0; ++n)
        begin += c.size();
      for (size_t n = 0; n < step_.stop && end >= begin + c.size() &&
                         token.compare(end - c.size(), c.size(), c) == 0;
           ++n) {
        end -= c.size();
      }
      Emit(token.substr(begin, end - begin));
      return;
    }
    size_t begin = 0;
    for (; left_ > 0 && begin < token.size(); --left_) {
      if (token.compare(begin, c.size(), c) != 0) {
        left_ = 0;
        break;
      }
      begin += c.size();
    }
    held_.append(token, begin);
    // What may turn out to be the end stays.
    size_t end = held_.size();
    for (size_t n = 0;
         n < step_.stop && end >= c.size() && held_.compare(end - c.size(), c.size(), c) == 0;
         ++n) {
      end -= c.size();
    }
    Emit(held_.substr(0, end));
    held_.erase(0, end);
  }
  void Finish() override {
    held_.clear();
    left_ = step_.start;
  }

 private:
  const DecoderStep& step_;
  bool fused_;
  size_t left_;
  std::string held_;
};

class MetaspaceStage : public Stage {
 public:
  explicit MetaspaceStage(const DecoderStep& step) : step_(step) {}
  void Push(std::string token) override {
    ReplaceAll(&token, step_.from, first_ && step_.flag ? "" : " ");
    first_ = false;
    Emit(std::move(token));
  }
  void Finish() override { first_ = true; }

 private:
  const DecoderStep& step_;
  bool first_ = true;
};

class WordPieceStage : public Stage {
 public:
  explicit WordPieceStage(const DecoderStep& step) : step_(step) {}
  void Push(std::string token) override {
    if (!first_) {
      if (!step_.from.empty() && base::StartsWith(token, step_.from)) {
        token.erase(0, step_.from.size());
      } else {
        token.insert(0, " ");
      }
    }
    first_ = false;
    if (step_.flag) TidySpaces(&token);
    Emit(std::move(token));
  }
  void Finish() override { first_ = true; }

 private:
  const DecoderStep& step_;
  bool first_ = true;
};

class BpeStage : public Stage {
 public:
  explicit BpeStage(const DecoderStep& step) : step_(step) {}
  void Push(std::string token) override {
    Release(" ");
    held_ = std::move(token);
  }
  void Finish() override { Release(""); }

 private:
  void Release(std::string_view to) {
    if (!held_) return;
    ReplaceAll(&*held_, step_.from, to);
    Emit(std::move(*held_));
    held_.reset();
  }
  const DecoderStep& step_;
  std::optional<std::string> held_;
};

class CtcStage : public Stage {
 public:
  explicit CtcStage(const DecoderStep& step) : step_(step) {}
  void Push(std::string token) override {
    if (last_ && *last_ == token) return;
    last_ = token;
    ReplaceAll(&token, step_.from, "");
    if (step_.flag) {
      TidySpaces(&token);
      ReplaceAll(&token, step_.to, " ");
    }
    if (!token.empty()) Emit(std::move(token));
  }
  void Finish() override { last_.reset(); }

 private:
  const DecoderStep& step_;
  std::optional<std::string> last_;
};

class JoinStage : public Stage {
 public:
  void Push(std::string token) override {
    if (!first_) token.insert(0, " ");
    first_ = false;
    Emit(std::move(token));
  }
  void Finish() override { first_ = true; }

 private:
  bool first_ = true;
};

}  // namespace

DecoderState::DecoderState(const DecoderSteps& steps) : steps_(steps) { Build(); }
DecoderState::~DecoderState() = default;

void DecoderState::Build() {
  bool fused = false;  // tokens have been joined: what arrives are pieces of one text
  for (const DecoderStep& s : steps_) {
    using Kind = DecoderStep::Kind;
    switch (s.kind) {
      case Kind::kByteLevel:
        stages_.push_back(std::make_unique<ByteLevelStage>());
        fused = true;
        break;
      case Kind::kByteFallback:
        stages_.push_back(std::make_unique<ByteFallbackStage>());
        break;
      case Kind::kFuse:
        fused = true;
        break;
      case Kind::kReplace:
        stages_.push_back(std::make_unique<ReplaceStage>(s, fused));
        break;
      case Kind::kStrip:
        stages_.push_back(std::make_unique<StripStage>(s, fused));
        break;
      case Kind::kMetaspace:
        stages_.push_back(std::make_unique<MetaspaceStage>(s));
        break;
      case Kind::kWordPiece:
        stages_.push_back(std::make_unique<WordPieceStage>(s));
        break;
      case Kind::kBpe:
        stages_.push_back(std::make_unique<BpeStage>(s));
        break;
      case Kind::kCtc:
        stages_.push_back(std::make_unique<CtcStage>(s));
        break;
      case Kind::kJoin:
        stages_.push_back(std::make_unique<JoinStage>());
        break;
    }
  }
  stages_.push_back(std::make_unique<Sink>());
  for (size_t i = 0; i + 1 < stages_.size(); ++i) stages_[i]->next = stages_[i + 1].get();
}

void DecoderState::Push(std::string_view token, std::string* out) {
  stages_.back()->out = out;
  stages_.front()->Push(std::string(token));
}

void DecoderState::Finish(std::string* out) {
  stages_.back()->out = out;
  for (auto& s : stages_) s->Finish();
}

std::string DecodeAlone(const DecoderSteps& steps, std::string_view token) {
  std::string s(token);
  using Kind = DecoderStep::Kind;
  for (const DecoderStep& step : steps) {
    switch (step.kind) {
      case Kind::kByteLevel: {
        std::string bytes;
        if (StandInsToBytes(s, &bytes)) s = bytes;
        break;
      }
      case Kind::kByteFallback:
        if (const int byte = ByteOfToken(s); byte >= 0) s = std::string(1, static_cast<char>(byte));
        break;
      case Kind::kReplace:
        ApplyReplace(step, &s);
        break;
      case Kind::kMetaspace:
      case Kind::kBpe:
        ReplaceAll(&s, step.from, " ");
        break;
      case Kind::kWordPiece:
        if (!step.from.empty() && base::StartsWith(s, step.from)) {
          s.erase(0, step.from.size());
        } else {
          s.insert(0, " ");
        }
        break;
      case Kind::kJoin:
        s.insert(0, " ");
        break;
      case Kind::kCtc:
        ReplaceAll(&s, step.from, "");
        if (step.flag) ReplaceAll(&s, step.to, " ");
        break;
      case Kind::kFuse:
      case Kind::kStrip:
        break;
    }
  }
  return s;
}

}  // namespace vllm::text
