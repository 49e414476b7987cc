// What the service asks of a model: an engine, or a fake in tests.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "vllm/engine/class_head.h"
#include "vllm/engine/engine_stats.h"
#include "vllm/engine/media.h"
#include "vllm/engine/request.h"
#include "vllm/text/chat_template.h"
#include "vllm/text/tokenizer.h"

namespace vllm::engine {
class Engine;
}

namespace vllm::server {

// Every method is safe from any thread; see engine::Engine for what each does.
class ServedModel {
 public:
  virtual ~ServedModel() = default;

  // `taken` is told the id before anything is delivered for it.
  virtual base::Status Submit(engine::Request request,
                              const std::function<void(engine::RequestId)>& taken) = 0;
  virtual void Cancel(engine::RequestId request, int32_t choice) = 0;
  virtual engine::EngineStats Stats() const = 0;

  virtual const text::Tokenizer* tokenizer() const = 0;         // nullptr: none
  virtual const text::ChatTemplate* chat_template() const = 0;  // nullptr: none
  virtual int64_t max_model_len() const = 0;
  virtual int64_t vocabulary() const = 0;
  virtual std::string description() const = 0;
  virtual engine::Pooling pooling() const = 0;    // of embeddings
  virtual bool encoder() const { return false; }  // gives no text
  // Of an encoder that scores texts in place of embedding them; 0: none.
  virtual int64_t classes() const { return 0; }
  virtual const engine::ClassHead& class_head() const = 0;  // and what they are
  virtual const engine::Audio& audio() const = 0;           // what the model hears

  virtual base::Result<std::vector<int32_t>> EncodePrompt(std::string_view text,
                                                          bool add_special_tokens) const = 0;
  virtual base::Result<std::vector<int32_t>> EncodeChat(const text::ChatInput& chat) const = 0;
};

// `engine` must outlive it.
std::unique_ptr<ServedModel> ServeEngine(engine::Engine& engine);

}  // namespace vllm::server
