#include "vllm/weights/safetensors.h"

#include <gtest/gtest.h>

#include <random>

#include "vllm/weights/test_files.h"

namespace vllm::weights {
namespace {

using namespace testing;  // NOLINT: the builders

std::string Entry(const std::string& name, const std::string& dtype, const std::string& shape,
                  const std::string& range) {
  return "\"" + name + R"(":{"dtype":")" + dtype + R"(","shape":)" + shape + R"(,"data_offsets":)" +
         range + "}";
}
std::string Refusal(const std::string& file) {
  const auto r = ParseSafetensors(AsBytes(file));
  return r ? "" : r.error().message;
}
std::string Refusal(const std::string& entries, size_t data) {
  return Refusal(SafetensorsFile("{" + entries + "}", data));
}

TEST(Safetensors, LegalOddities) {
  const std::string plain = Entry("a", "F32", "[4]", "[0,16]");
  EXPECT_EQ(Refusal(plain, 16), "");
  EXPECT_EQ(Refusal(Entry("a", "F32", "[]", "[0,4]"), 4), "") << "a scalar";
  EXPECT_EQ(Refusal(plain + "," + Entry("e", "F32", "[0]", "[16,16]"), 16), "")
      << "an empty tensor";
  EXPECT_EQ(
      Refusal(Entry("e", "F16", "[3,0,7]", "[8,8]") + "," + Entry("a", "F16", "[4]", "[0,8]") +
                  "," + Entry("b", "F16", "[4]", "[8,16]"),
              16),
      "")
      << "an empty tensor between others";
  EXPECT_EQ(
      Refusal(Entry("b", "F16", "[4]", "[8,16]") + "," + Entry("a", "F16", "[4]", "[0,8]"), 16), "")
      << "any order";
  EXPECT_EQ(Refusal(R"("__metadata__":{"format":"pt","x":"é"},)" + plain, 16), "");
  EXPECT_EQ(Refusal(SafetensorsFile("{" + plain + "}       ", 16)), "") << "padding";
  EXPECT_EQ(Refusal("", 0), "") << "no tensors";
}

TEST(Safetensors, RefusesRangesThatDisagree) {
  const auto expect = [](const std::string& entries, size_t data, const char* reason) {
    const std::string message = Refusal(entries, data);
    EXPECT_NE(message.find(reason), std::string::npos) << entries << " gave '" << message << "'";
  };
  const std::string plain = Entry("a", "F32", "[4]", "[0,16]");
  expect(Entry("a", "F32", "[1000,1000]", "[0,16]"), 16,
         "tensor 'a': its shape and dtype need 4000000 bytes");
  expect(Entry("a", "F32", "[1]", "[0,16]"), 16, "tensor 'a': its shape");
  expect(Entry("a", "F32", "[4294967296,4294967296,4]", "[0,16]"), 16, "tensor 'a': the product");
  expect(Entry("a", "F32", "[4]", "[16,0]"), 16, "data_offsets");
  expect(Entry("a", "F32", "[8]", "[0,32]"), 16, "past the file");
  expect(plain + "," + Entry("b", "F32", "[4]", "[0,16]"), 16, "overlap");
  expect(Entry("a", "F32", "[1]", "[0,4]") + "," + Entry("b", "F32", "[1]", "[12,16]"), 16,
         "tensor 'b': the 8 bytes before");
  expect(Entry("a", "F32", "[2]", "[8,16]"), 16, "tensor 'a': the 8 bytes before");
  expect(Entry("a", "F32", "[2]", "[0,8]"), 16, "the last 8 bytes");
  expect(Entry("a", "F32", "[4]", "[-16,0]"), 16, "data_offsets");
  expect(Entry("a", "F32", "[4]", "[0.0,16.0]"), 16, "data_offsets");
  expect(Entry("a", "F32", "[4.0]", "[0,16]"), 16, "shape");
  expect(Entry("a", "F128", "[1]", "[0,16]"), 16, "F128");
  expect(Entry("w", "F8_E5M2", "[16]", "[0,16]"), 16, "tensor 'w': data type F8_E5M2");
  expect(R"("a":7)", 16, "tensor 'a'");
}

TEST(Safetensors, RefusesBrokenHeaders) {
  const std::string header = "{" + Entry("a", "F32", "[4]", "[0,16]") + "}";
  for (const uint64_t length :
       {uint64_t{1} << 63, UINT64_MAX, uint64_t{4096}, uint64_t{0}, header.size() - 1}) {
    EXPECT_NE(Refusal(Raw(length) + header + std::string(16, '\0')), "") << length;
  }
  EXPECT_NE(Refusal(SafetensorsFile("[1]", 0)), "");
  EXPECT_NE(Refusal(SafetensorsFile("{\"a\":", 0)), "");
  EXPECT_NE(Refusal(SafetensorsFile(
                "{\"\xff\":{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[0,0]}}", 0)),
            "");
  EXPECT_NE(Refusal(std::string("\x10\0\0", 3)), "");
  EXPECT_NE(Refusal(std::string()), "");
  EXPECT_NE(Refusal(SafetensorsFile(
                "{\"a\":" + std::string(50000, '[') + std::string(50000, ']') + "}", 0)),
            "")
      << "depth";
}

TEST(Safetensors, EqualKeysAreNeverBothUsed) {
  const std::string plain = Entry("a", "F32", "[4]", "[0,16]");
  const auto r = ParseSafetensors(AsBytes(SafetensorsFile("{" + plain + "," + plain + "}", 16)));
  if (r) {
    EXPECT_EQ(r->size(), 1u);
  }
}

TEST(Safetensors, EveryTruncationAndRandomChangeIsHandled) {
  std::string entries;
  for (int i = 0; i < 8; ++i) {
    entries += (i == 0 ? "" : ",") +
               Entry("t" + std::to_string(i), "F16", "[2,4]",
                     "[" + std::to_string(i * 16) + "," + std::to_string(i * 16 + 16) + "]");
  }
  const std::string good = SafetensorsFile("{" + entries + "}", 128);
  ASSERT_EQ(Refusal(good), "");
  for (size_t n = 0; n < good.size(); ++n) {
    const std::vector<char> cut(good.begin(), good.begin() + static_cast<std::ptrdiff_t>(n));
    ASSERT_FALSE(ParseSafetensors(std::as_bytes(std::span(cut)))) << n;
  }
  std::mt19937 random(2);
  for (int round = 0; round < 10000; ++round) {
    std::string file = good;
    for (int change = 0; change <= round % 4; ++change)
      file[random() % (good.size() - 128)] = static_cast<char>(random());
    const auto r = ParseSafetensors(AsBytes(file));
    if (!r) continue;
    for (const SafetensorsTensor& t : *r) ASSERT_LE(t.offset + t.bytes, file.size());
  }
}

TEST(SafetensorsIndex, RefusesFilesOutsideTheFolder) {
  EXPECT_TRUE(ParseSafetensorsIndex(R"({"weight_map":{"a":"model-1.safetensors"}})"));
  for (const char* bad : {R"({"weight_map":{"a":"../x.safetensors"}})",
                          R"({"weight_map":{"a":"/etc/passwd"}})", R"({"weight_map":{"a":""}})",
                          R"({"weight_map":{"a":1}})", R"({"weight_map":[]})", "{}", "[]", "{"}) {
    EXPECT_FALSE(ParseSafetensorsIndex(bad)) << bad;
  }
}

}  // namespace
}  // namespace vllm::weights
