#!/usr/bin/env bash
# Tests under AddressSanitizer and UBSan in the time that continuous integration has: the readers of untrusted input and
# the CPU's kernels, in the build that the fuzzers use. `make asan` runs the whole suite.
set -euo pipefail
cd "$(dirname "$0")/.."
tests=(weights_test text_test ir_test cpu_test)
cmake --preset asan > /dev/null
cmake --build build-asan -j "$(nproc)" --target fuzzers "${tests[@]}"
pattern=$(IFS='|'; echo "${tests[*]}")
UBSAN_OPTIONS=print_stacktrace=1 ctest --test-dir build-asan -j "$(nproc)" -R "^($pattern)\." --output-on-failure \
  --no-tests=error
