#include <gtest/gtest.h>

#include <bit>
#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <cmath>
#include <cstring>
#include <limits>
#include <numbers>

#include "base/json.h"
#include "base/os/file.h"
#include "vllm/audio/cut.h"
#include "vllm/audio/mel.h"
#include "vllm/audio/sound.h"

namespace vllm::audio {
namespace {

static_assert(std::endian::native == std::endian::little, "goldens and WAV are little-endian");

const std::string kFolder = std::string(VLLM_SOURCE_DIR) + "/tests/goldens/audio/";

std::string Append(std::string to, const void* data, size_t bytes) {
  return to.append(static_cast<const char*>(data), bytes);
}

// A WAV file of 32-bit floats.
std::string Wav(int rate, int channels, const std::vector<float>& samples) {
  const auto bytes = static_cast<uint32_t>(samples.size() * 4);
  const auto u32 = [](uint32_t v) { return Append({}, &v, 4); };
  const auto u16 = [](int v) { return Append({}, &v, 2); };
  std::string out = "RIFF" + u32(36 + bytes) + "WAVEfmt " + u32(16) + u16(3) + u16(channels) +
                    u32(static_cast<uint32_t>(rate)) +
                    u32(static_cast<uint32_t>(rate * channels * 4)) + u16(channels * 4) + u16(32) +
                    "data" + u32(bytes);
  return Append(std::move(out), samples.data(), bytes);
}

TEST(LogMel, EqualsWhispersFeatureExtractor) {
  const auto json = base::ParseJsonFile(kFolder + "voxtral.json");
  const auto binary = base::os::ReadFile(kFolder + "voxtral.bin");
  ASSERT_TRUE(json.ok() && binary.ok());
  const boost::json::object& o = json->as_object();
  std::vector<float> all(binary->size() / 4);
  std::memcpy(all.data(), binary->data(), all.size() * 4);
  const auto samples = static_cast<size_t>(o.at("samples").as_int64());
  const int64_t frames = o.at("frames").as_int64();
  size_t at = samples;
  for (const auto& bins : o.at("bins").as_array()) {
    const std::vector<float> mel =
        LogMel(std::span(all).first(samples), bins.as_int64(), frames / 2);
    ASSERT_EQ(mel.size(), static_cast<size_t>(frames * bins.as_int64()));
    for (size_t i = 0; i < mel.size(); ++i, ++at) EXPECT_NEAR(mel[i], all[at], 1e-4) << i;
  }
}

TEST(CutWhereQuiet, CutsInPausesAndElseAsLateAsItMay) {
  using Ends = std::vector<int64_t>;
  std::vector<float> loud(25000, 0.5f);
  EXPECT_EQ(CutWhereQuiet(std::span(loud).first(10000), 10000), Ends{10000});
  EXPECT_EQ(CutWhereQuiet(std::span(loud).first(1), 10000), Ends{1});
  // Windows of 33 samples: the last of a piece ends with it, and is cut in its middle.
  EXPECT_EQ(CutWhereQuiet(loud, 10000), (Ends{9984, 19968, 25000}));
  // A pause in reach of the first cut, and one that is not in the second's: 9400 + [9000, 10000).
  std::fill(loud.begin() + 9350, loud.begin() + 9450, 0.0f);
  std::fill(loud.begin() + 17000, loud.begin() + 18000, 0.0f);
  const Ends ends = CutWhereQuiet(loud, 10000);
  ASSERT_EQ(ends.size(), 3u);
  EXPECT_GE(ends[0], 9350);
  EXPECT_LE(ends[0], 9450);
  EXPECT_EQ(ends[1], ends[0] + 9984);
  EXPECT_EQ(CutWhereQuiet(std::span(loud).first(3), 1), (Ends{1, 2, 3}));
}

TEST(LogMel, OfSilenceIsItsFloor) {
  const std::vector<float> mel = LogMel(std::vector<float>(1000), 8, 40);
  EXPECT_EQ(mel, std::vector<float>(40 * 8, -1.5f));
}

// Every file holds 250 ms of 440 Hz at half of full scale.
TEST(Decode, GivesTheSameToneOfEveryFormatRateAndChannelCount) {
  for (const char* kind : {"wav", "flac", "ogg", "mp3"}) {
    const auto file = base::os::ReadFile(kFolder + "tone." + kind);
    ASSERT_TRUE(file.ok());
    const auto sound = Decode(*file, 1);
    ASSERT_TRUE(sound.ok()) << kind << ": " << sound.error().message;
    EXPECT_NEAR(static_cast<double>(sound->size()), kRate / 4.0, kRate / 20.0) << kind;
    // A share of energy in the middle, away from ends and coders' delays.
    double energy = 0, re = 0, im = 0;
    const size_t begin = 1000, count = 2000;  // 55 whole periods
    ASSERT_GE(sound->size(), begin + count);
    for (size_t i = begin; i < begin + count; ++i) {
      const double x = (*sound)[i],
                   angle = 2 * std::numbers::pi * 440 * static_cast<double>(i) / kRate;
      energy += x * x;
      re += x * std::cos(angle);
      im += x * std::sin(angle);
    }
    EXPECT_NEAR(2 * std::hypot(re, im) / count, 0.5, 0.02) << kind;
    EXPECT_NEAR(2 * (re * re + im * im) / count / energy, 1, 0.01) << kind;
  }
}

TEST(Decode, MixesChannelsAndKeepsSamplesOfItsOwnRate) {
  const auto sound = Decode(Wav(kRate, 2, {0.5f, 0.25f, -1, 0, 0.125f, 0.125f}), 1);
  ASSERT_TRUE(sound.ok()) << sound.error().message;
  EXPECT_EQ(*sound, (std::vector<float>{0.375f, -0.5f, 0.125f}));
}

TEST(Decode, RefusesWhatIsNoSoundInASentence) {
  const auto why = [](const std::string& file, double seconds = 1) {
    const auto sound = Decode(file, seconds);
    return sound ? "it was taken" : sound.error().message;
  };
  EXPECT_NE(why("").find("empty"), std::string::npos);
  EXPECT_NE(why("<html>not found</html>").find("no sound that can be read"), std::string::npos);
  EXPECT_NE(why(Wav(kRate, 1, {})).find("no samples"), std::string::npos);
  EXPECT_NE(why(Wav(kRate, 1, std::vector<float>(16001))).find("longer than the 1 seconds"),
            std::string::npos);
  EXPECT_NE(why(Wav(10, 1, {0.5f})).find("10 samples a second"), std::string::npos);
  EXPECT_NE(why(Wav(kRate, 1, {std::numeric_limits<float>::quiet_NaN()})).find("no numbers"),
            std::string::npos);
  const std::string whole = Wav(44100, 1, std::vector<float>(2000, 0.25f));
  for (size_t cut = 0; cut < 60; ++cut) (void)Decode(whole.substr(0, cut), 1);  // no crash
}

}  // namespace
}  // namespace vllm::audio
