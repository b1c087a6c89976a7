"""One row of results: what `tracking` reads back, `--from` imports and `analysis` answers from."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated

from elsa_tune.specs.bounds import Bounds
from elsa_tune.specs.freeze import FreezeDepth
from elsa_tune.specs.policy import Policy
from elsa_tune.specs.row_findings import RowFinding
from elsa_tune.specs.search import Looks
from elsa_tune.specs.trial import Count, Phase, TrialStatus

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultRow:
    """One trial (or, with runs > 1, the mean of so many) with its quality as a fraction in [-1, 1].

    What is not known, or not there, is None. layers: L of the model. quality: there once the trial
    reached an evaluation. chance: quality of the best constant answer. runs: how many runs the row
    stands for; std: their standard deviation (ddof 1). comparison: a short text of everything that
    must agree before rows are pooled (weights, data, recipe). Seconds, MiB and parameter counts as
    in EpochResult. epochs_run counts evaluations done, epochs the planned ones. examples: E of the
    evaluation split. trial: its key within the search. predictions: where they are kept, a file or
    `runs:/RUN_ID/PATH` in MLflow. given_rates: the lowest and the highest learning rate that the
    search was given, beyond which it may have gone. looks: when its depth is tested.
    probe_examples: the rows that a linear probe learnt from. findings: what is odd about the rows
    that were trained on and evaluated.
    """

    model: str
    task: str
    layers: Count
    depth: FreezeDepth
    quality: float | None
    status: TrialStatus
    phase: Phase
    metric: str | None = None
    selection: str | None = None
    chance: float | None = None
    learning_rate: float | None = None
    seed: Annotated[int, Bounds(ge=0)] | None = None
    runs: Count = 1
    std: Annotated[float, Bounds(ge=0)] | None = None
    train_size: Count | None = None
    epochs: Count | None = None
    epochs_run: int | None = None
    search: str | None = None
    trial: str | None = None
    comparison: str = ""
    train_seconds: float | None = None
    peak_memory_mb: float | None = None
    trainable_parameters: Annotated[int, Bounds(ge=0)] | None = None
    examples: Count | None = None
    predictions: str | None = None
    given_rates: tuple[float, float] | None = None
    looks: Looks | None = None
    policy: Policy | None = None  # of its search; None where no search of ours is known
    probe_examples: int | None = None
    findings: tuple[RowFinding, ...] = ()

    def __post_init__(self) -> None:
        self.depth.check(self.layers)


@dataclass(frozen=True, slots=True, kw_only=True)
class Predictions:
    """What one trial answered on the evaluation split, at the evaluation that gave its quality.

    predictions, labels: [E], class ids 0..classes-1, or values where classes is 0.
    """

    predictions: NDArray[np.generic] = field(repr=False)
    labels: NDArray[np.generic] = field(repr=False)
    classes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """Where a search's rows come from, "" for what is not known.

    place: when and on which machine it ran. command: what starts such a search.
    """

    place: str = ""
    command: str = ""
