#!/usr/bin/env bash
# A built package in a fresh environment, away from the sources: the code of the README, the quickstart and
# `tensorstash info` must run.
#
#     tests/project/fresh.sh dist/tensorstash-0.1.0.tar.gz lowest-direct [python]
#     tests/project/fresh.sh dist/tensorstash-0.1.0-*.whl highest [python]
#
# `lowest-direct` takes the oldest versions of the dependencies that pyproject.toml allows, `highest` the newest ones.
set -euo pipefail
package=$(realpath "$1")
resolution=$2
python=${3:-python3}
cd "$(dirname "$0")/../.."
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

uv pip compile --quiet pyproject.toml --extra plot --resolution "$resolution" --python "$python" -o "$folder/versions.txt"
grep -E '^(torch|numpy|pyarrow|polars)==' "$folder/versions.txt"
uv venv --quiet --python "$python" "$folder/venv"
uv pip install --quiet --python "$folder/venv/bin/python" -r "$folder/versions.txt" "$package"
cp -r README.md examples "$folder"
cd "$folder"
export MPLBACKEND=Agg TENSORSTASH_DIR=$folder/shared
venv/bin/python -c '
import pathlib, re
blocks = re.findall(r"^```python\n(.*?)^```$", pathlib.Path("README.md").read_text("utf-8"), re.DOTALL | re.MULTILINE)
exec("\n".join(blocks))'
venv/bin/python examples/quickstart.py
venv/bin/tensorstash info
venv/bin/python -c 'from importlib.resources import files; assert files("tensorstash").joinpath("py.typed").is_file()'
