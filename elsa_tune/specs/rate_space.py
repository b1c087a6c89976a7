"""Learning rates to explore: a range or a list."""

from collections.abc import Sequence
from dataclasses import dataclass

from elsa_tune.errors import SpaceError
from elsa_tune.specs.bounds import MOST, Rate

_ROUNDING = 1e-9  # of a step: that the high end is not lost by rounding


def canonical_rate(learning_rate: float) -> float:
    """Return a learning rate with five significant digits, so that equal rates compare equal.

    A stepped Optuna distribution yields 3.0000000000000004e-05, which would break grouping.
    Raises SpaceError unless 0 < learning_rate <= 1.
    """
    if not (isinstance(learning_rate, int | float) and 0 < learning_rate <= 1):
        raise SpaceError(
            f"learning_rate is {learning_rate!r}; it must be a number above 0 and up to 1"
        )
    return float(f"{learning_rate:.4e}")


def check_few(values: Sequence[object], what: str) -> None:
    """Raise SpaceError for more of them than anybody could try. what: a word for them."""
    count = len(values)
    if count > MOST:
        raise SpaceError(f"must be at most {MOST:,} {what}, not {count:,}")


@dataclass(frozen=True, slots=True, kw_only=True)
class RateRange:
    """Learning rates low..high (both in reach), in steps, or log-uniform where step is None.

    Both ends are rounded as the rates of trials are, so that a trial at an end lies within.
    """

    low: Rate  # the lowest
    high: Rate  # the highest, above it
    step: Rate | None = None  # from one rate to the next

    def __post_init__(self) -> None:
        object.__setattr__(self, "low", canonical_rate(self.low))
        object.__setattr__(self, "high", canonical_rate(self.high))
        if self.low >= self.high:
            raise SpaceError(f"low ({self.low:g}) must be below high ({self.high:g})")
        if self.step is None:
            return
        width = self.high - self.low
        if self.step > width:
            raise SpaceError(f"step ({self.step:g}) must fit between low and high")
        # So many steps, or infinitely many, have one rate more: both ends count.
        if width / self.step + _ROUNDING >= MOST:
            raise SpaceError(
                f"step ({self.step:g}) gives more than {MOST:,} rates; take a wider one"
            )

    @property
    def steps(self) -> int:
        """How many steps of a stepped range lead from its lowest rate to its highest."""
        assert self.step is not None
        width = self.high - self.low
        return int(width / self.step + _ROUNDING)

    @property
    def values(self) -> tuple[float, ...] | None:
        """The rates of a stepped range, ascending, distinct; None for a continuous one."""
        if self.step is None:
            return None
        rates: list[float] = []
        for number in range(self.steps + 1):
            rate = self.low + number * self.step
            rates.append(canonical_rate(rate))
        different = dict.fromkeys(rates)
        return tuple(different)


@dataclass(frozen=True, slots=True, kw_only=True)
class RateList:
    """Learning rates one by one."""

    values: tuple[float, ...]  # ascending, distinct


RateSpace = RateRange | RateList
