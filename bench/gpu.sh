#!/usr/bin/env bash
# What is worth knowing of a GPU, in order of worth. Each step is a process of its own that ends within 8 minutes
# and writes OUT/step_NAME.json after everything it measures. Needs torch, transformers, numpy and safetensors;
# `tests` also pytest, and the Trainer's part of `speed` and `grid` accelerate.
#
#   bash bench/gpu.sh OUT [STEP...]        all steps, or those named
#   bash bench/gpu.sh --tiny OUT [STEP...] the same on a CPU, in seconds: that they work
#
# DATA=task.pickle takes a task tokenised elsewhere instead of made-up tokens of RTE's lengths. The file is a pickled
# TaskData; docs/guides/gpu.md has the lines that write one. Unpickling runs what is in a file: take only your own.
set -u
tiny=
if [ "${1:-}" = --tiny ]; then tiny=--tiny && shift; fi
out=${1:?usage: bash bench/gpu.sh [--tiny] OUT [STEP...]}
shift
mkdir -p "$out" && out=$(cd "$out" && pwd) || exit 1
data=${DATA:+$(realpath "$DATA")}
cd "$(dirname "$0")/.." || exit 1
export PYTHONPATH=. TOKENIZERS_PARALLELISM=false HF_HUB_OFFLINE=1
PYTHON=${PYTHON:-python3}
failed=0
[ $# -gt 0 ] || set -- tests facts speed determinism memory grid shares
for step in "$@"; do
  if [ "$step" = tests ]; then
    # Without the repository's own configuration, which wants more than is there.
    ${tiny:+env ELSA_TUNE_GPU_TESTS=cpu} timeout 480 "$PYTHON" -m pytest tests/unit/test_gpu.py -q --noconftest \
      -c /dev/null --rootdir . -p no:cacheprovider -W ignore::pytest.PytestUnknownMarkWarning \
      ${tiny:+-k "prefix or memory"} 2>&1 | tee "$out/tests.txt"
    status=${PIPESTATUS[0]}
  else
    timeout 480 "$PYTHON" bench/gpu_trial.py "$step" --out "$out" $tiny ${data:+--data "$data"}
    status=$?
  fi
  [ "$status" -eq 0 ] || { echo "gpu.sh: step $step ended with status $status" >&2 && failed=1; }
done
exit $failed
