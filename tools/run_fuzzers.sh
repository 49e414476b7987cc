#!/usr/bin/env bash
# Runs each fuzzer for some seconds from the committed corpus and prints its executions and edges.
# usage: tools/run_fuzzers.sh [SECONDS (60)] [NAME...]     (names: gguf safetensors config tokenizer template request
# tool_calls form). As many run at once as there are processors.
# Builds them first where needed. Ends with 1 when one crashed, hung or ran out of memory; the input is kept and named.
set -euo pipefail
cd "$(dirname "$0")/.."
seconds="${1:-60}"
shift || true
names=("$@")
[ ${#names[@]} -gt 0 ] || names=(gguf safetensors config tokenizer template request tool_calls form)
build=build-fuzz
cmake --preset fuzz > /dev/null  # always: in a folder of older flags it would be another check
targets=()
for name in "${names[@]}"; do targets+=("fuzz_$name"); done
ninja -C "$build" "${targets[@]}" > "$build/ninja.log" 2>&1 || { tail -30 "$build/ninja.log" >&2; exit 1; }

run() { # name
  local name=$1 folder="$build/found/$1" verdict=ok executions edges
  mkdir -p "$folder/corpus"
  local log="$folder/log.txt"
  # 20 seconds an input and 2 GiB are far above what any legal input of this size needs.
  "$build/examples/fuzz_$name" -max_total_time="$seconds" -timeout=20 -rss_limit_mb=2048 -max_len=16384 -use_value_profile=1 \
    -print_final_stats=1 -artifact_prefix="$folder/" "$folder/corpus" "fuzz/corpus/$name" > "$log" 2>&1 || verdict=FAILED
  executions=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log" | tail -1)
  edges=$(sed -n 's/.* cov: \([0-9]*\).*/\1/p' "$log" | tail -1)
  echo "fuzz_$name: $verdict, ${executions:-0} executions, ${edges:-0} edges in ${seconds} s"
  [ "$verdict" = ok ] && return
  grep -E 'ERROR|SUMMARY|runtime error|Test unit written' "$log" | head -5 || tail -5 "$log"
  return 1
}
export -f run
export build seconds
printf '%s\n' "${names[@]}" | xargs -P "$(nproc)" -I{} bash -c 'run {}'
