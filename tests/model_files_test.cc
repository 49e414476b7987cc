// Model files that broke other engines, through vllm-inspect: tensor sizes and general.alignment of
// GGUF, ranges of safetensors, split files. What is refused ends with 1 and one line that names the
// file and the tensor, key or part; what is legal gives what the plain file gives.
#include <sys/stat.h>

#include <utility>
#include <vector>

#include "tests/programs_testing.h"
#include "vllm/weights/gguf.h"
#include "vllm/weights/test_files.h"

namespace tests {
namespace {

using namespace vllm::weights;           // NOLINT: GgufFile and its parser
using namespace vllm::weights::testing;  // NOLINT: the builders

constexpr uint32_t kF32 = 0, kQ4_0 = 2, kQ4_K = 12;
constexpr const char* kModels = VLLM_SOURCE_DIR "/tests/goldens/models/";

class ModelFiles : public ProgramsTest {
 protected:
  void RefusedFile(const std::string& name, const std::string& bytes,
                   const std::vector<std::string>& words) const {
    const std::string path = Write(name, bytes);
    Refused("vllm-inspect info --model " + path, 1, name);
    for (const std::string& word : words) Refused("vllm-inspect info --model " + path, 1, word);
  }
  std::string Logits(const std::string& path) const {
    const Ended e = Run("vllm-inspect logits --json --threads 1 --ids 5,6,7,8 --model " + path);
    EXPECT_EQ(e.code, 0) << path << ": " << e.err;
    return e.out;
  }
};

// The metadata of a whole model with one tensor of its own.
GgufBuilder One(const std::vector<uint64_t>& dims, uint32_t type, uint64_t offset, size_t data,
                std::string_view name = "a") {
  GgufBuilder b = TinyLlamaGguf();
  b.tensors = {GgufTensorEntry(name, dims, type, offset)};
  b.data.assign(data, '\0');
  return b;
}
GgufBuilder Two(std::string_view second, const std::vector<uint64_t>& dims, uint64_t offset,
                GgufBuilder b = One({8}, kF32, 0, 64)) {
  b.tensors.push_back(GgufTensorEntry(second, dims, kF32, offset));
  return b;
}

TEST_F(ModelFiles, GgufTensorSizes) {
  const std::string ok = Write("ok.gguf", TinyLlamaGguf().Build());
  EXPECT_EQ(Run("vllm-inspect info --model " + ok).code, 0);
  // An empty tensor is legal; one that is no model's may be refused as such.
  EXPECT_LT(
      Run("vllm-inspect info --model " + Write("z.gguf", One({8, 0}, kF32, 0, 0).Build())).code, 2);

  GgufBuilder dimensions = TinyLlamaGguf();  // of 2^32 - 1 dimensions
  dimensions.tensors = {GgufText("a") + Raw<uint32_t>(UINT32_MAX) + std::string(64, '\1')};
  const std::string a = "tensor 'a'";
  const struct {
    const char* name;
    GgufBuilder file;
    std::vector<std::string> words;
  } cases[] = {
      {"dim_wrap", One({4, (1ull << 62) + 1}, kF32, 0, 32), {a, "64 bits"}},
      {"dim_wrap42", One({1152, (1ull << 42) + 1}, kF32, 0, 4608), {a, "past the file"}},
      {"dim_negative", One({UINT64_MAX}, kF32, 0, 32), {a, "dimension 0"}},
      {"sum_wrap",
       Two("b", {1ull << 61}, (1ull << 63) - 32, One({(1ull << 61) - 8}, kF32, 0, 32)),
       {"tensor 'b'", "64 bits"}},
      {"n_dims_5", One({1, 1, 1, 1, 8}, kF32, 0, 32), {a, "5 dimensions"}},
      {"n_dims_huge", dimensions, {a, "4294967295 dimensions"}},
      {"type_huge", One({8}, 0xfffffff0, 0, 32), {a, "type 4294967280"}},
      {"type_removed", One({32}, 4, 0, 64), {a, "type 4"}},
      {"block_partial", One({33}, kQ4_0, 0, 64), {a, "Q4_0"}},
      {"block_partial_k", One({128, 2}, kQ4_K, 0, 144), {a, "Q4_K"}},
      {"offset_past", One({8}, kF32, 4096, 32), {a, "past the file"}},
      {"offset_top", One({8}, kF32, UINT64_MAX - 31, 32), {a, "past the file"}},
      {"data_short", One({8}, kF32, 0, 31), {a, "past the file"}},
      {"overlap", Two("b", {8}, 0), {"'a'", "'b'", "overlap"}},
      {"same_name", Two("a", {8}, 32), {a, "twice"}},
      {"name_65", One({8}, kF32, 0, 32, std::string(65, 'n')), {"nnnn", "65 bytes"}},
  };
  for (const auto& c : cases) RefusedFile(std::string(c.name) + ".gguf", c.file.Build(), c.words);
}

TEST_F(ModelFiles, GgufAlignmentIsRefusedByName) {
  const auto with = [](const std::vector<std::string>& entries) {
    GgufBuilder b = One({8}, kF32, 0, 64);
    b.keys.insert(b.keys.end(), entries.begin(), entries.end());
    return b.Build();
  };
  const std::string key = "general.alignment";
  const std::pair<const char*, std::string> cases[] = {
      {"zero", with({GgufU32(key, 0)})},
      {"three", with({GgufU32(key, 3)})},
      {"top", with({GgufU32(key, 1u << 31)})},
      {"max", with({GgufU32(key, UINT32_MAX)})},
      {"i32", with({GgufEntry(key, 5, Raw<int32_t>(-32))})},
      {"u64", with({GgufEntry(key, 10, Raw<uint64_t>(1ull << 63))})},
      {"string", with({GgufString(key, "32")})},
      {"twice", with({GgufU32(key, 32), GgufU32(key, 64)})},
  };
  for (const auto& [name, file] : cases) RefusedFile(std::string(name) + ".gguf", file, {key});
  RefusedFile("misaligned.gguf", One({8}, kF32, 4, 64).Build(), {"tensor 'a'", "offset 4"});
}

TEST_F(ModelFiles, APipeWithoutAWriterIsNotWaitedFor) {
  std::filesystem::copy(std::string(kModels) + "qwen3", folder_ / "pipe");
  const std::string config = Path("pipe/config.json");
  std::filesystem::remove(config);
  ASSERT_EQ(::mkfifo(config.c_str(), 0600), 0);
  Refused("vllm-cli --prompt a --model " + Path("pipe"), 2, "config.json: is a pipe");
}

// A real file taken apart, to be written again in other ways.
struct Pieces {
  std::string keys;
  std::vector<std::string> entries;  // a tensor's name, dimensions and type
  std::vector<std::string> data;
  uint64_t key_count = 0;
};

Pieces TakeApart(const std::string& file) {
  const auto parsed = ParseGguf(AsBytes(file));
  EXPECT_TRUE(parsed);
  Pieces p;
  p.key_count = parsed->metadata.keys().size();
  constexpr size_t kHeader = 24;
  const auto entry = [&](const GgufTensor& t) {
    const size_t at = file.find(GgufText(t.name) + Raw(static_cast<uint32_t>(t.shape.size())));
    return std::pair(at, 8 + t.name.size() + 4 + 8 * t.shape.size() + 4);
  };
  p.keys = file.substr(kHeader, entry(parsed->tensors[0]).first - kHeader);
  for (const GgufTensor& t : parsed->tensors) {
    const auto [at, size] = entry(t);
    p.entries.push_back(file.substr(at, size));
    p.data.push_back(file.substr(t.offset, t.bytes));
  }
  return p;
}

// Tensors `begin` to `end`, with `extra` keys after the file's own, or instead of all but the
// architecture in later parts of a split file.
std::string PutTogether(const Pieces& p, size_t begin, size_t end, size_t alignment,
                        const std::vector<std::string>& extra, bool with_keys = true) {
  GgufBuilder b;
  b.alignment = alignment;
  b.keys = extra;
  if (!with_keys) b.keys.push_back(GgufString("general.architecture", "llama"));
  const uint64_t count = b.keys.size() + (with_keys ? p.key_count : 0);
  for (size_t i = begin; i < end; ++i) {
    b.tensors.push_back(p.entries[i] + Raw<uint64_t>(b.data.size()));
    b.data += p.data[i];
    b.data.resize((b.data.size() + alignment - 1) / alignment * alignment);
  }
  std::string out = "GGUF" + Raw(b.version) + Raw<uint64_t>(b.tensors.size()) + Raw(count);
  if (with_keys) out += p.keys;
  for (const std::string& k : b.keys) out += k;
  for (const std::string& t : b.tensors) out += t;
  out.resize((out.size() + alignment - 1) / alignment * alignment);
  return out + b.data;
}

TEST_F(ModelFiles, AnotherAlignmentIsTheSameModel) {
  const std::string plain = std::string(kModels) + "gguf/llama_linear.gguf";
  const Pieces p = TakeApart(*base::os::ReadFile(plain));
  const std::string want = Logits(plain);
  for (const uint32_t alignment : {8u, 64u, 4096u}) {
    const std::string file =
        PutTogether(p, 0, p.data.size(), alignment, {GgufU32("general.alignment", alignment)});
    EXPECT_EQ(Logits(Write("aligned.gguf", file)), want) << alignment;
  }
}

TEST_F(ModelFiles, SplitGguf) {
  const std::string plain = std::string(kModels) + "gguf/llama_linear.gguf";
  const Pieces p = TakeApart(*base::os::ReadFile(plain));
  const size_t count = p.data.size();
  std::vector<std::string> parts;
  for (uint16_t i = 0; i < 3; ++i) {
    parts.push_back(PutTogether(
        p, count * i / 3, count * (i + 1) / 3, 32,
        {GgufEntry("split.no", 2, Raw(i)), GgufEntry("split.count", 2, Raw<uint16_t>(3)),
         GgufEntry("split.tensors.count", 5, Raw(static_cast<int>(count)))},
        i == 0));
  }
  const std::string names[] = {"m-00001-of-00003.gguf", "m-00002-of-00003.gguf",
                               "m-00003-of-00003.gguf"};
  for (size_t i = 0; i < 3; ++i) {
    Write("whole/" + names[i], parts[i]);
    if (i != 1) Write("missing/" + names[i], parts[i]);
    Write("swapped/" + names[i == 0 ? 0 : 3 - i], parts[i]);
    Write("renamed/part" + std::to_string(i) + ".gguf", parts[i]);
  }
  const std::string want = Logits(plain);
  for (const char* name :
       {"", "m-00001-of-00003.gguf", "m-00002-of-00003.gguf", "m-00003-of-00003.gguf"}) {
    EXPECT_EQ(Logits(Path(std::string("whole/") + name)), want) << name;
  }
  const auto refused = [&](const std::string& path, const std::string& words, int code = 1) {
    Refused("vllm-inspect logits --ids 5 --model " + Path(path), code, words);
  };
  refused("missing/" + names[0], "part 2 of 3 is missing");
  refused("missing/" + names[2], "part 2 of 3 is missing");
  refused("missing", "part 2 of 3 is missing");
  refused("swapped", "out of order");
  refused("renamed/part0.gguf", "part 1 of 3", 2);
  refused("renamed", "name one of them", 2);
  Write("cat.gguf", parts[0] + parts[1] + parts[2]);
  refused("cat.gguf", "this is part 1 of 3 with data after it");
}

TEST_F(ModelFiles, SafetensorsRanges) {
  std::filesystem::create_directories(folder_ / "st");
  std::filesystem::copy_file(std::string(kModels) + "llama_tied/config.json",
                             folder_ / "st/config.json");
  const std::string command = "vllm-inspect info --model " + Path("st");
  // A tensor's entry: name, dtype, shape, data_offsets.
  const auto t = [](const std::string& name, const std::string& dtype, const std::string& shape,
                    const std::string& offsets) {
    return "\"" + name + R"(":{"dtype":")" + dtype + R"(","shape":)" + shape +
           R"(,"data_offsets":)" + offsets + "}";
  };
  const auto st = [](const std::string& entries, size_t bytes) {
    return SafetensorsFile("{" + entries + "}", bytes);
  };
  const std::string plain = t("a", "F32", "[4]", "[0,16]");

  const std::pair<const char*, std::string> legal[] = {
      {"plain", st(plain, 16)},
      {"scalar", st(t("a", "F32", "[]", "[0,4]"), 4)},
      {"zero", st(plain + "," + t("e", "F32", "[0]", "[16,16]"), 16)},
      {"zero in the middle",
       st(t("e", "F16", "[3,0,7]", "[8,8]") + "," + t("a", "F16", "[4]", "[0,8]") + "," +
              t("b", "F16", "[4]", "[8,16]"),
          16)},
      {"unordered", st(t("b", "F16", "[4]", "[8,16]") + "," + t("a", "F16", "[4]", "[0,8]"), 16)},
      {"metadata", st(R"("__metadata__":{"format":"pt","x":"é"},)" + plain, 16)},
      {"padded", SafetensorsFile("{" + plain + "}       ", 16)},
      {"none", st("", 0)},
  };
  for (const auto& [name, file] : legal) {
    Write("st/model.safetensors", file);
    const Ended e = Run(command);
    EXPECT_EQ(e.code, 0) << name << ": " << e.err;
  }

  const struct {
    const char* name;
    std::string file;
    const char* words;
  } broken[] = {
      {"shape_big", st(t("a", "F32", "[1000,1000]", "[0,16]"), 16), "tensor 'a'"},
      {"shape_small", st(t("a", "F32", "[1]", "[0,16]"), 16), "tensor 'a'"},
      {"shape_wrap", st(t("a", "F32", "[4294967296,4294967296,4]", "[0,16]"), 16), "64 bits"},
      {"reversed", st(t("a", "F32", "[4]", "[16,0]"), 16), "data_offsets"},
      {"past_end", st(t("a", "F32", "[8]", "[0,32]"), 16), "past the file"},
      {"overlap", st(plain + "," + t("b", "F32", "[4]", "[0,16]"), 16), "overlap"},
      {"hole", st(t("a", "F32", "[1]", "[0,4]") + "," + t("b", "F32", "[1]", "[12,16]"), 16),
       "tensor 'b'"},
      {"front_gap", st(t("a", "F32", "[2]", "[8,16]"), 16), "tensor 'a'"},
      {"tail", st(t("a", "F32", "[2]", "[0,8]"), 16), "last 8 bytes"},
      {"negative", st(t("a", "F32", "[4]", "[-16,0]"), 16), "data_offsets"},
      {"float_off", st(t("a", "F32", "[4]", "[0.0,16.0]"), 16), "data_offsets"},
      {"dtype", st(t("a", "F128", "[1]", "[0,16]"), 16), "F128"},
      {"head_huge", Raw<uint64_t>(1ull << 63) + "{" + plain + "}" + std::string(16, '\0'),
       "header of 9223372036854775808 bytes"},
      {"head_past", Raw<uint64_t>(4096) + "{" + plain + "}" + std::string(16, '\0'),
       "header of 4096 bytes"},
      {"not_object", SafetensorsFile("[1]", 0), "no JSON object"},
      {"json", SafetensorsFile("{\"a\":", 0), "invalid JSON"},
      {"utf8", st(t("\xff", "F32", "[0]", "[0,0]"), 0), "invalid JSON"},
      {"short", std::string("\x10\0\0", 3), "too short"},
      {"empty", "", "empty"},
      {"deep", st("\"a\":" + std::string(50000, '[') + std::string(50000, ']'), 0), "too deep"},
  };
  for (const auto& c : broken) {
    SCOPED_TRACE(c.name);
    Write("st/model.safetensors", c.file);
    Refused(command, 1, c.words);
    Refused(command, 1, "model.safetensors");
  }
  // Of two equal keys one is read, never both.
  Write("st/model.safetensors", st(plain + "," + plain, 16));
  const Ended e = Run(command);
  EXPECT_LT(e.code, 2) << e.err;
  if (e.code == 0) {
    EXPECT_NE(e.out.find("16 B in 1 tensors"), std::string::npos) << e.out;
  }
}

}  // namespace
}  // namespace tests
