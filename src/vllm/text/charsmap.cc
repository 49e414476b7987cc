// SentencePiece's precompiled character map. Layout, little-endian: uint32 byte size of the trie;
// the trie, a double array as Darts-clone writes it (uint32 units: label in bits 0-7, leaf flag in
// bit 8, offset in bits 10-30, shifted by 8 more when bit 9 is set; a value unit has bit 31 set);
// then the replacements, each ended by a zero byte.
#include <utf8proc.h>

#include <cstring>

#include "vllm/text/normalizer.h"
#include "vllm/text/unicode.h"

namespace vllm::text {
namespace {

class CharsMap : public Normalizer {
 public:
  CharsMap(std::vector<uint32_t> units, std::string replacements, bool greedy)
      : units_(std::move(units)), replacements_(std::move(replacements)), greedy_(greedy) {}

  base::Status Apply(std::string* text) const override {
    std::string out;
    out.reserve(text->size());
    if (greedy_) {
      Greedy(*text, &out);
    } else {
      ByGrapheme(*text, &out);
    }
    AppendFixed(std::move(out), text);
    return {};
  }

 private:
  // Replacements come from the file and need not be UTF-8.
  static void AppendFixed(std::string out, std::string* text) {
    if (IsValidUtf8(out)) {
      *text = std::move(out);
    } else {
      text->clear();
      AppendLossy(out, text);
    }
  }

  // The replacement of the shortest or longest prefix of `s` in the map, null if none; *length is
  // the prefix's.
  const char* Lookup(std::string_view s, bool longest, size_t* length) const {
    const auto unit = [this](uint32_t i) { return i < units_.size() ? units_[i] : 0u; };
    const auto offset = [](uint32_t u) { return u >> 10 << ((u & (1u << 9)) >> 6); };
    const char* found = nullptr;
    uint32_t node = offset(unit(0));
    for (size_t i = 0; i < s.size(); ++i) {
      const auto c = static_cast<uint8_t>(s[i]);
      if (c == 0) break;
      node ^= c;
      const uint32_t u = unit(node);
      if ((u & (1u << 31 | 0xFFu)) != c) break;
      node ^= offset(u);
      if (u & (1u << 8)) {
        const uint32_t at = unit(node) & 0x7FFFFFFFu;
        if (at < replacements_.size()) {  // std::string ends it with a zero byte in any case
          found = replacements_.c_str() + at;
          *length = i + 1;
          if (!longest) break;
        }
      }
    }
    return found;
  }

  void Greedy(std::string_view text, std::string* out) const {
    for (size_t i = 0; i < text.size();) {
      size_t length;
      if (const char* r = Lookup(text.substr(i), true, &length)) {
        out->append(r);
      } else {
        length = static_cast<size_t>(Utf8Length(static_cast<uint8_t>(text[i])));
        out->append(text.substr(i, length));
      }
      i += length;
    }
  }

  void ByGrapheme(std::string_view text, std::string* out) const {
    for (size_t i = 0; i < text.size();) {
      const size_t end = GraphemeEnd(text, i);
      size_t length;
      // Only short graphemes are looked up whole, and the first prefix that is in the map stands
      // for all of it.
      if (end - i < 6) {
        if (const char* r = Lookup(text.substr(i, end - i), false, &length)) {
          out->append(r);
          i = end;
          continue;
        }
      }
      while (i < end) {
        const auto n = static_cast<size_t>(Utf8Length(static_cast<uint8_t>(text[i])));
        if (const char* r = Lookup(text.substr(i, n), false, &length)) {
          out->append(r);
        } else {
          out->append(text.substr(i, n));
        }
        i += n;
      }
    }
  }

  static size_t GraphemeEnd(std::string_view text, size_t begin) {
    uint32_t previous;
    size_t i = begin + static_cast<size_t>(DecodeValid(text.data() + begin, &previous));
    utf8proc_int32_t state = 0;
    while (i < text.size()) {
      uint32_t c;
      const auto n = static_cast<size_t>(DecodeValid(text.data() + i, &c));
      if (utf8proc_grapheme_break_stateful(static_cast<utf8proc_int32_t>(previous),
                                           static_cast<utf8proc_int32_t>(c), &state)) {
        break;
      }
      previous = c;
      i += n;
    }
    return i;
  }

  std::vector<uint32_t> units_;
  std::string replacements_;
  bool greedy_;
};

}  // namespace

base::Result<std::unique_ptr<Normalizer>> MakeCharsMap(std::string_view blob, bool greedy) {
  uint32_t size = 0;
  if (blob.size() >= 4) std::memcpy(&size, blob.data(), 4);
  if (blob.size() < 4 || size > blob.size() - 4 || size % 4 != 0) {
    return base::Error{base::Code::kCorrupt,
                       "precompiled_charsmap is shorter than it says; the file is damaged"};
  }
  std::vector<uint32_t> units(size / 4);
  if (size > 0) std::memcpy(units.data(), blob.data() + 4, size);
  return std::unique_ptr<Normalizer>(
      new CharsMap(std::move(units), std::string(blob.substr(4 + size)), greedy));
}

}  // namespace vllm::text
