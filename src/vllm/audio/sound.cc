#include "vllm/audio/sound.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <memory>
#include <utility>

#include "base/os/module.h"
#include "base/strings.h"

#if __has_include(<sndfile.h>) && __has_include(<soxr.h>)
#include <sndfile.h>
#include <soxr.h>

namespace vllm::audio {
namespace {

using base::Code;
using base::Error;

// What is used of the two libraries.
struct Libraries {
  decltype(&::sf_open_virtual) open = nullptr;
  decltype(&::sf_readf_float) read = nullptr;
  decltype(&::sf_close) close = nullptr;
  decltype(&::sf_strerror) why = nullptr;
  decltype(&::soxr_create) resampler = nullptr;
  decltype(&::soxr_process) resample = nullptr;
  decltype(&::soxr_delete) free_resampler = nullptr;
};

base::Result<Libraries> OpenLibraries() {
  Libraries l;
  base::Status status;
  const auto open = [&](const char* file) -> void* {
    const base::Result<void*> module = base::os::OpenModule(file);
    if (module) return *module;
    if (status) status = module.error();
    return nullptr;
  };
  const auto find = [&](void* module, const char* name, auto& out) {
    if (module == nullptr) return;
    const base::Result<void*> symbol = base::os::FindSymbol(module, name);
    if (symbol) {
      out = reinterpret_cast<std::remove_reference_t<decltype(out)>>(*symbol);
    } else if (status) {
      status = symbol.error();
    }
  };
  void* const sndfile = open("libsndfile.so.1");
  find(sndfile, "sf_open_virtual", l.open);
  find(sndfile, "sf_readf_float", l.read);
  find(sndfile, "sf_close", l.close);
  find(sndfile, "sf_strerror", l.why);
  void* const soxr = open("libsoxr.so.0");
  find(soxr, "soxr_create", l.resampler);
  find(soxr, "soxr_process", l.resample);
  find(soxr, "soxr_delete", l.free_resampler);
  if (!status) {
    return Error{
        Code::kUnavailable,
        "sound cannot be read here, install libsndfile1 and libsoxr0: " + status.error().message};
  }
  return l;
}

// The file in memory, as libsndfile asks for it.
struct Bytes {
  std::string_view data;
  sf_count_t at = 0;

  sf_count_t size() const { return static_cast<sf_count_t>(data.size()); }
  static Bytes& Of(void* p) { return *static_cast<Bytes*>(p); }
  static sf_count_t Length(void* p) { return Of(p).size(); }
  static sf_count_t Tell(void* p) { return Of(p).at; }
  static sf_count_t Seek(sf_count_t offset, int whence, void* p) {
    Bytes& b = Of(p);
    const sf_count_t from = whence == SEEK_CUR ? b.at : whence == SEEK_END ? b.size() : 0;
    if (offset < -from || offset > b.size() - from) return -1;
    return b.at = from + offset;
  }
  static sf_count_t Read(void* to, sf_count_t count, void* p) {
    Bytes& b = Of(p);
    count = std::clamp<sf_count_t>(count, 0, b.size() - b.at);
    std::memcpy(to, b.data.data() + b.at, static_cast<size_t>(count));
    b.at += count;
    return count;
  }
  static sf_count_t Write(const void*, sf_count_t, void*) { return 0; }
};

// Appends what it is given to `out`, at kRate.
class Resampler {
 public:
  Resampler(const Libraries& l, int rate, std::vector<float>& out)
      : l_(l), ratio_(static_cast<double>(kRate) / rate), out_(out) {
    if (rate != kRate) soxr_ = l.resampler(rate, kRate, 1, nullptr, nullptr, nullptr, nullptr);
    failed_ = rate != kRate && soxr_ == nullptr;
  }
  ~Resampler() {
    if (soxr_ != nullptr) l_.free_resampler(soxr_);
  }
  Resampler(const Resampler&) = delete;
  Resampler& operator=(const Resampler&) = delete;

  // Without samples: what is still held back.
  bool Push(const float* samples, size_t count) {
    if (failed_) return false;
    if (soxr_ == nullptr) {
      out_.insert(out_.end(), samples, samples + count);
      return true;
    }
    while (true) {
      const size_t before = out_.size(),
                   room = static_cast<size_t>(static_cast<double>(count) * ratio_) + 4096;
      size_t taken = 0, made = 0;
      out_.resize(before + room);
      const soxr_error_t error =
          l_.resample(soxr_, samples, count, &taken, out_.data() + before, room, &made);
      out_.resize(before + made);
      if (error != nullptr) return false;
      if (samples == nullptr ? made < room : taken == count) return true;
      if (samples != nullptr) samples += taken;
      count -= taken;
    }
  }

 private:
  const Libraries& l_;
  double ratio_;
  std::vector<float>& out_;
  soxr_t soxr_ = nullptr;
  bool failed_ = false;
};

Error Invalid(std::string what) { return {Code::kInvalidArgument, std::move(what)}; }

}  // namespace

base::Result<std::vector<float>> Decode(std::string_view file, double most_seconds) {
  if (file.empty()) return Invalid("the sound is empty");
  static const base::Result<Libraries> libraries = OpenLibraries();
  if (!libraries) return libraries.error();
  const Libraries& l = *libraries;
  Bytes bytes{file};
  SF_VIRTUAL_IO io = {&Bytes::Length, &Bytes::Seek, &Bytes::Read, &Bytes::Write, &Bytes::Tell};
  SF_INFO info{};
  const std::unique_ptr<SNDFILE, decltype(l.close)> sound(l.open(&io, SFM_READ, &info, &bytes),
                                                          l.close);
  if (sound == nullptr) {
    return Invalid(fmt::format("this is no sound that can be read ({}): WAV, FLAC, Ogg and MP3 can",
                               base::Printable(l.why(nullptr))));
  }
  if (info.samplerate < 1000 || info.samplerate > 768000 || info.channels < 1 ||
      info.channels > 64) {
    return Invalid(
        fmt::format("the sound has {} samples a second and {} channels: 1000 to 768000 and 1 to 64 "
                    "can be read",
                    info.samplerate, info.channels));
  }
  constexpr int64_t kFrames = 16384;
  const auto channels = static_cast<size_t>(info.channels);
  std::vector<float> frames(static_cast<size_t>(kFrames) * channels), mono, out;
  Resampler resampler(l, info.samplerate, out);
  const auto most = static_cast<int64_t>(most_seconds * info.samplerate);
  bool good = true;
  // The header's own count may be anything: what counts is what is there.
  for (int64_t total = 0; good;) {
    const sf_count_t n = l.read(sound.get(), frames.data(), kFrames);
    if (n <= 0) break;
    total += n;
    if (total > most) {
      return Invalid(fmt::format("the sound is longer than the {:g} seconds that are taken here",
                                 most_seconds));
    }
    mono.assign(static_cast<size_t>(n), 0);
    for (size_t i = 0; i < mono.size(); ++i) {
      for (size_t c = 0; c < channels; ++c) mono[i] += frames[i * channels + c];
      mono[i] /= static_cast<float>(channels);
    }
    good = resampler.Push(mono.data(), mono.size());
  }
  if (!good || !resampler.Push(nullptr, 0)) return Error{Code::kInternal, "resampling failed"};
  if (out.empty()) return Invalid("the sound has no samples");
  if (!std::all_of(out.begin(), out.end(), [](float x) { return std::fabs(x) < 1e6f; }))
    return Invalid("the sound has samples that are no numbers, or far too large");
  return out;
}

}  // namespace vllm::audio

#else

namespace vllm::audio {

base::Result<std::vector<float>> Decode(std::string_view, double) {
  return base::Error{base::Code::kUnavailable,
                     "this program was built without libsndfile and libsoxr, so it reads no sound"};
}

}  // namespace vllm::audio

#endif
