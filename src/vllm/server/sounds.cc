#include "vllm/server/sounds.h"

#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <random>

#include "base/base64.h"
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
      const std::optional<std::string> file = base::DecodeBase64(data->get_string());
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
