// What a request brings beside text: sound, which an encoder turns into rows that stand for tokens
// of its prompt.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "vllm/engine/step_runner.h"
#include "vllm/text/tokenizer.h"
#include "vllm/weights/config.h"

namespace vllm::engine {

using weights::Audio;

// All sound of one request. Made by whoever submits it; what is below belongs to the engine.
struct Media {
  std::vector<float> mel;  // log-mel frames [pieces * frames, bins] of Config::audio
  double seconds = 0;      // without the silence behind each sound

  int64_t pieces = 0, encoded = 0;  // how many there are, and of how many the rows are known
  std::vector<float> rows;          // [encoded * rows of a piece, hidden]
  std::vector<int32_t> at;          // [row]: the position in the prompt
  bool ready() const { return encoded == pieces; }
};

// Adds a file of sound (audio/sound.h says which). Gives the text that stands for it in a prompt of
// at most `max_tokens`, in special tokens. Errors: kInvalidArgument for what is no sound or far too
// long, kUnsupported for a model that does not hear.
base::Result<std::string> AddSound(const Audio& audio, const text::Tokenizer* tokenizer,
                                   std::string_view file, int64_t max_tokens, Media& media);

// A part of a sound that the encoder takes at once, to be heard by a request of its own.
struct SoundPiece {
  std::shared_ptr<Media> media;
  double start = 0, end = 0;  // seconds
};
inline constexpr int64_t kMostSoundPieces = 256;
// A file of sound, taken apart in its quiet places (audio/cut.h); PlaceOf says what stands for each
// in its prompt. Errors: as AddSound's; kMostSoundPieces bound it, and no context.
base::Result<std::vector<SoundPiece>> CutSound(const Audio& audio, std::string_view file);

// The text that stands for so many pieces of one sound. REQUIRES: the model hears.
std::string PlaceOf(const Audio& audio, const text::Tokenizer& tokenizer, int64_t pieces);

// Settles what belongs to the engine. Errors: kInvalidArgument where the prompt has more or fewer
// places than the sound has rows.
base::Status PrepareMedia(const Audio& audio, std::span<const int32_t> prompt, Media& media);

// 16 bytes that differ for different values, within this process.
std::string DigestOf(std::span<const float> values);

// Runs the encoder, a piece at a time. Not thread-safe.
class MediaEncoder {
 public:
  // Of its only step.
  static StepOptions Steps(const Audio& audio, const StepOptions& text);

  MediaEncoder(const Audio& audio, std::unique_ptr<StepRunner> runner);
  // REQUIRES: prepared and not ready.
  base::Status EncodePiece(Media& media);

 private:
  Audio audio_;
  std::unique_ptr<StepRunner> runner_;
  std::vector<int32_t> ids_, positions_, blocks_;  // of every piece alike
  std::vector<float> inputs_;                      // [positions, row_width]
};

}  // namespace vllm::engine
