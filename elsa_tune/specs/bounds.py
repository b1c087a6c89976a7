"""The range of a number, as an annotation, and those that many fields have."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """A number's least and greatest value; None leaves that side open.

    It stands in an annotation: `Annotated[int, Bounds(ge=1)]`. pydantic checks it where a file is
    read, by the protocol for grouped metadata of the package annotated_types (its README,
    `GroupedMetadata`). A machine that only trains need not have that package: it is imported when
    the bounds are read.
    """

    ge: float | None = None  # the least value
    gt: float | None = None  # what every value is above
    le: float | None = None  # the greatest value
    lt: float | None = None  # what every value is below

    __is_annotated_types_grouped_metadata__: ClassVar = True

    def __iter__(self) -> Iterator[Any]:
        import annotated_types

        yield from annotated_types.Interval(ge=self.ge, gt=self.gt, le=self.le, lt=self.lt)


MOST = 1000  # epochs, seeds, tries, rates, depths: more would take years
MOST_SEED = 2**31 - 1

Count = Annotated[int, Bounds(ge=1, lt=2**31)]
FewCount = Annotated[int, Bounds(ge=1, le=MOST)]
Seed = Annotated[int, Bounds(ge=0, le=MOST_SEED)]
Rate = Annotated[float, Bounds(gt=0, le=1)]  # a learning rate
