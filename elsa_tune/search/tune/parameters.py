"""The names of what varies between the trials of a search, in Ray's configs and in Optuna's trials.

It must not import anything: a trial's own process needs them, and neither Optuna nor the plan.
"""

from __future__ import annotations

FROZEN_LAYERS = "frozen_layers"
LEARNING_RATE = "learning_rate"
PHASE = "phase"
SEED = "seed"
