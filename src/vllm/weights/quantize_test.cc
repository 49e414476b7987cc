#include "vllm/weights/quantize.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <filesystem>

#include "base/os/file.h"
#include "vllm/weights/checkpoint.h"
#include "vllm/weights/test_files.h"
#include "vt/ir/quant.h"

namespace vllm::weights {
namespace {

using base::Code;
using testing::TemporaryFolder;
using vt::ir::DType;

const std::string kModels = VLLM_SOURCE_DIR "/tests/goldens/models/";

base::Status Write(const TensorSource& source, const std::string& mix, const std::string& path,
                   bool allow = false, const WriteOptions& options = {}) {
  const base::Result<Mix> chosen = Mix::FromName(mix);
  if (!chosen) return chosen.error();
  const base::Result<std::vector<GgufTensor>> plan = PlanQuantization(source, *chosen, allow);
  if (!plan) return plan.error();
  GgufKeys keys = source.keys();
  keys.U32("general.file_type", chosen->file_type());
  return WriteQuantized(source, *plan, keys, path, options);
}

std::vector<float> Values(const Checkpoint& c, const std::string& name) {
  const TensorInfo& info = *c.Find(name);
  int64_t n = 1;
  for (const int64_t d : info.shape) n *= d;
  std::vector<float> out(static_cast<size_t>(n));
  vt::ir::Dequantize(info.dtype, c.Data(name)->data(), out.data(), n);
  return out;
}

// Root of the mean squared difference, relative to b's.
double Distance(const std::vector<float>& a, const std::vector<float>& b) {
  double error = 0, norm = 0;
  for (size_t i = 0; i < b.size(); ++i) {
    error += (a[i] - b[i]) * (a[i] - b[i]);
    norm += b[i] * b[i];
  }
  return std::sqrt(error / norm);
}

// The tiny models have rows of 60 to 96 values, so superblocks fall back to blocks of 32 or f16.
TEST(Quantize, EveryMixGivesAModelThatLoadsAndIsClose) {
  const TemporaryFolder folder;
  const std::string path = kModels + "gguf/gemma2.gguf";
  const base::Result<std::unique_ptr<TensorSource>> source = TensorSource::Open(path);
  ASSERT_TRUE(source) << source.error().message;
  const auto original = Checkpoint::Open(path, {});
  ASSERT_TRUE(original);
  for (const std::string_view mix : Mix::Names()) {
    const base::Status written = Write(**source, std::string(mix), folder.Path("q.gguf"));
    ASSERT_TRUE(written) << mix << ": " << written.error().message;
    const auto got = Checkpoint::Open(folder.Path("q.gguf"), {});
    ASSERT_TRUE(got) << mix << ": " << got.error().message;
    EXPECT_EQ((*got)->gguf()->Int("general.file_type").ok(), true);
    EXPECT_EQ(*(*got)->gguf()->Int("general.file_type"), Mix::FromName(mix)->file_type());
    ASSERT_EQ((*got)->tensors().size(), (*original)->tensors().size());
    for (const auto& [name, info] : (*got)->tensors()) {
      EXPECT_EQ(info.shape, (*original)->Find(name)->shape) << name;
      // Four bits of a normal vector: 0.1; more bits are closer.
      EXPECT_LT(Distance(Values(**got, name), Values(**original, name)), 0.12)
          << mix << " " << name << " " << vt::ir::Name(info.dtype);
    }
  }
}

TEST(Quantize, ThreadsDoNotChangeTheFile) {
  const TemporaryFolder folder;
  const auto source = TensorSource::Open(kModels + "qwen3");
  ASSERT_TRUE(source) << source.error().message;
  ASSERT_TRUE(Write(**source, "Q4_0", folder.Path("1.gguf"), false, {.threads = 1}));
  ASSERT_TRUE(Write(**source, "Q4_0", folder.Path("5.gguf"), false, {.threads = 5}));
  EXPECT_EQ(*base::os::ReadFile(folder.Path("1.gguf")), *base::os::ReadFile(folder.Path("5.gguf")));
}

// The same type again copies; another one would round twice.
TEST(Quantize, WhatIsQuantisedAlreadyNeedsAWord) {
  const TemporaryFolder folder;
  const auto source = TensorSource::Open(kModels + "gguf/qwen3.gguf");
  ASSERT_TRUE(source);
  ASSERT_TRUE(Write(**source, "Q8_0", folder.Path("q8.gguf")));
  const auto quantised = TensorSource::Open(folder.Path("q8.gguf"));
  ASSERT_TRUE(quantised);
  EXPECT_TRUE(Write(**quantised, "Q8_0", folder.Path("again.gguf")));
  EXPECT_EQ(*base::os::ReadFile(folder.Path("again.gguf")),
            *base::os::ReadFile(folder.Path("q8.gguf")));
  const base::Status refused = Write(**quantised, "Q4_0", folder.Path("q4.gguf"));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::kInvalidArgument);
  EXPECT_NE(refused.error().message.find("--allow-requantize"), std::string::npos);
  EXPECT_FALSE(std::filesystem::exists(folder.Path("q4.gguf")));
  EXPECT_TRUE(Write(**quantised, "Q4_0", folder.Path("q4.gguf"), true));
}

TEST(Quantize, GivingUpLeavesNothing) {
  const TemporaryFolder folder;
  const auto source = TensorSource::Open(kModels + "gguf/qwen3.gguf");
  ASSERT_TRUE(source);
  double last = -1;
  const base::Status status =
      Write(**source, "Q8_0", folder.Path("q.gguf"), false, {.progress = [&](double share) {
        EXPECT_GE(share, last);
        last = share;
        return share < 0.5;
      }});
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, Code::kCancelled);
  EXPECT_GE(last, 0.5);
  EXPECT_TRUE(base::os::ListDirectory(folder.Path())->empty());
}

// A value in the data of a tiny f32 model.
std::string WithValue(float value, const std::string& tensor) {
  std::string bytes = testing::TinyLlamaGguf().Build();
  const base::Result<GgufFile> file = ParseGguf(testing::AsBytes(bytes));
  for (const GgufTensor& t : file->tensors) {
    if (t.name == tensor) std::memcpy(bytes.data() + t.offset + 8, &value, 4);
  }
  return bytes;
}

TEST(Quantize, ValuesThatNoHalfHoldsAreRefusedByName) {
  const TemporaryFolder folder;
  for (const float value : {NAN, INFINITY, 1e6f}) {
    const std::string path = folder.Write("m.gguf", WithValue(value, "blk.1.ffn_up.weight"));
    const auto source = TensorSource::Open(path);
    ASSERT_TRUE(source) << source.error().message;
    const base::Status status = Write(**source, "F16", folder.Path("q.gguf"));
    ASSERT_FALSE(status) << value;
    EXPECT_EQ(status.error().code, Code::kCorrupt);
    EXPECT_NE(status.error().message.find("blk.1.ffn_up.weight"), std::string::npos);
    EXPECT_TRUE(Write(**source, "BF16", folder.Path("b.gguf"))) << value;
  }
}

// Neighbouring rows of GGUF's llama are half a head apart in Hugging Face's; Gemma's norms have one
// added; what else there is stays.
TEST(Quantize, SafetensorsBecomeGgufsLayout) {
  const TemporaryFolder folder;
  for (const std::string model : {"llama_bias", "gemma3_linear", "qwen2"}) {
    const auto source = TensorSource::Open(kModels + model);
    ASSERT_TRUE(source) << source.error().message;
    ASSERT_TRUE(Write(**source, "F32", folder.Path("m.gguf")));
    const auto original = Checkpoint::Open(kModels + model, {});
    const auto got = Checkpoint::Open(folder.Path("m.gguf"), {});
    ASSERT_TRUE(got) << got.error().message;
    const Config &a = (*original)->config(), &b = (*got)->config();
    EXPECT_EQ(a.family, b.family);
    EXPECT_EQ(a.layer_types, b.layer_types);
    EXPECT_EQ(a.sliding_window, b.sliding_window);
    EXPECT_EQ(a.rms_norm_eps, b.rms_norm_eps);
    ASSERT_EQ((*got)->tensors().size(), (*original)->tensors().size());
    for (const auto& [name, info] : (*original)->tensors()) {
      const std::vector<float> from = Values(**original, name), to = Values(**got, name);
      ASSERT_EQ(from.size(), to.size()) << name;
      const bool rotated = model == "llama_bias" && (name.find("q_proj") != std::string::npos ||
                                                     name.find("k_proj") != std::string::npos);
      const float add = model == "gemma3_linear" && name.find("norm") != std::string::npos ? 1 : 0;
      const auto row = static_cast<int64_t>(from.size()) / info.shape[0];
      for (int64_t r = 0; r < info.shape[0]; ++r) {
        // Row 2 i + j of a head of 24 is row i + 12 j.
        const int64_t in = r % 24, source_row = rotated ? r - in + in / 2 + in % 2 * 12 : r;
        for (int64_t i = 0; i < row; ++i)
          ASSERT_EQ(to[static_cast<size_t>(r * row + i)],
                    from[static_cast<size_t>(source_row * row + i)] + add)
              << model << " " << name << " row " << r;
      }
    }
  }
}

// GGUF has no place for these.
TEST(Quantize, SettingsThatGgufCannotSayAreRefusedByName) {
  for (const auto& [model, words] : {std::pair{"llama_dynamic", "dynamic"},
                                     {"mistral_window", "sliding_window"},
                                     {"gemma2", "query_pre_attn_scalar"}}) {
    const auto source = TensorSource::Open(kModels + model);
    ASSERT_FALSE(source) << model;
    EXPECT_EQ(source.error().code, Code::kUnsupported);
    EXPECT_NE(source.error().message.find(words), std::string::npos) << source.error().message;
    EXPECT_NE(source.error().message.find("config.json"), std::string::npos)
        << source.error().message;
  }
}

// Made by vllm-quantize from tests/goldens/models/llama_tied; llama.cpp loads it.
TEST(Quantize, ACommittedFileIsWrittenAgainByteForByte) {
  const TemporaryFolder folder;
  const std::string path = VLLM_SOURCE_DIR "/tests/goldens/weights/llama_tied-q8_0.gguf";
  const auto got = Checkpoint::Open(path, {});
  ASSERT_TRUE(got) << got.error().message;
  EXPECT_EQ((*got)->Find("model.layers.0.self_attn.q_proj.weight")->dtype, DType::kQ8_0);
  const auto source = TensorSource::Open(kModels + "llama_tied");
  ASSERT_TRUE(source);
  const auto committed = TensorSource::Open(path);
  ASSERT_TRUE(committed) << committed.error().message;
  const base::Result<std::vector<GgufTensor>> plan =
      PlanQuantization(**source, *Mix::FromName("Q8_0"), false);
  ASSERT_TRUE(plan);
  GgufKeys keys = (*committed)->keys();
  keys.U32("general.file_type", 7);
  keys.U32("general.quantization_version", 2);
  ASSERT_TRUE(WriteQuantized(**source, *plan, keys, folder.Path("q.gguf"), {}));
  EXPECT_EQ(*base::os::ReadFile(folder.Path("q.gguf")), *base::os::ReadFile(path));
}

}  // namespace
}  // namespace vllm::weights
