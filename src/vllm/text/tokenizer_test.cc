#include "vllm/text/tokenizer.h"

#include <gtest/gtest.h>

#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <boost/json/serialize.hpp>
#include <filesystem>
#include <fstream>
#include <thread>

#include "base/json.h"
#include "vllm/text/detokenizer.h"
#include "vllm/text/regex.h"
#include "vllm/text/unicode.h"

namespace vllm::text {
namespace {

// Characters a-e, BPE with "ab" and "abc", a control token, a plain added token.
std::string Tiny(const std::string& change_from = "", const std::string& change_to = "") {
  std::string json =
      R"({"added_tokens":[{"id":8,"content":"<|end|>","special":true},{"id":9,"content":"<think>"}],
    "normalizer":null,"pre_tokenizer":null,"post_processor":null,
    "decoder":{"type":"Sequence","decoders":[{"type":"ByteFallback"},{"type":"Fuse"}]},
    "model":{"type":"BPE","unk_token":"?","vocab":{"a":0,"b":1,"c":2,"ab":3,"abc":4,"?":5,"<0xC3>":6,"<0xA9>":7},
             "merges":["a b",["ab","c"]]}})";
  if (!change_from.empty()) {
    const size_t at = json.find(change_from);
    EXPECT_NE(at, std::string::npos) << change_from;
    json.replace(at, change_from.size(), change_to);
  }
  return json;
}

base::Result<std::unique_ptr<Tokenizer>> Load(const std::string& json,
                                              const TokenizerOptions& options = {}) {
  auto value = base::ParseJson(json);
  if (!value.ok()) return value.error();
  return Tokenizer::FromJson(*value, options);
}

TEST(Tokenizer, MergesByRankAndCutsAddedTokensOut) {
  const auto t = Load(Tiny());
  ASSERT_TRUE(t.ok()) << t.error().message;
  EXPECT_EQ(*(*t)->Encode("abcab<think>a<|end|>x"), (std::vector<int32_t>{4, 3, 9, 0, 8, 5}));
  EXPECT_EQ((*t)->Decode(std::vector<int32_t>{4, 9, 8, 0}, true), "abc<think>a");
  EXPECT_EQ((*t)->Decode(std::vector<int32_t>{4, 9, 8, 0, 77, -1}, false), "abc<think><|end|>a");
  EXPECT_EQ((*t)->TokenId("abc"), 4);
  EXPECT_TRUE((*t)->IsSpecial(8));
  EXPECT_FALSE((*t)->IsSpecial(9));
}

TEST(Tokenizer, MessageContentCannotForgeControlTokens) {
  const auto t = Load(Tiny());
  ASSERT_TRUE(t.ok());
  const auto count = [](const std::vector<int32_t>& ids) {
    return std::count(ids.begin(), ids.end(), 8);
  };
  const Segment chat[] = {{"<|end|>", true}, {"a<|end|>b", false}, {"<|end|>", true}};
  EXPECT_EQ(count(*(*t)->EncodeSegments(chat, false)), 2);
  // Nor together with what the template writes around it.
  const Segment split[] = {{"<|e", true}, {"nd|>", false}, {"ab", true}};
  EXPECT_EQ(count(*(*t)->EncodeSegments(split, false)), 0);
  const Segment joined[] = {{"<|e", true}, {"nd|>", true}};
  EXPECT_EQ(count(*(*t)->EncodeSegments(joined, false)), 1);
}

TEST(Tokenizer, PutsExactlyOneBosInFront) {
  TokenizerOptions options;
  options.bos_token = "<|end|>";
  options.add_bos_token = true;
  const auto t = Load(Tiny(), options);
  ASSERT_TRUE(t.ok());
  EXPECT_TRUE((*t)->adds_bos());
  EXPECT_EQ(*(*t)->Encode("ab"), (std::vector<int32_t>{8, 3}));
  EXPECT_EQ(*(*t)->Encode("<|end|>ab"), (std::vector<int32_t>{8, 3}));
  EXPECT_EQ(*(*t)->Encode("ab", {.add_special_tokens = false}), (std::vector<int32_t>{3}));
}

TEST(Tokenizer, StreamsBytesOfACharacterTogetherAndReplacesBrokenOnes) {
  const auto t = Load(Tiny());
  ASSERT_TRUE(t.ok());
  IncrementalDetokenizer d(**t);
  EXPECT_EQ(d.Push(6), "");
  EXPECT_EQ(d.Push(7), "");
  EXPECT_EQ(d.Push(0), "\u00e9a");
  EXPECT_EQ(d.Push(6), "");
  EXPECT_EQ(d.Finish(), "\uFFFD");
}

TEST(Tokenizer, ReadsInvalidUtf8AsReplacementCharacters) {
  const auto t = Load(Tiny());
  ASSERT_TRUE(t.ok());
  EXPECT_EQ(*(*t)->Encode("a\xFF\xC3"
                          "b"),
            (std::vector<int32_t>{0, 5, 5, 1}));
}

TEST(Tokenizer, TakesAMegabyteOfOneLetterWithoutQuadraticTime) {
  const auto t =
      Load(Tiny(R"("merges":["a b",["ab","c"]])", R"("merges":["a b",["ab","c"],["a","a"]])"));
  ASSERT_FALSE(t.ok());  // "aa" is no token
  const auto u = Load(Tiny(R"("<0xC3>":6)", R"("aa":6)")
                          .replace(Tiny(R"("<0xC3>":6)", R"("aa":6)").find(R"(["ab","c"]])"), 11,
                                   R"(["ab","c"],["a","a"]])"));
  ASSERT_TRUE(u.ok()) << u.error().message;
  const auto ids = (*u)->Encode(std::string(1'000'000, 'a'));
  ASSERT_TRUE(ids.ok());
  EXPECT_EQ(ids->size(), 500'000u);
}

TEST(Tokenizer, EncodesAlikeFromManyThreads) {
  const auto t = Load(Tiny());
  ASSERT_TRUE(t.ok());
  const auto want = *(*t)->Encode("abcababc");
  std::vector<std::thread> threads;
  std::vector<int> equal(4);
  for (int k = 0; k < 4; ++k) {
    threads.emplace_back([&, k] {
      for (int i = 0; i < 500; ++i) equal[k] += *(*t)->Encode("abcababc") == want;
    });
  }
  for (auto& th : threads) th.join();
  EXPECT_EQ(equal, (std::vector<int>{500, 500, 500, 500}));
}

TEST(HostileTokenizer, IsRefusedWithAnErrorThatNamesTheField) {
  struct Case {
    const char* from;
    const char* to;
    const char* says;
  };
  for (const Case& c : {
           Case{R"("a":0)", R"("a":-1)", "model.vocab"},
           Case{R"("a":0)", R"("a":4000000000)", "model.vocab"},
           Case{R"("a":0)", R"("a":1)", "both have id"},
           Case{R"("a":0)", R"("a":"x")", "model.vocab"},
           Case{R"("a b")", R"("a z")", "needs \"z\""},
           Case{R"("a b")", R"(7)", "merges[0]"},
           Case{R"("type":"BPE")", R"("type":"Other")", "Other"},
           Case{R"("type":"BPE")", R"("type":"BPE","dropout":0.5)", "dropout"},
           Case{R"("normalizer":null)", R"("normalizer":{"type":"Foo"})", "Foo"},
           Case{R"("normalizer":null)",
                R"("normalizer":{"type":"Precompiled","precompiled_charsmap":"////////"})",
                "precompiled_charsmap"},
           Case{R"("pre_tokenizer":null)", R"("pre_tokenizer":{"type":"UnicodeScripts"})",
                "UnicodeScripts"},
           Case{R"("pre_tokenizer":null)",
                R"("pre_tokenizer":{"type":"Split","pattern":{"Regex":"("}})", "regex"},
           Case{R"("post_processor":null)", R"("post_processor":{"type":"BertProcessing"})", "cls"},
           Case{R"({"type":"Fuse"})", R"({"type":"Bar"})", "Bar"},
           Case{R"("id":8)", R"("id":99999999)", "added_tokens[0]"},
       }) {
    const auto t = Load(Tiny(c.from, c.to));
    ASSERT_FALSE(t.ok()) << c.to;
    EXPECT_NE(t.error().message.find(c.says), std::string::npos) << t.error().message;
  }
}

TEST(HostileTokenizer, RegexBombEndsInAnError) {
  const auto t = Load(Tiny(
      R"("pre_tokenizer":null)",
      R"("pre_tokenizer":{"type":"Split","pattern":{"Regex":"(a|a|aa)+c"},"behavior":"Isolated"})"));
  ASSERT_TRUE(t.ok()) << t.error().message;
  const auto ids = (*t)->Encode(std::string(5000, 'a') + "bc");
  ASSERT_FALSE(ids.ok());
  EXPECT_EQ(ids.error().code, base::Code::kResourceExhausted);
}

TEST(GgufVocabulary, IsRefusedByNameWhenUnknown) {
  GgufVocab v;
  v.model = "rwkv";
  v.tokens = {"a"};
  EXPECT_NE(Tokenizer::FromGguf(v).error().message.find("rwkv"), std::string::npos);
  v.model = "gpt2";
  v.pre = "no-such-pre";
  EXPECT_NE(Tokenizer::FromGguf(v).error().message.find("no-such-pre"), std::string::npos);
  v.pre = "gpt-2";
  EXPECT_NE(Tokenizer::FromGguf(v).error().message.find("merges"), std::string::npos);
  v.bos_id = 5;
  EXPECT_NE(Tokenizer::FromGguf(v).error().message.find("bos_token_id"), std::string::npos);
}

TEST(Regex, SpellsSpacesAsUnicodeDefinesThem) {
  const auto r = Regex::Compile(R"(\s+)");
  ASSERT_TRUE(r.ok());
  Regex::Matcher m(**r);
  std::pair<size_t, size_t> match;
  EXPECT_TRUE(*m.Find("a\u2003b", 0, &match));
  EXPECT_FALSE(*m.Find("a\u180eb", 0, &match));
  EXPECT_FALSE(Regex::Compile("[a&&[b]]").ok());
}

TEST(Unicode, SortsLongRunsOfMarksQuickly) {
  std::string text = "a";
  for (int i = 0; i < 100'000; ++i) text += i % 2 ? "\u0316" : "\u0301";
  const std::string nfc = Normalized(NormalForm::kNfc, text);
  EXPECT_EQ(nfc.substr(0, 4),
            "\u00e1\u0316");  // the accent composes across the marks of the other class
}

// The bytes, "he" and "hello" (which no merges lead to), behind five special tokens.
boost::json::object Tekken() {
  constexpr std::string_view kDigits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  boost::json::array vocab, specials;
  const auto add = [&](const std::string& base64) {
    vocab.push_back({{"rank", static_cast<int64_t>(vocab.size())},
                     {"token_bytes", base64},
                     {"token_str", nullptr}});
  };
  for (unsigned b = 0; b < 256; ++b) add(std::string{kDigits[b >> 2], kDigits[b << 4 & 63]} + "==");
  add("aGU=");
  add("aGVsbG8=");
  for (const char* name : {"<unk>", "<s>", "</s>", "[INST]"})
    specials.push_back({{"rank", static_cast<int64_t>(specials.size())},
                        {"token_str", name},
                        {"is_control", true}});
  return {{"config",
           {{"pattern", R"(\w+|\s+)"},
            {"default_vocab_size", 263},
            {"default_num_special_tokens", 5},
            {"version", "v11"}}},
          {"vocab", vocab},
          {"special_tokens", specials}};
}

TEST(Tekken, MergesTheLowestRankAndKeepsWholeWords) {
  const auto t = Tokenizer::FromTekken(Tekken());
  ASSERT_TRUE(t.ok()) << t.error().message;
  const int32_t he = 5 + 256, hello = he + 1, l = 5 + 'l';
  EXPECT_EQ(*(*t)->Encode("hello"), (std::vector<int32_t>{1, hello}));
  EXPECT_EQ(*(*t)->Encode("hell"), (std::vector<int32_t>{1, he, l, l}));
  EXPECT_EQ(*(*t)->Encode("hello1"), (std::vector<int32_t>{1, he, l, l, 5 + 'o', 5 + '1'}));
  EXPECT_EQ((*t)->TokenText(4), "<SPECIAL_4>");
  EXPECT_EQ((*t)->Decode(std::vector<int32_t>{1, hello, 3}), "hello");
  const auto without = Tokenizer::FromTekken(Tekken(), {.add_bos_token = false});
  ASSERT_TRUE(without.ok());
  EXPECT_EQ(*(*without)->Encode("hello"), std::vector<int32_t>{hello});
}

TEST(Tekken, IsReadFromAFolderWithoutTokenizerJson) {
  namespace fs = std::filesystem;
  const fs::path folder = fs::path(testing::TempDir()) / "tekken";
  fs::remove_all(folder);
  fs::create_directories(folder);
  EXPECT_FALSE(Tokenizer::InDirectory(folder));
  EXPECT_NE(Tokenizer::FromDirectory(folder).error().message.find("or tekken.json"),
            std::string::npos);
  std::ofstream(folder / "tekken.json") << boost::json::serialize(Tekken());
  EXPECT_TRUE(Tokenizer::InDirectory(folder));
  const auto t = Tokenizer::FromDirectory(folder);
  ASSERT_TRUE(t.ok()) << t.error().message;
  EXPECT_EQ((*t)->vocab_size(), 263);
  std::ofstream(folder / "tokenizer.json") << Tiny();
  EXPECT_EQ((*Tokenizer::FromDirectory(folder))->vocab_size(), 10);
  fs::remove_all(folder);
}

TEST(Tekken, RefusesMalformedFilesInASentence) {
  using boost::json::object;
  using boost::json::value;
  const auto why = [](const auto& change) {
    object file = Tekken();
    change(file);
    const auto t = Tokenizer::FromTekken(file);
    return t.ok() ? std::string("it was taken") : t.error().message;
  };
  const auto config = [&](const char* key, const value& v) {
    return why([&](object& f) { f["config"].as_object()[key] = v; });
  };
  const auto rank = [&](size_t i, const char* key, const value& v) {
    return why([&](object& f) { f["vocab"].as_array()[i].as_object()[key] = v; });
  };
  const auto special = [&](const char* key, const value& v) {
    return why([&](object& f) { f["special_tokens"].as_array()[2].as_object()[key] = v; });
  };
  EXPECT_FALSE(Tokenizer::FromTekken(value("x")).ok());
  EXPECT_NE(why([](object& f) { f.erase("config"); }).find("config"), std::string::npos);
  EXPECT_NE(why([](object& f) { f.erase("vocab"); }).find("vocab"), std::string::npos);
  // Without special tokens the first twenty of old files are meant, and five are too few for them.
  EXPECT_NE(why([](object& f) { f.erase("special_tokens"); }).find("20 special_tokens"),
            std::string::npos);
  EXPECT_NE(config("pattern", nullptr).find("pattern"), std::string::npos);
  EXPECT_NE(config("pattern", "(").find("config.pattern"), std::string::npos);
  EXPECT_NE(config("default_vocab_size", 264).find("256 to the 258"), std::string::npos);
  EXPECT_NE(config("default_vocab_size", 260).find("256 to the 258"), std::string::npos);
  for (const value& bad : {value(-1), value(1e18), value("x"), value(nullptr)}) {
    EXPECT_NE(config("default_vocab_size", bad).find("config"), std::string::npos);
    EXPECT_NE(config("default_num_special_tokens", bad).find("config"), std::string::npos);
  }
  EXPECT_NE(rank(3, "rank", 4).find("vocab[3]"), std::string::npos);
  EXPECT_NE(rank(3, "token_bytes", "BQ==").find("bytes in order"), std::string::npos);
  for (const char* bad : {"", "=", "a===", "ab=c", "aGU", "a-U="})
    EXPECT_NE(rank(256, "token_bytes", bad).find("vocab[256]: token_bytes"), std::string::npos)
        << bad;
  EXPECT_NE(rank(257, "token_bytes", "aGU=").find("bytes of vocab[256]"), std::string::npos);
  const auto settings = [&](const char* text) {
    return why([&](object& f) { f["model_settings_builder"] = *base::ParseJson(text); });
  };
  EXPECT_EQ(settings("{}"), "it was taken");
  EXPECT_EQ(settings(R"({"reasoning_effort":{"values":["a"],"default":"a"}})"), "it was taken");
  for (const char* bad : {"1", R"({"reasoning_effort":1})", R"({"reasoning_effort":{}})",
                          R"({"reasoning_effort":{"values":[1],"default":"a"}})",
                          R"({"reasoning_effort":{"values":["a"],"default":"b"}})"})
    EXPECT_NE(settings(bad).find("model_settings_builder"), std::string::npos) << settings(bad);
  EXPECT_NE(special("rank", 7).find("special_tokens[2]"), std::string::npos);
  EXPECT_NE(special("token_str", "").find("special_tokens[2]"), std::string::npos);
  EXPECT_NE(special("token_str", "<s>").find("twice"), std::string::npos);
  EXPECT_NE(special("token_str", "</x>").find("</s>"), std::string::npos);
}

}  // namespace
}  // namespace vllm::text
