// Which files make up a GGUF model. Parts are called <name>-00001-of-00003.gguf, counted from 1;
// split.no inside counts from 0.
#include <algorithm>
#include <cctype>
#include <set>

#include "base/os/file.h"
#include "base/strings.h"
#include "vllm/weights/gguf.h"

namespace vllm::weights {
namespace {

using base::Code;
using base::Error;
using base::Result;

constexpr int64_t kMaxParts = 99999;  // five digits in a name

struct PartName {
  std::string prefix;  // with the folder
  int64_t number = 0;  // from 1
  int64_t count = 0;
};

// "<prefix>-00002-of-00003.gguf"
std::optional<PartName> ParsePartName(const std::string& path) {
  constexpr size_t kTail = sizeof("-00002-of-00003.gguf") - 1;
  if (path.size() <= kTail || !base::EndsWith(path, ".gguf")) return std::nullopt;
  const std::string_view tail = std::string_view(path).substr(path.size() - kTail);
  if (tail[0] != '-' || tail.substr(6, 4) != "-of-") return std::nullopt;
  const auto number = [](std::string_view digits) {
    int64_t n = 0;
    for (const char c : digits) {
      if (std::isdigit(static_cast<unsigned char>(c)) == 0) return int64_t{-1};
      n = n * 10 + (c - '0');
    }
    return n;
  };
  PartName out{path.substr(0, path.size() - kTail), number(tail.substr(1, 5)),
               number(tail.substr(10, 5))};
  if (out.number < 1 || out.count < 1 || out.number > out.count) return std::nullopt;
  return out;
}

std::string PartPath(const PartName& name, int64_t number) {
  return fmt::format("{}-{:05}-of-{:05}.gguf", name.prefix, number, name.count);
}

// The one GGUF model of a folder: its file, or any part.
Result<std::string> FindInFolder(const std::string& folder) {
  const Result<std::vector<std::string>> names = base::os::ListDirectory(folder);
  if (!names) return names.error();
  std::set<std::string> models;  // part 1 stands for all parts
  std::string first;
  for (const std::string& name : *names) {
    // A vision projector lies beside the model that it belongs to.
    if (!base::EndsWith(name, ".gguf") || base::StartsWith(name, "mmproj")) continue;
    const std::string path = folder + "/" + name;
    const std::optional<PartName> part = ParsePartName(path);
    if (models.insert(part ? PartPath(*part, 1) : path).second && first.empty()) first = path;
  }
  if (models.empty()) return Error{Code::kNotFound, folder + ": no .gguf file in this folder"};
  if (models.size() > 1) {
    return Error{
        Code::kInvalidArgument,
        fmt::format("{}: {} GGUF models in this folder; name one of them", folder, models.size())};
  }
  return first;
}

}  // namespace

Result<std::vector<std::string>> FindGgufParts(const std::string& path) {
  std::string file = path;
  if (base::os::IsDirectory(path)) {
    Result<std::string> found = FindInFolder(path);
    if (!found) return found.error();
    file = *found;
  }
  const std::optional<PartName> name = ParsePartName(file);
  if (!name) return std::vector<std::string>{file};
  std::vector<std::string> out;
  for (int64_t i = 1; i <= name->count; ++i) {
    out.push_back(PartPath(*name, i));
    if (!base::os::FileExists(out.back())) {
      return Error{Code::kNotFound, fmt::format("{}: part {} of {} is missing ({})", file, i,
                                                name->count, out.back())};
    }
  }
  return out;
}

Result<GgufSplit> SplitOf(const GgufMetadata& metadata) {
  GgufSplit out;
  const Result<int64_t> count = metadata.Int("split.count", 1);
  if (!count) return count.error();
  // 0 is what an unsplit model may carry.
  out.count = std::max<int64_t>(*count, 1);
  if (*count < 0 || *count > kMaxParts) {
    return Error{Code::kCorrupt,
                 fmt::format("metadata key 'split.count' is {}: it must be from 0 to {}", *count,
                             kMaxParts)};
  }
  if (out.count == 1) return out;
  const Result<int64_t> no = metadata.Int("split.no");
  if (!no) return no.error();
  if (*no < 0 || *no >= out.count) {
    return Error{Code::kCorrupt,
                 fmt::format("metadata key 'split.no' is {}, of {} parts", *no, out.count)};
  }
  out.no = *no;
  const Result<int64_t> tensors = metadata.Int("split.tensors.count", -1);
  if (!tensors) return tensors.error();
  out.tensors = *tensors;
  return out;
}

}  // namespace vllm::weights
