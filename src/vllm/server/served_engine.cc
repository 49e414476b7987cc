#include "vllm/engine/engine.h"
#include "vllm/engine/engine_stats.h"
#include "vllm/server/served_model.h"

namespace vllm::server {
namespace {

class ServedEngine : public ServedModel {
 public:
  explicit ServedEngine(engine::Engine& engine) : engine_(engine) {}

  base::Status Submit(engine::Request request,
                      const std::function<void(engine::RequestId)>& taken) override {
    const base::Result<engine::RequestId> id = engine_.Submit(std::move(request), taken);
    return id ? base::Status() : base::Status(id.error());
  }
  void Cancel(engine::RequestId request, int32_t choice) override {
    engine_.Cancel(request, choice);
  }
  engine::EngineStats Stats() const override { return engine_.Stats(); }
  const text::Tokenizer* tokenizer() const override { return engine_.tokenizer(); }
  const text::ChatTemplate* chat_template() const override { return engine_.chat_template(); }
  int64_t max_model_len() const override { return engine_.options().max_model_len; }
  int64_t vocabulary() const override { return engine_.vocabulary(); }
  std::string description() const override { return engine_.description(); }
  engine::Pooling pooling() const override { return engine_.pooling(); }
  bool encoder() const override { return engine_.encoder(); }
  int64_t classes() const override { return engine_.classes(); }
  const engine::ClassHead& class_head() const override { return engine_.class_head(); }
  const engine::Audio& audio() const override { return engine_.audio(); }
  base::Result<std::vector<int32_t>> EncodePrompt(std::string_view text,
                                                  bool add_special_tokens) const override {
    return engine_.EncodePrompt(text, add_special_tokens);
  }
  base::Result<std::vector<int32_t>> EncodeChat(const text::ChatInput& chat) const override {
    return engine_.EncodeChat(chat);
  }

 private:
  engine::Engine& engine_;
};

}  // namespace

std::unique_ptr<ServedModel> ServeEngine(engine::Engine& engine) {
  return std::make_unique<ServedEngine>(engine);
}

}  // namespace vllm::server
