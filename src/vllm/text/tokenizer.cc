#include "vllm/text/tokenizer.h"

#include "base/strings.h"
#include "vllm/text/tokenizer_parts.h"
#include "vllm/text/unicode.h"

namespace vllm::text {
namespace {

// Offsets are 32 bits wide, and normalising may make a text a few times longer.
constexpr size_t kMaxText = size_t{1} << 28;

}  // namespace

std::unique_ptr<EncodeState> StatePool::Take() {
  {
    const std::lock_guard lock(mutex_);
    if (!free_.empty()) {
      auto state = std::move(free_.back());
      free_.pop_back();
      return state;
    }
  }
  return std::make_unique<EncodeState>();
}

void StatePool::Return(std::unique_ptr<EncodeState> state) {
  // A huge text's buffers aren't kept.
  constexpr size_t kLarge = size_t{1} << 22;
  if (state->tokens.storage.capacity() > kLarge || state->normalized.capacity() > kLarge ||
      state->tokens.words.capacity() > kLarge / 8 || state->scratch.heap.capacity() > kLarge / 16 ||
      state->valid.capacity() > kLarge) {
    state->tokens = PreTokens();
    state->normalized = state->valid = std::string();
    state->scratch.heap = {};
    state->scratch.symbols = {};
    state->scratch.cuts = {};
    state->sections = state->inner = {};
  }
  const std::lock_guard lock(mutex_);
  if (free_.size() < kKept) free_.push_back(std::move(state));
}

base::Status TokenizerParts::AddToken(const AddedToken& token) {
  if (static_cast<size_t>(token.id) >= special.size())
    special.resize(static_cast<size_t>(token.id) + 1);
  if (token.special) special[token.id] = 1;
  if (!token.normalized) return raw_added.Add(token, token.content);
  std::string storage;
  auto match = Normalize(normalizers, token.content, &storage);
  if (!match.ok()) return match.error();
  return normalized_added.Add(token, *match);
}

base::Status TokenizerParts::EncodeText(std::string_view normalized, bool at_start,
                                        EncodeState* state, std::vector<int32_t>* out) const {
  if (normalized.empty()) return {};
  state->tokens.Reset(normalized, at_start);
  for (const auto& p : pre_tokenizers) {
    if (auto s = p->Apply(&state->tokens); !s.ok()) return s;
  }
  return model->Encode(state->tokens.text, state->tokens.words, &state->scratch, out);
}

base::Status TokenizerParts::EncodeSection(std::string_view text, bool at_start,
                                           const std::vector<Span>& ranges, EncodeState* state,
                                           std::vector<int32_t>* out) const {
  auto normalized = Normalize(normalizers, text, &state->normalized);
  if (!normalized.ok()) return normalized.error();
  if (normalized_added.empty()) return EncodeText(*normalized, at_start, state, out);
  // Offsets moved with normalization: a control token counts here only if the whole section allows
  // it.
  const bool all = ranges.size() == 1 && ranges[0].size() == text.size();
  const std::vector<Span> whole{{0, all ? static_cast<uint32_t>(normalized->size()) : 0}};
  state->inner.clear();
  normalized_added.Cut(*normalized, whole, &state->inner);
  for (const Section& s : state->inner) {
    if (s.id >= 0) {
      out->push_back(s.id);
      continue;
    }
    const auto piece = normalized->substr(s.span.begin, s.span.size());
    if (auto r = EncodeText(piece, at_start && s.span.begin == 0, state, out); !r.ok()) return r;
  }
  return {};
}

base::Status TokenizerParts::Encode(std::string_view text, const std::vector<Span>* special_ranges,
                                    std::vector<int32_t>* out) const {
  if (text.size() > kMaxText) {
    return base::Error{base::Code::kInvalidArgument,
                       fmt::format("a text of {} cannot be tokenised at once; {} is the most",
                                   base::HumanBytes(text.size()), base::HumanBytes(kMaxText))};
  }
  auto state = pool.Take();
  std::vector<Span> ranges;
  if (special_ranges != nullptr) ranges = *special_ranges;
  if (!IsValidUtf8(text)) {
    // Offsets of ranges move; each range's text is repaired on its own, as its bytes came.
    state->valid.clear();
    uint32_t done = 0;
    for (Span& r : ranges) {
      AppendLossy(text.substr(done, r.begin - done), &state->valid);
      const auto begin = static_cast<uint32_t>(state->valid.size());
      AppendLossy(text.substr(r.begin, r.size()), &state->valid);
      done = r.end;
      r = {begin, static_cast<uint32_t>(state->valid.size())};
    }
    AppendLossy(text.substr(done), &state->valid);
    text = state->valid;
  }
  if (special_ranges == nullptr) ranges = {{0, static_cast<uint32_t>(text.size())}};
  auto& sections = state->sections;
  sections.clear();
  if (raw_added.empty()) {
    sections.push_back({{0, static_cast<uint32_t>(text.size())}, -1});
  } else {
    raw_added.Cut(text, ranges, &sections);
  }
  base::Status status;
  for (const Section& s : sections) {
    if (s.id >= 0) {
      out->push_back(s.id);
      continue;
    }
    std::vector<Span> local;
    for (const Span& r : ranges) {
      const uint32_t begin = std::max(r.begin, s.span.begin), end = std::min(r.end, s.span.end);
      if (normalized_added.empty() || begin >= end) continue;
      local.push_back({begin - s.span.begin, end - s.span.begin});
    }
    status = EncodeSection(text.substr(s.span.begin, s.span.size()), s.span.begin == 0, local,
                           state.get(), out);
    if (!status.ok()) break;
  }
  pool.Return(std::move(state));
  return status;
}

Tokenizer::Tokenizer(std::unique_ptr<TokenizerParts> parts) : parts_(std::move(parts)) {
  parts_->special.resize(static_cast<size_t>(parts_->vocab.size()));
}
Tokenizer::~Tokenizer() = default;

namespace {

void AddTemplate(const TokenizerParts& p, std::vector<int32_t>* ids) {
  size_t skip = 0;
  if (!p.prefix.empty() && !ids->empty() && p.bos && p.prefix[0] == *p.bos &&
      ids->front() == *p.bos)
    skip = 1;
  ids->insert(ids->begin(), p.prefix.begin() + static_cast<ptrdiff_t>(skip), p.prefix.end());
  ids->insert(ids->end(), p.suffix.begin(), p.suffix.end());
}

}  // namespace

base::Result<std::vector<int32_t>> Tokenizer::Encode(std::string_view text,
                                                     const EncodeOptions& options) const {
  std::vector<int32_t> ids;
  const std::vector<Span> nowhere;
  if (auto s = parts_->Encode(text, options.parse_special ? nullptr : &nowhere, &ids); !s.ok())
    return s.error();
  if (options.add_special_tokens) AddTemplate(*parts_, &ids);
  return ids;
}

base::Result<Tokenizer::Pair> Tokenizer::EncodePair(std::string_view first,
                                                    std::string_view second) const {
  if (!parts_->pair) {
    return base::Error{base::Code::kUnsupported,
                       "this tokenizer has no template for a pair of texts"};
  }
  const PairTemplate& t = *parts_->pair;
  Pair out{t.before, INT64_MAX};
  if (auto s = parts_->Encode(first, nullptr, &out.ids); !s.ok()) return s.error();
  out.ids.insert(out.ids.end(), t.between.begin(), t.between.end());
  if (t.segments) out.first_segment = static_cast<int64_t>(out.ids.size());
  if (auto s = parts_->Encode(second, nullptr, &out.ids); !s.ok()) return s.error();
  out.ids.insert(out.ids.end(), t.after.begin(), t.after.end());
  return out;
}

base::Result<std::vector<int32_t>> Tokenizer::EncodeSegments(std::span<const Segment> segments,
                                                             bool add_special_tokens) const {
  std::string text;
  std::vector<Span> ranges;
  for (const Segment& s : segments) {
    if (text.size() + s.text.size() > kMaxText) {
      return base::Error{
          base::Code::kInvalidArgument,
          fmt::format("a prompt of more than {} cannot be tokenised", base::HumanBytes(kMaxText))};
    }
    const auto begin = static_cast<uint32_t>(text.size());
    text.append(s.text);
    const auto end = static_cast<uint32_t>(text.size());
    if (!s.parse_special || begin == end) continue;
    if (!ranges.empty() && ranges.back().end == begin) {
      ranges.back().end = end;
    } else {
      ranges.push_back({begin, end});
    }
  }
  std::vector<int32_t> ids;
  if (auto s = parts_->Encode(text, &ranges, &ids); !s.ok()) return s.error();
  if (add_special_tokens) AddTemplate(*parts_, &ids);
  return ids;
}

std::string Tokenizer::Decode(std::span<const int32_t> ids, bool skip_special_tokens) const {
  std::string out;
  DecoderState state(parts_->decoder);
  for (const int32_t id : ids) {
    if (!HasToken(id) || (skip_special_tokens && IsSpecial(id))) continue;
    state.Push(TokenText(id), &out);
  }
  state.Finish(&out);
  return out;
}

int32_t Tokenizer::vocab_size() const { return parts_->vocab.size(); }
bool Tokenizer::HasToken(int32_t id) const { return parts_->vocab.Has(id); }
bool Tokenizer::IsSpecial(int32_t id) const {
  return id >= 0 && static_cast<size_t>(id) < parts_->special.size() && parts_->special[id];
}
std::string_view Tokenizer::TokenText(int32_t id) const { return parts_->vocab.Text(id); }
std::optional<int32_t> Tokenizer::TokenId(std::string_view token_text) const {
  const int32_t id = parts_->vocab.Find(token_text);
  return id < 0 ? std::nullopt : std::optional<int32_t>(id);
}
std::string Tokenizer::TokenBytes(int32_t id) const {
  if (IsSpecial(id)) return std::string(TokenText(id));
  return DecodeAlone(parts_->decoder, TokenText(id));
}
std::optional<int32_t> Tokenizer::bos_id() const { return parts_->bos; }
std::optional<int32_t> Tokenizer::eos_id() const { return parts_->eos; }
std::optional<int32_t> Tokenizer::pad_id() const { return parts_->pad; }
std::optional<int32_t> Tokenizer::unk_id() const { return parts_->unk; }
const InstructFormat& Tokenizer::instruct_format() const { return parts_->instruct; }

bool Tokenizer::adds_bos() const {
  return parts_->bos && !parts_->prefix.empty() && parts_->prefix[0] == *parts_->bos;
}

}  // namespace vllm::text
