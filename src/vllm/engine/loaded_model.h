// From a path to a model in memory: checkpoint -> graph -> weights on the device, tokenizer, chat
// template.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "vllm/engine/class_head.h"
#include "vllm/engine/kv_layout.h"
#include "vllm/engine/media.h"
#include "vllm/engine/options.h"
#include "vllm/engine/request.h"
#include "vllm/engine/step_runner.h"
#include "vllm/text/chat_template.h"
#include "vllm/text/tokenizer.h"
#include "vllm/weights/checkpoint.h"
#include "vt/device/registry.h"

namespace vllm::engine {

// The words that go with a model, without its weights: enough to tokenise and to render.
struct TextParts {
  std::unique_ptr<text::Tokenizer> tokenizer;         // nullptr: the model has none
  std::unique_ptr<text::ChatTemplate> chat_template;  // nullptr: none
  std::string why_no_template;                        // of a known format, if it is known
};

// `path`: a folder (tokenizer.json alone suffices) or a GGUF file. `template_file` replaces the
// model's own template; where there is none, that of its tekken.json's version is taken, else
// `own_template`.
base::Result<TextParts> LoadText(const std::string& path, const std::string& template_file,
                                 std::string_view own_template = {});

// What sentence-transformers' 1_Pooling/config.json beside the model, or a GGUF file's
// pooling_type, says. Errors: kUnsupported for a pooling that is not one of ours.
// Where they say nothing, `otherwise`.
base::Result<Pooling> LoadPooling(const weights::Checkpoint& checkpoint, const std::string& path,
                                  Pooling otherwise);

struct LoadedModel {
  vt::DeviceRegistry registry;
  std::unique_ptr<vt::Backend> backend;
  weights::Config config;
  vt::ir::Graph graph;        // outputs: logits [O, V], tokens [O], log-probabilities and their ids
                              // (Builder::Sampled)
  vt::ir::Graph media_graph;  // of what encodes sound; without nodes: it does not hear
  std::map<std::string, vt::DeviceWeight> weights;
  void* weight_memory = nullptr;  // in which they all stand
  std::unique_ptr<text::Tokenizer> tokenizer;
  std::unique_ptr<text::ChatTemplate> chat_template;
  std::string why_no_template;  // see TextParts
  std::vector<int32_t> eos_ids;
  Pooling pooling = Pooling::kLast;
  bool encoder = false;  // its graph ends in hidden states, or in `classes` scores
  int64_t classes = 0;
  ClassHead class_head;     // of `classes`
  std::string description;  // "llama, 30 layers, 134.5 M weights in 91.7 MiB"
  std::string memory;       // "weights 91.7 MiB, KV cache ..."
  KvLayout layout;
  int64_t kv_blocks = 0;                  // pages, where there are any
  int64_t window = 0, window_blocks = 0;  // the longest window, and blocks of layers with one
  int64_t snapshots = 0;                  // of recurrent state
  int64_t output_rows = 0;                // of a step
  vt::ir::SamplerLayout sampler;
  std::unique_ptr<StepRunner> runner;             // warm
  std::unique_ptr<MediaEncoder> media;            // of models that hear
  mutable std::atomic<uint64_t> drawn_seeds = 0;  // of requests without a seed, with --seed

  LoadedModel() = default;
  LoadedModel(const LoadedModel&) = delete;
  LoadedModel& operator=(const LoadedModel&) = delete;
  ~LoadedModel();

  bool recurrent() const;  // whether it has recurrent layers
};

// Settles what `options` leaves open (max_model_len, sizes of steps), sees that it fits, loads and
// warms up. Errors name the file, tensor or flag; kResourceExhausted comes before any weight is
// read.
base::Result<std::unique_ptr<LoadedModel>> LoadModel(LoadOptions& options);

// The graph alone, before any pass, and the checkpoint it was made for (for tools; `options` as for
// LoadModel).
struct OpenedModel {
  std::unique_ptr<weights::Checkpoint> checkpoint;
  vt::ir::Graph graph, media;  // `media` may have no nodes
};
// `target` says which types the device holds; without one they are those of the checkpoint.
base::Result<OpenedModel> OpenModel(LoadOptions& options, const vt::ir::Target* target = nullptr);

}  // namespace vllm::engine
