// Requests to the hub: what a revision holds, and files with resume and checksums.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "net/http_client.h"
#include "vllm/hub/hub.h"

namespace vllm::hub {

struct RemoteFile {
  std::string path;
  std::string hash;  // sha256 (64 digits) of large files, git's sha1 (40) of small ones; may be
                     // another word, then only the size is checked; empty: not known yet
  uint64_t size = 0;
};

struct Listing {
  std::string commit;
  std::vector<RemoteFile> files;
};

class Hub {
 public:
  Hub(const HubOptions& options, const std::string& repository);

  // Files of a revision. `tries`: before no network is taken for an answer. After an error
  // overloaded() tells whether it may pass: no connection, 429, 5xx.
  base::Result<Listing> List(const std::string& revision, int tries);
  bool overloaded() const { return overloaded_; }

  // Fills in hash and size of a file that the listing did not describe.
  base::Status Describe(const std::string& commit, RemoteFile& file);

  // Fetches into `blob`, by way of `blob`.incomplete, which is gone on with when it is there.
  // `on_bytes(n)`: the file stands at n bytes. Takes no lock.
  base::Status Fetch(const std::string& commit, const RemoteFile& file, const std::string& blob,
                     const std::function<void(uint64_t)>& on_bytes);

 private:
  using Headers = std::vector<std::pair<std::string, std::string>>;
  Headers Credentials() const;
  std::string UrlOf(const std::string& commit, const std::string& file) const;
  base::Error Refusal(const net::ClientResponse& response, const std::string& revision,
                      const std::string& file) const;
  // Waits before the next try; false when the server wants more patience than we have.
  bool Wait(int failures, const net::ClientResponse* response) const;
  base::Status Attempt(const std::string& commit, const RemoteFile& file,
                       const std::string& partial, uint64_t& have, std::string& digest,
                       const std::function<void(uint64_t)>& on_bytes,
                       net::ClientResponse& response);

  const HubOptions& options_;
  const std::string repository_;
  net::HttpClient client_, direct_;  // direct_: a redirect is an answer
  bool overloaded_ = false;
};

}  // namespace vllm::hub
