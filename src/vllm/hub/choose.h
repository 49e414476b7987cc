// Which of a repository's files make up the model that was asked for. Names only, no I/O.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace vllm::hub {

struct ModelName {
  std::string repository;  // "org/name"
  std::string quant;       // "Q4_K_M", a file's name, or empty
};

// Errors: kInvalidArgument.
base::Result<ModelName> ParseName(std::string_view text);

// May a name from the hub become a path below a folder of ours?
bool SafePath(std::string_view path);

struct Choice {
  std::vector<std::string> files;  // small ones first, weights last
  std::string entry;               // what is loaded: the first .gguf; empty: the folder
};

// Errors: kNotFound (nothing fits, or a part is missing), kInvalidArgument (several fit: the
// sentence lists them).
base::Result<Choice> ChooseFiles(const ModelName& name, const std::vector<std::string>& files);

// Is `files` (what a folder holds) all that loading needs, as far as names tell? A folder that was
// filled by this program is, once its weights are there.
bool Complete(const Choice& choice);

}  // namespace vllm::hub
