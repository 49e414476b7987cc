#include "vllm/engine/llm.h"

#include <algorithm>
#include <chrono>
#include <random>

#include "base/strings.h"
#include "vllm/text/detokenizer.h"

namespace vllm::engine {
namespace {

double Seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

base::Error Invalid(std::string message) {
  return {base::Code::kInvalidArgument, std::move(message)};
}

}  // namespace

base::Result<std::unique_ptr<Llm>> Llm::Load(LoadOptions options) {
  std::unique_ptr<Llm> llm(new Llm);
  base::Result<std::unique_ptr<LoadedModel>> model = LoadModel(options);
  if (!model) return model.error();
  llm->model_ = *std::move(model);
  llm->options_ = std::move(options);
  base::Result<std::unique_ptr<StepRunner>> runner = StepRunner::Create(
      *llm->model_->backend, llm->model_->graph, llm->model_->weights, llm->options_);
  if (!runner) return runner.error();
  llm->runner_ = *std::move(runner);
  const LoadOptions& o = llm->options_;
  const int64_t per_sequence = (o.max_model_len + o.block_size - 1) / o.block_size;
  llm->blocks_ =
      std::make_unique<KvBlocks>(per_sequence * o.max_num_seqs, o.block_size, o.max_num_seqs);
  llm->cached_.resize(static_cast<size_t>(o.max_num_seqs));
  return llm;
}

Llm::~Llm() { runner_.reset(); }

base::Result<std::vector<int32_t>> Llm::EncodePrompt(std::string_view text) const {
  if (!has_tokenizer()) return Invalid("this model has no tokenizer: give token ids");
  return tokenizer().Encode(text, {.add_special_tokens = true, .parse_special = true});
}

base::Result<std::vector<int32_t>> Llm::EncodeChat(const text::ChatInput& chat) const {
  if (!has_tokenizer()) return Invalid("this model has no tokenizer: give token ids");
  if (chat_template() == nullptr) {
    return Invalid(
        "this model has no chat template: give one with --chat-template, or use a plain prompt");
  }
  base::Result<std::vector<text::PromptSegment>> parts = chat_template()->RenderSegments(chat);
  if (!parts) return parts.error();
  std::vector<text::Segment> segments;
  for (const text::PromptSegment& s : *parts) segments.push_back({s.text, s.from_template});
  // Templates write the BOS token themselves; the tokenizer adds one only where none stands.
  return tokenizer().EncodeSegments(segments, true);
}

bool Llm::IsEnd(int32_t id) const {
  return std::find(model_->eos_ids.begin(), model_->eos_ids.end(), id) != model_->eos_ids.end();
}

base::Status Llm::CheckPrompt(std::span<const int32_t> ids) const {
  if (ids.empty()) return Invalid("the prompt is empty: give at least one token");
  if (static_cast<int64_t>(ids.size()) > options_.max_model_len) {
    return Invalid(fmt::format(
        "the prompt has {} tokens, but the context holds {}: shorten it or raise --max-model-len",
        ids.size(), options_.max_model_len));
  }
  for (const int32_t id : ids) {
    if (id < 0 || id >= runner_->vocab_size()) {
      return Invalid(
          fmt::format("token id {} is outside the vocabulary of {}", id, runner_->vocab_size()));
    }
  }
  return {};
}

void Llm::Reset(int sequence) {
  blocks_->Release(sequence);
  cached_[static_cast<size_t>(sequence)].clear();
}

base::Result<StepResult> Llm::Step(std::span<const Chunk> chunks) {
  for (const Chunk& c : chunks) {
    const base::Status reserved =
        blocks_->Reserve(c.sequence, c.start + static_cast<int64_t>(c.tokens.size()));
    if (!reserved) return reserved.error();
  }
  base::Result<StepResult> result = runner_->Run(chunks, *blocks_);
  if (!result) return result;
  for (const Chunk& c : chunks) {
    std::vector<int32_t>& cached = cached_[static_cast<size_t>(c.sequence)];
    cached.resize(static_cast<size_t>(c.start));
    cached.insert(cached.end(), c.tokens.begin(), c.tokens.end());
  }
  return result;
}

base::Result<Completion> Llm::Generate(int sequence, std::span<const int32_t> prompt,
                                       const SamplingParams& params,
                                       const std::function<bool(const Token&)>& on_token) {
  const base::Status valid = CheckPrompt(prompt);
  if (!valid) return valid.error();

  Completion out;
  out.prompt_tokens = static_cast<int64_t>(prompt.size());
  // The last token is always computed: its logits are wanted.
  const std::vector<int32_t>& cached = cached_[static_cast<size_t>(sequence)];
  const auto common =
      std::mismatch(cached.begin(), cached.end(), prompt.begin(), prompt.end()).second;
  out.cached_tokens = std::min<int64_t>(common - prompt.begin(), out.prompt_tokens - 1);

  Chunk chunk{.sequence = sequence, .start = out.cached_tokens, .sampling = params};
  if (params.seed) {
    chunk.seed = *params.seed;
  } else {
    std::random_device entropy;
    chunk.seed = (uint64_t{entropy()} << 32) | entropy();
  }

  double clock = Seconds();
  int32_t next = 0;
  while (chunk.start < out.prompt_tokens) {
    const int64_t n = std::min(out.prompt_tokens - chunk.start, options_.max_num_batched_tokens);
    chunk.tokens.assign(prompt.begin() + chunk.start, prompt.begin() + chunk.start + n);
    const bool last = chunk.start + n == out.prompt_tokens;
    chunk.logits = last ? Chunk::Logits::kLast : Chunk::Logits::kNone;
    base::Result<StepResult> step = Step({&chunk, 1});
    if (!step) return step.error();
    if (last) next = step->tokens[0];
    chunk.start += n;
  }
  out.prefill_seconds = Seconds() - clock;
  clock = Seconds();

  std::unique_ptr<text::IncrementalDetokenizer> detokenizer;
  if (has_tokenizer()) {
    detokenizer = std::make_unique<text::IncrementalDetokenizer>(tokenizer());
    detokenizer->Prime(prompt.subspan(prompt.size() - std::min<size_t>(prompt.size(), 8)));
  }
  const auto deliver = [&](Token token) {
    out.text += token.text;
    return !on_token || on_token(token);
  };
  chunk.logits = Chunk::Logits::kLast;
  while (true) {
    if (static_cast<int64_t>(out.ids.size()) >= params.max_tokens) {
      out.finish = Completion::Finish::kLength;
      break;
    }
    if (IsEnd(next) && !params.ignore_eos) {
      out.finish = Completion::Finish::kStop;
      break;
    }
    out.ids.push_back(next);
    if (!deliver({next, detokenizer ? detokenizer->Push(next) : ""})) {
      out.finish = Completion::Finish::kCancelled;
      break;
    }
    if (static_cast<int64_t>(out.ids.size()) >= params.max_tokens ||
        chunk.start >= options_.max_model_len) {
      out.finish = Completion::Finish::kLength;
      break;
    }
    chunk.tokens.assign(1, next);
    chunk.output_position = static_cast<int64_t>(out.ids.size());
    base::Result<StepResult> step = Step({&chunk, 1});
    if (!step) return step.error();
    next = step->tokens[0];
    ++chunk.start;
  }
  if (detokenizer) {
    const std::string rest = detokenizer->Finish();
    if (!rest.empty() && out.finish != Completion::Finish::kCancelled) deliver({-1, rest});
  }
  out.decode_seconds = Seconds() - clock;
  return out;
}

base::Status Llm::Score(std::span<const int32_t> ids,
                        const std::function<void(int64_t, std::span<const float>)>& on_row) {
  const base::Status valid = CheckPrompt(ids);
  if (!valid) return valid;
  if (!options_.score_prompts) {
    return base::Error{base::Code::kInternal, "Score: the model was loaded without score_prompts"};
  }
  Reset(0);
  const int64_t piece = std::min(runner_->Limits().outputs, runner_->Limits().tokens);
  const auto total = static_cast<int64_t>(ids.size());
  for (int64_t start = 0; start < total; start += piece) {
    const int64_t n = std::min(piece, total - start);
    Chunk chunk{.sequence = 0, .start = start, .logits = Chunk::Logits::kAll};
    chunk.tokens.assign(ids.begin() + start, ids.begin() + start + n);
    chunk.sampling.temperature = 0;
    base::Result<StepResult> step = Step({&chunk, 1});
    if (!step) return step.error();
    const auto vocab = static_cast<size_t>(runner_->vocab_size());
    for (int64_t i = 0; i < n; ++i)
      on_row(start + i, {step->logits + static_cast<size_t>(i) * vocab, vocab});
  }
  return {};
}

}  // namespace vllm::engine
