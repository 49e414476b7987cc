// Models by name: "org/name" or "org/name:Q4_K_M" becomes a path in the Hugging Face cache.
#pragma once

#include <functional>
#include <string>

#include "base/result.h"
#include "vllm/engine/options.h"

namespace apps {

// Replaces options.model, when it is a name, by the path of options.revision's files, fetching what
// is missing. Progress is drawn on a terminal; elsewhere, like warnings, it goes to `say` (empty:
// standard error). A path that exists stays as it is.
base::Status FetchModel(vllm::engine::LoadOptions& options,
                        const std::function<void(const std::string&)>& say = {});

}  // namespace apps
