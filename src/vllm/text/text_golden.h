// Reading tests/goldens/text. For tests and benchmarks only.
#pragma once

#include <zlib.h>

#include <boost/json.hpp>
#include <cstring>
#include <deque>
#include <string>
#include <vector>

#include "base/json.h"
#include "vllm/text/gguf_vocab.h"

namespace vllm::text {

inline std::string ReadGz(const std::string& path) {
  std::string out;
  gzFile f = gzopen(path.c_str(), "rb");
  if (f == nullptr) return out;
  char buffer[1 << 16];
  for (int n; (n = gzread(f, buffer, sizeof buffer)) > 0;)
    out.append(buffer, static_cast<size_t>(n));
  gzclose(f);
  return out;
}

inline boost::json::value ReadJsonGz(const std::string& path) {
  auto value = base::ParseJson(ReadGz(path));
  return value.ok() ? *value : boost::json::value();
}

inline std::vector<int32_t> Ids(const boost::json::value& array) {
  std::vector<int32_t> ids;
  for (const auto& v : array.as_array()) ids.push_back(static_cast<int32_t>(v.as_int64()));
  return ids;
}

// A vocabulary as tools/make_tokenizer_goldens.py packs it; the format is described there.
struct PackedVocab {
  std::string data;
  std::deque<std::string> texts;  // of merges
  GgufVocab vocab;
  boost::json::array cases;

  bool Read(const std::string& path) {
    data = ReadGz(path);
    const std::string_view magic = "TVOC1\n";
    if (data.compare(0, magic.size(), magic) != 0) return false;
    size_t at = magic.size();
    uint32_t header_size;
    std::memcpy(&header_size, data.data() + at, 4);
    at += 4;
    const auto header = base::ParseJson(std::string_view(data).substr(at, header_size));
    if (!header.ok()) return false;
    at += header_size;
    const auto& h = header->as_object();
    const auto varint = [&] {
      uint64_t n = 0;
      for (int shift = 0;; shift += 7) {
        const auto byte = static_cast<uint8_t>(data[at++]);
        n |= uint64_t{byte & 127u} << shift;
        if (byte < 128) return n;
      }
    };
    const size_t n = varint();
    std::vector<size_t> sizes(n);
    for (size_t& s : sizes) s = varint();
    for (const size_t s : sizes) {
      vocab.tokens.push_back(std::string_view(data).substr(at, s));
      at += s;
    }
    for (size_t i = 0; i < n; ++i) vocab.token_types.push_back(static_cast<uint8_t>(data[at++]));
    if (h.at("has_scores").as_bool()) {
      vocab.scores.resize(n);
      std::memcpy(vocab.scores.data(), data.data() + at, n * 4);
      at += n * 4;
    }
    struct Merge {
      int64_t id;
      std::string left, right;
    };
    std::vector<Merge> merges(static_cast<size_t>(h.at("merges").as_int64()));
    int64_t previous = -1;
    for (Merge& m : merges) {
      const uint64_t code = varint();
      if (code == 1) {
        m.id = -1;
        for (std::string* s : {&m.left, &m.right}) {
          const size_t size = varint();
          *s = data.substr(at, size);
          at += size;
        }
        continue;
      }
      const uint64_t z = code / 2;
      const int64_t d = z & 1 ? -static_cast<int64_t>(z / 2) - 1 : static_cast<int64_t>(z / 2);
      m.id = previous = previous + 1 + d;
    }
    for (Merge& m : merges) {
      if (m.id >= 0) {
        const size_t left = varint();
        const std::string_view t = vocab.tokens[static_cast<size_t>(m.id)];
        m.left = t.substr(0, left);
        m.right = t.substr(left);
      }
      texts.push_back(m.left + " " + m.right);
    }
    for (const auto& t : texts) vocab.merges.push_back(t);
    const auto text = [&](const char* key) { return std::string(h.at(key).as_string()); };
    vocab.model = text("model");
    vocab.pre = text("pre");
    vocab.architecture = text("architecture");
    vocab.name = text("name");
    const auto id = [&](const char* key, std::optional<int32_t>* out) {
      if (const auto* v = h.if_contains(key)) *out = static_cast<int32_t>(v->as_int64());
    };
    const auto flag = [&](const char* key, std::optional<bool>* out) {
      if (const auto* v = h.if_contains(key)) *out = v->as_bool();
    };
    id("bos", &vocab.bos_id);
    id("eos", &vocab.eos_id);
    id("unk", &vocab.unk_id);
    id("pad", &vocab.pad_id);
    id("sep", &vocab.sep_id);
    id("cls", &vocab.cls_id);
    flag("add_bos", &vocab.add_bos);
    flag("add_eos", &vocab.add_eos);
    flag("add_space_prefix", &vocab.add_space_prefix);
    cases = h.at("cases").as_array();
    return at == data.size();
  }
};

}  // namespace vllm::text
