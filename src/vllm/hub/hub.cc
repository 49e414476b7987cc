#include "vllm/hub/hub.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <set>

#include "base/os/disk.h"
#include "base/os/file.h"
#include "base/strings.h"
#include "vllm/hub/cache.h"
#include "vllm/hub/choose.h"
#include "vllm/hub/download.h"

namespace vllm::hub {
namespace {

namespace fs = std::filesystem;
using base::Code;
using base::Error;

bool IsTrue(std::string_view text) {
  return text == "1" || text == "true" || text == "TRUE" || text == "True" || text == "yes" ||
         text == "YES" || text == "on" || text == "ON";
}

bool Cached(const Cache& cache, const RemoteFile& file) {
  std::error_code ec;
  return fs::file_size(cache.Blob(file.hash), ec) == file.size && !ec;
}

base::Status CheckRoom(const std::string& folder, uint64_t needed) {
  const uint64_t room = base::os::FreeBytes(folder);
  if (needed <= room) return {};
  return Error{Code::kResourceExhausted,
               fmt::format("{}: the download needs {} and the disk has {} left: make room, or set "
                           "HF_HUB_CACHE to a folder elsewhere",
                           folder, base::HumanBytes(needed), base::HumanBytes(room))};
}

base::Result<base::os::FileLock> Lock(const Cache& cache, const std::string& what) {
  auto path = cache.LockFile(what);
  if (!path) return path.error();
  return base::os::FileLock::Take(*path);
}

// Fetches what the cache lacks and links all of `files` below the commit.
base::Status FetchAll(Hub& hub, const Cache& cache, const HubOptions& options,
                      const std::string& commit, std::vector<RemoteFile> files) {
  if (auto made = cache.MakeFolders(); !made) return made;
  Progress progress;
  uint64_t partly = 0;
  std::set<std::string> wanted;  // hashes: two files may have the same content
  for (RemoteFile& file : files) {
    if (file.hash.empty()) {
      if (auto described = hub.Describe(commit, file); !described) return described;
    }
    if (Cached(cache, file) || !wanted.insert(file.hash).second) continue;
    progress.total += file.size;
    std::error_code ec;
    const auto size = fs::file_size(cache.Blob(file.hash) + ".incomplete", ec);
    if (!ec) partly += std::min<uint64_t>(size, file.size);
  }
  if (auto room = CheckRoom(fs::path(cache.Blob("x")).parent_path().string(),
                            progress.total - std::min(partly, progress.total));
      !room)
    return room;
  uint64_t before = 0;
  for (const RemoteFile& file : files) {
    auto lock = Lock(cache, file.hash);
    if (!lock) return lock.error();
    progress.file = file.path;
    // Counted before, but another process may have fetched it meanwhile.
    if (wanted.contains(file.hash)) {
      const auto report = [&](uint64_t have) {
        progress.done = before + have;
        if (options.progress) options.progress(progress);
      };
      if (!Cached(cache, file)) {
        if (auto got = hub.Fetch(commit, file, cache.Blob(file.hash), report); !got) return got;
      }
      report(file.size);
      before += file.size;
      wanted.erase(file.hash);
    }
    if (auto linked = cache.Link(commit, file.path, file.hash); !linked) return linked;
  }
  return {};
}

}  // namespace

HubOptions FromEnvironment(const std::function<const char*(const char*)>& get) {
  const auto read = [&](const char* name) {
    const char* value = get(name);
    return value == nullptr ? std::string() : std::string(base::Trimmed(value));
  };
  HubOptions options;
  if (const std::string endpoint = read("HF_ENDPOINT"); !endpoint.empty())
    options.endpoint = endpoint;
  while (!options.endpoint.empty() && options.endpoint.back() == '/') options.endpoint.pop_back();
  const auto expanded = [&](std::string path) {
    if (path == "~" || base::StartsWith(path, "~/")) path.replace(0, 1, read("HOME"));
    return path;
  };
  std::string home = expanded(read("HF_HOME"));
  if (home.empty()) {
    const std::string cache = expanded(read("XDG_CACHE_HOME"));
    home = (cache.empty() ? read("HOME") + "/.cache" : cache) + "/huggingface";
  }
  options.cache_folder = expanded(read("HF_HUB_CACHE"));
  if (options.cache_folder.empty()) options.cache_folder = home + "/hub";
  options.token = read("HF_TOKEN");
  if (options.token.empty()) {
    std::string file = expanded(read("HF_TOKEN_PATH"));
    if (file.empty()) file = home + "/token";
    if (auto text = base::os::ReadFile(file, 10000)) options.token = base::Trimmed(*text);
  }
  options.offline = IsTrue(read("HF_HUB_OFFLINE"));
  return options;
}

base::Result<std::string> Resolve(const std::string& model, const HubOptions& options) {
  std::error_code ec;
  if (!model.empty() && fs::exists(model, ec)) return model;
  auto name = ParseName(model);
  if (!name) return name.error();
  if (!SafePath(options.revision)) {
    return Error{Code::kInvalidArgument,
                 fmt::format("'{}' is no revision: name a branch, a tag or a commit",
                             base::Printable(options.revision))};
  }
  const Cache cache(options.cache_folder, name->repository);
  const auto found = cache.Find(*name, cache.CommitOf(options.revision));
  if (found && (options.offline || IsHex(options.revision, 40))) return found;
  if (options.offline) {
    return Error{Code::kNotFound,
                 fmt::format("{} (revision {}) is not in the cache {}, and HF_HUB_OFFLINE forbids "
                             "fetching it",
                             model, base::Printable(options.revision), options.cache_folder)};
  }
  Hub hub(options, name->repository);
  auto listing = hub.List(options.revision, found ? 1 : std::min(options.tries, 3));
  if (!listing) {
    if (!found || !hub.overloaded()) return listing.error();
    if (options.warn) {
      options.warn(fmt::format("{}; going on with what the cache has of {}",
                               listing.error().message, name->repository));
    }
    return found;
  }
  std::vector<std::string> paths;
  for (const RemoteFile& file : listing->files) paths.push_back(file.path);
  auto choice = ChooseFiles(*name, paths);
  if (!choice) return choice.error();
  std::vector<RemoteFile> files;
  for (const std::string& path : choice->files) {
    if (cache.Has(listing->commit, path)) continue;
    files.push_back(*std::find_if(listing->files.begin(), listing->files.end(),
                                  [&](const RemoteFile& f) { return f.path == path; }));
  }
  if (!files.empty()) {
    if (auto got = FetchAll(hub, cache, options, listing->commit, std::move(files)); !got)
      return got.error();
  }
  // Last, so that a branch never means a commit of which a part is missing.
  if (cache.CommitOf(options.revision) != listing->commit) {
    auto lock = Lock(cache, "refs");
    if (!lock) return lock.error();
    if (auto kept = cache.Remember(options.revision, listing->commit); !kept) return kept.error();
  }
  const std::string folder = cache.Snapshot(listing->commit);
  return choice->entry.empty() ? folder : folder + "/" + choice->entry;
}

base::Result<std::string> ResolveModel(const std::string& model, const std::string& revision,
                                       const std::function<void(const Progress&)>& progress,
                                       const std::function<void(const std::string&)>& warn) {
  HubOptions options =
      FromEnvironment([](const char* name) -> const char* { return std::getenv(name); });
  if (!revision.empty()) options.revision = revision;
  options.progress = progress;
  options.warn = warn;
  return Resolve(model, options);
}

}  // namespace vllm::hub
