#include "vllm/engine/output_text.h"

#include <gtest/gtest.h>

#include "base/json.h"

namespace vllm::engine {
namespace {

// One token a byte, as GPT-2's stand-ins write it: ids 0..255 are bytes; 256 is "STOP", 257
// "<end>".
class OutputTextTest : public ::testing::Test {
 protected:
  OutputTextTest() {
    boost::json::object vocab;
    const auto stand_in = [](int byte) {
      const auto printable = [](int b) {
        return (b >= '!' && b <= '~') || (b >= 0xA1 && b <= 0xAC) || (b >= 0xAE && b <= 0xFF);
      };
      int code = byte;
      if (!printable(byte)) {
        code = 256;
        for (int b = 0; b < byte; ++b) code += printable(b) ? 0 : 1;
      }
      std::string s;
      if (code < 0x80) {
        s += static_cast<char>(code);
      } else {
        s += static_cast<char>(0xC0 | code >> 6);
        s += static_cast<char>(0x80 | (code & 0x3F));
      }
      return s;
    };
    for (int b = 0; b < 256; ++b) vocab[stand_in(b)] = b;
    vocab["STOP"] = 256;
    boost::json::value json = {
        {"added_tokens", boost::json::array{{{"id", 257},
                                             {"content", "<end>"},
                                             {"single_word", false},
                                             {"lstrip", false},
                                             {"rstrip", false},
                                             {"normalized", false},
                                             {"special", true}}}},
        {"pre_tokenizer",
         {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}}},
        {"decoder", {{"type", "ByteLevel"}}},
        {"model", {{"type", "BPE"}, {"vocab", vocab}, {"merges", boost::json::array{}}}}};
    auto made = text::Tokenizer::FromJson(json);
    if (!made) {
      ADD_FAILURE() << made.error().message;
      return;
    }
    tokenizer_ = *std::move(made);
  }

  // Bytes as ids; what a client sees, by pieces joined. `stopped` is the count of tokens pushed
  // when a stop string was found, or -1.
  std::string Run(const SamplingParams& params, std::string_view bytes, int* stopped = nullptr,
                  std::string* which = nullptr) {
    OutputText out(tokenizer_.get(), params, {});
    std::string text;
    if (stopped != nullptr) *stopped = -1;
    for (const char c : bytes) {
      OutputText::Piece p = out.Push(static_cast<uint8_t>(c));
      text += p.text;
      if (p.stopped) {
        if (stopped != nullptr) *stopped = static_cast<int>(out.tokens());
        if (which != nullptr) *which = p.stop;
        return text;
      }
    }
    return text + out.Finish();
  }

  std::unique_ptr<text::Tokenizer> tokenizer_;
};

TEST_F(OutputTextTest, AStopStringAcrossTokensIsNeverSeen) {
  SamplingParams p;
  p.stop = {"END"};
  int stopped = 0;
  EXPECT_EQ(Run(p, "go EN on ENDless", &stopped), "go EN on ");
  EXPECT_EQ(stopped, 12);
}

TEST_F(OutputTextTest, WhatOnlyLookedLikeAStopComesLater) {
  SamplingParams p;
  p.stop = {"aab"};
  OutputText out(tokenizer_.get(), p, {});
  EXPECT_EQ(out.Push('a').text, "");
  EXPECT_EQ(out.Push('a').text, "");
  EXPECT_EQ(out.Push('a').text, "a");  // "aa" may still begin the stop string
  EXPECT_TRUE(out.Push('b').stopped);
}

TEST_F(OutputTextTest, TheStringThatEndsFirstStops) {
  SamplingParams p;
  p.stop = {"xaby", "ab"};
  std::string which;
  EXPECT_EQ(Run(p, "1xaby", nullptr, &which), "1x");
  EXPECT_EQ(which, "ab");
  p.stop = {"b", "ab"};  // both end at once: the longer one
  EXPECT_EQ(Run(p, "1abc", nullptr, &which), "1");
  EXPECT_EQ(which, "ab");
}

TEST_F(OutputTextTest, StopStringsAreShownOnRequest) {
  SamplingParams p;
  p.stop = {"END"};
  p.include_stop_str_in_output = true;
  EXPECT_EQ(Run(p, "go ENDless"), "go END");
}

TEST_F(OutputTextTest, StopStringsWaitForMinTokens) {
  SamplingParams p;
  p.stop = {"ab"};
  p.min_tokens = 3;
  int stopped = 0;
  EXPECT_EQ(Run(p, "abab", &stopped), "ab");
  EXPECT_EQ(stopped, 4);
  EXPECT_EQ(Run(p, "xabab", &stopped), "x");  // the third token completes it
  EXPECT_EQ(stopped, 3);
}

TEST_F(OutputTextTest, HalfCharactersWaitAndBrokenOnesAreReplaced) {
  SamplingParams p;
  OutputText out(tokenizer_.get(), p, {});
  EXPECT_EQ(out.Push(0xC3).text, "");
  EXPECT_EQ(out.Push(0xA9).text, "é");
  EXPECT_EQ(out.Push(0xE2).text, "");
  EXPECT_EQ(out.Finish(), "\xEF\xBF\xBD");
}

TEST_F(OutputTextTest, EndTokensAreNotText) {
  SamplingParams p;
  p.stop_token_ids = {'!'};
  OutputText hidden(tokenizer_.get(), p, {});
  EXPECT_EQ(hidden.Push('!', true).text + hidden.Finish(), "");
  p.include_stop_str_in_output = true;
  OutputText shown(tokenizer_.get(), p, {});
  EXPECT_EQ(shown.Push('!', true).text + shown.Finish(), "!");
  EXPECT_EQ(shown.tokens(), 1);
}

TEST_F(OutputTextTest, WithoutATokenizerThereIsNoText) {
  OutputText out(nullptr, SamplingParams{}, {});
  EXPECT_EQ(out.Push(5).text, "");
  EXPECT_EQ(out.Finish(), "");
}

TEST_F(OutputTextTest, DescribeGivesExactBytesAndReadableText) {
  TokenLogprobs l;
  l.token = 0xC3;
  l.logprob = -0.5f;
  l.top = {{'a', -0.25f}, {257, -3.0f}};
  const TextLogprob t = Describe(*tokenizer_, l);
  EXPECT_EQ(t.bytes, "\xC3");
  EXPECT_EQ(t.token, "\xEF\xBF\xBD");
  ASSERT_EQ(t.top.size(), 2u);
  EXPECT_EQ(t.top[0].token, "a");
  EXPECT_EQ(t.top[1].token, "<end>");
}

}  // namespace
}  // namespace vllm::engine
