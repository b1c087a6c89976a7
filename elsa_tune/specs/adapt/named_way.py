"""A way that a table names: how somebody else adapted a model, by a free text."""

import re
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

from elsa_tune.errors import SpaceError
from elsa_tune.specs.adapt.candidate import Candidate

# With which its key begins, and no key of a method that elsa-tune trains.
KEY_PREFIX = "way-"
# The field of its record.
_NAMED_WAY = "named_way"


@dataclass(frozen=True, slots=True)
class NamedWay(Candidate):
    """What a table calls a way, such as `LoRA r=32`: compared by its rows, and never trained.

    Two spellings that differ in capitals or blanks alone are one way.
    """

    method: ClassVar[str] = "named"

    printed: str = field(compare=False)  # as the table has it, with single blanks
    folded: str = field(init=False, repr=False)  # the same in lower case, by which it is compared

    def __post_init__(self) -> None:
        words = self.printed.split()
        if not words:
            raise SpaceError("a way needs a name; this one is empty")
        printed = " ".join(words)
        object.__setattr__(self, "printed", printed)
        object.__setattr__(self, "folded", printed.casefold())

    @property
    def key(self) -> str:
        """Its letters and digits, and a checksum: `r=32` and `r-32` are two ways."""
        words = re.findall(r"[a-z0-9]+", self.folded)
        checksum = zlib.crc32(self.folded.encode())
        readable = "-".join([*words, f"{checksum:08x}"])
        return f"{KEY_PREFIX}{readable}"

    @property
    def label(self) -> str:
        """The name as the table prints it; `read` knows no free text, so that it reads none."""
        return self.printed

    @property
    def is_ranked(self) -> bool:
        return False

    @property
    def rank(self) -> float:
        """Behind every candidate that has a place."""
        return float("inf")

    def fine_tuned_layers(self, layers: int) -> None:
        return None

    def relative_cost(self, layers: int, *, keeps_prefix: bool) -> float:
        """Return a trial of the full model: nothing else is known, and nobody trains it."""
        return 1.0

    def describe(self, layers: int) -> str:
        return self.printed

    def is_plural(self, layers: int) -> bool:
        return False

    def doing(self, layers: int) -> str:
        return f"adapting the model by {self.printed}"

    def record(self) -> dict[str, Any]:
        return {_NAMED_WAY: self.printed}

    @classmethod
    def read(cls, text: str) -> Self | None:
        """Return None: a label of no method is a slip of the pen, and not a way."""
        return None

    @classmethod
    def of_record(cls, values: Mapping[str, Any]) -> Self | None:
        name = values.get(_NAMED_WAY)
        if name is None:
            return None
        return cls(str(name))

    def check(self, layers: int) -> Self:
        return self
