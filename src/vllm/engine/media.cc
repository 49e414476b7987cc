#include "vllm/engine/media.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>
#include <random>

#include "base/strings.h"
#include "vllm/audio/cut.h"
#include "vllm/audio/mel.h"
#include "vllm/audio/sound.h"

namespace vllm::engine {
namespace {

// Arithmetic modulo the prime 2^61 - 1.
constexpr uint64_t kPrime = (uint64_t{1} << 61) - 1;
uint64_t TimesPlus(uint64_t a, uint64_t b, uint64_t c) {
  __extension__ using Wide = unsigned __int128;
  const Wide sum = static_cast<Wide>(a) * b + c;
  const uint64_t folded = static_cast<uint64_t>(sum & kPrime) + static_cast<uint64_t>(sum >> 61);
  return folded >= kPrime ? folded - kPrime : folded;
}

uint64_t SecretPoint() {
  std::random_device entropy;
  return ((uint64_t{entropy()} << 32) | entropy()) % kPrime;
}

// Of a piece.
int64_t Samples(const Audio& audio) { return audio.frames() * audio::kHop; }

base::Error Deaf(base::Code code) { return {code, "this model does not hear: send text alone"}; }

}  // namespace

// The values are a polynomial's coefficients, taken at two secret points: two polynomials of degree
// n meet at both with a chance below (n / 2^61)^2, whoever chose them.
std::string DigestOf(std::span<const float> values) {
  static const uint64_t points[2] = {SecretPoint(), SecretPoint()};
  uint64_t sums[2] = {values.size(), values.size()};
  for (const float v : values) {
    for (int i = 0; i < 2; ++i) sums[i] = TimesPlus(sums[i], points[i], std::bit_cast<uint32_t>(v));
  }
  return {reinterpret_cast<const char*>(sums), sizeof sums};
}

base::Result<std::string> AddSound(const Audio& audio, const text::Tokenizer* tokenizer,
                                   std::string_view file, int64_t max_tokens, Media& media) {
  if (audio.mel_bins == 0 || tokenizer == nullptr) return Deaf(base::Code::kUnsupported);
  // What cannot fit into the context is not decoded to its end.
  const auto room = static_cast<double>(max_tokens / audio.rows + 1);
  const base::Result<std::vector<float>> sound =
      audio::Decode(file, room * static_cast<double>(Samples(audio)) / audio::kRate);
  if (!sound) return sound.error();
  const std::vector<float> mel = audio::LogMel(*sound, audio.mel_bins, audio.frames());
  media.mel.insert(media.mel.end(), mel.begin(), mel.end());
  media.seconds += static_cast<double>(sound->size()) / audio::kRate;
  return PlaceOf(audio, *tokenizer,
                 static_cast<int64_t>(mel.size()) / (audio.frames() * audio.mel_bins));
}

base::Result<std::vector<SoundPiece>> CutSound(const Audio& audio, std::string_view file) {
  if (audio.mel_bins == 0) return Deaf(base::Code::kUnsupported);
  // A piece has at least nine tenths of what it may have.
  const base::Result<std::vector<float>> sound = audio::Decode(
      file,
      std::floor(0.9 * static_cast<double>(kMostSoundPieces * Samples(audio)) / audio::kRate));
  if (!sound) return sound.error();
  std::vector<SoundPiece> pieces;
  int64_t begin = 0;
  for (const int64_t end : audio::CutWhereQuiet(*sound, Samples(audio))) {
    SoundPiece& piece = pieces.emplace_back();
    piece.media = std::make_shared<Media>();
    piece.media->mel = audio::LogMel(
        std::span(*sound).subspan(static_cast<size_t>(begin), static_cast<size_t>(end - begin)),
        audio.mel_bins, audio.frames());
    piece.start = static_cast<double>(begin) / audio::kRate;
    piece.end = static_cast<double>(end) / audio::kRate;
    piece.media->seconds = piece.end - piece.start;
    begin = end;
  }
  return pieces;
}

std::string PlaceOf(const Audio& audio, const text::Tokenizer& tokenizer, int64_t pieces) {
  std::string place(audio.before);
  for (int64_t i = 0; i < pieces * audio.rows; ++i) place += tokenizer.TokenText(audio.token);
  return place;
}

base::Status PrepareMedia(const Audio& audio, std::span<const int32_t> prompt, Media& media) {
  const int64_t piece = audio.frames() * audio.mel_bins,
                values = static_cast<int64_t>(media.mel.size());
  if (piece == 0) return Deaf(base::Code::kInvalidArgument);
  if (values == 0 || values % piece != 0)
    return base::Error{base::Code::kInternal, "sound must come in whole pieces"};
  media.pieces = values / piece;
  media.at.clear();
  for (size_t i = 0; i < prompt.size(); ++i) {
    if (prompt[i] == audio.token) media.at.push_back(static_cast<int32_t>(i));
  }
  const auto places = static_cast<int64_t>(media.at.size()), rows = media.pieces * audio.rows;
  if (places != rows) {
    return base::Error{
        base::Code::kInvalidArgument,
        fmt::format("the prompt has {} places for sound, but its sound takes {}", places, rows)};
  }
  return {};
}

StepOptions MediaEncoder::Steps(const Audio& audio, const StepOptions& text) {
  StepOptions s;
  s.encoder = true;
  s.max_num_batched_tokens = audio.positions;
  s.output_fold = audio.fold();
  s.use_graphs = text.use_graphs;
  s.warn = text.warn;
  s.block_size = text.block_size;
  s.kv_blocks = (audio.positions + s.block_size - 1) / s.block_size;
  return s;
}

MediaEncoder::MediaEncoder(const Audio& audio, std::unique_ptr<StepRunner> runner)
    : audio_(audio),
      runner_(std::move(runner)),
      ids_(static_cast<size_t>(audio.positions)),
      positions_(ids_.size()),
      blocks_(ids_.size()),  // more than there are of any size
      inputs_(ids_.size() * static_cast<size_t>(audio.row_width())) {
  std::iota(positions_.begin(), positions_.end(), 0);
  std::iota(blocks_.begin(), blocks_.end(), 0);
}

base::Status MediaEncoder::EncodePiece(Media& media) {
  const int64_t bins = audio_.mel_bins, frames = audio_.frames();
  const float* mel = media.mel.data() + media.encoded * frames * bins;
  for (int64_t t = 0; t < audio_.positions; ++t) {
    float* row = inputs_.data() + t * audio_.row_width();
    for (int64_t i = 0; i < 5; ++i) {
      const int64_t f = 2 * t - 2 + i;
      if (f >= 0 && f < frames) {
        std::copy_n(mel + f * bins, bins, row + i * bins);
      } else {
        std::fill_n(row + i * bins, bins, 0.0f);
      }
    }
    row[5 * bins] = t > 0 ? 1 : 0;
  }
  StepRow row;
  row.tokens = ids_;
  row.blocks = blocks_;
  row.outputs = StepRow::Outputs::kAll;
  row.media_at = positions_;
  row.media = inputs_.data();
  const base::Status launched = runner_->Launch({&row, 1}, {.hidden = true});
  if (!launched) return launched;
  const base::Result<StepResult*> result = runner_->Retire();
  if (!result) return result.error();
  media.rows.insert(media.rows.end(), (*result)->values.begin(), (*result)->values.end());
  ++media.encoded;
  return {};
}

}  // namespace vllm::engine
