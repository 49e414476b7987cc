// What an ELF for AMD cards says of its kernels: the metadata that a runtime reads ("AMDGPU" note,
// a MessagePack map; LLVM's "User Guide for AMDGPU Backend", code object V5).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"

namespace hip {

struct KernelArgument {
  std::string kind;  // "by_value", "hidden_block_count_x", ...
  int64_t offset = 0, size = 0;
};

struct KernelMetadata {
  std::string name;
  int64_t vgprs = 0, agprs = 0, sgprs = 0, vgpr_spills = 0, sgpr_spills = 0;
  int64_t private_bytes = 0;  // scratch memory a thread
  int64_t shared_bytes = 0;   // declared; dynamic shared memory comes on top
  int64_t argument_bytes = 0;
  int64_t most_threads = 0;
  int64_t wave = 0;
  std::vector<KernelArgument> arguments;
};

struct CodeObject {
  std::string arch;  // "gfx1200"
  std::vector<KernelMetadata> kernels;
};

// Errors: kInvalidArgument for what is no such file.
base::Result<CodeObject> ParseCodeObject(std::span<const std::byte> file);
// How long the ELF at an address is, which a runtime is not told.
size_t CodeObjectBytes(const void* image);

}  // namespace hip
