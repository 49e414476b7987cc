// Every family against transformers' fp32 logits, and every tensor of every tiny checkpoint against
// being ignored.
#include "model_golden.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <iostream>
#include <map>
#include <numeric>

#include "base/os/file.h"
#include "model_forward.h"
#include "vllm/weights/checkpoint.h"

namespace vllm::testing {
namespace {

// fp32 sums in another order: transformers' own one-token and whole-prompt runs differ by 2e-6 of
// the largest logit.
constexpr double kTolerance = 2e-4;
// The same engine, the same row in another step: rounding alone.
constexpr double kBatchTolerance = 1e-5;
constexpr int64_t kContext = 64;

class ModelGoldenTest : public ::testing::TestWithParam<std::string> {
 protected:
  // All prompts in steps of `cuts` tokens against the oracle.
  void ExpectGolden(std::vector<int64_t> cuts) {
    const ModelGolden golden = LoadGolden(GetParam());
    ASSERT_FALSE(golden.prompts.empty());
    std::unique_ptr<engine::Llm> llm;
    double worst = 0;
    for (size_t p = 0; p < golden.prompts.size(); ++p) {
      const auto length = static_cast<int64_t>(golden.prompts[p].size());
      if (!llm || golden.context_is_prompt_length) {
        llm = LoadFloat32(golden.path, golden.context_is_prompt_length ? length : kContext);
        ASSERT_NE(llm, nullptr);
        ASSERT_EQ(llm->runner().vocab_size(), golden.vocab);
      }
      const std::vector<float> rows = Forward(*llm, golden.prompts[p], cuts);
      const double error = RelativeError(rows, golden.logits[p], golden.vocab);
      EXPECT_LE(error, kTolerance) << "prompt of " << length << " tokens";
      worst = std::max(worst, error);
    }
    std::cout << GetParam() << ": worst error " << worst << " of the row's largest logit (allowed "
              << kTolerance << ")\n";
  }
};

TEST_P(ModelGoldenTest, OnePrefillEqualsTransformers) { ExpectGolden({64}); }

TEST_P(ModelGoldenTest, UnevenChunksEqualTransformers) { ExpectGolden({3, 1, 7, 2, 16, 5}); }

TEST_P(ModelGoldenTest, TokenByTokenEqualsTransformers) { ExpectGolden({1}); }

// Steps of 1 to 17 requests: one more arrives at each, with a prefill of its own length, in one or
// more pieces, beside those that are at single tokens.
TEST_P(ModelGoldenTest, RequestsThatShareStepsEqualEachAlone) {
  constexpr size_t kRequests = 17;
  const ModelGolden golden = LoadGolden(GetParam());
  ASSERT_GE(golden.prompts.size(), 3u);
  const auto llm =
      LoadFloat32(golden.path, golden.context_is_prompt_length ? 40 : kContext, kRequests);
  ASSERT_NE(llm, nullptr);
  const std::vector<std::vector<int64_t>> cuts = {{20, 1}, {4, 1}, {1}, {6, 9, 1}, {13, 1}};
  std::vector<std::vector<int32_t>> requests;
  std::vector<std::vector<float>> alone, together(kRequests);
  for (size_t r = 0; r < kRequests; ++r) {
    // Each stays until all are there; its tokens are the prompt's, from another place on.
    const std::vector<int32_t>& ids = golden.prompts[2];
    const std::vector<int64_t>& cut = cuts[r % cuts.size()];
    const auto prefill = std::accumulate(cut.begin(), cut.end() - 1, size_t{0});
    const size_t length = std::min(ids.size(), prefill + kRequests - r);
    std::vector<int32_t> own(ids.begin() + static_cast<int64_t>(r), ids.end());
    own.insert(own.end(), ids.begin(), ids.begin() + static_cast<int64_t>(r));
    own.resize(length);
    alone.push_back(Forward(*llm, own, std::vector<int64_t>{64}));
    requests.push_back(std::move(own));
  }
  llm->Reset(0);

  std::vector<size_t> done(kRequests, 0);
  size_t most = 0;
  for (size_t step = 0;; ++step) {
    std::vector<engine::Chunk> chunks;
    for (size_t r = 0; r < std::min(step + 1, kRequests); ++r) {
      const std::vector<int64_t>& cut = cuts[r % cuts.size()];
      const auto left = static_cast<int64_t>(requests[r].size() - done[r]);
      if (left == 0) continue;
      const int64_t n = std::min(cut[std::min(step - r, cut.size() - 1)], left);
      engine::Chunk chunk;
      chunk.sequence = static_cast<int>(r);
      chunk.start = static_cast<int64_t>(done[r]);
      chunk.logits = engine::Chunk::Logits::kAll;
      const auto first = requests[r].begin() + static_cast<int64_t>(done[r]);
      chunk.tokens.assign(first, first + n);
      chunks.push_back(std::move(chunk));
    }
    if (chunks.empty()) break;
    most = std::max(most, chunks.size());
    const auto result = llm->Step(chunks);
    ASSERT_TRUE(result.ok()) << result.error().message;
    const float* row = result->logits;
    for (const engine::Chunk& chunk : chunks) {
      const auto r = static_cast<size_t>(chunk.sequence);
      const auto values = static_cast<int64_t>(chunk.tokens.size()) * golden.vocab;
      together[r].insert(together[r].end(), row, row + values);
      row += values;
      done[r] += chunk.tokens.size();
    }
  }
  EXPECT_EQ(most, kRequests);
  for (size_t r = 0; r < kRequests; ++r) {
    EXPECT_LE(RelativeError(together[r], alone[r], golden.vocab), kBatchTolerance)
        << "request " << r << " of " << requests[r].size() << " tokens";
  }
}

// Flips the sign of the first and half of the elements in one piece of a tensor: works alike for
// f32, f16 and bf16. Of a table of numbers, their lowest bit.
void FlipSigns(std::string& bytes, vt::ir::DType dtype, const weights::TensorPiece& piece) {
  for (uint64_t i = 0; dtype == vt::ir::DType::kI64 && i < piece.bytes; i += 8)
    bytes[piece.offset + i] = static_cast<char>(bytes[piece.offset + i] ^ 1);
  if (dtype == vt::ir::DType::kI64) return;
  const size_t width = dtype == vt::ir::DType::kF32 ? 4 : 2;
  uint64_t state = 88172645463325252u;  // xorshift
  for (uint64_t i = width - 1; i < piece.bytes; i += width) {
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    if (i < width || state & 1)
      bytes[piece.offset + i] = static_cast<char>(bytes[piece.offset + i] ^ 0x80);
  }
}

TEST_P(ModelGoldenTest, EveryTensorMovesTheLogits) {
  namespace fs = std::filesystem;
  const ModelGolden golden = LoadGolden(GetParam());
  ASSERT_FALSE(golden.prompts.empty());
  const auto checkpoint = weights::Checkpoint::Open(golden.path, {});
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.error().message;

  const fs::path copy = fs::path(::testing::TempDir()) /
                        ("vllm_golden_" + GetParam() + "_" + std::to_string(::getpid()));
  fs::remove_all(copy);
  if (fs::is_directory(golden.path)) {
    fs::copy(golden.path, copy);
  } else {
    fs::create_directory(copy);
    fs::copy(golden.path, copy / fs::path(golden.path).filename());
  }
  const std::string model = fs::is_directory(golden.path)
                                ? copy.string()
                                : (copy / fs::path(golden.path).filename()).string();
  const std::vector<std::string>& files = (*checkpoint)->files();
  for (const auto& [name, tensor] : (*checkpoint)->tensors()) {
    std::map<int, std::string> before, changed;  // by file
    for (const weights::TensorPiece& part : tensor.pieces) {
      const weights::TensorPiece piece = (*checkpoint)->Stored(part);
      if (!before.contains(piece.file)) {
        const auto bytes = base::os::ReadFile(files[static_cast<size_t>(piece.file)]);
        ASSERT_TRUE(bytes.ok());
        before[piece.file] = changed[piece.file] = *bytes;
      }
      if (part.file >= 0) {
        FlipSigns(changed[piece.file], tensor.stored.value_or(tensor.dtype), piece);
        continue;
      }
      const char top = vt::ir::Info(tensor.dtype).bytes > 32 ? '\x80' : '\x88';  // of each code
      for (uint64_t i = piece.offset; i < piece.offset + piece.bytes; ++i)
        changed[piece.file][i] = static_cast<char>(before[piece.file][i] ^ top);
    }
    const auto write = [&](const std::map<int, std::string>& contents) {
      for (const auto& [file, bytes] : contents) {
        const fs::path target = copy / fs::path(files[static_cast<size_t>(file)]).filename();
        EXPECT_TRUE(base::os::WriteFile(target.string(), bytes).ok());
      }
    };
    write(changed);
    const auto llm = LoadFloat32(model, golden.context_is_prompt_length ? 13 : kContext);
    ASSERT_NE(llm, nullptr) << name;
    const std::vector<float> rows = Forward(*llm, golden.prompts[1], std::vector<int64_t>{64});
    EXPECT_GT(RelativeError(rows, golden.logits[1], golden.vocab), 100 * kTolerance)
        << name << " can be changed without any effect on the logits";
    write(before);
  }
  fs::remove_all(copy);
}

INSTANTIATE_TEST_SUITE_P(Tiny, ModelGoldenTest, ::testing::ValuesIn(GoldenNames()),
                         [](const auto& param) { return param.param; });

TEST(ModelGoldens, AreThere) { EXPECT_GE(GoldenNames().size(), 20u); }

}  // namespace
}  // namespace vllm::testing
