#include "vllm/engine/class_head.h"

#include "base/json.h"
#include "base/os/file.h"
#include "base/strings.h"

namespace vllm::engine {

base::Result<ClassHead> LoadClassHead(const std::string& path, int64_t classes) {
  ClassHead head;
  if (classes < 1) return head;
  head.scale = classes > 1 ? ClassHead::Scale::kSoftmax : ClassHead::Scale::kSigmoid;
  for (int64_t i = 0; i < classes; ++i) head.labels.push_back(fmt::format("LABEL_{}", i));
  const std::string file = path + "/config.json";
  if (!base::os::FileExists(file)) return head;
  const base::Result<boost::json::value> json = base::ParseJsonFile(file);
  if (!json) return json.error();
  if (!json->is_object()) return base::Error{base::Code::kCorrupt, file + " is not an object"};
  const boost::json::object& o = json->get_object();
  const boost::json::value* names = base::JsonGiven(o, "id2label");
  if (names != nullptr && names->is_object()) {
    for (int64_t i = 0; i < classes; ++i) {
      const boost::json::value* name = names->get_object().if_contains(std::to_string(i));
      if (name != nullptr && name->is_string())
        head.labels[static_cast<size_t>(i)] = std::string_view(name->get_string());
    }
  }
  const base::Result<std::string> problem = base::JsonString(o, "problem_type", "");
  if (!problem) return problem.error().In(file);
  if (*problem == "regression") {
    head.scale = ClassHead::Scale::kNone;
  } else if (*problem == "multi_label_classification") {
    head.scale = ClassHead::Scale::kSigmoid;
  } else if (!problem->empty() && *problem != "single_label_classification") {
    return base::Error{base::Code::kUnsupported,
                       fmt::format("{}: problem_type '{}' is none of regression, "
                                   "single_label_classification and multi_label_classification",
                                   file, base::Printable(*problem))};
  }
  return head;
}

}  // namespace vllm::engine
