// From sound in requests to what the engine takes, and the places in prompts where it is heard.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "vllm/engine/media.h"
#include "vllm/server/api_error.h"
#include "vllm/text/chat_template.h"
#include "vllm/text/tokenizer.h"

namespace vllm::server {

class Sounds {
 public:
  // `audio`: what the model hears. A prompt has at most `max_tokens`.
  Sounds(const engine::Audio& audio, const text::Tokenizer* tokenizer, int64_t max_tokens)
      : audio_(audio), tokenizer_(tokenizer), max_tokens_(max_tokens) {}

  // The bytes of a file. Gives the text of its place in a prompt, in special tokens.
  std::variant<std::string, ApiError> Add(std::string_view file);
  // The file taken apart, and the text of the place of each piece in a prompt of its own.
  std::variant<std::vector<engine::SoundPiece>, ApiError> Cut(std::string_view file,
                                                              std::string& place) const;
  // Takes the input_audio parts of a conversation; a mark in its texts stands for each, of which
  // chat.places tells the tokenizer.
  std::optional<ApiError> Take(text::ChatInput& chat);

  // nullptr: there were none.
  std::shared_ptr<engine::Media> media() const { return media_; }

 private:
  const engine::Audio& audio_;
  const text::Tokenizer* tokenizer_;
  int64_t max_tokens_;
  std::shared_ptr<engine::Media> media_;
};

}  // namespace vllm::server
