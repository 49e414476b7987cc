#include "vllm/weights/gguf_writer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "base/os/file.h"
#include "vllm/weights/test_files.h"

namespace vllm::weights {
namespace {

using base::Code;
using testing::AsBytes;
using testing::TemporaryFolder;
using vt::ir::DType;

std::vector<std::string> Names(const TemporaryFolder& folder) {
  return *base::os::ListDirectory(folder.Path());
}

TEST(GgufWriter, WhatIsWrittenIsRead) {
  const TemporaryFolder folder;
  GgufKeys keys;
  keys.String("general.architecture", "llama");
  keys.U32("a.u32", 4000000000u);
  keys.F32("a.f32", -1.5f);
  keys.Bool("a.bool", true);
  keys.Strings("a.strings", {"one", "", "zwei \xc3\xa4"});
  keys.I32s("a.ints", {-1, 0, 2147483647});
  keys.F32s("a.floats", {0.25f, -8});
  keys.Bools("a.bools", {1, 0});
  const std::string first(2 * 34, 'x'), second(12, 'y');
  base::Result<GgufWriter> writer =
      GgufWriter::Create(folder.Path("out.gguf"), keys,
                         {{.name = "matrix", .dtype = DType::kQ8_0, .shape = {2, 32}},
                          {.name = "empty", .dtype = DType::kF32, .shape = {0}},
                          {.name = "vector", .dtype = DType::kF32, .shape = {3}}});
  ASSERT_TRUE(writer) << writer.error().message;
  // In pieces as they come; nothing stands under the name until all are there.
  ASSERT_TRUE(writer->Append(AsBytes(first).first(5)));
  ASSERT_TRUE(writer->Append(AsBytes(first).subspan(5)));
  ASSERT_TRUE(writer->Append(AsBytes(second)));
  EXPECT_FALSE(std::filesystem::exists(folder.Path("out.gguf")));
  ASSERT_TRUE(writer->Finish());
  EXPECT_EQ(Names(folder), std::vector<std::string>{"out.gguf"});

  const std::string bytes = *base::os::ReadFile(folder.Path("out.gguf"));
  EXPECT_EQ(bytes.size(), writer->file_bytes());
  const base::Result<GgufFile> file = ParseGguf(AsBytes(bytes));
  ASSERT_TRUE(file) << file.error().message;
  EXPECT_EQ(file->version, 3u);
  const GgufMetadata& m = file->metadata;
  EXPECT_EQ(m.keys().size(), 8u);
  EXPECT_EQ(*m.String("general.architecture"), "llama");
  EXPECT_EQ(*m.Int("a.u32"), 4000000000);
  EXPECT_EQ(*m.Number("a.f32"), -1.5);
  EXPECT_TRUE(*m.Bool("a.bool", false));
  EXPECT_EQ(*m.Strings("a.strings"), (std::vector<std::string_view>{"one", "", "zwei \xc3\xa4"}));
  EXPECT_EQ(*m.Ints("a.ints"), (std::vector<int64_t>{-1, 0, 2147483647}));
  EXPECT_EQ(*m.Floats("a.floats"), (std::vector<float>{0.25f, -8}));
  EXPECT_EQ(*m.Ints("a.bools"), (std::vector<int64_t>{1, 0}));
  ASSERT_EQ(file->tensors.size(), 3u);
  EXPECT_EQ(file->tensors[0].name, "matrix");
  EXPECT_EQ(file->tensors[0].dtype, DType::kQ8_0);
  EXPECT_EQ(file->tensors[0].shape, (std::vector<int64_t>{2, 32}));
  EXPECT_EQ(bytes.substr(file->tensors[0].offset, file->tensors[0].bytes), first);
  EXPECT_EQ(bytes.substr(file->tensors[2].offset, file->tensors[2].bytes), second);
}

TEST(GgufWriter, CopiesMetadataAsItStandsInAnotherFile) {
  const std::string bytes = testing::TinyLlamaGguf().Build();
  const base::Result<GgufFile> file = ParseGguf(AsBytes(bytes));
  ASSERT_TRUE(file);
  GgufKeys keys;
  std::string wanted;
  for (const std::string_view key : file->metadata.keys())
    keys.Copy(key, *file->metadata.Find(key));
  for (const std::string& entry : testing::TinyLlamaGguf().keys) wanted += entry;
  EXPECT_EQ(keys.Bytes(), wanted);
}

TEST(GgufWriter, SettingAKeyAgainReplacesItInItsPlace) {
  GgufKeys keys;
  keys.U32("a", 1);
  keys.U32("b", 2);
  keys.String("a", "x");
  keys.Remove("c");
  EXPECT_EQ(keys.Bytes(), testing::GgufString("a", "x") + testing::GgufU32("b", 2));
  keys.Remove("a");
  EXPECT_EQ(keys.Bytes(), testing::GgufU32("b", 2));
}

TEST(GgufWriter, WhatIsNotFinishedLeavesNothingAndTheOldFileAlone) {
  const TemporaryFolder folder;
  folder.Write("out.gguf", "old");
  {
    base::Result<GgufWriter> writer = GgufWriter::Create(
        folder.Path("out.gguf"), {}, {{.name = "t", .dtype = DType::kF32, .shape = {4}}});
    ASSERT_TRUE(writer);
    EXPECT_EQ(Names(folder).size(), 2u);
    EXPECT_FALSE(writer->Append(AsBytes(std::string(17, 'x'))));  // more than it has
    ASSERT_TRUE(writer->Append(AsBytes(std::string(8, 'x'))));
    EXPECT_FALSE(writer->Finish());  // half of it
  }
  EXPECT_EQ(Names(folder), std::vector<std::string>{"out.gguf"});
  EXPECT_EQ(*base::os::ReadFile(folder.Path("out.gguf")), "old");
}

TEST(GgufWriter, AFileThatTheDiskCannotHoldIsRefusedAtOnce) {
  const TemporaryFolder folder;
  const base::Result<GgufWriter> writer =
      GgufWriter::Create(folder.Path("out.gguf"), {},
                         {{.name = "t", .dtype = DType::kF32, .shape = {int64_t{1} << 56}}});
  ASSERT_FALSE(writer);
  EXPECT_EQ(writer.error().code, Code::kResourceExhausted);
  EXPECT_NE(writer.error().message.find("out.gguf"), std::string::npos) << writer.error().message;
  EXPECT_TRUE(Names(folder).empty());
}

TEST(GgufWriter, WhatTheFormatCannotHoldIsRefusedByName) {
  const auto refused = [](GgufTensor tensor, const std::string& words) {
    std::vector<GgufTensor> tensors = {std::move(tensor)};
    const base::Result<uint64_t> bytes = LayOutGguf({}, tensors);
    ASSERT_FALSE(bytes) << words;
    EXPECT_NE(bytes.error().message.find(words), std::string::npos) << bytes.error().message;
  };
  refused({.name = std::string(65, 'n'), .shape = {1}}, "64 bytes");
  refused({.name = "deep", .shape = {1, 1, 1, 1, 1}}, "'deep'");
  refused({.name = "odd", .dtype = DType::kQ4_K, .shape = {4, 96}}, "'odd'");
  refused({.name = "activation", .dtype = DType::kQ8_A32, .shape = {32}}, "Q8_A32");
}

TEST(GgufWriter, AFolderThatIsNotThereIsNamed) {
  const base::Result<GgufWriter> writer = GgufWriter::Create(
      "/no/such/folder/out.gguf", {}, {{.name = "t", .dtype = DType::kF32, .shape = {4}}});
  ASSERT_FALSE(writer);
  EXPECT_NE(writer.error().message.find("/no/such/folder"), std::string::npos);
}

}  // namespace
}  // namespace vllm::weights
