#include "vllm/text/wordpiece.h"

#include "base/strings.h"

namespace vllm::text {

base::Result<std::unique_ptr<WordPieceModel>> WordPieceModel::Create(const WordPieceSpec& spec) {
  std::unique_ptr<WordPieceModel> m(new WordPieceModel);
  m->max_characters_ = spec.max_characters;
  m->unk_id_ = spec.unk_id;
  const base::Error refused{base::Code::kCorrupt,
                            "the vocabulary is too large or made to collide; it is refused"};
  for (int32_t id = 0; id < spec.vocab->size(); ++id) {
    if (!spec.vocab->Has(id) || (spec.control != nullptr && (*spec.control)[id])) continue;
    const std::string_view t = spec.vocab->Text(id);
    const auto insert = [&](Trie* trie, const std::string& prefix) {
      if (!base::StartsWith(t, prefix) || t.size() == prefix.size()) return true;
      return trie->Insert(t.substr(prefix.size()), id);
    };
    if (!insert(&m->first_, spec.word_prefix) || !insert(&m->rest_, spec.continuing_prefix))
      return refused;
  }
  return m;
}

bool WordPieceModel::EncodeWord(std::string_view word, std::vector<int32_t>* out) const {
  if (max_characters_ > 0) {
    size_t characters = 0;
    for (const char c : word) characters += (static_cast<uint8_t>(c) & 0xC0) != 0x80;
    if (characters > max_characters_) return false;
  }
  const Trie* trie = &first_;
  while (!word.empty()) {
    size_t length;
    const int32_t id = trie->Longest(word, &length);
    if (id < 0) return false;
    out->push_back(id);
    word.remove_prefix(length);
    trie = &rest_;
  }
  return true;
}

base::Status WordPieceModel::Encode(std::string_view text, std::span<const Span> words, Scratch*,
                                    std::vector<int32_t>* out) const {
  for (const Span w : words) {
    if (w.size() == 0) continue;
    const size_t before = out->size();
    const std::string_view word = text.substr(w.begin, w.size());
    if (EncodeWord(word, out)) continue;
    out->resize(before);
    if (unk_id_ < 0) {
      return base::Error{base::Code::kUnsupported,
                         fmt::format("this tokenizer has no token for \"{}\" and no unknown token",
                                     base::Printable(word))};
    }
    out->push_back(unk_id_);
  }
  return {};
}

}  // namespace vllm::text
