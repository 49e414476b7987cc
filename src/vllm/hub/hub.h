// Models by name: a path, or "org/name" on the Hugging Face hub, fetched into its standard cache.
//
// The rule of when the network is asked:
// - A path that exists is returned as it is; nothing else is looked at.
// - A revision that is a full commit whose files are all in the cache: never.
// - A branch or tag: one request, for the commit that it means today and the files of it. When the
//   hub cannot be reached, or answers that it is overloaded, the commit that the cache knows under
//   that name is used, with a warning.
// - `offline`: never; the cache alone.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "base/result.h"

namespace vllm::hub {

struct Progress {
  std::string file;              // the one that is being fetched
  uint64_t done = 0, total = 0;  // bytes, of all files of this call that the cache lacked
};

struct HubOptions {
  std::string endpoint = "https://huggingface.co";
  std::string cache_folder;       // holds models--org--name folders
  std::string token;              // for private and gated models
  std::string revision = "main";  // branch, tag or commit
  bool offline = false;
  std::string ca_file;  // further trusted certificates (PEM), for hubs of one's own
  int tries = 5;        // of one request that brings nothing, before it is given up
  std::function<void(const Progress&)> progress;  // optional
  std::function<void(const std::string&)> warn;   // optional
  std::function<void(double seconds)> wait;       // between tries; empty: sleeps
};

// As the hub's own library reads it: HF_ENDPOINT, HF_HUB_CACHE, HF_HOME, HF_TOKEN (or the file
// `token` in HF_HOME), HF_HUB_OFFLINE. `get` is std::getenv, or a test's.
HubOptions FromEnvironment(const std::function<const char*(const char*)>& get);

// Local path of a model: a file or folder that exists, "org/name", or "org/name:Q4_K_M" for the
// .gguf of that quantisation (all of its parts; also a file's full name). A plain "org/name" takes
// safetensors with configuration and tokenizer, else the only .gguf. Returns the folder, or the
// (first) .gguf.
//
// Two processes may fetch the same model at the same time. A download that broke off is resumed by
// the next call. Errors: kInvalidArgument (no such path and no such name, several .gguf and none
// chosen), kNotFound (model, revision or file), kUnavailable (no network, no access, busy),
// kCorrupt (the hub's answer, or a file that is not what it should be), kResourceExhausted (disk).
base::Result<std::string> Resolve(const std::string& model, const HubOptions& options);

// The one call of programs: Resolve with the environment's settings. An empty `revision` is main.
base::Result<std::string> ResolveModel(const std::string& model, const std::string& revision,
                                       const std::function<void(const Progress&)>& progress,
                                       const std::function<void(const std::string&)>& warn);

}  // namespace vllm::hub
