"""Learning rates to explore: a range or a list."""

from collections.abc import Sequence
from dataclasses import dataclass

from elsa_tune.errors import SpaceError
from elsa_tune.specs.trial import MOST, Rate


def check_few(values: Sequence[object], what: str) -> None:
    """Raise SpaceError for more of them than anybody could try. what: a word for them."""
    if len(values) > MOST:
        raise SpaceError(f"must be at most {MOST:,} {what}, not {len(values):,}")


@dataclass(frozen=True, slots=True, kw_only=True)
class RateRange:
    """Learning rates low..high (both in reach), in steps, or log-uniform where step is None."""

    low: Rate
    high: Rate
    step: Rate | None = None

    def __post_init__(self) -> None:
        if self.low >= self.high:
            raise SpaceError(f"low ({self.low:g}) must be below high ({self.high:g})")
        if self.step is not None and self.step > self.high - self.low:
            raise SpaceError(f"step ({self.step:g}) must fit between low and high")
        if self.step is not None and self.step * MOST < self.high - self.low:
            raise SpaceError(
                f"step ({self.step:g}) gives more than {MOST:,} rates; take a wider one"
            )

    @property
    def values(self) -> tuple[float, ...] | None:
        """The rates of a stepped range, ascending; None for a continuous one."""
        if self.step is None:
            return None
        count = int((self.high - self.low) / self.step + 1e-9) + 1
        return tuple(float(f"{self.low + i * self.step:.4e}") for i in range(count))


@dataclass(frozen=True, slots=True, kw_only=True)
class RateList:
    """Learning rates one by one, ascending, distinct."""

    values: tuple[float, ...]


RateSpace = RateRange | RateList
