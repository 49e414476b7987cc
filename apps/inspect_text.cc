// vllm-inspect tokenize, detokenize, template: no weights are read.
#include <boost/json/serialize.hpp>
#include <charconv>
#include <chrono>
#include <memory>

#include "apps/inspect.h"
#include "apps/model_flags.h"
#include "base/json.h"
#include "base/os/file.h"
#include "base/strings.h"
#include "vllm/engine/loaded_model.h"

namespace apps {
namespace {

namespace json = boost::json;
using vllm::engine::TextParts;

base::Error Missing(const std::string& model, const std::string& what) {
  return {base::Code::kNotFound, model + ": has no " + what};
}

struct TextFlags {
  std::string model, text, file, chat_template, messages;
  std::vector<int32_t> ids;
  bool as_json = false;
  bool add_special = true, parse_special = true, skip_special = false, generation_prompt = true;
};

int Tokenize(const TextFlags& f) {
  std::string text = f.text;
  if (!f.file.empty()) {
    base::Result<std::string> read = base::os::ReadFile(f.file);
    if (!read) return Fail(kInspect, read.error());
    text = *std::move(read);
  }
  base::Result<TextParts> parts = vllm::engine::LoadText(f.model, "");
  if (!parts) return Fail(kInspect, parts.error());
  if (parts->tokenizer == nullptr) return Fail(kInspect, Missing(f.model, "tokenizer"));
  const base::Result<std::vector<int32_t>> ids = parts->tokenizer->Encode(
      text, {.add_special_tokens = f.add_special, .parse_special = f.parse_special});
  if (!ids) return Fail(kInspect, ids.error());
  if (f.as_json) {
    fmt::print("{{\"ids\": [{}]}}\n", fmt::join(*ids, ", "));
    return 0;
  }
  for (const int32_t id : *ids) fmt::print("{:8}  {}\n", id, parts->tokenizer->TokenText(id));
  return 0;
}

int Detokenize(const TextFlags& f) {
  base::Result<TextParts> parts = vllm::engine::LoadText(f.model, "");
  if (!parts) return Fail(kInspect, parts.error());
  if (parts->tokenizer == nullptr) return Fail(kInspect, Missing(f.model, "tokenizer"));
  const std::string text = parts->tokenizer->Decode(f.ids, f.skip_special);
  if (f.as_json) {
    fmt::print("{}\n", json::serialize(json::object{{"text", text}}));
  } else {
    fmt::print("{}\n", text);
  }
  return 0;
}

// F.json: a list of messages, or a request: {"messages", "tools", "documents",
// "add_generation_prompt", "continue_final_message", "chat_template_kwargs"}; other keys are
// variables of the template too.
base::Result<vllm::text::ChatInput> ReadChat(const TextFlags& f) {
  base::Result<json::value> v = base::ParseJsonFile(f.messages);
  if (!v) return v.error();
  vllm::text::ChatInput chat;
  chat.add_generation_prompt = f.generation_prompt;
  chat.now = std::chrono::system_clock::now();
  if (v->is_array()) {
    chat.messages = v->get_array();
    return chat;
  }
  const base::Error wrong = {
      base::Code::kInvalidArgument,
      f.messages + ": must hold a list of messages, or an object with \"messages\""};
  if (!v->is_object()) return wrong;
  for (const auto& [key, value] : v->get_object()) {
    if (key == "messages") {
      if (!value.is_array()) return wrong;
      chat.messages = value.get_array();
    } else if (key == "tools") {
      chat.tools = value;
    } else if (key == "documents") {
      chat.documents = value;
    } else if (key == "add_generation_prompt" && value.is_bool()) {
      chat.add_generation_prompt = value.get_bool();
    } else if (key == "continue_final_message" && value.is_bool()) {
      chat.continue_final_message = value.get_bool();
    } else if (key == "chat_template_kwargs" && value.is_object()) {
      for (const auto& [name, kwarg] : value.get_object()) chat.kwargs[name] = kwarg;
    } else {
      chat.kwargs[key] = value;
    }
  }
  return chat;
}

int Template(const TextFlags& f) {
  base::Result<TextParts> parts = vllm::engine::LoadText(f.model, f.chat_template);
  if (!parts) return Fail(kInspect, parts.error());
  if (parts->chat_template == nullptr) return Fail(kInspect, Missing(f.model, "chat template"));
  const base::Result<vllm::text::ChatInput> chat = ReadChat(f);
  if (!chat) return Fail(kInspect, chat.error());
  const base::Result<std::string> text = parts->chat_template->Render(*chat);
  if (!text) return Fail(kInspect, text.error());
  if (!f.as_json) {
    std::fwrite(text->data(), 1, text->size(), stdout);
    return 0;
  }
  json::object out = {{"text", *text}};
  if (parts->tokenizer != nullptr) {
    const base::Result<std::vector<vllm::text::PromptSegment>> runs =
        parts->chat_template->RenderSegments(*chat);
    if (!runs) return Fail(kInspect, runs.error());
    std::vector<vllm::text::Segment> segments;
    for (const auto& run : *runs) segments.push_back({run.text, run.from_template});
    const base::Result<std::vector<int32_t>> ids = parts->tokenizer->EncodeSegments(segments, true);
    if (!ids) return Fail(kInspect, ids.error());
    out["ids"] = json::array(ids->begin(), ids->end());
  }
  fmt::print("{}\n", json::serialize(out));
  return 0;
}

CLI::App* Command(CLI::App& app, const char* name, const char* help,
                  const std::shared_ptr<TextFlags>& f) {
  CLI::App* sub = app.add_subcommand(name, help);
  sub->add_option("--model,-m", f->model, "A folder with tokenizer files, or a .gguf")->required();
  sub->add_flag("--json", f->as_json, "Print JSON");
  return sub;
}

}  // namespace

CLI::Option* AddIds(CLI::App& app, const std::string& flag, std::vector<int32_t>& ids,
                    const std::string& help) {
  // CLI11's own lists pass over empty items.
  return app.add_option_function<std::vector<std::string>>(
      flag,
      [flag, &ids](const std::vector<std::string>& words) {
        for (const std::string& item : base::Split(fmt::format("{}", fmt::join(words, ",")), ',')) {
          int32_t id = 0;
          const auto [end, error] = std::from_chars(item.data(), item.data() + item.size(), id);
          if (error != std::errc() || end != item.data() + item.size()) {
            throw CLI::ValidationError(
                flag, fmt::format("'{}' is no token id: give numbers separated by commas",
                                  base::Printable(item)));
          }
          ids.push_back(id);
        }
      },
      help);
}

void AddTokenize(CLI::App& app, Action& action) {
  auto f = std::make_shared<TextFlags>();
  CLI::App* sub = Command(app, "tokenize", "Text to token ids", f);
  auto* text = sub->add_option("--text", f->text, "The text");
  auto* file = sub->add_option("--file", f->file, "Read the text from this file");
  text->excludes(file);
  sub->add_flag("--add-special-tokens,!--no-add-special-tokens", f->add_special,
                "Put the BOS token and the like where the model wants them (the default)");
  sub->add_flag("--parse-special,!--no-parse-special", f->parse_special,
                "Read control tokens written in the text as such (the default)");
  sub->callback([f, text, file, &action] {
    if (text->count() + file->count() == 0) throw CLI::RequiredError("--text or --file");
    action = [f] { return Tokenize(*f); };
  });
}

void AddDetokenize(CLI::App& app, Action& action) {
  auto f = std::make_shared<TextFlags>();
  CLI::App* sub = Command(app, "detokenize", "Token ids to text", f);
  AddIds(*sub, "--ids", f->ids, "Ids, separated by commas")->required();
  sub->add_flag("--skip-special-tokens", f->skip_special, "Leave out control tokens");
  sub->callback([f, &action] { action = [f] { return Detokenize(*f); }; });
}

void AddTemplate(CLI::App& app, Action& action) {
  auto f = std::make_shared<TextFlags>();
  CLI::App* sub =
      Command(app, "template", "Messages to the prompt's text, by the model's chat template", f);
  sub->add_option("--messages", f->messages,
                  "A JSON file: a list of messages, or a request with tools and the like")
      ->required();
  sub->add_option("--chat-template", f->chat_template,
                  "A Jinja file that replaces the model's own template");
  sub->add_flag("--add-generation-prompt,!--no-add-generation-prompt", f->generation_prompt,
                "End with the header of the assistant's turn (the default)");
  sub->callback([f, &action] { action = [f] { return Template(*f); }; });
}

}  // namespace apps
