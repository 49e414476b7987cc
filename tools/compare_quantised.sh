#!/bin/sh
# Compares what vllm-quantize makes of a model with what llama-quantize makes of it, by perplexity: a line of a Markdown
# table a mix. Both files are evaluated by vllm-inspect.
#
# usage: compare_quantised.sh FOLDER-OF-OUR-PROGRAMS LLAMA-QUANTIZE F16-MODEL.gguf TEXT TOKENS MIX...
#
# An f16 expansion of a quantised file: llama-quantize --allow-requantize FILE.gguf F16-MODEL.gguf F16
set -eu
ours=$1 theirs=$2 model=$3 text=$4 tokens=$5
shift 5
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT INT TERM

perplexity() {
  "$ours/vllm-inspect" perplexity --model "$1" --file "$text" --tokens "$tokens" | cut -d ' ' -f 2
}

echo "| mix | size, ours | ours | llama.cpp's | ours / llama.cpp's | bytes alike |"
echo "|---|---|---|---|---|---|"
for mix in "$@"; do
  "$ours/vllm-quantize" --model "$model" --type "$mix" --out "$work/ours.gguf" >&2
  "$theirs" "$model" "$work/theirs.gguf" "$mix" >/dev/null 2>&1
  a=$(perplexity "$work/ours.gguf") b=$(perplexity "$work/theirs.gguf")
  size=$(stat -c %s "$work/ours.gguf")
  other=$(cmp -l "$work/ours.gguf" "$work/theirs.gguf" | wc -l)
  echo "$mix $size $a $b $other" |
    awk '{printf "| %s | %.1f MiB | %s | %s | %.4f | %.2f%% |\n", $1, $2 / 1048576, $3, $4, $3 / $4, 100 * (1 - $5 / $2)}'
done
