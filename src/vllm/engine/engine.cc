#include "vllm/engine/engine.h"

#include <algorithm>

#include "vllm/engine/admission.h"
#include "vllm/engine/engine_loop.h"

namespace vllm::engine {

LoopOptions LoopOptionsOf(const LoadedModel& model, const LoadOptions& options) {
  LoopOptions o;
  o.scheduler.max_num_seqs = options.max_num_seqs;
  o.scheduler.max_num_batched_tokens =
      std::max(options.max_num_batched_tokens, options.max_num_seqs);
  o.scheduler.output_rows = model.output_rows;
  o.scheduler.max_model_len = options.max_model_len;
  o.scheduler.priority = options.scheduling_policy == "priority";
  o.scheduler.end_ids = model.eos_ids;
  o.scheduler.whole_prompts = model.encoder;
  o.scheduler.recurrent = model.recurrent();
  o.scheduler.snapshots = model.snapshots;
  o.scheduler.snapshot_every = options.mamba_block_size;
  o.kv_blocks = model.kv_blocks;
  o.page_blocks = model.layout.paged() ? model.layout.page_blocks : 0;
  o.window = model.window;
  o.window_blocks = model.window_blocks;
  o.block_size = options.block_size;
  // What stands before a token in an encoder says nothing without what stands behind it.
  o.prefix_caching = options.enable_prefix_caching && !model.encoder;
  o.max_queue_size = options.max_queue_size;
  o.media = model.media.get();
  return o;
}

base::Result<std::unique_ptr<Engine>> Engine::Load(LoadOptions options, OutputSink& sink) {
  std::unique_ptr<Engine> engine(new Engine);
  options.score_prompts = true;
  base::Result<std::unique_ptr<LoadedModel>> model = LoadModel(options);
  if (!model) return model.error();
  engine->model_ = *std::move(model);
  engine->options_ = std::move(options);
  engine->loop_ = std::make_unique<EngineLoop>(*engine->model_->runner, sink,
                                               LoopOptionsOf(*engine->model_, engine->options_));
  engine->loop_->Start();
  return engine;
}

Engine::~Engine() { loop_.reset(); }

base::Result<RequestId> Engine::Submit(Request request,
                                       const std::function<void(RequestId)>& taken) {
  base::Result<Admitted> admitted = Admit(*model_, options_, std::move(request));
  if (!admitted) return admitted.error();
  return loop_->Submit(std::move(admitted->request), admitted->sampler, taken);
}

void Engine::Cancel(RequestId request, int32_t choice, bool deliver) {
  loop_->Cancel(request, choice, deliver);
}
void Engine::Drain(double seconds) { loop_->Drain(seconds); }
EngineStats Engine::Stats() const { return loop_->Stats(); }

const LoadOptions& Engine::options() const { return options_; }
const text::Tokenizer* Engine::tokenizer() const { return model_->tokenizer.get(); }
const text::ChatTemplate* Engine::chat_template() const { return model_->chat_template.get(); }
int64_t Engine::vocabulary() const { return model_->config.vocab_size; }
Pooling Engine::pooling() const { return model_->pooling; }
bool Engine::encoder() const { return model_->encoder; }
int64_t Engine::classes() const { return model_->classes; }
const ClassHead& Engine::class_head() const { return model_->class_head; }
const weights::Audio& Engine::audio() const { return model_->config.audio; }
int64_t Engine::hidden_size() const { return model_->runner->hidden_size(); }
const std::string& Engine::description() const { return model_->description; }
const std::string& Engine::memory_summary() const { return model_->memory; }

base::Result<std::vector<int32_t>> Engine::EncodePrompt(std::string_view text,
                                                        bool add_special_tokens) const {
  return engine::EncodePrompt(*model_, text, add_special_tokens);
}
base::Result<std::vector<int32_t>> Engine::EncodeChat(const text::ChatInput& chat) const {
  return engine::EncodeChat(*model_, chat);
}

}  // namespace vllm::engine
