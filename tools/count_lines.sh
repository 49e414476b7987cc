#!/usr/bin/env bash
# Prints the lines of code a room: what the house costs. Blank lines and lines that are only comments do not count.
set -eu
cd "$(dirname "$0")/.."

# Lines of the files named on stdin (NUL-separated).
count() {
  xargs -0 -r cat | grep -cvE '^[[:space:]]*(//.*)?$' || true
}

sources() { # folder, further find arguments: its C++ files
  local folder=$1
  shift
  find "$folder" -type f \( -name '*.h' -o -name '*.cc' -o -name '*.cu' -o -name '*.cpp' \) ! -path '*/goldens/*' "$@" \
    -print0
}

printf '%-16s %6s %8s %8s\n' room files code tests
total_files=0 total_code=0 total_tests=0
for room in src/base src/net src/vt/* src/vllm/* src/api apps tests fuzz; do
  [ -d "$room" ] || continue
  files=$(sources "$room" | tr -cd '\0' | wc -c)
  [ "$files" -gt 0 ] || continue
  if [ "$room" = tests ]; then
    code=0 tests=$(sources "$room" | count)
  else
    code=$(sources "$room" ! -name '*_test.cc' | count)
    tests=$(sources "$room" -name '*_test.cc' | count)
  fi
  printf '%-16s %6d %8d %8d\n' "${room#src/}" "$files" "$code" "$tests"
  total_files=$((total_files + files)) total_code=$((total_code + code)) total_tests=$((total_tests + tests))
done
printf '%-16s %6d %8d %8d\n' total "$total_files" "$total_code" "$total_tests"
