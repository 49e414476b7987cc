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
  Pooling pooling = otherwise;
  int modes = 0;
  for (const auto& [key, value] : json->get_object()) {
    if (key.find("pooling_mode_") != 0 || !value.is_bool() || !value.get_bool()) continue;
    ++modes;
    if (key == "pooling_mode_mean_tokens") {
      pooling = Pooling::kMean;
    } else if (key == "pooling_mode_cls_token") {
      pooling = Pooling::kFirst;
    } else if (key == "pooling_mode_lasttoken") {
      pooling = Pooling::kLast;
    } else {
      return Unknown(file, std::string(key));
    }
  }
  // Several modes mean their vectors one after the other.
  if (modes > 1) return Unknown(file, "several modes at once");
  return pooling;
}

}  // namespace vllm::engine
