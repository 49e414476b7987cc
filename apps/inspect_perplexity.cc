// vllm-inspect perplexity: how well a model foretells a text, for comparing files of one model.
#include <algorithm>
#include <boost/json/serialize.hpp>
#include <cmath>
#include <memory>

#include "apps/fetch_model.h"
#include "apps/inspect.h"
#include "apps/model_flags.h"
#include "base/os/file.h"
#include "base/os/module.h"
#include "base/strings.h"
#include "vllm/engine/llm.h"

namespace apps {
namespace {

namespace json = boost::json;
using base::Code;
using base::Error;
using base::Result;
using base::Status;
using vllm::engine::Chunk;
using vllm::engine::Llm;

struct PerplexityFlags {
  vllm::engine::LoadOptions options;
  std::string file;
  int64_t tokens = 0, context = 512;
  bool as_json = false;
};

// -log of the probability that a row of logits gives to `token`.
double Surprise(std::span<const float> row, int32_t token) {
  const float most = *std::max_element(row.begin(), row.end());
  double sum = 0;
  for (const float x : row) sum += static_cast<double>(std::exp(x - most));
  return std::log(sum) - static_cast<double>(row[static_cast<size_t>(token)] - most);
}

struct Sums {
  double surprise = 0, squares = 0;
  int64_t scored = 0;

  double Mean() const { return surprise / static_cast<double>(scored); }
  double Perplexity() const { return std::exp(Mean()); }
  // Of the perplexity, as if tokens were independent.
  double StandardError() const {
    const auto n = static_cast<double>(scored);
    const double variance = std::max(squares / n - Mean() * Mean(), 0.0);
    return n > 1 ? Perplexity() * std::sqrt(variance / (n - 1)) : 0;
  }
};

// Scores the second half of one window: the tokens after `window[context / 2]`.
Status ScoreWindow(Llm& llm, std::span<const int32_t> window, Sums& sums) {
  const auto context = static_cast<int64_t>(window.size()), half = context / 2;
  const auto vocab = static_cast<size_t>(llm.runner().vocab_size());
  llm.Reset(0);
  // The last token foretells nothing that is scored.
  for (int64_t start = 0; start < context - 1;) {
    const bool scores = start >= half;
    const int64_t limit =
        scores ? std::min(llm.runner().Limits().outputs, llm.runner().Limits().tokens)
               : llm.runner().Limits().tokens;
    const int64_t end = std::min(start + limit, scores ? context - 1 : half);
    const Chunk chunk{.sequence = 0,
                      .start = start,
                      .tokens = {window.begin() + start, window.begin() + end},
                      .logits = scores ? Chunk::Logits::kAll : Chunk::Logits::kNone};
    const Result<Llm::StepOutput> step = llm.Step({&chunk, 1});
    if (!step) return step.error();
    for (int64_t i = start; scores && i < end; ++i) {
      const float* row = step->logits + static_cast<size_t>(i - start) * vocab;
      const double surprise = Surprise({row, vocab}, window[static_cast<size_t>(i + 1)]);
      sums.surprise += surprise;
      sums.squares += surprise * surprise;
      ++sums.scored;
    }
    start = end;
  }
  return {};
}

Result<std::vector<int32_t>> ReadTokens(const Llm& llm, const PerplexityFlags& f) {
  if (!llm.has_tokenizer())
    return Error{Code::kNotFound, f.options.model + ": has no tokenizer to read a text with"};
  const Result<std::string> text = base::os::ReadFile(f.file);
  if (!text) return text.error();
  Result<std::vector<int32_t>> ids = llm.tokenizer().Encode(*text, {.parse_special = false});
  if (!ids) return ids.error().In(f.file);
  if (f.tokens > 0 && static_cast<int64_t>(ids->size()) > f.tokens)
    ids->resize(static_cast<size_t>(f.tokens));
  if (static_cast<int64_t>(ids->size()) < f.context) {
    return Error{Code::kInvalidArgument,
                 fmt::format("{}: {} tokens, fewer than a window of {}: give a longer text, or a "
                             "smaller --context",
                             f.file, ids->size(), f.context)};
  }
  return ids;
}

int Perplexity(PerplexityFlags& f) {
  const Status fetched = FetchModel(f.options);
  if (!fetched) return Fail(kInspect, fetched.error());
  // A step's logits are rows of the whole vocabulary.
  f.options.score_prompts = true;
  f.options.max_num_batched_tokens = std::min<int64_t>(f.options.max_num_batched_tokens, 128);
  if (f.options.max_model_len == 0) f.options.max_model_len = f.context;
  ShowProgress(f.options);
  Result<std::unique_ptr<Llm>> llm = Llm::Load(f.options);
  if (!llm) return Fail(kInspect, llm.error());
  if (f.context > (*llm)->options().max_model_len) {
    return Fail(kInspect,
                {Code::kInvalidArgument, fmt::format("--context {}: the model takes {} tokens",
                                                     f.context, (*llm)->options().max_model_len)});
  }
  Result<std::vector<int32_t>> ids = ReadTokens(**llm, f);
  if (!ids) return Fail(kInspect, ids.error());

  const vllm::text::Tokenizer& tokenizer = (*llm)->tokenizer();
  const auto windows = static_cast<int64_t>(ids->size()) / f.context;
  const bool terminal = base::os::IsTerminal(2);
  Sums sums;
  for (int64_t w = 0; w < windows; ++w) {
    const std::span<int32_t> window(ids->data() + w * f.context, static_cast<size_t>(f.context));
    if (tokenizer.adds_bos() && tokenizer.bos_id()) window[0] = *tokenizer.bos_id();
    const Status scored = ScoreWindow(**llm, window, sums);
    if (!scored) return Fail(kInspect, scored.error());
    if (!terminal) continue;
    fmt::print(stderr, "\r{} of {} windows, perplexity {:.4f} so far\033[K", w + 1, windows,
               sums.Perplexity());
    std::fflush(stderr);
  }
  if (terminal) fmt::print(stderr, "\r\033[K");
  if (f.as_json) {
    fmt::print("{}\n", json::serialize(json::object{{"perplexity", sums.Perplexity()},
                                                    {"standard_error", sums.StandardError()},
                                                    {"negative_log_likelihood", sums.Mean()},
                                                    {"scored_tokens", sums.scored},
                                                    {"tokens", windows * f.context},
                                                    {"windows", windows},
                                                    {"context", f.context}}));
  } else {
    fmt::print("perplexity {:.4f} +/- {:.4f} over {} scored tokens ({} windows of {})\n",
               sums.Perplexity(), sums.StandardError(), sums.scored, windows, f.context);
  }
  return 0;
}

}  // namespace

void AddPerplexity(CLI::App& app, Action& action) {
  auto f = std::make_shared<PerplexityFlags>();
  CLI::App* sub = app.add_subcommand(
      "perplexity",
      "How well the model foretells a text: e to the mean of -log p. The text's tokens (with a BOS "
      "where the model has one) are cut into windows of --context tokens; a shorter rest is left "
      "out. "
      "Each window stands for itself, with the BOS in place of its first token, and of its tokens "
      "0..C-1 those from C/2 + 1 on are scored, given all before them in the window: what "
      "llama-perplexity scores too");
  AddModelFlags(*sub, f->options);
  sub->add_option("--file", f->file, "The text")->required();
  sub->add_option("--tokens", f->tokens, "Use this many of the text's tokens; 0: all")
      ->check(CLI::Range(0, 1 << 30))
      ->capture_default_str();
  sub->add_option("--context", f->context, "Tokens in a window")
      ->check(CLI::Range(4, 1 << 20))
      ->capture_default_str();
  sub->add_flag("--json", f->as_json, "Print JSON");
  sub->callback([f, &action] { action = [f] { return Perplexity(*f); }; });
}

}  // namespace apps
