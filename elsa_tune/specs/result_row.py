"""One row of results: what `tracking` reads back, `--from` imports and `analysis` answers from."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

from elsa_tune.errors import SpaceError
from elsa_tune.specs.adapt.candidates import RecordedCandidate
from elsa_tune.specs.bounds import Bounds, Count
from elsa_tune.specs.comparison import Comparison
from elsa_tune.specs.policy import Policy
from elsa_tune.specs.row_findings import RowFinding
from elsa_tune.specs.search import NONE_EARLIER, Earlier, Looks
from elsa_tune.specs.trial import Phase, TrialStatus

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


# What tells a search from others, its name and its id: several people may use one name.
SearchKey: TypeAlias = tuple[str | None, str | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultRow:
    """One trial, or the mean of several runs, as answers read it; what is not known is None."""

    model: str  # its name
    task: str  # its name
    layers: Count | None  # L of the model; a table of methods alone need not know it
    candidate: RecordedCandidate  # how the model was adapted
    quality: float | None  # a fraction in [-1, 1], once the trial reached an evaluation
    status: TrialStatus  # how the trial stands
    phase: Phase  # why it ran
    metric: str | None = None  # the headline metric's name
    selection: str | None = None  # which evaluation's quality counts
    chance: float | None = None  # the quality of the best constant answer
    learning_rate: float | None = None  # the peak one; None in tables that do not name it
    seed: Annotated[int, Bounds(ge=0)] | None = None  # of head, order of examples and dropout
    runs: Count = 1  # how many the row stands for
    std: Annotated[float, Bounds(ge=0)] | None = None  # the runs' standard deviation (ddof 1)
    train_size: Count | None = None  # labelled examples in use
    epochs: Count | None = None  # planned ones
    search: str | None = None  # its name
    search_id: str | None = None  # the search's id
    trial: str | None = None  # its key within the search
    # What must agree before rows are pooled.
    comparison: Comparison = field(default_factory=Comparison)
    train_seconds: float | None = None  # in steps, as `EvaluationResult` has it
    peak_memory_mb: float | None = None  # in MiB: of tensors on a GPU, else of the process
    trainable_parameters: Annotated[int, Bounds(ge=0)] | None = None  # how many train
    examples: Count | None = None  # E of the evaluation split
    evaluation_units: Count | None = None  # how many independent units those are
    predictions: str | None = None  # where they are kept: a file, or `runs:/RUN_ID/PATH` in a store
    given_rates: tuple[float, float] | None = None  # of the search, which may have gone beyond them
    looks: Looks | None = None  # when its candidate is tested
    policy: Policy | None = None  # of its search; None where no search of ours is known
    # The share of the full model's quality that its search was planned to keep; likewise.
    planned_target: Annotated[float, Bounds(gt=0, le=1)] | None = None
    probe_examples: int | None = None  # rows that a linear probe learnt from
    findings: tuple[RowFinding, ...] = ()  # what is odd about the rows in use
    earlier: Earlier = NONE_EARLIER  # the searches that asked the same before its own began

    def __post_init__(self) -> None:
        if self.layers is not None:
            self.candidate.check(self.layers)
        elif self.candidate.is_ranked and not self.candidate.is_reference:
            raise SpaceError(
                f"field 'layers' is missing; '{self.candidate.label}' says how many are frozen, "
                "and not of how many"
            )

    @property
    def search_key(self) -> SearchKey:
        """What tells its search from others."""
        return self.search, self.search_id


@dataclass(frozen=True, slots=True, kw_only=True)
class Predictions:
    """What one trial answered on the evaluation split, at the evaluation that gave its quality."""

    # [E, ...] as the type of task has them: class ids 0..classes-1, a 0 or 1 of each, values, or
    # whole numbers that name no class.
    predictions: NDArray[np.generic] = field(repr=False)
    labels: NDArray[np.generic] = field(repr=False)  # likewise
    classes: int  # 0 where labels name none
    # [E], the unit that each example belongs to, 0..U-1; None where each is its own or none is
    # known, as in what earlier versions kept.
    units: NDArray[np.integer[Any]] | None = field(default=None, repr=False)

    @property
    def are_values(self) -> bool:
        """Whether labels are values, which no answer is expected to give to the digit."""
        return self.classes == 0 and self.labels.dtype.kind == "f"


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """The search that rows come from, "" for what is not known."""

    place: str = ""  # when and on which machine it ran
    command: str = ""  # what starts such a search
