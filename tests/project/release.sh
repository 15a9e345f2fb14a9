#!/usr/bin/env bash
# A dry run of a release in a copy of the checkout: all that the workflow does, except what it uploads.
#
#     tests/project/release.sh [python]
set -euo pipefail
python=$(realpath -s "${1:-.venv/bin/python}")
cd "$(dirname "$0")/../.."
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
"$python" -m venv "$folder/tools"
"$folder/tools/bin/pip" install --quiet -c constraints.txt build check-jsonschema hatchling twine
tools=$folder/tools/bin

mkdir "$folder/source"
git ls-files -z --cached --others --exclude-standard | xargs -0 cp --parents -t "$folder/source"
cd "$folder/source"
"$tools/check-jsonschema" --builtin-schema vendor.github-workflows .github/workflows/*.yml
"$python" -m tests.project.releases prepare 999.0.0 2099-12-31
problems=$("$python" -m tests.project.releases v999.0.0 2>&1 | grep -v 'says that there is no release' || true)
test -z "$problems" || { echo "$problems"; exit 1; }
"$python" -m tests.project.addressed https://github.com/owner/tensorstash v999.0.0

"$tools/python" -m build --no-isolation --outdir dist .
TENSORSTASH_NATIVE=0 "$tools/python" -m build --no-isolation --wheel --outdir dist .
"$tools/twine" check --strict dist/*
ls dist
tar -tzf dist/*.tar.gz tensorstash-999.0.0/recipe/recipe.yaml
