// Small model files for tests, made in memory: valid by default, and breakable in every field.
#pragma once

#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace vllm::weights::testing {

template <typename T>
std::string Raw(T v) {
  std::string out(sizeof v, '\0');
  std::memcpy(out.data(), &v, sizeof v);
  return out;
}
inline std::string GgufText(std::string_view s) { return Raw<uint64_t>(s.size()) + std::string(s); }
inline std::string GgufEntry(std::string_view key, uint32_t type, const std::string& raw) {
  return GgufText(key) + Raw(type) + raw;
}
inline std::string GgufString(std::string_view key, std::string_view value) {
  return GgufEntry(key, 8, GgufText(value));
}
inline std::string GgufU32(std::string_view key, uint32_t value) {
  return GgufEntry(key, 4, Raw(value));
}
inline std::string GgufF32(std::string_view key, float value) {
  return GgufEntry(key, 6, Raw(value));
}
// `dims` as in the file: innermost first.
inline std::string GgufTensorEntry(std::string_view name, const std::vector<uint64_t>& dims,
                                   uint32_t type, uint64_t offset) {
  std::string out = GgufText(name) + Raw(static_cast<uint32_t>(dims.size()));
  for (const uint64_t d : dims) out += Raw(d);
  return out + Raw(type) + Raw(offset);
}

struct GgufBuilder {
  std::vector<std::string> keys = {GgufString("general.architecture", "llama")};
  std::vector<std::string> tensors;
  std::string data;
  uint32_t version = 3;
  size_t alignment = 32;

  // Appends a tensor of f32 zeros at the next aligned offset.
  GgufBuilder& Tensor(std::string_view name, const std::vector<uint64_t>& dims) {
    uint64_t bytes = 4;
    for (const uint64_t d : dims) bytes *= d;
    tensors.push_back(GgufTensorEntry(name, dims, 0, data.size()));
    data.append(bytes, '\0');
    data.resize((data.size() + alignment - 1) / alignment * alignment);
    return *this;
  }
  std::string Build() const {
    std::string out =
        "GGUF" + Raw(version) + Raw<uint64_t>(tensors.size()) + Raw<uint64_t>(keys.size());
    for (const std::string& k : keys) out += k;
    for (const std::string& t : tensors) out += t;
    out.resize((out.size() + alignment - 1) / alignment * alignment);
    return out + data;
  }
};

// A llama of two layers, 8 wide, all tensors there. With `layers` of them.
inline GgufBuilder TinyLlamaGguf(uint64_t layers = 2) {
  GgufBuilder b;
  for (const auto& [key, value] :
       {std::pair<const char*, uint32_t>{"llama.block_count", static_cast<uint32_t>(layers)},
        {"llama.context_length", 64},
        {"llama.embedding_length", 8},
        {"llama.feed_forward_length", 16},
        {"llama.attention.head_count", 2},
        {"llama.attention.head_count_kv", 1},
        {"tokenizer.ggml.bos_token_id", 1},
        {"tokenizer.ggml.eos_token_id", 2}}) {
    b.keys.push_back(GgufU32(key, value));
  }
  b.keys.push_back(GgufF32("llama.attention.layer_norm_rms_epsilon", 1e-5f));
  b.Tensor("token_embd.weight", {8, 32}).Tensor("output_norm.weight", {8});
  for (uint64_t i = 0; i < layers; ++i) {
    const std::string p = "blk." + std::to_string(i) + ".";
    b.Tensor(p + "attn_norm.weight", {8})
        .Tensor(p + "attn_q.weight", {8, 8})
        .Tensor(p + "attn_k.weight", {8, 4});
    b.Tensor(p + "attn_v.weight", {8, 4})
        .Tensor(p + "attn_output.weight", {8, 8})
        .Tensor(p + "ffn_norm.weight", {8});
    b.Tensor(p + "ffn_gate.weight", {8, 16})
        .Tensor(p + "ffn_up.weight", {8, 16})
        .Tensor(p + "ffn_down.weight", {16, 8});
  }
  return b;
}

inline std::string SafetensorsFile(std::string_view header, size_t data_bytes) {
  return Raw<uint64_t>(header.size()) + std::string(header) + std::string(data_bytes, '\0');
}

inline std::span<const std::byte> AsBytes(std::string_view s) {
  return std::as_bytes(std::span<const char>(s.data(), s.size()));
}

// A folder that is removed at the end.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "vllm-weights-XXXXXX").string();
    if (::mkdtemp(name.data()) != nullptr) path_ = name;
  }
  ~TemporaryFolder() {
    std::error_code ec;
    std::filesystem::remove_all(path_, ec);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  std::string Path(std::string_view name = "") const {
    return name.empty() ? path_ : path_ + "/" + std::string(name);
  }
  std::string Write(std::string_view name, std::string_view bytes) const {
    const std::string path = Path(name);
    std::filesystem::create_directories(std::filesystem::path(path).parent_path());
    std::ofstream(path, std::ios::binary)
        .write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    return path;
  }

 private:
  std::string path_;
};

}  // namespace vllm::weights::testing
