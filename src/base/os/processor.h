// What the processor can do beyond the compiler's own checks, and what of it the operating system
// must be asked for.
#pragma once

namespace base::os {

// Dot products of bf16 in 512-bit vectors (AVX512_BF16).
bool HasAvx512Bf16();

// Conversions of f16 in vectors (F16C), for which older clang has no check.
bool HasF16c();

// Tiles of int8 and bf16 (AMX), whose registers this process may use from now on: Linux keeps them
// from programs that do not ask. Thread-safe; asking again costs a system call.
bool RequestTiles();

}  // namespace base::os
