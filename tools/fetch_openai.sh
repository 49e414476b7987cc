#!/usr/bin/env bash
# The official openai package into build/python, for the test that drives the server with it. Nothing else of Python is
# needed to build, run or test. usage: tools/fetch_openai.sh [FOLDER]
set -euo pipefail
cd "$(dirname "$0")/.."
folder=${1:-build/python}
[ -d "$folder/openai" ] && exit 0
for python in python3 /usr/bin/python3; do
  "$python" -c 'import pip' 2>/dev/null || continue
  exec "$python" -m pip install --quiet --disable-pip-version-check --root-user-action ignore --no-warn-conflicts --target "$folder" openai
done
echo "fetch_openai: no python3 with pip" >&2
exit 1
