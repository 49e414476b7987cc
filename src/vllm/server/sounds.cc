#include "vllm/server/sounds.h"

#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <random>

#include "base/strings.h"

namespace vllm::server {
namespace {

namespace json = boost::json;

constexpr size_t kMostSounds = 64;  // of a request

ApiError Bad(std::string message) {
  ApiError e;
  e.param = "messages";
  e.message = std::move(message);
  return e;
}

// A text that nobody writes by chance or on purpose.
std::string NewMark() {
  std::random_device entropy;
  return fmt::format("\xEE\x80\x80{:08x}{:08x}{:08x}{:08x}\xEE\x80\x80", entropy(), entropy(),
                     entropy(), entropy());
}

std::string_view Text(const json::object& o, std::string_view key) {
  const json::value* v = o.if_contains(key);
  return v != nullptr && v->is_string() ? std::string_view(v->get_string()) : std::string_view();
}

ApiError Refusal(const base::Error& error) {
  if (error.code == base::Code::kUnavailable) return {.status = 501, .message = error.message};
  return FromError(error);
}

}  // namespace

std::optional<std::string> DecodeBase64(std::string_view text) {
  if (text.size() % 4 != 0) return std::nullopt;
  const size_t padding = text.ends_with("==") ? 2 : text.ends_with("=") ? 1 : 0;
  const size_t letters = text.size() - padding;
  std::string out;
  out.reserve(text.size() / 4 * 3);
  uint32_t bits = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    int value = 0;
    if (i >= letters) {
      value = 0;
    } else if (c >= 'A' && c <= 'Z') {
      value = c - 'A';
    } else if (c >= 'a' && c <= 'z') {
      value = c - 'a' + 26;
    } else if (c >= '0' && c <= '9') {
      value = c - '0' + 52;
    } else if (c == '+' || c == '/') {
      value = c == '+' ? 62 : 63;
    } else {
      return std::nullopt;
    }
    bits = bits << 6 | static_cast<uint32_t>(value);
    if (i % 4 != 3) continue;
    for (const int shift : {16, 8, 0}) out += static_cast<char>(bits >> shift & 0xFF);
  }
  out.resize(out.size() - padding);
  return out;
}

std::variant<std::string, ApiError> Sounds::Add(std::string_view file) {
  if (media_ == nullptr) media_ = std::make_shared<engine::Media>();
  base::Result<std::string> place =
      engine::AddSound(audio_, tokenizer_, file, max_tokens_, *media_);
  if (!place) return Refusal(place.error());
  return *std::move(place);
}

std::variant<std::vector<engine::SoundPiece>, ApiError> Sounds::Cut(std::string_view file,
                                                                    std::string& place) const {
  base::Result<std::vector<engine::SoundPiece>> pieces = engine::CutSound(audio_, file);
  if (!pieces) return Refusal(pieces.error());
  place = engine::PlaceOf(audio_, *tokenizer_, 1);
  return *std::move(pieces);
}

std::optional<ApiError> Sounds::Take(text::ChatInput& chat) {
  size_t sounds = 0;
  for (json::value& message : chat.messages) {
    json::object* m = message.if_object();
    json::value* content = m == nullptr ? nullptr : m->if_contains("content");
    json::array* parts = content == nullptr ? nullptr : content->if_array();
    if (parts == nullptr) continue;
    std::string text;
    bool hears = false, plain = true;
    for (const json::value& part : *parts) {
      const json::object* o = part.if_object();
      if (o == nullptr || Text(*o, "type") != "input_audio") {
        plain = plain && o != nullptr && Text(*o, "type") == "text";
        if (o != nullptr) text += Text(*o, "text");
        continue;
      }
      hears = true;
      const json::value* input = o->if_contains("input_audio");
      const json::value* data = input == nullptr || !input->is_object()
                                    ? nullptr
                                    : input->get_object().if_contains("data");
      if (data == nullptr || !data->is_string())
        return Bad("an input_audio part needs input_audio.data, a file in base64");
      if (++sounds > kMostSounds)
        return Bad(fmt::format("there are more than {} sounds", kMostSounds));
      const std::optional<std::string> file = DecodeBase64(data->get_string());
      if (!file) return Bad("input_audio.data is no base64");
      std::variant<std::string, ApiError> place = Add(*file);
      if (auto* e = std::get_if<ApiError>(&place)) {
        if (e->param.empty()) e->param = "messages";
        return *e;
      }
      std::string mark = NewMark();
      text += mark;
      chat.places.emplace_back(std::move(mark), std::get<std::string>(std::move(place)));
    }
    if (!hears) continue;
    if (!plain) return Bad("beside sound a message may have text alone");
    *content = text;
  }
  return {};
}

}  // namespace vllm::server
