"""Rows of a split as texts and labels.

E is the number of rows of a split.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Split:
    """One split, in the order of its file.

    where: the file(s) or hub split, for messages. texts: one list of E texts for each text column.
    labels: class ids int64 [E], or float32 values [E]. notes: rows that were skipped, and why.
    """

    where: str
    texts: tuple[list[str], ...]
    labels: NDArray[Any]
    notes: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.labels)

    def part(self, rows: NDArray[np.int64], what: str) -> Split:
        """The chosen rows, in the file's order and without the notes. what: for messages."""
        chosen = np.sort(rows)
        texts = tuple([column[row] for row in chosen.tolist()] for column in self.texts)
        return Split(f"{what} of {self.where}", texts, self.labels[chosen])
