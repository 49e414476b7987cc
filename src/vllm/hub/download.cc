#include "vllm/hub/download.h"

#include <openssl/evp.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <memory>
#include <thread>

#include "base/json.h"
#include "base/os/disk.h"
#include "base/strings.h"
#include "vllm/hub/cache.h"

namespace vllm::hub {
namespace {

namespace fs = std::filesystem;
using base::Code;
using base::Error;

// A server that wants more is not waited for: the caller is told instead.
constexpr double kMostPatience = 60;

// The checksum that a file's hash on the hub is: sha256, or sha1 as git counts it, with a header.
class Digest {
 public:
  explicit Digest(const RemoteFile& file) {
    const bool git = file.hash.size() == 40;
    EVP_DigestInit_ex(context_.get(), git ? EVP_sha1() : EVP_sha256(), nullptr);
    const std::string header = fmt::format("blob {}", file.size);
    if (git) Add({header.c_str(), header.size() + 1});  // with its NUL
  }
  void Add(std::string_view bytes) { EVP_DigestUpdate(context_.get(), bytes.data(), bytes.size()); }
  std::string Hex() {
    unsigned char bytes[EVP_MAX_MD_SIZE];
    unsigned size = 0;
    EVP_DigestFinal_ex(context_.get(), bytes, &size);
    std::string out;
    for (unsigned i = 0; i < size; ++i) out += fmt::format("{:02x}", bytes[i]);
    return out;
  }

 private:
  struct Free {
    void operator()(EVP_MD_CTX* c) const { EVP_MD_CTX_free(c); }
  };
  std::unique_ptr<EVP_MD_CTX, Free> context_{EVP_MD_CTX_new()};
};

bool Checkable(const std::string& hash) { return IsHex(hash, 40) || IsHex(hash, 64); }

// A name that may become a blob's.
bool GoodHash(std::string_view hash) {
  return !hash.empty() && hash.size() <= 128 &&
         hash.find_first_not_of(
             "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-_") ==
             std::string_view::npos;
}

std::string Field(const net::ClientResponse& response, const std::string& name) {
  const auto it = response.headers.find(name);
  return it == response.headers.end() ? "" : it->second;
}

std::optional<uint64_t> Number(std::string_view text) {
  uint64_t value = 0;
  const auto [end, ec] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (ec != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

// For a URL's path; `keep_slash`: of a file below folders.
std::string Escaped(std::string_view text, bool keep_slash) {
  std::string out;
  for (const char c : text) {
    const bool plain = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                       c == '-' || c == '.' || c == '_' || c == '~' || (c == '/' && keep_slash);
    if (plain) {
      out += c;
    } else {
      out += fmt::format("%{:02X}", static_cast<unsigned char>(c));
    }
  }
  return out;
}

bool MayPass(int status) { return status == 429 || status == 408 || status >= 500; }

net::ClientOptions Client(const HubOptions& options, int redirects) {
  net::ClientOptions client;
  client.ca_file = options.ca_file;
  client.max_redirects = redirects;
  return client;
}

base::Result<Listing> ParseListing(const std::string& text, const std::string& who) {
  const auto broken = [&](std::string_view why) {
    return Error{Code::kCorrupt, fmt::format("{}: the hub's answer cannot be used: {}", who, why)};
  };
  auto json = base::ParseJson(text, {.max_depth = 32, .max_bytes = size_t{256} << 20});
  if (!json) return broken(json.error().message);
  if (!json->is_object()) return broken("it is no object");
  const auto& o = json->as_object();
  Listing listing;
  auto sha = base::JsonString(o, "sha", "");
  if (!sha || !IsHex(*sha, 40)) return broken("'sha' is no commit");
  listing.commit = *sha;
  const auto* siblings = o.if_contains("siblings");
  if (siblings == nullptr || !siblings->is_array()) return broken("'siblings' is no list");
  for (const auto& entry : siblings->as_array()) {
    if (!entry.is_object()) return broken("a file's entry is no object");
    const auto& e = entry.as_object();
    RemoteFile file;
    auto path = base::JsonString(e, "rfilename", "");
    if (!path || !SafePath(*path)) {
      return broken(fmt::format("the file name '{}' is none below the model's folder",
                                path ? base::Printable(*path) : "?"));
    }
    file.path = *path;
    auto hash = base::JsonString(e, "blobId", "");
    auto size = base::JsonInt(e, "size", -1);
    if (const auto* lfs = e.if_contains("lfs"); lfs != nullptr && lfs->is_object()) {
      hash = base::JsonString(lfs->as_object(), "sha256", "");
      size = base::JsonInt(lfs->as_object(), "size", -1);
    }
    if (!hash || !size) return broken(fmt::format("the entry of {} is malformed", *path));
    if (Checkable(*hash) && *size >= 0) {  // else Describe asks
      file.hash = *hash;
      file.size = static_cast<uint64_t>(*size);
    }
    listing.files.push_back(std::move(file));
  }
  return listing;
}

}  // namespace

Hub::Hub(const HubOptions& options, const std::string& repository)
    : options_(options),
      repository_(repository),
      client_(Client(options, 5)),
      direct_(Client(options, 0)) {}

Hub::Headers Hub::Credentials() const {
  if (options_.token.empty()) return {};
  return {{"Authorization", "Bearer " + options_.token}};
}

std::string Hub::UrlOf(const std::string& commit, const std::string& file) const {
  return fmt::format("{}/{}/resolve/{}/{}", options_.endpoint, repository_, commit,
                     Escaped(file, true));
}

Error Hub::Refusal(const net::ClientResponse& response, const std::string& revision,
                   const std::string& file) const {
  const std::string code = Field(response, "x-error-code");
  const std::string page = options_.endpoint + "/" + repository_;
  const std::string what = file.empty() ? repository_ : repository_ + "/" + file;
  if ((response.status == 401 || response.status == 403) && code == "GatedRepo") {
    return {
        Code::kUnavailable,
        fmt::format("{} is gated: accept its terms at {} and set HF_TOKEN to a token of yours{}",
                    repository_, page,
                    options_.token.empty() ? "" : " (the one that is set has no access)")};
  }
  if (response.status == 401 || response.status == 403) {
    return {
        Code::kUnavailable,
        options_.token.empty()
            ? fmt::format("{} does not exist or is private: check its name, or set HF_TOKEN to "
                          "a token with access",
                          what)
            : fmt::format("{} does not exist, or HF_TOKEN is no token with access to it", what)};
  }
  if (response.status == 404 && code == "RevisionNotFound") {
    return {Code::kNotFound, fmt::format("{} has no revision '{}': branches, tags and commits are "
                                         "listed at {}/tree/main",
                                         repository_, base::Printable(revision), page)};
  }
  if (response.status == 404) {
    return {Code::kNotFound,
            fmt::format("{} does not exist on {}: check its name", what, options_.endpoint)};
  }
  if (response.status == 429) {
    const std::string after = Field(response, "retry-after");
    return {Code::kUnavailable,
            fmt::format("{} asks for patience (too many requests): try again {}, or set HF_TOKEN",
                        options_.endpoint,
                        after.empty() ? "later" : "in " + base::Printable(after) + " seconds")};
  }
  return {Code::kUnavailable,
          fmt::format("{}: {} answered with status {}", what, options_.endpoint, response.status)};
}

bool Hub::Wait(int failures, const net::ClientResponse* response) const {
  double seconds = std::min(std::pow(2.0, failures - 1), 30.0);
  if (response != nullptr) {
    if (const auto asked = Number(Field(*response, "retry-after"))) {
      if (*asked > kMostPatience) return false;
      seconds = std::max(seconds, static_cast<double>(*asked));
    }
  }
  if (options_.wait) {
    options_.wait(seconds);
  } else {
    std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
  }
  return true;
}

base::Result<Listing> Hub::List(const std::string& revision, int tries) {
  const std::string url = fmt::format("{}/api/models/{}/revision/{}?blobs=true", options_.endpoint,
                                      repository_, Escaped(revision, false));
  for (int failures = 1;; ++failures) {
    auto answer = client_.Send("GET", url, Credentials());
    if (answer && answer->status == 200) return ParseListing(answer->body, repository_);
    overloaded_ = answer ? MayPass(answer->status) : answer.error().code == Code::kUnavailable;
    const bool last =
        !overloaded_ || failures >= tries || !Wait(failures, answer ? &*answer : nullptr);
    if (!last) continue;
    return answer ? Refusal(*answer, revision, "") : answer.error();
  }
}

base::Status Hub::Describe(const std::string& commit, RemoteFile& file) {
  std::string url = UrlOf(commit, file.path);
  for (int hops = 0; hops < 5; ++hops) {
    auto answer = direct_.Send("HEAD", url, Credentials());
    if (!answer) return answer.error();
    std::string etag = Field(*answer, "x-linked-etag");
    if (etag.empty()) etag = Field(*answer, "etag");
    const std::string location = Field(*answer, "location");
    // A model that was renamed: the new name is on the same server.
    if (answer->status / 100 == 3 && etag.empty() && base::StartsWith(location, "/")) {
      url = options_.endpoint + location;
      continue;
    }
    if (answer->status >= 400) return Refusal(*answer, commit, file.path);
    if (base::StartsWith(etag, "W/")) etag.erase(0, 2);
    if (etag.size() >= 2 && etag.front() == '"') etag = etag.substr(1, etag.size() - 2);
    std::string length = Field(*answer, "x-linked-size");
    if (length.empty() && answer->status / 100 == 2) length = Field(*answer, "content-length");
    const auto size = Number(length);
    if (!GoodHash(etag) || !size) break;
    file.hash = etag;
    file.size = *size;
    return {};
  }
  return Error{Code::kCorrupt, fmt::format("{}/{}: the hub does not say its size and checksum",
                                           repository_, file.path)};
}

// One request for what is missing. `have`: bytes in `partial`, before and after. `digest`: of all
// of it, when it is whole.
base::Status Hub::Attempt(const std::string& commit, const RemoteFile& file,
                          const std::string& partial, uint64_t& have, std::string& digest,
                          const std::function<void(uint64_t)>& on_bytes,
                          net::ClientResponse& response) {
  std::error_code ec;
  const auto there = fs::file_size(partial, ec);
  have = ec || there > file.size ? 0 : there;
  Digest sum(file);
  if (have > 0) {
    std::ifstream in(partial, std::ios::binary);
    std::string piece(size_t{1} << 20, '\0');
    uint64_t seen = 0;
    while (in.read(piece.data(), static_cast<std::streamsize>(piece.size())), in.gcount() > 0) {
      sum.Add(std::string_view(piece).substr(0, static_cast<size_t>(in.gcount())));
      seen += static_cast<uint64_t>(in.gcount());
    }
    if (seen != have) return Error{Code::kUnavailable, partial + ": cannot be read"};
  }
  auto out = base::os::AppendFile::Open(partial, have == 0);
  if (!out) return out.error();
  on_bytes(have);
  base::Status written;
  if (have < file.size) {
    Headers headers = Credentials();
    if (have > 0) headers.emplace_back("Range", fmt::format("bytes={}-", have));
    const auto on_headers = [&](const net::ClientResponse& r) {
      response = r;
      if (r.status == 206)
        return base::StartsWith(Field(r, "content-range"), fmt::format("bytes {}-", have));
      if (r.status != 200) return false;
      if (have == 0) return true;
      // All of it comes again.
      auto fresh = base::os::AppendFile::Open(partial, true);
      if (!fresh) {
        written = fresh.error();
        return false;
      }
      *out = std::move(*fresh);
      sum = Digest(file);
      have = 0;
      return true;
    };
    const auto on_body = [&](std::string_view bytes) {
      if (bytes.size() > file.size - have) {
        written = Error{Code::kCorrupt,
                        fmt::format("{}/{}: the server sends more than the {} bytes that the hub "
                                    "announced",
                                    repository_, file.path, file.size)};
        return false;
      }
      written = out->Write(bytes);
      if (!written) return false;
      sum.Add(bytes);
      have += bytes.size();
      on_bytes(have);
      return true;
    };
    auto answer = client_.Send("GET", UrlOf(commit, file.path), headers, {}, on_headers, on_body);
    if (!written) return written;
    if (response.status == 206 && have == there && !answer &&
        answer.error().code == Code::kCancelled) {
      // A range that was not asked for: from the beginning, then.
      fs::remove(partial, ec);
      return Error{Code::kUnavailable, fmt::format("{}/{}: the server does not resume where it was "
                                                   "asked to",
                                                   repository_, file.path)};
    }
    if (response.status == 416) fs::remove(partial, ec);
    if (!answer && response.status / 100 <= 2) return answer.error();
    if (response.status / 100 != 2) return Refusal(response, commit, file.path);
  }
  if (have < file.size) {
    return Error{Code::kUnavailable, fmt::format("{}/{}: the server sent {} of {} bytes",
                                                 repository_, file.path, have, file.size)};
  }
  digest = sum.Hex();
  return out->Sync();
}

base::Status Hub::Fetch(const std::string& commit, const RemoteFile& file, const std::string& blob,
                        const std::function<void(uint64_t)>& on_bytes) {
  const std::string partial = blob + ".incomplete";
  std::error_code ec;
  uint64_t best = 0;
  int failures = 0;
  for (bool again = false;;) {
    uint64_t have = 0;
    std::string digest;
    net::ClientResponse response;
    const base::Status tried = Attempt(commit, file, partial, have, digest, on_bytes, response);
    if (tried && (!Checkable(file.hash) || digest == file.hash)) {
      fs::rename(partial, blob, ec);
      if (ec) return Error{Code::kUnavailable, blob + ": " + ec.message()};
      return {};
    }
    // What is wrong in itself does not get better by going on; once it may have been old bytes.
    if (tried || tried.error().code == Code::kCorrupt) {
      fs::remove(partial, ec);
      if (again) {
        if (!tried) return tried;
        return Error{
            Code::kCorrupt,
            fmt::format("{}/{}: the download's checksum is {} but must be {}: the file was "
                        "removed; try again later",
                        repository_, file.path, digest, file.hash)};
      }
      again = true;
      continue;
    }
    const bool may_pass =
        tried.error().code == Code::kUnavailable &&
        (response.status < 400 || MayPass(response.status) || response.status == 416);
    failures = have > best ? 1 : failures + 1;
    best = std::max(best, have);
    if (!may_pass || failures >= options_.tries ||
        !Wait(failures, response.status >= 400 ? &response : nullptr))
      return tried;
  }
}

}  // namespace vllm::hub
