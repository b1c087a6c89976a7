#!/usr/bin/env bash
# Everything worth checking on a GPU, in order of worth, each step bounded. Needs torch and transformers only.
#
#   bash bench/gpu.sh OUT [DATA.npz]
#
# Writes OUT/gpu.json. DATA.npz: a task tokenised by `python bench/gpu_trial.py --pack DATA.npz`; without it
# made-up tokens of RTE's lengths are used: speed and equality do not care.
set -u
out=${1:?usage: bash bench/gpu.sh OUT [DATA.npz]}
data=${2:-}
mkdir -p "$out"
cd "$(dirname "$0")/.." || exit 1
export PYTHONPATH=. TOKENIZERS_PARALLELISM=false HF_HUB_OFFLINE=1
ELSA_TUNE_CACHE=$(mktemp -d) && export ELSA_TUNE_CACHE
step() { # NAME SECONDS: one check in a process of its own; a failure is recorded and the next one goes on
  timeout "$2" python3 bench/gpu_trial.py "$1" --out "$out" ${data:+--data "$data"} ||
    echo "gpu.sh: step $1 failed or ran longer than $2 s" >&2
}
step determinism 120   # two runs of a trial, and a third one after a stopped one: identical losses
step memory 120        # micro-batches halve when memory runs out; what a trial leaves behind
step speed 400         # BERT-base at RTE's shape: steps per second at N = 0, 6, 9, 11, 12, fast and padded
step compile 600       # torch.compile and CUDA graphs against eager steps at N = 9 and 0; needs a C++ compiler
python3 bench/gpu_trial.py collect --out "$out"
