// Which chat template a folder with Mistral's tekken.json gets.
#include <gtest/gtest.h>

#include <boost/json/serialize.hpp>
#include <filesystem>
#include <fstream>

#include "base/base64.h"
#include "vllm/engine/loaded_model.h"

namespace vllm::engine {
namespace {

namespace fs = std::filesystem;
namespace json = boost::json;

class LoadTextTest : public ::testing::Test {
 protected:
  LoadTextTest() : folder_(fs::path(testing::TempDir()) / "load_text") {
    fs::remove_all(folder_);
    fs::create_directories(folder_);
  }
  ~LoadTextTest() override { fs::remove_all(folder_); }

  void Write(const std::string& name, const std::string& text) {
    std::ofstream(folder_ / name) << text;
  }
  // A vocabulary of bytes.
  void WriteTekken(std::string_view version) {
    json::array vocab, specials;
    for (int i = 0; i < 256; ++i) {
      const auto byte = static_cast<char>(i);
      std::string base64;
      base::AppendBase64({&byte, 1}, base64);
      vocab.push_back(json::object{{"rank", i}, {"token_bytes", base64}});
    }
    for (const char* name :
         {"<unk>", "<s>", "</s>", "[INST]", "[/INST]", "[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]",
          "[TOOL_RESULTS]", "[/TOOL_RESULTS]", "[TOOL_CALLS]", "[SYSTEM_PROMPT]",
          "[/SYSTEM_PROMPT]", "[TOOL_CONTENT]", "[ARGS]", "[CALL_ID]"})
      specials.push_back(
          json::object{{"rank", static_cast<int64_t>(specials.size())}, {"token_str", name}});
    const auto count = static_cast<int64_t>(specials.size());
    Write("tekken.json", json::serialize(json::object{{"config",
                                                       {{"pattern", R"(\w+|\W+)"},
                                                        {"default_vocab_size", 256 + count},
                                                        {"default_num_special_tokens", count},
                                                        {"version", version}}},
                                                      {"vocab", vocab},
                                                      {"special_tokens", specials}}));
  }
  // "Hi" by the template, or the reason why there is none.
  std::string Prompt(const std::string& template_file = "", std::string_view own = "") {
    const auto parts = LoadText(folder_.string(), template_file, own);
    if (!parts) return parts.error().message;
    if (parts->chat_template == nullptr) return parts->why_no_template;
    text::ChatInput in;
    in.messages = {{{"role", "user"}, {"content", "Hi"}}};
    const auto text = parts->chat_template->Render(in);
    return text ? *text : text.error().message;
  }

  fs::path folder_;
};

TEST_F(LoadTextTest, TekkenOfAKnownVersionBringsAChatTemplate) {
  WriteTekken("v13");
  EXPECT_EQ(Prompt(), "<s>[INST]Hi[/INST]");
  EXPECT_EQ(Prompt("", "of the family"), "<s>[INST]Hi[/INST]");
  // What somebody wrote for this model goes before it.
  Write("chat_template.jinja", "written: {{ messages[0].content }}");
  EXPECT_EQ(Prompt(), "written: Hi");
  Write("given.jinja", "given: {{ messages[0].content }}");
  EXPECT_EQ(Prompt((folder_ / "given.jinja").string()), "given: Hi");
}

TEST_F(LoadTextTest, TekkenOfAnotherVersionSaysWhyThereIsNone) {
  WriteTekken("v2");
  EXPECT_EQ(Prompt(),
            "tekken.json: its chat format is 'v2', and v3, v7, v11, v13 and v15 are known here");
  EXPECT_EQ(Prompt("", "own {{ messages[0].content }}"), "own Hi");
  WriteTekken("");
  EXPECT_EQ(Prompt(), "");
}

}  // namespace
}  // namespace vllm::engine
