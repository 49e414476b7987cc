#include "base/json.h"
#include "base/os/file.h"
#include "base/strings.h"
#include "vllm/engine/loaded_model.h"
#include "vllm/weights/gguf.h"

namespace vllm::engine {
namespace {

base::Error Unknown(const std::string& where, const std::string& what) {
  return {base::Code::kUnsupported,
          fmt::format("{}: pooling '{}' is not implemented: mean, cls and last token are", where,
                      what)};
}

base::Result<Pooling> OfGguf(const weights::GgufMetadata& metadata, const std::string& path,
                             Pooling otherwise) {
  const base::Result<std::string_view> architecture = metadata.String("general.architecture", "");
  if (!architecture) return architecture.error();
  const std::string key = std::string(*architecture) + ".pooling_type";
  const base::Result<int64_t> type = metadata.Int(key, 0);
  if (!type) return type.error();
  switch (*type) {  // llama.cpp's numbers; 0: none is said
    case 0:
      return otherwise;
    case 3:
      return Pooling::kLast;
    case 1:
      return Pooling::kMean;
    case 2:
      return Pooling::kFirst;
    default:
      return Unknown(path + ", " + key, std::to_string(*type));
  }
}

}  // namespace

base::Result<Pooling> LoadPooling(const weights::Checkpoint& checkpoint, const std::string& path,
                                  Pooling otherwise) {
  if (checkpoint.is_gguf()) return OfGguf(*checkpoint.gguf(), path, otherwise);
  const std::string file = path + "/1_Pooling/config.json";
  if (!base::os::FileExists(file)) return otherwise;
  const base::Result<boost::json::value> json = base::ParseJsonFile(file);
  if (!json) return json.error();
  if (!json->is_object()) return base::Error{base::Code::kCorrupt, file + " is not an object"};
  // Flags, "pooling_mode_mean_tokens": true; newer files have one word, "pooling_mode": "mean".
  std::vector<std::string> modes;
  for (const auto& [key, value] : json->get_object()) {
    if (key == "pooling_mode" && !value.is_null()) {
      modes = {value.is_string() ? std::string(value.get_string()) : "of no word"};
      break;
    }
    if (key.starts_with("pooling_mode_") && value.is_bool() && value.get_bool()) {
      modes.emplace_back(std::string_view(key).substr(13));
    }
  }
  // Several modes mean their vectors one after the other.
  if (modes.size() > 1) return Unknown(file, "several modes at once");
  if (modes.empty()) return otherwise;
  const std::string& mode = modes[0];
  if (mode == "mean" || mode == "mean_tokens") return Pooling::kMean;
  if (mode == "cls" || mode == "cls_token") return Pooling::kFirst;
  if (mode == "lasttoken") return Pooling::kLast;
  return Unknown(file, base::Printable(mode));
}

}  // namespace vllm::engine
