// The hub's cache of one repository on disk, in the layout that its own library keeps:
//
//   models--org--name/refs/main                      the commit that a branch meant
//   models--org--name/blobs/<hash>                   files by content
//   models--org--name/snapshots/<commit>/<path>      links to blobs
//   .locks/models--org--name/<hash>.lock
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "vllm/hub/choose.h"

namespace vllm::hub {

bool IsHex(std::string_view text, size_t length);

class Cache {
 public:
  Cache(const std::string& folder, const std::string& repository);

  // The commit that a revision meant when it was last looked up; empty when unknown.
  std::string CommitOf(const std::string& revision) const;
  base::Status Remember(const std::string& revision, const std::string& commit) const;

  std::string Snapshot(const std::string& commit) const;
  // Local path of the model, when all that it needs is there.
  base::Result<std::string> Find(const ModelName& name, const std::string& commit) const;
  bool Has(const std::string& commit, const std::string& file) const;

  std::string Blob(const std::string& hash) const;
  base::Result<std::string> LockFile(const std::string& hash) const;
  base::Status MakeFolders() const;
  // snapshots/<commit>/<file> -> the blob.
  base::Status Link(const std::string& commit, const std::string& file,
                    const std::string& hash) const;

 private:
  std::string root_, locks_;
};

}  // namespace vllm::hub
