"""A way without a rank, and rows of several ways, for tests of comparisons."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from elsa_tune.analysis.comparing.comparison import compare_ways
from elsa_tune.analysis.comparing.ways import WayComparison, way_curves
from elsa_tune.specs.adapt.candidate import Candidate
from elsa_tune.specs.adapt.freeze import FreezeDepth
from elsa_tune.specs.result_row import ResultRow
from tests.unit.result_rows import row, seeds


@dataclass(frozen=True, slots=True)
class Adapter(Candidate):
    """Something small is added to the model, by its size."""

    method: ClassVar[str] = "adapter"
    size: int = 8

    @property
    def key(self) -> str:
        return f"A{self.size}"

    @property
    def label(self) -> str:
        return f"adapter-{self.size}"

    @property
    def rank(self) -> float:
        return 1000.0 + self.size

    @property
    def is_ranked(self) -> bool:
        return False

    def fine_tuned_layers(self, layers: int) -> None:
        return None

    def relative_cost(self, layers: int, *, keeps_prefix: bool) -> float:
        return 0.8

    def describe(self, layers: int) -> str:
        return f"adapters of size {self.size}"

    def record(self) -> dict[str, Any]:
        return {"adapter_size": self.size}

    @classmethod
    def read(cls, text: str) -> Self | None:
        name, _, size = text.partition("-")
        return cls(int(size)) if name == cls.method and size.isdigit() else None

    @classmethod
    def of_record(cls, values: Mapping[str, Any]) -> Self | None:
        size = values.get("adapter_size")
        return None if size is None else cls(int(size))

    def check(self, layers: int) -> Self:
        return self


FULL = FreezeDepth(0, False)
LAST_TWO = FreezeDepth(4, True)
HEAD = FreezeDepth(6, True)
ADAPTER = Adapter()

# What a run of each takes: the head is the cheapest, the full model the dearest.
SECONDS = {FULL: 100.0, ADAPTER: 60.0, LAST_TWO: 20.0, HEAD: 1.0}


def way_rows(candidate: Candidate, mean: float, **changes: Any) -> list[ResultRow]:
    """Return three runs of a way about this mean, a point apart."""
    values = {"train_seconds": SECONDS.get(candidate), **changes}
    spread: Sequence[float] = (-0.001, 0.0, 0.001)
    return seeds(candidate, [mean + step for step in spread], **values)


def explored(
    candidate: Candidate, scores: Mapping[float, float], **changes: Any
) -> list[ResultRow]:
    """Return one exploring run of a way at each rate."""
    from elsa_tune.specs.trial import Phase

    rows = []
    for rate, score in scores.items():
        rows.append(
            row(candidate, score, phase=Phase.EXPLORE, learning_rate=rate, seed=0, **changes)
        )
    return rows


def four_ways(**means: float) -> list[ResultRow]:
    """Return the full model, adapters, the last two layers and the head."""
    values = {"full": 0.9, "adapter": 0.9, "last_two": 0.898, "head": 0.6, **means}
    return [
        *way_rows(FULL, values["full"]),
        *way_rows(ADAPTER, values["adapter"]),
        *way_rows(LAST_TWO, values["last_two"]),
        *way_rows(HEAD, values["head"]),
    ]


def compared(rows: Sequence[ResultRow], *args: Any, **options: Any) -> WayComparison:
    """Return the one comparison of these rows."""
    [curve] = way_curves(rows)
    return compare_ways(curve, *args, **options)
