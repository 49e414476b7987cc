#include "apps/fetch_model.h"

#include <chrono>
#include <cstdio>

#include "base/os/file.h"
#include "base/os/module.h"
#include "base/strings.h"
#include "vllm/hub/hub.h"

namespace apps {

base::Status FetchModel(vllm::engine::LoadOptions& options,
                        const std::function<void(const std::string&)>& say) {
  if (!options.revision.empty() &&
      (base::os::FileExists(options.model) || base::os::IsDirectory(options.model))) {
    return base::Error{base::Code::kInvalidArgument, "--revision is of a model on the hub, but '" +
                                                         options.model +
                                                         "' is a path here: leave it out"};
  }
  // Nobody means the hub by this, and it would be asked before the likeliest mistake was named.
  if (base::EndsWith(options.model, ".gguf") && !base::os::FileExists(options.model) &&
      !base::os::IsDirectory(options.model)) {
    return base::Error{base::Code::kNotFound,
                       "'" + base::Printable(options.model) + "': no such file"};
  }
  const bool terminal = base::os::IsTerminal(2);
  const auto tell = [&](const std::string& line) {
    if (say) return say(line);
    fmt::print(stderr, "{}\n", line);
  };
  auto next = std::chrono::steady_clock::now();
  const auto progress = [&](const vllm::hub::Progress& p) {
    const auto now = std::chrono::steady_clock::now();
    if (now < next || p.total == 0) return;
    next = now + (terminal ? std::chrono::milliseconds(200) : std::chrono::seconds(10));
    const std::string line =
        fmt::format("fetching {}: {} of {}, {}%", p.file, base::HumanBytes(p.done),
                    base::HumanBytes(p.total), p.done * 100 / p.total);
    if (!terminal) return tell(line);
    fmt::print(stderr, "\r{}\033[K{}", line, p.done == p.total ? "\r\033[K" : "");
    std::fflush(stderr);
  };
  base::Result<std::string> path =
      vllm::hub::ResolveModel(options.model, options.revision, progress, tell);
  if (!path) return path.error();
  options.model = *std::move(path);
  return {};
}

}  // namespace apps
