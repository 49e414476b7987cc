#include "vllm/weights/gguf.h"

#include <gtest/gtest.h>

#include <random>

#include "vllm/weights/test_files.h"

namespace vllm::weights {
namespace {

using namespace testing;  // NOLINT: the builders

constexpr uint32_t kF32 = 0, kQ4_0 = 2, kQ4_K = 12;

base::Result<GgufFile> Parse(const std::string& file) { return ParseGguf(AsBytes(file)); }

// The error's sentence; "" when the file was taken.
std::string Refusal(const GgufBuilder& b) {
  const base::Result<GgufFile> r = Parse(b.Build());
  return r ? "" : r.error().message;
}

GgufBuilder One(std::vector<uint64_t> dims, uint32_t type, uint64_t offset, size_t data,
                std::string_view name = "a") {
  GgufBuilder b;
  b.tensors.push_back(GgufTensorEntry(name, dims, type, offset));
  b.data.assign(data, '\0');
  return b;
}

void ExpectContains(const std::string& text, std::initializer_list<const char*> parts) {
  for (const char* part : parts)
    EXPECT_NE(text.find(part), std::string::npos) << "'" << text << "' lacks '" << part << "'";
}

TEST(Gguf, ReadsShapesOutermostFirstAndAbsoluteOffsets) {
  const std::string file = One({8, 3}, kF32, 0, 96).Build();
  const base::Result<GgufFile> r = Parse(file);
  ASSERT_TRUE(r) << r.error().message;
  ASSERT_EQ(r->tensors.size(), 1u);
  EXPECT_EQ(r->tensors[0].shape, (std::vector<int64_t>{3, 8}));
  EXPECT_EQ(r->tensors[0].offset + 96, file.size());
  EXPECT_EQ(r->tensors[0].bytes, 96u);
  EXPECT_EQ(r->data_end, file.size());
}

TEST(Gguf, RefusesSizesThatWrapAroundByTensorName) {
  ExpectContains(Refusal(One({4, (1ull << 62) + 1}, kF32, 0, 32)), {"tensor 'a'", "64 bits"});
  ExpectContains(Refusal(One({1152, (1ull << 42) + 1}, kF32, 0, 4608)),
                 {"tensor 'a'", "past the file"});
  ExpectContains(Refusal(One({UINT64_MAX}, kF32, 0, 32)), {"tensor 'a'", "dimension 0"});
  GgufBuilder sum = One({(1ull << 61) - 8}, kF32, 0, 32);
  sum.tensors.push_back(GgufTensorEntry("b", {1ull << 61}, kF32, (1ull << 63) - 32));
  ExpectContains(Refusal(sum), {"tensor 'b'", "64 bits"});
}

TEST(Gguf, EmptyTensorsLoadAsEmpty) {
  const base::Result<GgufFile> r = Parse(One({8, 0}, kF32, 0, 0).Build());
  ASSERT_TRUE(r) << r.error().message;
  EXPECT_EQ(r->tensors[0].bytes, 0u);
  EXPECT_EQ(r->tensors[0].shape, (std::vector<int64_t>{0, 8}));
}

TEST(Gguf, RefusesBadTensorEntriesByNameAndReason) {
  ExpectContains(Refusal(One({1, 1, 1, 1, 8}, kF32, 0, 32)), {"tensor 'a'", "5 dimensions"});
  ExpectContains(Refusal(One({8}, 0xfffffff0, 0, 32)), {"tensor 'a'", "type 4294967280"});
  ExpectContains(Refusal(One({32}, 4, 0, 64)), {"tensor 'a'", "type 4"});
  ExpectContains(Refusal(One({256}, 16, 0, 96)), {"tensor 'a'", "IQ2_XXS"});
  ExpectContains(Refusal(One({33}, kQ4_0, 0, 64)), {"tensor 'a'", "33", "Q4_0"});
  ExpectContains(Refusal(One({128, 2}, kQ4_K, 0, 144)), {"tensor 'a'", "128", "Q4_K"});
  ExpectContains(Refusal(One({8}, kF32, 4096, 32)), {"tensor 'a'", "past the file"});
  ExpectContains(Refusal(One({8}, kF32, UINT64_MAX - 31, 32)), {"tensor 'a'", "past the file"});
  ExpectContains(Refusal(One({8}, kF32, 0, 31)), {"tensor 'a'", "past the file"});
  ExpectContains(Refusal(One({8}, kF32, 4, 64)), {"tensor 'a'", "offset 4", "alignment 32"});
  ExpectContains(Refusal(One({8}, kF32, 0, 32, std::string(65, 'n'))), {"65 bytes"});
  GgufBuilder huge;
  huge.tensors.push_back(GgufText("a") + Raw<uint32_t>(UINT32_MAX) + std::string(64, '\1'));
  ExpectContains(Refusal(huge), {"tensor 'a'", "4294967295 dimensions"});
}

TEST(Gguf, RefusesTensorsThatShareBytesOrNames) {
  GgufBuilder overlap = One({8}, kF32, 0, 32);
  overlap.tensors.push_back(GgufTensorEntry("b", {8}, kF32, 0));
  ExpectContains(Refusal(overlap), {"'a'", "'b'", "overlap"});
  GgufBuilder twice = One({8}, kF32, 0, 64);
  twice.tensors.push_back(GgufTensorEntry("a", {8}, kF32, 32));
  ExpectContains(Refusal(twice), {"'a'", "twice"});
}

TEST(Gguf, AlignmentMovesTheDataAndIsCheckedByName) {
  GgufBuilder b;
  b.alignment = 64;
  b.keys.push_back(GgufU32("general.alignment", 64));
  b.Tensor("a", {8}).Tensor("b", {8});
  std::string file = b.Build();
  for (size_t i = 0; i < 8; ++i) file.replace(file.size() - 64 + i * 4, 4, Raw(1.0f));
  const base::Result<GgufFile> r = Parse(file);
  ASSERT_TRUE(r) << r.error().message;
  float value = 0;
  std::memcpy(&value, file.data() + r->tensors[1].offset + 28, sizeof value);
  EXPECT_EQ(value, 1.0f);

  for (const uint32_t bad : {0u, 3u, 4u, 1u << 31, UINT32_MAX}) {
    GgufBuilder x = One({8}, kF32, 0, 32);
    x.keys.push_back(GgufU32("general.alignment", bad));
    ExpectContains(Refusal(x), {"general.alignment"});
  }
  for (const std::string& entry : {GgufEntry("general.alignment", 5, Raw<int32_t>(-32)),
                                   GgufEntry("general.alignment", 10, Raw<uint64_t>(1ull << 63)),
                                   GgufString("general.alignment", "32")}) {
    GgufBuilder x = One({8}, kF32, 0, 32);
    x.keys.push_back(entry);
    ExpectContains(Refusal(x), {"general.alignment"});
  }
  GgufBuilder twice = One({8}, kF32, 0, 64);
  twice.keys.push_back(GgufU32("general.alignment", 32));
  twice.keys.push_back(GgufU32("general.alignment", 64));
  ExpectContains(Refusal(twice), {"general.alignment", "twice"});
}

TEST(Gguf, OtherVersionsAndByteOrdersAreRefusedBySentence) {
  GgufBuilder b = One({8}, kF32, 0, 32);
  b.version = 2;
  EXPECT_EQ(Refusal(b), "");
  b.version = 1;
  ExpectContains(Refusal(b), {"version 1"});
  b.version = 3u << 24;
  ExpectContains(Refusal(b), {"big-endian"});
  b.version = 77;
  ExpectContains(Refusal(b), {"version 77"});
  EXPECT_FALSE(Parse("GGML1234"));
  ExpectContains(Parse("").error().message, {"empty"});
}

TEST(Gguf, CountsAreBoundedByTheBytesLeft) {
  const std::string head = "GGUF" + Raw<uint32_t>(3);
  ExpectContains(Parse(head + Raw<uint64_t>(0) + Raw<uint64_t>(UINT64_MAX) + std::string(64, '\0'))
                     .error()
                     .message,
                 {"metadata keys"});
  ExpectContains(Parse(head + Raw<uint64_t>(UINT64_MAX) + Raw<uint64_t>(0) + std::string(64, '\0'))
                     .error()
                     .message,
                 {"tensors"});
  for (const uint64_t count : {uint64_t{1} << 61, uint64_t{1} << 32, UINT64_MAX}) {
    for (const uint32_t element : {0u, 6u, 8u, 10u}) {
      GgufBuilder b;
      b.keys.push_back(GgufEntry("big", 9, Raw(element) + Raw(count)));
      ExpectContains(Refusal(b), {"'big'", "past the end"});
    }
  }
  GgufBuilder text;
  text.keys.push_back(GgufEntry("long", 8, Raw<uint64_t>(UINT64_MAX)));
  ExpectContains(Refusal(text), {"'long'", "past the end"});
  GgufBuilder nested;
  nested.keys.push_back(GgufEntry("deep", 9, Raw<uint32_t>(9) + Raw<uint64_t>(1)));
  ExpectContains(Refusal(nested), {"'deep'", "arrays of arrays"});
}

TEST(Gguf, AMillionKeysAreRefusedBeforeTheyAreRead) {
  std::string file = "GGUF" + Raw<uint32_t>(3) + Raw<uint64_t>(0) + Raw<uint64_t>(1'000'000);
  for (int i = 0; i < 1'000'000; ++i) file += GgufEntry(Raw(i), 0, "x");
  ExpectContains(Parse(file).error().message, {"1000000 metadata keys", "limit"});
}

TEST(Gguf, TypedReadsNameTheKey) {
  GgufBuilder b;
  b.keys.push_back(GgufU32("n", 7));
  b.keys.push_back(GgufEntry("flag", 7, Raw<uint8_t>(1)));
  b.keys.push_back(
      GgufEntry("names", 9, Raw<uint32_t>(8) + Raw<uint64_t>(2) + GgufText("x") + GgufText("yz")));
  b.keys.push_back(GgufEntry(
      "ints", 9, Raw<uint32_t>(5) + Raw<uint64_t>(2) + Raw<int32_t>(-1) + Raw<int32_t>(5)));
  b.keys.push_back(GgufF32("nan", __builtin_nanf("")));
  const std::string file = b.Build();
  const base::Result<GgufFile> r = Parse(file);
  ASSERT_TRUE(r) << r.error().message;
  const GgufMetadata& m = r->metadata;
  EXPECT_EQ(*m.Int("n"), 7);
  EXPECT_EQ(*m.Number("n"), 7.0);
  EXPECT_EQ(*m.Bool("flag", false), true);
  EXPECT_EQ(*m.Strings("names"), (std::vector<std::string_view>{"x", "yz"}));
  EXPECT_EQ(*m.Ints("ints"), (std::vector<int64_t>{-1, 5}));
  EXPECT_EQ(*m.Int("absent", 3), 3);
  ExpectContains(m.Int("absent").error().message, {"'absent'", "missing"});
  ExpectContains(m.String("n").error().message, {"'n'", "string"});
  ExpectContains(m.Int("names").error().message, {"'names'", "integer"});
  ExpectContains(m.Number("nan").error().message, {"'nan'", "finite"});
}

TEST(Gguf, EveryTruncationIsRefused) {
  const std::string file = TinyLlamaGguf().Build();
  ASSERT_TRUE(Parse(file));
  for (size_t n = 0; n < file.size(); ++n) {
    // A copy of its own, so that a sanitizer sees the first byte past the end.
    const std::vector<char> cut(file.begin(), file.begin() + static_cast<std::ptrdiff_t>(n));
    const base::Result<GgufFile> r = ParseGguf(std::as_bytes(std::span(cut)));
    ASSERT_FALSE(r) << "taken with " << n << " of " << file.size() << " bytes";
    ASSERT_FALSE(r.error().message.empty());
  }
}

// What is taken in spite of changed bytes must still lie inside the file.
TEST(Gguf, RandomByteChangesNeverLeaveTheFile) {
  const std::string good = TinyLlamaGguf().Build();
  std::mt19937 random(1);
  int refused = 0;
  for (int round = 0; round < 20000; ++round) {
    std::string file = good;
    for (int change = 0; change <= round % 4; ++change) {
      file[random() % (good.size() / 2)] = static_cast<char>(random() % 3 == 0 ? 0xff : random());
    }
    const base::Result<GgufFile> r = ParseGguf(AsBytes(file));
    if (!r) {
      ++refused;
      continue;
    }
    for (const GgufTensor& t : r->tensors) ASSERT_LE(t.offset + t.bytes, file.size());
  }
  EXPECT_GT(refused, 1000);
}

}  // namespace
}  // namespace vllm::weights
