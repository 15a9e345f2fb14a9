#!/usr/bin/env bash
# The tests of the kernel once more, with the kernel compiled under AddressSanitizer and UndefinedBehaviorSanitizer.
#
#     tests/native/sanitized.sh [python]
set -euo pipefail
cd "$(dirname "$0")/../.."
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

cc -std=c11 -O1 -g -shared -fPIC -pthread -ffp-contract=off -fno-omit-frame-pointer \
  -fsanitize=address,undefined -fno-sanitize-recover=all tensorstash/native/*.c -o "$folder/gather.so"
# the interpreter was not compiled with the sanitizer, so its runtime comes first, and C++'s for what torch throws;
# what Python keeps until it exits is no leak
export LD_PRELOAD="$(cc -print-file-name=libasan.so) $(cc -print-file-name=libubsan.so) $(cc -print-file-name=libstdc++.so.6)"
export ASAN_OPTIONS=detect_leaks=0 TENSORSTASH_NATIVE="$folder/gather.so"
"${1:-python}" -m pytest -q tests/native -p no:cacheprovider
