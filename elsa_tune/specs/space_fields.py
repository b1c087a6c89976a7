"""The fields of a search space as keyword arguments, for editors and type checkers."""

from collections.abc import Mapping, Sequence
from typing import Any, TypedDict

_Rates = float | Sequence[float] | Mapping[str, float] | str


class SpaceFields(TypedDict, total=False):
    """Every field of a search space that has no option of its own.

    docs/reference/spaces.md says what each does, and `Space` checks what a value may be.
    """

    depths: str | Sequence[int | str]
    lora: Mapping[str, Any]
    learning_rate: _Rates
    full_model_learning_rate: _Rates
    strategy: str
    strategy_settings: Mapping[str, Any]
    target: float
    thorough: bool
    tries: int
    extend: bool
    sampler: str
    asha: Mapping[str, Any] | None
    seed: int
    linear_probe: bool
    epochs: int
    revision: str
    batch_size: int
    max_length: int
    subset_seed: int
    warmup_ratio: float
    weight_decay: float
    max_grad_norm: float
    evaluations_per_epoch: int
    frozen_dropout: bool
    precision: str
    prefix_cache: str
    selection: str
    holdout: float
    pooling: str
    standardize_targets: bool
    eval_batch_size: int
