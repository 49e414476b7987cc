#include "vllm/text/unigram.h"

#include <cmath>
#include <limits>

#include "base/strings.h"
#include "vllm/text/unicode.h"

namespace vllm::text {

base::Result<std::unique_ptr<UnigramModel>> UnigramModel::Create(UnigramSpec spec) {
  std::unique_ptr<UnigramModel> m(new UnigramModel);
  const Vocab& vocab = *spec.vocab;
  for (int32_t id = 0; id < vocab.size(); ++id) {
    if (!vocab.Has(id) || !spec.usable[id] || vocab.Text(id).empty()) continue;
    if (!std::isfinite(spec.scores[id])) {
      return base::Error{base::Code::kCorrupt,
                         fmt::format("the score of token {} is not a finite number", id)};
    }
    if (!m->trie_.Insert(vocab.Text(id), id)) {
      return base::Error{base::Code::kCorrupt,
                         "the vocabulary is too large or made to collide; it is refused"};
    }
  }
  m->all_bytes_ = spec.byte_fallback;
  for (int b = 0; b < 256; ++b) {
    m->byte_ids_[b] = vocab.Find(fmt::format("<0x{:02X}>", b));
    m->all_bytes_ = m->all_bytes_ && m->byte_ids_[b] >= 0;
  }
  m->spec_ = std::move(spec);
  return m;
}

base::Status UnigramModel::EncodeWord(std::string_view word, std::vector<int32_t>* out) const {
  struct Node {
    double score = -std::numeric_limits<double>::max();
    int32_t id = -1;     // of the token that ends here; -1: unknown character
    uint32_t start = 0;  // where that token starts
    bool reached = false;
  };
  const double unknown_score = spec_.lowest_score - 10.0;  // the constant of SentencePiece
  const size_t n = word.size();
  std::vector<Node> best(n + 1);
  best[0] = {0.0, -1, 0, true};
  for (size_t i = 0; i < n;) {
    const size_t length = static_cast<size_t>(Utf8Length(static_cast<uint8_t>(word[i])));
    const double here = best[i].score;
    const auto offer = [&](size_t end, double score, int32_t id) {
      if (!best[end].reached || score > best[end].score)
        best[end] = {score, id, static_cast<uint32_t>(i), true};
    };
    bool single = false;
    int32_t node = Trie::kRoot;
    for (size_t k = i; k < n; ++k) {
      node = trie_.Next(node, word[k]);
      if (node == Trie::kNone) break;
      if (const int32_t id = trie_.Value(node); id != Trie::kNone) {
        offer(k + 1, here + spec_.scores[id], id);
        single = single || k + 1 == i + length;
      }
    }
    if (!single) offer(i + length, here + unknown_score, -1);
    i += length;
  }
  std::vector<Span> path;
  std::vector<int32_t> ids;
  for (size_t end = n; end > 0; end = best[end].start) {
    // Unknown neighbours become one unknown token.
    if (best[end].id < 0 && !ids.empty() && ids.back() < 0) {
      path.back().begin = best[end].start;
    } else {
      path.push_back({best[end].start, static_cast<uint32_t>(end)});
      ids.push_back(best[end].id);
    }
  }
  for (size_t k = ids.size(); k-- > 0;) {
    if (ids[k] >= 0 && ids[k] != spec_.unk_id) {
      out->push_back(ids[k]);
    } else if (all_bytes_) {
      for (const char c : word.substr(path[k].begin, path[k].size())) {
        out->push_back(byte_ids_[static_cast<uint8_t>(c)]);
      }
    } else if (spec_.unk_id >= 0) {
      out->push_back(spec_.unk_id);
    } else {
      return base::Error{base::Code::kUnsupported,
                         fmt::format("this tokenizer has no token for \"{}\" and no unknown token",
                                     base::Printable(word.substr(path[k].begin, path[k].size())))};
    }
  }
  return {};
}

base::Status UnigramModel::Encode(std::string_view text, std::span<const Span> words,
                                  Scratch* scratch, std::vector<int32_t>* out) const {
  for (const Span w : words) {
    if (w.size() == 0) continue;
    const bool cached = w.size() <= WordCache::kMaxBytes;
    WordCache::Key key{0, 0};
    if (cached) {
      key = WordCache::MakeKey(text.data() + w.begin, w.size(), text.size() - w.begin);
      if (const auto* e = scratch->cache.Find(key)) {
        for (int i = 0; i < WordCache::kMaxIds && e->ids[i] >= 0; ++i) out->push_back(e->ids[i]);
        continue;
      }
    }
    const size_t before = out->size();
    if (auto s = EncodeWord(text.substr(w.begin, w.size()), out); !s.ok()) return s;
    const size_t n = out->size() - before;
    if (cached && n > 0 && n <= WordCache::kMaxIds) {
      scratch->cache.Insert(key, out->data() + before, static_cast<int>(n));
    }
  }
  return {};
}

}  // namespace vllm::text
