"""Learning rates to explore: a range or a list."""

from collections.abc import Sequence
from dataclasses import dataclass

from elsa_tune.errors import SpaceError
from elsa_tune.specs.bounds import MOST, Rate


def check_few(values: Sequence[object], what: str) -> None:
    """Raise SpaceError for more of them than anybody could try. what: a word for them."""
    count = len(values)
    if count > MOST:
        raise SpaceError(f"must be at most {MOST:,} {what}, not {count:,}")


@dataclass(frozen=True, slots=True, kw_only=True)
class RateRange:
    """Learning rates low..high (both in reach), in steps, or log-uniform where step is None."""

    low: Rate  # the lowest
    high: Rate  # the highest, above it
    step: Rate | None = None  # from one rate to the next

    def __post_init__(self) -> None:
        if self.low >= self.high:
            raise SpaceError(f"low ({self.low:g}) must be below high ({self.high:g})")
        if self.step is None:
            return
        width = self.high - self.low
        if self.step > width:
            raise SpaceError(f"step ({self.step:g}) must fit between low and high")
        widest = self.step * MOST
        if widest < width:
            raise SpaceError(
                f"step ({self.step:g}) gives more than {MOST:,} rates; take a wider one"
            )

    @property
    def values(self) -> tuple[float, ...] | None:
        """The rates of a stepped range, ascending; None for a continuous one."""
        if self.step is None:
            return None
        width = self.high - self.low
        steps = int(width / self.step + 1e-9)  # that the high end is not lost by rounding
        rates: list[float] = []
        for number in range(steps + 1):
            rate = self.low + number * self.step
            rounded = float(f"{rate:.4e}")
            rates.append(rounded)
        return tuple(rates)


@dataclass(frozen=True, slots=True, kw_only=True)
class RateList:
    """Learning rates one by one."""

    values: tuple[float, ...]  # ascending, distinct


RateSpace = RateRange | RateList
