// Compiled kernels inside a module: what vt_embed_code (cmake/embed_code.cmake) generates tables of.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>

namespace vt::gpu {

struct EmbeddedCode {
  std::string_view file;  // the kernels' source, without folder and ending: "rows"
  std::string_view arch;  // as the compiler was told: "gfx1200", "sm_90a"
  std::span<const std::byte> bytes;
};

}  // namespace vt::gpu
