// Ids and texts as the `tokenizers` package and llama.cpp give them.
#include <gtest/gtest.h>

#include "vllm/text/detokenizer.h"
#include "vllm/text/text_golden.h"
#include "vllm/text/tokenizer.h"
#include "vllm/text/unicode.h"

namespace vllm::text {
namespace {

const std::string kDir = std::string(VLLM_SOURCE_DIR) + "/tests/goldens/text/";

std::unique_ptr<Tokenizer> LoadJson(const std::string& name) {
  auto t = Tokenizer::FromJson(ReadJsonGz(kDir + name + ".tokenizer.json.gz"));
  EXPECT_TRUE(t.ok()) << (t.ok() ? "" : t.error().message);
  return t.ok() ? std::move(*t) : nullptr;
}

std::string Stream(const Tokenizer& t, std::span<const int32_t> ids, bool skip) {
  IncrementalDetokenizer d(t, skip);
  std::string out;
  for (const int32_t id : ids) {
    const std::string piece = d.Push(id);
    EXPECT_TRUE(IsValidUtf8(piece));
    out += piece;
  }
  return out + d.Finish();
}

class RealTokenizer : public testing::TestWithParam<const char*> {};

TEST_P(RealTokenizer, EncodesAndDecodesAThousandRandomStringsAsTheReference) {
  const auto t = LoadJson(GetParam());
  ASSERT_NE(t, nullptr);
  const auto golden = ReadJsonGz(kDir + GetParam() + ".strings.json.gz");
  const auto& cases = golden.as_object().at("cases").as_array();
  ASSERT_EQ(cases.size(), 1000u);
  int wrong = 0;
  for (const auto& c : cases) {
    const std::string text(c.at("text").as_string());
    const auto want = Ids(c.at("ids"));
    const auto got = t->Encode(text, {.add_special_tokens = false});
    ASSERT_TRUE(got.ok()) << got.error().message;
    if (*got != want && ++wrong <= 5) {
      EXPECT_EQ(*got, want) << boost::json::serialize(c.at("text"));
    }
    for (const bool skip : {false, true}) {
      const auto& decoded = c.at(skip ? "plain" : "decoded").as_string();
      EXPECT_EQ(t->Decode(want, skip), decoded);
      EXPECT_EQ(Stream(*t, want, skip), decoded);
    }
  }
  EXPECT_EQ(wrong, 0);
}

TEST_P(RealTokenizer, DecodesAnyIdsAsTheReferenceAtOnceAndStreaming) {
  const auto t = LoadJson(GetParam());
  ASSERT_NE(t, nullptr);
  const auto golden = ReadJsonGz(kDir + GetParam() + ".strings.json.gz");
  for (const auto& c : golden.as_object().at("ids").as_array()) {
    const auto ids = Ids(c.at("ids"));
    EXPECT_EQ(t->Decode(ids, false), c.at("decoded").as_string());
    EXPECT_EQ(Stream(*t, ids, false), c.at("decoded").as_string());
  }
}

TEST_P(RealTokenizer, LeavesControlTokensInPlainTextAsText) {
  const auto t = LoadJson(GetParam());
  ASSERT_NE(t, nullptr);
  const auto golden = ReadJsonGz(kDir + GetParam() + ".strings.json.gz");
  for (const auto& c : golden.as_object().at("no_special").as_array()) {
    const auto got =
        t->Encode(c.at("text").as_string(), {.add_special_tokens = false, .parse_special = false});
    ASSERT_TRUE(got.ok()) << got.error().message;
    EXPECT_EQ(*got, Ids(c.at("ids"))) << c.at("text").as_string();
  }
}

INSTANTIATE_TEST_SUITE_P(All, RealTokenizer,
                         testing::Values("qwen3", "llama3", "gemma3", "deepseek_v3"),
                         [](const auto& info) { return std::string(info.param); });

TEST(TokenizerReports, GiveTheIdsOfTheReports) {
  const auto cases = base::ParseJsonFile(kDir + "reports.json");
  ASSERT_TRUE(cases.ok());
  std::string loaded;
  std::unique_ptr<Tokenizer> t;
  for (const char* name : {"qwen3", "llama3", "gemma3", "deepseek_v3"}) {
    t = LoadJson(name);
    ASSERT_NE(t, nullptr);
    int seen = 0;
    for (const auto& c : cases->as_array()) {
      if (c.at("tokenizer").as_string() != name) continue;
      ++seen;
      const std::string text(c.at("text").as_string());
      const auto got = t->Encode(text, {.add_special_tokens = false});
      ASSERT_TRUE(got.ok()) << got.error().message;
      EXPECT_EQ(*got, Ids(c.at("ids"))) << c.at("report").as_string() << " " << name << " " << text;
      EXPECT_EQ(t->Decode(*got, false), c.at("decoded").as_string());
    }
    EXPECT_GT(seen, 5);
  }
}

TEST(Tekken, GivesTheIdsAndTextsOfMistralsOwnReader) {
  const auto golden = ReadJsonGz(kDir + "tekken.json.gz");
  ASSERT_TRUE(golden.is_object());
  const auto t = Tokenizer::FromTekken(golden.at("tokenizer"));
  ASSERT_TRUE(t.ok()) << t.error().message;
  int wrong = 0;
  ASSERT_GE(golden.at("cases").as_array().size(), 600u);
  for (const auto& c : golden.at("cases").as_array()) {
    const std::string text(c.at("text").as_string());
    const auto want = Ids(c.at("ids"));
    const auto got = (*t)->Encode(text, {.add_special_tokens = false, .parse_special = false});
    ASSERT_TRUE(got.ok()) << got.error().message;
    if (*got != want && ++wrong <= 5) {
      EXPECT_EQ(*got, want) << boost::json::serialize(c.at("text"));
    }
    EXPECT_EQ((*t)->Decode(want), text);
    EXPECT_EQ(Stream(**t, want, true), text);
  }
  EXPECT_EQ(wrong, 0);
  for (const auto& c : golden.at("ids").as_array()) {
    EXPECT_EQ((*t)->Decode(Ids(c.at("ids")), false), c.at("decoded").as_string());
    EXPECT_EQ(Stream(**t, Ids(c.at("ids")), false), c.at("decoded").as_string());
  }
  const int32_t size = (*t)->vocab_size();
  EXPECT_EQ((*t)->bos_id(), 1);
  EXPECT_EQ((*t)->eos_id(), 2);
  EXPECT_EQ((*t)->pad_id(), 5);
  EXPECT_EQ((*t)->unk_id(), 0);
  EXPECT_EQ((*t)->TokenText(15), "<SPECIAL_15>");
  EXPECT_EQ((*t)->TokenId("[/INST]"), 4);
  EXPECT_FALSE((*t)->HasToken(size));
  // A prompt's control tokens; 16 special ones stand in front of the bytes.
  EXPECT_EQ(*(*t)->Encode("[INST]!"), (std::vector<int32_t>{1, 3, 16 + '!'}));
}

TEST(SmallTokenizers, GiveTheIdsAndTextsOfTheReference) {
  const auto golden = ReadJsonGz(kDir + "small.json.gz");
  ASSERT_TRUE(golden.is_array());
  for (const auto& entry : golden.as_array()) {
    SCOPED_TRACE(std::string(entry.at("name").as_string()));
    auto t = Tokenizer::FromJson(entry.at("tokenizer"));
    ASSERT_TRUE(t.ok()) << t.error().message;
    int wrong = 0;
    for (const auto& c : entry.at("cases").as_array()) {
      const std::string text(c.at("text").as_string());
      const auto want = Ids(c.at("ids"));
      const auto got = (*t)->Encode(text, {.add_special_tokens = false});
      // The reference drops a character that has no token when there's no unknown token; here that
      // is an error.
      if (!got.ok()) {
        EXPECT_EQ(got.error().code, base::Code::kUnsupported);
        continue;
      }
      if (*got != want && ++wrong <= 3) {
        EXPECT_EQ(*got, want) << boost::json::serialize(c.at("text"));
      }
      const auto all = (*t)->Encode(text);
      ASSERT_TRUE(all.ok());
      if (*got == want && *all != Ids(c.at("all")) && ++wrong <= 3) {
        EXPECT_EQ(*all, Ids(c.at("all")));
      }
      EXPECT_EQ((*t)->Decode(want, false), c.at("decoded").as_string());
      EXPECT_EQ(Stream(**t, want, false), c.at("decoded").as_string());
    }
    EXPECT_EQ(wrong, 0);
  }
}

class GgufTokenizer : public testing::TestWithParam<const char*> {};

TEST_P(GgufTokenizer, GivesTheExpectedIds) {
  PackedVocab packed;
  ASSERT_TRUE(packed.Read(kDir + GetParam() + ".vocab.gz"));
  const auto t = Tokenizer::FromGguf(packed.vocab);
  ASSERT_TRUE(t.ok()) << t.error().message;
  ASSERT_GT(packed.cases.size(), 40u);
  for (const auto& c : packed.cases) {
    const auto got = (*t)->Encode(c.at("text").as_string(),
                                  {.add_special_tokens = false, .parse_special = false});
    ASSERT_TRUE(got.ok()) << got.error().message;
    EXPECT_EQ(*got, Ids(c.at("ids"))) << boost::json::serialize(c.at("text"));
    if (packed.vocab.model != "bert") {  // which lowers the case
      const std::string text(c.at("text").as_string());
      const std::string decoded = (*t)->Decode(*got, false);
      EXPECT_EQ(decoded, text);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, GgufTokenizer,
                         testing::Values("bert-bge", "command-r", "deepseek-coder", "deepseek-llm",
                                         "falcon", "gemma-4", "gpt-2", "llama-bpe", "llama-spm",
                                         "llama4", "mpt", "phi-3", "qwen2", "qwen35", "refact",
                                         "starcoder"),
                         [](const auto& info) {
                           std::string name = info.param;
                           for (char& c : name) c = c == '-' ? '_' : c;
                           return name;
                         });

TEST(GgufTokenizerNames, NormalisesAsTheModelWasTrained) {
  PackedVocab packed;
  ASSERT_TRUE(packed.Read(kDir + "qwen2.vocab.gz"));
  const auto t = Tokenizer::FromGguf(packed.vocab);
  ASSERT_TRUE(t.ok()) << t.error().message;
  for (const char* text : {"Cafe\u0301 de\u0301ja\u0300", "Caf\u00e9 d\u00e9j\u00e0"}) {
    EXPECT_EQ(*(*t)->Encode(text), (std::vector<int32_t>{34, 2577, 963, 45839}));
  }
}

}  // namespace
}  // namespace vllm::text
