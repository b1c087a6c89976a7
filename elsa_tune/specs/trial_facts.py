"""What a trial is, as it is recorded when it begins."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

from elsa_tune.specs.adapt.candidates import RecordedCandidate
from elsa_tune.specs.bounds import Bounds, Count
from elsa_tune.specs.comparison import Comparison
from elsa_tune.specs.search import Looks
from elsa_tune.specs.trial import Phase


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialFacts:
    """A trial's description in the record, from which plan and results are read.

    What is not known, as in records of earlier versions, is None.
    """

    phase: Phase  # what it was trained for
    candidate: RecordedCandidate  # what it trained
    model: str | None = None  # its name
    task: str | None = None  # its name
    layers: Count | None = None  # L of the model
    learning_rate: float | None = None  # None for a linear probe
    seed: Annotated[int, Bounds(ge=0)] | None = None  # likewise
    metric: str | None = None  # the headline metric's name
    chance: float | None = None  # the quality of the best constant answer
    evaluation_examples: Count | None = None  # E of the evaluation split
    evaluation_units: Count | None = None  # how many independent units those are
    given_rates: tuple[float, float] | None = None  # the lowest and highest the search was given
    looks: Looks | None = None  # when its candidate is tested
    search: str | None = None  # the name that its search had when it began
    selection: str | None = None  # which evaluation's quality counts
    epochs: Count | None = None  # planned ones
    train_size: Count | None = None  # labelled examples in use
    # The rest of the recipe, and what later versions record: shown, and read by nobody.
    others: Mapping[str, Any] = field(default_factory=dict)
    # What must agree before results are pooled.
    comparison: Comparison = field(default_factory=Comparison)

    def __post_init__(self) -> None:
        if self.layers is not None:
            self.candidate.check(self.layers)
