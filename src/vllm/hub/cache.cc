#include "vllm/hub/cache.h"

#include <algorithm>
#include <filesystem>

#include "base/os/disk.h"
#include "base/os/file.h"
#include "base/strings.h"

namespace vllm::hub {
namespace {

namespace fs = std::filesystem;
using base::Code;
using base::Error;

Error FromSystem(const std::string& path, const std::error_code& ec) {
  const bool full = ec == std::errc::no_space_on_device;
  return {full ? Code::kResourceExhausted : Code::kUnavailable, path + ": " + ec.message()};
}

base::Status MakeFolder(const std::string& path) {
  std::error_code ec;
  fs::create_directories(path, ec);
  if (ec) return FromSystem(path, ec);
  return {};
}

}  // namespace

bool IsHex(std::string_view text, size_t length) {
  return text.size() == length &&
         text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

Cache::Cache(const std::string& folder, const std::string& repository) {
  std::string name = "models--" + repository;
  name.replace(name.find('/'), 1, "--");
  root_ = folder + "/" + name;
  locks_ = folder + "/.locks/" + name;
}

std::string Cache::CommitOf(const std::string& revision) const {
  if (IsHex(revision, 40)) return revision;
  auto text = base::os::ReadFile(root_ + "/refs/" + revision, 1000);
  if (!text) return "";
  while (!text->empty() && (text->back() == '\n' || text->back() == ' ')) text->pop_back();
  return IsHex(*text, 40) ? *text : "";
}

base::Status Cache::Remember(const std::string& revision, const std::string& commit) const {
  if (revision == commit || CommitOf(revision) == commit) return {};
  const std::string path = root_ + "/refs/" + revision;
  if (auto made = MakeFolder(fs::path(path).parent_path().string()); !made) return made;
  return base::os::WriteFile(path, commit);
}

std::string Cache::Snapshot(const std::string& commit) const {
  return root_ + "/snapshots/" + commit;
}

base::Result<std::string> Cache::Find(const ModelName& name, const std::string& commit) const {
  const std::string folder = Snapshot(commit);
  const Error absent{Code::kNotFound, name.repository + " is not in the cache"};
  if (commit.empty()) return absent;
  std::vector<std::string> files;
  std::error_code ec;
  for (fs::recursive_directory_iterator it(folder, ec), end; !ec && it != end; it.increment(ec)) {
    std::error_code missing;
    if (it->is_regular_file(missing))
      files.push_back(it->path().lexically_relative(folder).generic_string());
  }
  std::sort(files.begin(), files.end());
  auto choice = ChooseFiles(name, files);
  if (!choice || !Complete(*choice)) return absent;
  return choice->entry.empty() ? folder : folder + "/" + choice->entry;
}

bool Cache::Has(const std::string& commit, const std::string& file) const {
  return base::os::FileExists(Snapshot(commit) + "/" + file);
}

std::string Cache::Blob(const std::string& hash) const { return root_ + "/blobs/" + hash; }

base::Result<std::string> Cache::LockFile(const std::string& hash) const {
  if (auto made = MakeFolder(locks_); !made) return made.error();
  return locks_ + "/" + hash + ".lock";
}

base::Status Cache::MakeFolders() const { return MakeFolder(root_ + "/blobs"); }

base::Status Cache::Link(const std::string& commit, const std::string& file,
                         const std::string& hash) const {
  const std::string link = Snapshot(commit) + "/" + file;
  std::string target = "../../blobs/" + hash;
  for (const char c : file)
    if (c == '/') target.insert(0, "../");
  std::error_code ec;
  if (fs::is_symlink(link, ec) && fs::read_symlink(link, ec) == target) return {};
  if (auto made = MakeFolder(fs::path(link).parent_path().string()); !made) return made;
  // Made aside and moved, so that another process never sees a moment without it.
  const std::string aside = fmt::format("{}.tmp{}", link, base::os::ProcessId());
  fs::remove(aside, ec);
  ec.clear();
  fs::create_symlink(target, aside, ec);
  if (ec) {  // a file system without links
    ec.clear();
    fs::copy_file(Blob(hash), aside, fs::copy_options::overwrite_existing, ec);
  }
  if (!ec) fs::rename(aside, link, ec);
  if (ec) return FromSystem(link, ec);
  return {};
}

}  // namespace vllm::hub
