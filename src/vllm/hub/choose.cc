#include "vllm/hub/choose.h"

#include <algorithm>
#include <map>
#include <optional>

#include "base/strings.h"
#include "net/request.h"

namespace vllm::hub {
namespace {

using base::Code;
using base::EndsWith;
using base::Error;
using base::StartsWith;

bool IsDigit(char c) { return c >= '0' && c <= '9'; }
bool IsAlnum(char c) { return IsDigit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

std::string_view BaseName(std::string_view path) { return path.substr(path.rfind('/') + 1); }

// "x-00002-of-00003.gguf".
struct Part {
  std::string_view stem;  // "x"
  int index = 0, count = 0;
};

std::optional<Part> ParsePart(std::string_view path, std::string_view extension) {
  constexpr size_t kTail = 15;  // "-00002-of-00003"
  if (!EndsWith(path, extension)) return std::nullopt;
  const std::string_view stem = path.substr(0, path.size() - extension.size());
  if (stem.size() <= kTail) return std::nullopt;
  const std::string_view tail = stem.substr(stem.size() - kTail);
  if (tail[0] != '-' || tail.substr(6, 4) != "-of-") return std::nullopt;
  int index = 0, count = 0;
  for (int i = 0; i < 5; ++i) {
    const char a = tail[static_cast<size_t>(1 + i)], b = tail[static_cast<size_t>(10 + i)];
    if (!IsDigit(a) || !IsDigit(b)) return std::nullopt;
    index = index * 10 + (a - '0');
    count = count * 10 + (b - '0');
  }
  return Part{stem.substr(0, stem.size() - kTail), index, count};
}

// Does the name of a quantisation stand in `path` as a word of its own? "Q4_K" is none in "IQ4_K"
// or "Q4_K_M".
bool Names(std::string_view path, std::string_view quant) {
  const std::string text = net::LowerCase(path), word = net::LowerCase(quant);
  for (size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + 1)) {
    const size_t end = at + word.size();
    const auto joined = [](char c) { return IsAlnum(c) || c == '_'; };
    if ((at == 0 || !joined(text[at - 1])) && (end == text.size() || !joined(text[end])))
      return true;
  }
  return false;
}

// Files that belong to a model's side: projectors of images, statistics of quantising.
bool IsCompanion(std::string_view path) {
  const std::string name = net::LowerCase(BaseName(path));
  return StartsWith(name, "mmproj") || name.find("imatrix") != std::string::npos;
}

// The .gguf files as models: name of the whole (without the parts' numbers) and its files.
std::map<std::string, std::vector<std::string>> GgufModels(const std::vector<std::string>& files) {
  std::map<std::string, std::vector<std::string>> models;
  for (const std::string& file : files) {
    if (!EndsWith(net::LowerCase(file), ".gguf")) continue;
    const auto part = ParsePart(file, ".gguf");
    models[part ? std::string(part->stem) + ".gguf" : file].push_back(file);
  }
  for (auto& [name, parts] : models) std::sort(parts.begin(), parts.end());
  return models;
}

// The files are sorted, so that part i stands at place i - 1.
base::Status CheckParts(const std::vector<std::string>& files, std::string_view extension) {
  const auto first = ParsePart(files[0], extension);
  if (!first) return {};
  for (int i = 1; i <= first->count; ++i) {
    const auto at = static_cast<size_t>(i - 1);
    const auto part = at < files.size() ? ParsePart(files[at], extension) : std::nullopt;
    if (!part || part->index != i || part->count != first->count) {
      return Error{Code::kNotFound, fmt::format("{}-{:05}-of-{:05}{} is missing", first->stem, i,
                                                first->count, extension)};
    }
  }
  return {};
}

base::Result<Choice> ChooseGguf(const ModelName& name, const std::vector<std::string>& files) {
  std::vector<std::string> fitting, all;
  const auto models = GgufModels(files);
  for (const auto& [model, parts] : models) {
    const bool exact =
        !name.quant.empty() && (model == name.quant || BaseName(model) == name.quant ||
                                std::find(parts.begin(), parts.end(), name.quant) != parts.end());
    if (exact) {
      fitting = {model};
      break;
    }
    if (IsCompanion(model)) continue;
    all.push_back(model);
    if (name.quant.empty() || Names(model, name.quant)) fitting.push_back(model);
  }
  const auto list = [](const std::vector<std::string>& names) {
    std::string out;
    for (const std::string& n : names) out += (out.empty() ? "" : ", ") + base::Printable(n);
    return out;
  };
  if (all.empty() && fitting.empty()) {
    return Error{Code::kNotFound,
                 fmt::format("{} holds no model that can be loaded: there are neither .safetensors "
                             "nor .gguf files in it",
                             name.repository)};
  }
  if (fitting.empty()) {
    return Error{Code::kNotFound, fmt::format("{} holds no .gguf of '{}', but these: {}",
                                              name.repository, name.quant, list(all))};
  }
  if (fitting.size() > 1) {
    return Error{Code::kInvalidArgument,
                 fmt::format("{} holds several models: say which one, as in {}:Q4_K_M or "
                             "{}:FILE.gguf, of these: {}",
                             name.repository, name.repository, name.repository, list(fitting))};
  }
  const std::vector<std::string>& parts = models.at(fitting[0]);
  if (auto whole = CheckParts(parts, ".gguf"); !whole) return whole.error().In(name.repository);
  return Choice{parts, parts[0]};
}

bool IsWeights(std::string_view file) { return EndsWith(file, ".safetensors"); }

// What stands beside the weights and tells how to use them. Files of other frameworks, images and
// licences are left where they are.
bool Describes(std::string_view file) {
  if (file == "1_Pooling/config.json" || StartsWith(file, "additional_chat_templates/"))
    return true;
  if (file.find('/') != std::string_view::npos || EndsWith(file, ".bin.index.json")) return false;
  for (const std::string_view end : {".json", ".model", ".jinja", ".tiktoken"})
    if (EndsWith(file, end)) return true;
  return file == "merges.txt" || file == "vocab.txt";
}

}  // namespace

base::Result<ModelName> ParseName(std::string_view text) {
  const Error none{Code::kInvalidArgument,
                   fmt::format("'{}' is no file or folder here, and no name of a model on the hub "
                               "(org/name, or org/name:Q4_K_M)",
                               base::Printable(text))};
  ModelName name;
  const size_t colon = text.find(':');
  name.repository = std::string(text.substr(0, colon));
  if (colon != std::string_view::npos) {
    name.quant = std::string(text.substr(colon + 1));
    if (name.quant.empty() || !SafePath(name.quant)) return none;
  }
  const std::string& r = name.repository;
  const size_t slash = r.find('/');
  if (slash == std::string::npos || r.size() > 200) return none;
  for (const std::string_view part :
       {std::string_view(r).substr(0, slash), std::string_view(r).substr(slash + 1)}) {
    if (part.empty() || part[0] == '.' || part[0] == '-' || part.back() == '.' ||
        part.find("..") != std::string_view::npos || part.find("--") != std::string_view::npos)
      return none;
    for (const char c : part)
      if (!IsAlnum(c) && c != '.' && c != '-' && c != '_') return none;
  }
  return name;
}

bool SafePath(std::string_view path) {
  if (path.empty() || path.size() > 1024) return false;
  for (const char c : path)
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f || c == '\\') return false;
  for (const std::string& part : base::Split(std::string(path), '/'))
    if (part.empty() || part == "." || part == ".." || part.size() > 255) return false;
  return true;
}

base::Result<Choice> ChooseFiles(const ModelName& name, const std::vector<std::string>& files) {
  // Names as libraries write them; others (a second copy in another framework's order, in half
  // precision) only where these are missing.
  std::vector<std::string> usual, any;
  for (const std::string& file : files) {
    if (!IsWeights(file) || file.find('/') != std::string::npos) continue;
    any.push_back(file);
    const auto part = ParsePart(file, ".safetensors");
    if (file == "model.safetensors" || (part && part->stem == "model")) usual.push_back(file);
  }
  if (!name.quant.empty() || any.empty()) return ChooseGguf(name, files);
  std::vector<std::string>& weights = usual.empty() ? any : usual;
  std::sort(weights.begin(), weights.end());
  // One file and shards of the same: the file is enough.
  if (weights.size() > 1 && weights.back() == "model.safetensors") weights = {"model.safetensors"};
  if (auto whole = CheckParts(weights, ".safetensors"); !whole)
    return whole.error().In(name.repository);
  Choice choice;
  for (const std::string& file : files)
    if (Describes(file)) choice.files.push_back(file);
  choice.files.insert(choice.files.end(), weights.begin(), weights.end());
  return choice;
}

bool Complete(const Choice& choice) {
  if (!choice.entry.empty()) return true;
  bool config = false, tokenizer = false;
  for (const std::string& file : choice.files) {
    config |= file == "config.json";
    tokenizer |= file == "tokenizer.json" || file == "tekken.json" || EndsWith(file, ".model") ||
                 StartsWith(file, "vocab.") || EndsWith(file, ".tiktoken");
  }
  return config && tokenizer;
}

}  // namespace vllm::hub
