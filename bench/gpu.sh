#!/usr/bin/env bash
# What is worth knowing of a GPU, in order of worth. Each step is a process of its own that ends within its limit and
# writes OUT/step_NAME.json after everything it measures. Needs torch, transformers, numpy and safetensors; `tests`
# also pytest, and the Trainer's part of `speed` and `grid` accelerate.
#
#   bash bench/gpu.sh OUT [STEP[:SECONDS]...]  all steps, or those named, each within so many seconds (480)
#   bash bench/gpu.sh --tiny OUT [STEP...]     the same on a CPU, in seconds: that they work
#
# DATA=task.pickle takes a task tokenised elsewhere instead of made-up tokens of RTE's lengths. The file is a pickled
# TaskData; docs/guides/gpu.md has the lines that write one. Unpickling runs what is in a file: take only your own.
# PYTHON names the interpreter; packages in folders of PYTHONPATH are found.
set -u
tiny=
if [ "${1:-}" = --tiny ]; then tiny=--tiny && shift; fi
out=${1:?usage: bash bench/gpu.sh [--tiny] OUT [STEP[:SECONDS]...]}
shift
mkdir -p "$out" || exit 1
root=$(cd "$(dirname "$0")/.." && pwd) || exit 1
export PYTHONPATH="$root${PYTHONPATH:+:$PYTHONPATH}" TOKENIZERS_PARALLELISM=false HF_HUB_OFFLINE=1
PYTHON=${PYTHON:-python3}
# On a model of toy size every further thread would only wait for the others.
[ -z "$tiny" ] || export OMP_NUM_THREADS=1
failed=0
[ $# -gt 0 ] || set -- first tests graphs facts grid speed determinism memory shares
for named in "$@"; do
  step=${named%%:*}
  limit=480
  [ "$step" = "$named" ] || limit=${named#*:}
  if [ "$step" = tests ]; then
    # Without the repository's own configuration, which wants more than is there.
    ${tiny:+env ELSA_TUNE_GPU_TESTS=cpu} timeout "$limit" "$PYTHON" -m pytest "$root/tests/unit/test_gpu.py" -q \
      --noconftest -c /dev/null --rootdir "$root" -p no:cacheprovider -W ignore::pytest.PytestUnknownMarkWarning \
      ${tiny:+-k "prefix or memory"} 2>&1 | tee "$out/tests.txt"
    status=${PIPESTATUS[0]}
  else
    timeout "$limit" "$PYTHON" "$root/bench/gpu_trial.py" "$step" --out "$out" --limit "$limit" \
      $tiny ${DATA:+--data "$DATA"}
    status=$?
  fi
  [ "$status" -eq 0 ] || { echo "gpu.sh: step $step ended with status $status" >&2 && failed=1; }
done
exit $failed
