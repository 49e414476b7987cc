#include "vllm/text/spm.h"

#include <bit>
#include <cmath>

#include "base/strings.h"
#include "vllm/text/bpe_merge.h"
#include "vllm/text/unicode.h"

namespace vllm::text {
namespace {

constexpr uint32_t kNever = 0xFFFFFFFFu;

// Higher scores get smaller ranks; the order of finite floats is the order of their bits, sign
// aside.
uint32_t RankOfScore(float score) {
  const auto bits = std::bit_cast<uint32_t>(score == 0.0f ? 0.0f : score);
  const uint32_t ascending = bits & 0x80000000u ? ~bits : bits | 0x80000000u;
  return ~ascending;
}

}  // namespace

base::Result<std::unique_ptr<SpmModel>> SpmModel::Create(const Vocab& vocab,
                                                         const std::vector<float>& scores,
                                                         const std::vector<uint8_t>& control,
                                                         int32_t unk_id) {
  std::unique_ptr<SpmModel> m(new SpmModel(vocab));
  m->unk_id_ = unk_id;
  m->ranks_.assign(static_cast<size_t>(vocab.size()), kNever);
  for (int32_t id = 0; id < vocab.size(); ++id) {
    if (!std::isfinite(scores[id])) {
      return base::Error{
          base::Code::kCorrupt,
          fmt::format("tokenizer.ggml.scores[{}] is not a finite number; the file is damaged", id)};
    }
    if (control[id] || !vocab.Has(id)) continue;
    m->ranks_[id] = RankOfScore(scores[id]);
    m->cut_ = m->cut_ && IsValidUtf8(vocab.Text(id));
    if (m->cut_) m->cuts_.AddToken(vocab.Text(id));
  }
  for (int b = 0; b < 256; ++b) {
    m->byte_ids_[b] = vocab.Find(fmt::format("<0x{:02X}>", b));
    if (m->byte_ids_[b] < 0) m->byte_ids_[b] = vocab.Find(std::string(1, static_cast<char>(b)));
    if (m->byte_ids_[b] < 0) m->byte_ids_[b] = unk_id;
  }
  return m;
}

base::Status SpmModel::EncodePiece(std::string_view text, Span piece, Scratch* scratch) const {
  scratch->ids.clear();
  auto& symbols = scratch->symbols;
  symbols.clear();
  for (uint32_t i = piece.begin; i < piece.end;) {
    const uint32_t end = i + static_cast<uint32_t>(Utf8Length(static_cast<uint8_t>(text[i])));
    symbols.push_back({-1, i, end, -1, -1});
    i = end;
  }
  MergeSymbols(&symbols, &scratch->heap,
               [this, text](const Symbol& a, const Symbol& b, uint32_t* rank, int32_t* result) {
                 const int32_t id = vocab_.Find(text.substr(a.begin, b.end - a.begin));
                 if (id < 0 || ranks_[id] == kNever) return false;
                 *rank = ranks_[id];
                 *result = id;
                 return true;
               });
  for (const Symbol& s : symbols) {
    int32_t id = s.id >= 0 ? s.id : vocab_.Find(text.substr(s.begin, s.end - s.begin));
    if (id >= 0 && ranks_[id] != kNever) {
      scratch->ids.push_back(id);
      continue;
    }
    for (uint32_t i = s.begin; i < s.end; ++i) {
      id = byte_ids_[static_cast<uint8_t>(text[i])];
      if (id < 0) {
        return base::Error{
            base::Code::kUnsupported,
            fmt::format("this tokenizer has no token for \"{}\" and no unknown token",
                        base::Printable(text.substr(s.begin, s.end - s.begin)))};
      }
      scratch->ids.push_back(id);
    }
  }
  return {};
}

base::Status SpmModel::Encode(std::string_view text, std::span<const Span> words, Scratch* scratch,
                              std::vector<int32_t>* out) const {
  auto& pieces = scratch->cuts;
  pieces.clear();
  for (const Span w : words) {
    if (cut_) {
      cuts_.Cut(text, w, &pieces);
    } else {
      pieces.push_back(w);
    }
  }
  for (const Span p : pieces) {
    if (p.size() == 0) continue;
    WordCache::Key key{0, 0};
    const bool cached = p.size() <= WordCache::kMaxBytes;
    if (cached) {
      key = WordCache::MakeKey(text.data() + p.begin, p.size(), text.size() - p.begin);
      if (const auto* e = scratch->cache.Find(key)) {
        for (int i = 0; i < WordCache::kMaxIds && e->ids[i] >= 0; ++i) out->push_back(e->ids[i]);
        continue;
      }
    }
    if (auto s = EncodePiece(text, p, scratch); !s.ok()) return s;
    const auto& ids = scratch->ids;
    if (cached && !ids.empty() && ids.size() <= WordCache::kMaxIds) {
      scratch->cache.Insert(key, ids.data(), static_cast<int>(ids.size()));
    }
    out->insert(out->end(), ids.begin(), ids.end());
  }
  return {};
}

}  // namespace vllm::text
