// vllm-cli: one answer, or a conversation, on the terminal.
#include <chrono>
#include <csignal>
#include <cstdio>
#include <iostream>

#include "apps/fetch_model.h"
#include "apps/model_flags.h"
#include "base/os/file.h"
#include "base/os/module.h"
#include "base/strings.h"
#include "vllm/engine/llm.h"

namespace {

using vllm::engine::Completion;
using vllm::engine::Llm;
using vllm::engine::SamplingParams;

constexpr const char* kName = "vllm-cli";

struct Flags {
  std::string prompt, prompt_file, system;
  std::vector<std::string> audio;  // files
  bool raw = false;
  bool stream = true;
  SamplingParams sampling;
  std::optional<uint64_t> seed;
};

volatile std::sig_atomic_t interrupted = 0;  // a signal handler can reach nothing else

base::Result<std::vector<int32_t>> ChatIds(const Llm& llm, const boost::json::array& messages) {
  vllm::text::ChatInput chat;
  chat.messages = messages;
  chat.now = std::chrono::system_clock::now();
  return llm.EncodeChat(chat);
}

void PrintTimings(const Completion& c, double load_seconds) {
  const auto rate = [](double tokens, double seconds) {
    return seconds > 0 ? tokens / seconds : 0.0;
  };
  const auto computed = static_cast<double>(c.prompt_tokens - c.cached_tokens);
  const auto decoded = static_cast<double>(c.ids.size()) - 1;
  fmt::print(stderr,
             "load {:.2f} s | prompt {} tokens ({} cached) {:.2f} s, {:.1f} tok/s | output {} "
             "tokens, {:.1f} tok/s "
             "after the first | peak memory {}\n",
             load_seconds, c.prompt_tokens, c.cached_tokens, c.prefill_seconds,
             rate(computed, c.prefill_seconds), c.ids.size(),
             decoded > 0 ? rate(decoded, c.decode_seconds) : 0.0,
             base::HumanBytes(base::os::PeakResidentBytes()));
}

base::Result<Completion> Answer(Llm& llm, const std::vector<int32_t>& ids, const Flags& flags,
                                std::shared_ptr<vllm::engine::Media> media = {}) {
  interrupted = 0;
  base::Result<Completion> c = llm.Generate(
      ids, flags.sampling,
      [&](const vllm::engine::Token& token) {
        if (flags.stream) {
          std::fwrite(token.text.data(), 1, token.text.size(), stdout);
          std::fflush(stdout);
        }
        return interrupted == 0 && std::ferror(stdout) == 0;
      },
      std::move(media));
  if (!c) return c;
  if (!flags.stream) std::fwrite(c->text.data(), 1, c->text.size(), stdout);
  std::fputc('\n', stdout);
  if (const base::Status written = apps::FlushOutput(); !written) return written.error();
  return c;
}

boost::json::object Message(const char* role, const std::string& content) {
  return {{"role", role}, {"content", content}};
}

int OneAnswer(Llm& llm, const Flags& flags, double load_seconds) {
  std::shared_ptr<vllm::engine::Media> media;
  vllm::text::ChatInput chat;
  std::string marks, places;  // of what is heard, in front of the question
  for (const std::string& path : flags.audio) {
    const base::Result<std::string> file = base::os::ReadFile(path);
    if (!file) return apps::Fail(kName, file.error());
    if (media == nullptr) media = std::make_shared<vllm::engine::Media>();
    base::Result<std::string> place =
        vllm::engine::AddSound(llm.config().audio, llm.has_tokenizer() ? &llm.tokenizer() : nullptr,
                               *file, llm.options().max_model_len, *media);
    if (!place) return apps::Fail(kName, place.error().In(path));
    const std::string mark = fmt::format("\xEE\x80\x80{}\xEE\x80\x80", chat.places.size());
    marks += mark;
    places += *place;
    chat.places.emplace_back(mark, *std::move(place));
  }
  base::Result<std::vector<int32_t>> ids = [&] {
    if (flags.raw || llm.chat_template() == nullptr) return llm.EncodePrompt(places + flags.prompt);
    if (!flags.system.empty()) chat.messages.push_back(Message("system", flags.system));
    chat.messages.push_back(Message("user", marks + flags.prompt));
    chat.now = std::chrono::system_clock::now();
    return llm.EncodeChat(chat);
  }();
  if (!ids) return apps::Fail(kName, ids.error());
  const base::Result<Completion> c = Answer(llm, *ids, flags, std::move(media));
  if (!c) return apps::Fail(kName, c.error());
  PrintTimings(*c, load_seconds);
  return 0;
}

int Conversation(Llm& llm, const Flags& flags, double load_seconds) {
  if (llm.chat_template() == nullptr) {
    return apps::Fail(kName,
                      {base::Code::kInvalidArgument,
                       "this model has no chat template: use --prompt, or give --chat-template"});
  }
  std::signal(SIGINT, [](int) { interrupted = 1; });
  boost::json::array messages;
  const auto restart = [&] {
    messages.clear();
    if (!flags.system.empty()) messages.push_back(Message("system", flags.system));
  };
  restart();
  fmt::print(
      stderr,
      "Type a message. /clear starts again, /exit or Ctrl-D ends, Ctrl-C stops an answer.\n");
  std::string line;
  while (true) {
    fmt::print(stderr, "> ");
    if (!std::getline(std::cin, line) || line == "/exit") break;
    if (line.empty()) continue;
    if (line == "/clear") {
      restart();
      continue;
    }
    messages.push_back(Message("user", line));
    const base::Result<std::vector<int32_t>> ids = ChatIds(llm, messages);
    if (!ids) {
      fmt::print(stderr, "{}\n", ids.error().message);
      messages.pop_back();
      continue;
    }
    const base::Result<Completion> c = Answer(llm, *ids, flags);
    if (!c) {
      fmt::print(stderr, "{}\n", c.error().message);
      if (std::ferror(stdout) != 0) return 1;
      messages.pop_back();
      continue;
    }
    PrintTimings(*c, load_seconds);
    messages.push_back(Message("assistant", c->text));
  }
  return 0;
}

int Chat(int argc, char** argv) {
  Flags flags;
  vllm::engine::LoadOptions options;
  CLI::App app("Chat with a model on this machine.", kName);
  apps::AddModelFlags(app, options);
  auto* prompt = app.add_option("--prompt,-p", flags.prompt,
                                "Answer this and end; without it, a conversation");
  app.add_option("--file,-f", flags.prompt_file, "As --prompt, read from a file")->excludes(prompt);
  app.add_option("--system", flags.system, "System message of the conversation");
  app.add_option("--audio", flags.audio, "Files of sound to ask about, with --prompt")
      ->check(CLI::ExistingFile);
  app.add_flag("--raw", flags.raw,
               "Continue the prompt's text as it is, without the chat template");
  app.add_option("--max-tokens,-n", flags.sampling.max_tokens, "Most tokens of an answer")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 30))
      ->capture_default_str();
  flags.sampling.temperature = 0.7f;
  app.add_option("--temperature", flags.sampling.temperature, "0 always takes the likeliest token")
      ->check(apps::Within(0, 100))
      ->capture_default_str();
  app.add_option("--top-k", flags.sampling.top_k, "Choose among the k likeliest; 0 or -1: all")
      ->check(CLI::Range(-1, 1 << 30))
      ->capture_default_str();
  app.add_option("--top-p", flags.sampling.top_p,
                 "Choose among the likeliest that together reach p")
      ->check(apps::Within(1e-6, 1))
      ->capture_default_str();
  app.add_option("--min-p", flags.sampling.min_p,
                 "Leave out tokens below this share of the likeliest one's probability")
      ->check(apps::Within(0, 1))
      ->capture_default_str();
  app.add_option("--seed", flags.seed, "The same seed and prompt give the same answer");
  app.add_flag("--ignore-eos", flags.sampling.ignore_eos,
               "Go on after the end token, for measuring");
  app.add_flag("--stream,!--no-stream", flags.stream, "Print tokens as they come (the default)");
  app.add_option("--chat-template", options.chat_template,
                 "A Jinja file that replaces the model's own template");
  if (const int code = apps::Parse(app, argc, argv); code >= 0) return code;

  flags.sampling.seed = flags.seed;
  if (!flags.prompt_file.empty()) {
    base::Result<std::string> text = base::os::ReadFile(flags.prompt_file);
    if (!text) return apps::Fail(kName, text.error());
    flags.prompt = *std::move(text);
  }
  const bool one_shot = prompt->count() > 0 || !flags.prompt_file.empty();
  if (one_shot && flags.prompt.empty()) {
    return apps::Fail(kName, {base::Code::kInvalidArgument, "--prompt is empty: give some text"});
  }

  if (!one_shot && !flags.audio.empty()) {
    return apps::Fail(kName,
                      {base::Code::kInvalidArgument, "--audio needs --prompt, the question"});
  }

  const base::Status fetched = apps::FetchModel(options);
  if (!fetched) return apps::Fail(kName, fetched.error());
  apps::ShowProgress(options);
  const auto start = std::chrono::steady_clock::now();
  base::Result<std::unique_ptr<Llm>> llm = Llm::Load(std::move(options));
  if (!llm) return apps::Fail(kName, llm.error());
  const double load_seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return one_shot ? OneAnswer(**llm, flags, load_seconds)
                  : Conversation(**llm, flags, load_seconds);
}

}  // namespace

int main(int argc, char** argv) {
  return apps::Run(kName, [&] { return Chat(argc, argv); });
}
