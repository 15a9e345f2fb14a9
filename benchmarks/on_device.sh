#!/usr/bin/env bash
# Everything that asks for an accelerator, in one run of less than eight minutes on a machine without a network.
#
#     benchmarks/on_device.sh --wheels [FOLDER]     beforehand, with a network: the wheels that the machine may lack
#     OUT=results benchmarks/on_device.sh [FOLDER]  on the machine, which has Python, torch for the device and a compiler
#
#     --device NAME   cuda, xpu, cpu; else the accelerator that torch finds
#     --small         little data, to see that it runs: its times say nothing
#     --only STEPS    some of: tests bench trace train
#
# PYTHON is the interpreter that has torch (python3). FOLDER (wheels, beside this script) holds wheels for the same kind of
# machine, and for the version of PYTHON or FOR=3.12; those of packages that the machine has need not travel.
#
# install  a virtual environment over the packages that are there, with what is missing from FOLDER, and the kernel
# tests    those that need a device; every way of choosing windows has the bits of the host there
# bench    bench_device.py: the ways to the device, and the gather of resident columns beside a copy
# trace    a few steps of each way, for chrome://tracing or ui.perfetto.dev
# train    train.py --device: DLinear and PatchTST, fed from pinned memory, resident, from the host, by a DataLoader
#
# OUT (build/on_device) gets summary.txt, which is printed, log.txt, trace.json.gz and <kind of machine>/*.json. Each step
# has a limit in seconds, and all of them together have TOTAL (465); a larger one gives each step more, on a slow machine. The
# exit status is the sum of the steps that failed: 1 install, 2 tests, 4 bench, 8 trace, 16 train. A wrong call is 64.
set -uo pipefail
here=$PWD
cd "$(dirname "$0")/.."

STEPS=(install tests bench trace train)
declare -A LIMITS=([install]=90 [tests]=120 [bench]=110 [trace]=50 [train]=200)
export WANTED="polars>=1.43 pyarrow>=25 fsspec>=2024.2 psutil>=5.9 tqdm>=4.66 click>=8.1 tzdata>=2024.1
  hatchling>=1.24 editables pytest>=9 pytest-xdist>=3.6 hypothesis>=6.100"
export ROOT=$PWD PYTHON=${PYTHON:-python3} DEVICE=accelerator WHEELS=benchmarks/wheels SMALL="" PYTHONUNBUFFERED=1
USUAL=465 total=${TOTAL:-465} out=${OUT:-build/on_device} only="${STEPS[*]}" download=""

wrong() { echo "$1 benchmarks/on_device.sh says at its top how it is called." >&2; exit 64; }
absolute() { case $1 in /*) echo "$1" ;; *) echo "$here/$1" ;; esac; }
[[ $PYTHON == */* ]] && PYTHON=$(absolute "$PYTHON")

while (($#)); do
  case $1 in
    --device | --only)
      (($# > 1)) || wrong "$1 needs a value."
      if [[ $1 == --device ]]; then DEVICE=$2; else only="install ${2//,/ }"; fi
      shift ;;
    --small) SMALL=--quick ;;
    --wheels) download=yes ;;
    -*) wrong "$1 is no option." ;;
    *) WHEELS=$(absolute "$1") ;;
  esac
  shift
done
for step in $only; do
  [[ ${LIMITS[$step]:-} ]] || wrong "$step is no step."
done

if [[ $download ]]; then
  version=${FOR:-$("$PYTHON" -c 'import sys; print("%d.%d" % sys.version_info[:2])')}
  exec "$PYTHON" -m pip download --quiet --only-binary=:all: --python-version "$version" --dest "$WHEELS" $WANTED
fi

# The steps, each in a bash of its own

install() {
  "$PYTHON" -m venv --without-pip "$ENVIRONMENT" || return
  local packages
  packages=$("$ENVIRONMENT/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
  # those of PYTHON, pip among them, come after those of the environment; a virtual environment has none of another one
  "$PYTHON" -c 'import sys
for path in sys.path:
    if path.endswith("-packages"):
        print(f"import site; site.addsitedir({path!r})")' >"$packages/others.pth" || return
  if ! is_ready; then
    python -m pip install --quiet --no-index --find-links "$WHEELS" $WANTED || return
    TENSORSTASH_NATIVE_REQUIRED=1 \
      python -m pip install --quiet --no-index --no-deps --no-build-isolation --editable . || return
  fi
  is_ready || return
  python -c '
import os, sys
import torch
sys.path.append("benchmarks")
from device import name_of
from tensorstash.batches.devices import copies_to, device_of
from tensorstash.native.library import why
asked = sys.argv[1]
device = device_of(asked)
if device.type == "cpu" and asked != "cpu":
    sys.exit("torch finds no accelerator here; --device cpu tries the steps without one.")
copies_to(device)
print(f"{name_of(device) or device}; torch {torch.__version__}; {os.cpu_count()} cores; {why()}")
' "$DEVICE"
}

is_ready() {  # also that the package is this one, wherever a script is
  (cd "$ENVIRONMENT" && python -c '
import importlib.metadata, pathlib, sys
import hypothesis, polars, psutil, pyarrow, pytest, tqdm, xdist
importlib.metadata.version("tensorstash")
from tensorstash.native import library
if not pathlib.Path(library.__file__).is_relative_to(sys.argv[1]):
    sys.exit(f"{library.__file__} is not in {sys.argv[1]}")
sys.exit(library.LIBRARY is None and library.why())' "$ROOT")
}

tests() {
  local some=()
  [[ $SMALL ]] && some=(-k "tables and shuffled or mixes and common")
  # without the plugins of strangers, whose warnings would be errors
  PYTEST_DISABLE_PLUGIN_AUTOLOAD=1 python -m pytest -p xdist -p no:cacheprovider -q -n 4 --maxfail 20 \
    -m device --device "$DEVICE" "${some[@]}" $(grep -rl --include="*.py" "pytest.mark.device" tests)
}

bench() { python benchmarks/bench_device.py --device "$DEVICE" $SMALL; }

trace() { python benchmarks/bench_device.py --device "$DEVICE" --quick --trace "$RESULTS/trace.json.gz"; }

train() {
  python benchmarks/train.py --device "$DEVICE" --models DLinear PatchTST --series 3000 --rounds 2 $SMALL
}

export -f is_ready "${STEPS[@]}"

# All of them

mkdir -p "$(absolute "$out")" || exit 64
RESULTS=$(absolute "$out") ENVIRONMENT=$(mktemp -d)
trap 'rm -rf "$ENVIRONMENT"' EXIT
export RESULTS ENVIRONMENT PATH=$ENVIRONMENT/bin:$PATH
log=$RESULTS/log.txt summary=$RESULTS/summary.txt
: >"$log" >"$summary"
printed=$(mktemp -d "$ENVIRONMENT.XXX")
trap 'rm -rf "$ENVIRONMENT" "$printed"' EXIT

status=0 value=1
for step in "${STEPS[@]}"; do
  if [[ " $only " == *" $step "* ]]; then
    limit=$((LIMITS[$step] * (total > USUAL ? total : USUAL) / USUAL)) left=$((total - SECONDS)) began=$SECONDS
    limit=$((left < limit ? left : limit))
    echo "$step ..." >&2
    echo "== $step" >>"$log"
    if ((limit < 1)); then
      outcome="not begun: no time was left"
    else
      timeout --kill-after=10 "$limit" bash -c "$step" >"$printed/$step" 2>>"$log"  # no pipe, which who hangs would hold
      case $? in
        0) outcome=ok ;;
        124 | 137) outcome="stopped at its limit of $limit s" ;;
        *) outcome="failed" ;;
      esac
    fi
    printf '%-8s %4d s  %s\n' "$step" $((SECONDS - began)) "$outcome" >>"$summary"
    [[ $outcome == ok ]] || ((status += value))
    cat "$printed/$step" >>"$log" 2>/dev/null
  fi
  ((status & 1)) && break  # nothing else can run
  ((value *= 2))
done
for step in "${STEPS[@]}"; do
  [[ -s $printed/$step ]] && printf '\n== %s\n' "$step" && cat "$printed/$step"
done >>"$summary"
cat "$summary"
((status)) && tail -n 15 "$log" >&2
exit "$status"
