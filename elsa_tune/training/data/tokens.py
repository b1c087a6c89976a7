"""Rows of a split: as texts and labels, and as ragged rows of token ids.

Shapes: E examples; the flat arrays hold all rows' tokens one after the other. Whoever only reads
rows does not wait for torch: `batches` needs it.
"""

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray

from elsa_tune.specs.row_findings import RowFinding

# The name of the split that is held out of the training set.
HOLDOUT: Final = "holdout"

# Numbers of rows or tokens, or how many there are.
IndexArray = NDArray[np.int64]
Indices = Sequence[int] | NDArray[np.integer[Any]]


@dataclass(frozen=True)
class Split:
    """One split, in the order of its file."""

    where: str  # the file(s) or hub split, for messages
    texts: tuple[list[str], ...]  # a list of E texts for each text column
    labels: NDArray[Any]  # [E, ...], as the type of task has them
    notes: tuple[str, ...] = ()  # rows that were skipped, and why
    # How many were skipped of the files' rows; None without any, and for a part of a split.
    lost: RowFinding | None = None
    # A key of each row's group [E], the same in every split; None where the task names no column.
    groups: NDArray[np.uint64] | None = None

    def __len__(self) -> int:
        return len(self.labels)

    def part(self, rows: IndexArray, what: str, notes: tuple[str, ...] = ()) -> "Split":
        """Return the chosen rows, in the file's order, with these notes. what: for messages."""
        chosen = np.sort(rows)
        numbers = chosen.tolist()
        columns = []
        for column in self.texts:
            columns.append([column[number] for number in numbers])
        groups = None
        if self.groups is not None:
            groups = self.groups[chosen]
        return Split(
            where=f"{what} of {self.where}",
            texts=tuple(columns),
            labels=self.labels[chosen],
            notes=notes,
            groups=groups,
        )


Splits = dict[str, Split]  # by name


@dataclass(frozen=True)
class TokenRows:
    """One split. Row e has the tokens input_ids[offsets[e]:offsets[e + 1]], at least one."""

    input_ids: NDArray[np.int32]  # flat
    offsets: IndexArray  # [E + 1], from 0
    token_type_ids: NDArray[np.int8] | None  # flat; None where the model takes none
    labels: NDArray[Any]  # [E, ...], as the type of task has them
    # The tokens of each row before it was cut [E]; None where all are whole.
    uncut: IndexArray | None = None

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def lengths(self) -> IndexArray:
        """The tokens of each row [E]."""
        return np.diff(self.offsets)

    @property
    def full_lengths(self) -> IndexArray:
        """The tokens that each row's texts make [E], also those that were cut off."""
        if self.uncut is None:
            return self.lengths
        return self.uncut

    @functools.cached_property
    def longest(self) -> int:
        """The tokens of the longest row."""
        return int(self.lengths.max())

    def take(self, chosen: IndexArray) -> "TokenRows":
        """Return the rows of these numbers, in this order."""
        lengths = self.lengths[chosen]
        offsets = np.concatenate([[0], np.cumsum(lengths)])
        starts = offsets[:-1]
        shift_of_row = self.offsets[chosen] - starts  # from its new place
        shift_of_token = np.repeat(shift_of_row, lengths)
        new_places = np.arange(offsets[-1])
        source = new_places + shift_of_token
        types = self.token_type_ids
        if types is not None:
            types = types[source]
        return TokenRows(
            input_ids=self.input_ids[source],
            offsets=offsets,
            token_type_ids=types,
            labels=self.labels[chosen],
            uncut=None if self.uncut is None else self.uncut[chosen],
        )


@dataclass(frozen=True)
class TaskData:
    """A task, read and tokenised for one model: all that training needs to know of either."""

    train: TokenRows  # the rows that are learnt from
    evaluation: TokenRows  # gives the quality
    # Further evaluation splits, scored with the same metric under their names.
    companions: dict[str, TokenRows]
    pad_token_id: int  # what stands at padding, where the mask is 0
    padding_side: Literal["right", "left"]  # XLNet's is left
    pad_token_type_id: int  # its type, for models that take types
    fingerprint: str  # sha256 over texts, labels, subset, max_length and tokenizer
    chance: float  # the headline metric of the best constant prediction on `evaluation`
    # Training examples held out to choose learning rate and evaluation (`selection: holdout`).
    holdout: TokenRows | None = None
    # The unit of each evaluation row [E], 0..U-1 in the rows' order: what is independent of one
    # another; None where each row is its own.
    units: NDArray[np.int32] | None = None
    notes: tuple[str, ...] = ()  # what a reader of the results should know
    findings: tuple[RowFinding, ...] = ()  # what is odd about the rows

    @property
    def evaluation_units(self) -> int:
        """How many units the evaluation rows are, U."""
        if self.units is None:
            return len(self.evaluation)
        return int(self.units.max()) + 1

    def splits(self) -> dict[str, TokenRows]:
        """Return the splits by name.

        They are `train`, `evaluation`, `holdout` if there is one, and the companions.
        """
        splits = {"train": self.train, "evaluation": self.evaluation}
        if self.holdout is not None:
            splits[HOLDOUT] = self.holdout
        splits.update(self.companions)
        return splits
