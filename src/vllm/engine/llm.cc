#include "vllm/engine/llm.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/clock.h"
#include "base/strings.h"
#include "vllm/engine/admission.h"
#include "vllm/engine/output_text.h"

namespace vllm::engine {

base::Result<std::unique_ptr<Llm>> Llm::Load(LoadOptions options) {
  std::unique_ptr<Llm> llm(new Llm);
  base::Result<std::unique_ptr<LoadedModel>> model = LoadModel(options);
  if (!model) return model.error();
  llm->model_ = *std::move(model);
  llm->options_ = std::move(options);
  llm->loop_ = std::make_unique<EngineLoop>(*llm->model_->runner, static_cast<OutputSink&>(*llm),
                                            LoopOptionsOf(*llm->model_, llm->options_));
  llm->by_hand_.resize(static_cast<size_t>(llm->options_.max_num_seqs));
  return llm;
}

Llm::~Llm() { loop_.reset(); }

base::Result<std::vector<int32_t>> Llm::EncodePrompt(std::string_view text) const {
  return engine::EncodePrompt(*model_, text);
}
base::Result<std::vector<int32_t>> Llm::EncodeChat(const text::ChatInput& chat) const {
  return engine::EncodeChat(*model_, chat);
}

void Llm::Deliver(std::span<Output> outputs) {
  std::move(outputs.begin(), outputs.end(), std::back_inserter(outputs_));
}

base::Result<Completion> Llm::Generate(std::span<const int32_t> prompt,
                                       const SamplingParams& params,
                                       const std::function<bool(const Token&)>& on_token,
                                       std::shared_ptr<Media> media) {
  if (params.n != 1) {
    return base::Error{base::Code::kInvalidArgument, "n must be 1 here: this makes one choice"};
  }
  Request request{.prompt = {prompt.begin(), prompt.end()}, .sampling = params};
  request.media = std::move(media);
  base::Result<Admitted> admitted = Admit(*model_, options_, std::move(request));
  if (!admitted) return admitted.error();
  OutputText text(model_->tokenizer.get(), params, prompt.last(std::min<size_t>(prompt.size(), 8)));
  Completion out;
  out.prompt_tokens = static_cast<int64_t>(prompt.size());
  double clock = base::Seconds();
  const base::Result<RequestId> id = loop_->Submit(admitted->request, admitted->sampler);
  if (!id) return id.error();

  bool over = false, first = true;
  const auto say = [&](int32_t token, const std::string& piece) {
    out.text += piece;
    if (!on_token || on_token({token, piece})) return;
    out.finish = FinishReason::kAbort;
    over = true;
  };
  const auto take = [&](const Output& o) {
    out.cached_tokens = o.cached_tokens;
    if (std::exchange(first, false)) {
      out.prefill_seconds = base::Seconds() - clock;
      clock = base::Seconds();
    }
    const bool end = o.finish == FinishReason::kStop;
    if (o.token >= 0) {
      if (!end) out.ids.push_back(o.token);
      const OutputText::Piece piece = text.Push(o.token, end);
      say(o.token, piece.text);
      if (over) return;
      if (piece.stopped) {
        out.finish = FinishReason::kStop;
        over = true;
        return;
      }
    }
    if (o.finish == FinishReason::kNone) return;
    out.finish = o.finish;
    over = true;
    const std::string rest = text.Finish();
    if (!rest.empty()) say(-1, rest);
  };
  while (!over) {
    if (!loop_->RunOnce() && outputs_.empty() && died_.empty()) {
      loop_->Cancel(*id, -1, false);
      (void)loop_->RunOnce();
      return base::Error{
          base::Code::kResourceExhausted,
          "the KV cache or the slots are held by sequences of Step: Reset them first"};
    }
    if (!died_.empty()) return base::Error{base::Code::kInternal, died_};
    for (size_t i = 0; i < outputs_.size() && !over; ++i) take(outputs_[i]);
    outputs_.clear();
  }
  loop_->Cancel(*id, -1, false);
  while (loop_->RunOnce()) {
  }
  outputs_.clear();
  out.decode_seconds = base::Seconds() - clock;
  return out;
}

base::Status Llm::Encode(std::span<const int32_t> prompt, Media& media) {
  base::Status done = PrepareMedia(model_->config.audio, prompt, media);
  while (done && !media.ready()) done = model_->media->EncodePiece(media);
  return done;
}

base::Result<Llm::StepOutput> Llm::Step(std::span<const Chunk> chunks) {
  std::vector<StepRow> rows;
  for (const Chunk& c : chunks) {
    auto& [table, window, slot] = by_hand_[static_cast<size_t>(c.sequence)];
    BlockPool& pool = loop_->pool();
    WindowPool& windows = loop_->windows();
    if (c.start == 0) windows.Release(window);
    if (!windows.Holds(window, c.start)) {
      return base::Error{base::Code::kInvalidArgument,
                         fmt::format("what a token at position {} sees is behind the windows of "
                                     "later steps and gone: begin at 0",
                                     c.start)};
    }
    const int64_t tokens = c.start + static_cast<int64_t>(c.tokens.size());
    const int64_t missing = pool.Missing(table.size(), tokens);
    const auto fits = [&] { return windows.Fit(pool, missing, windows.Missing(window, tokens)); };
    if (!fits()) windows.Slide(window, c.start);
    if (!fits()) {
      const std::string of_windows =
          windows.blocks() > 0 ? fmt::format(", and {} of windows", windows.free_blocks()) : "";
      return base::Error{base::Code::kResourceExhausted,
                         fmt::format("too few KV blocks are free ({}{}): use fewer tokens at a "
                                     "time, or a shorter context",
                                     pool.free_blocks(), of_windows)};
    }
    pool.Allocate(missing, table);
    windows.Grow(window, tokens);
    if (model_->recurrent() && slot < 0) slot = loop_->scheduler().TakeSlot();
    rows.push_back({.tokens = c.tokens,
                    .start = c.start,
                    .blocks = table,
                    .window_blocks = window.blocks,
                    .outputs = static_cast<StepRow::Outputs>(c.logits),
                    .state_read = c.start == 0 ? -1 : slot,
                    .state_write = slot});
    if (c.media == nullptr) continue;
    rows.back().media_at = c.media->at;
    rows.back().media = c.media->rows.data();
  }
  StepRunner& r = runner();
  const base::Status launched =
      r.Launch(rows, {.logits = !model_->encoder, .hidden = model_->encoder});
  if (!launched) return launched.error();
  const base::Result<StepResult*> result = r.Retire();
  if (!result) return result.error();
  return StepOutput{(*result)->outputs, (*result)->values.data(), (*result)->tokens.data()};
}

void Llm::Reset(int sequence) {
  ByHand& s = by_hand_[static_cast<size_t>(sequence)];
  loop_->pool().Release(s.blocks);
  loop_->windows().Release(s.window);
  if (s.slot >= 0) loop_->scheduler().GiveSlot(std::exchange(s.slot, -1));
}

base::Status Llm::Score(std::span<const int32_t> ids,
                        const std::function<void(int64_t, std::span<const float>)>& on_row) {
  const base::Status valid = CheckPrompt(*model_, ids, options_.max_model_len);
  if (!valid) return valid;
  if (!options_.score_prompts) {
    return base::Error{base::Code::kInternal, "Score: the model was loaded without score_prompts"};
  }
  Reset(0);
  const auto total = static_cast<int64_t>(ids.size());
  const int64_t piece = std::min(runner().Limits().outputs, runner().Limits().tokens);
  for (int64_t start = 0; start < total; start += piece) {
    const int64_t n = std::min(piece, total - start);
    Chunk chunk{.sequence = 0, .start = start, .logits = Chunk::Logits::kAll};
    chunk.tokens.assign(ids.begin() + start, ids.begin() + start + n);
    const base::Result<StepOutput> step = Step({&chunk, 1});
    if (!step) {
      Reset(0);
      return step.error();
    }
    const auto vocab = static_cast<size_t>(runner().vocab_size());
    for (int64_t i = 0; i < n; ++i) {
      on_row(start + i, {step->logits + static_cast<size_t>(i) * vocab, vocab});
    }
  }
  Reset(0);
  return {};
}

}  // namespace vllm::engine
