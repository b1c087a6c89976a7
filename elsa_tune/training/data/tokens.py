"""Rows of a split: as texts and labels, as ragged rows of token ids, and in padded batches.

Shapes: B batch, T tokens of the longest row of a batch, E examples; the flat arrays hold all rows'
tokens one after the other.
"""

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from elsa_tune.specs.row_findings import RowFinding

# The name of the split that is held out of the training set.
HOLDOUT: Final = "holdout"

CPU: Final = torch.device("cpu")
# Bytes: where each array of one copy begins, for its numbers to be readable there.
_ALIGNED = 16
# A GPU's batches have few widths, and masks that its kernels take as they are.
WIDTHS = 16

IndexArray = NDArray[np.int64]
Indices = Sequence[int] | NDArray[np.integer[Any]]


@dataclass(frozen=True)
class Split:
    """One split, in the order of its file.

    where: the file(s) or hub split, for messages. texts: one list of E texts for each text column.
    labels: class ids int64 [E], or float32 values [E]. notes: rows that were skipped, and why.
    lost: how many they are of the files' rows; None without any, and for a part of a split.
    """

    where: str
    texts: tuple[list[str], ...]
    labels: NDArray[Any]
    notes: tuple[str, ...] = ()
    lost: RowFinding | None = None

    def __len__(self) -> int:
        return len(self.labels)

    def part(self, rows: NDArray[np.int64], what: str, notes: tuple[str, ...] = ()) -> "Split":
        """The chosen rows, in the file's order, with these notes. what: for messages."""
        chosen = np.sort(rows)
        texts = tuple([column[row] for row in chosen.tolist()] for column in self.texts)
        return Split(f"{what} of {self.where}", texts, self.labels[chosen], notes)


@dataclass(frozen=True)
class TokenRows:
    """One split. Row e's tokens are input_ids[offsets[e]:offsets[e + 1]], unpadded, at least one.

    input_ids: int32, flat. offsets: int64 [E + 1], from 0. token_type_ids: int8, flat, None where
    the model takes none. labels: int64 class ids [E], or float32 values [E] for a regression.
    """

    input_ids: NDArray[np.int32]
    offsets: NDArray[np.int64]
    token_type_ids: NDArray[np.int8] | None
    labels: NDArray[np.int64] | NDArray[np.float32]

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Tokens of each row [E]."""
        return np.diff(self.offsets)

    @functools.cached_property
    def longest(self) -> int:
        """Tokens of the longest row."""
        return int(self.lengths.max())

    def take(self, chosen: NDArray[np.int64]) -> "TokenRows":
        """The rows of these numbers, in this order."""
        lengths = self.lengths[chosen]
        offsets = np.concatenate([[0], np.cumsum(lengths)])
        source = np.arange(offsets[-1]) + np.repeat(self.offsets[chosen] - offsets[:-1], lengths)
        types = self.token_type_ids
        return TokenRows(
            input_ids=self.input_ids[source],
            offsets=offsets,
            token_type_ids=None if types is None else types[source],
            labels=self.labels[chosen],
        )


@dataclass(frozen=True)
class TaskData:
    """A task, read and tokenised for one model: all that training needs to know of either.

    evaluation: gives the quality. holdout: training examples held out to choose learning rate and
    evaluation (`selection: holdout`). companions: further evaluation splits, scored with the same
    metric under their names (`mnli_mismatched`). padding_side: XLNet's is left. fingerprint: sha256
    over texts, labels, subset, max_length and tokenizer. chance: of the headline metric, the best
    constant prediction on `evaluation`. notes: what a reader of the results should know. findings:
    what is odd about the rows.
    """

    train: TokenRows
    evaluation: TokenRows
    companions: dict[str, TokenRows]
    pad_token_id: int
    padding_side: Literal["right", "left"]
    pad_token_type_id: int
    fingerprint: str
    chance: float
    holdout: TokenRows | None = None
    notes: tuple[str, ...] = ()
    findings: tuple[RowFinding, ...] = ()

    def splits(self) -> dict[str, TokenRows]:
        """By name: `train`, `evaluation`, `holdout` where there is one, and the companions."""
        held_out = {} if self.holdout is None else {HOLDOUT: self.holdout}
        return {"train": self.train, "evaluation": self.evaluation, **held_out, **self.companions}


@dataclass(frozen=True, slots=True)
class PaddedBatch:
    """Rows padded to the longest of them, on a GPU a little further, on the tokenizer's side.

    rows: int64 [B], their numbers in their split. inputs: what a model takes of them: input_ids,
    attention_mask and, where there are any, token_type_ids, int64 [B, T]. places: int64 [B, T],
    which of the split's tokens stands there, at padding the row's first. mask: bool [B, T], whether
    a token stands there, beside the host.
    """

    rows: Tensor
    inputs: dict[str, Tensor]
    places: Tensor
    mask: NDArray[np.bool_]


def pad_batch(
    rows: TokenRows, indices: Indices, data: TaskData, device: torch.device = CPU
) -> PaddedBatch:
    """The chosen rows of a split, on the device."""
    chosen = np.asarray(indices, dtype=np.int64)
    starts = rows.offsets[chosen]
    lengths = rows.offsets[chosen + 1] - starts  # [B]
    width = int(lengths.max())
    if device.type != "cpu":
        # Never wider than the split: a model may have no further positions.
        width = min(-(-width // WIDTHS) * WIDTHS, rows.longest)
    columns = np.arange(width, dtype=np.int64)[None, :]  # [1, T]
    pads = (width - lengths)[:, None]  # [B, 1]
    if data.padding_side == "left":
        mask, place = columns >= pads, columns - pads
    else:
        mask, place = columns < lengths[:, None], columns
    source = starts[:, None] + np.where(mask, place, 0)
    arrays: dict[str, NDArray[Any]] = {
        "input_ids": np.where(mask, rows.input_ids[source], data.pad_token_id).astype(np.int64),
        "attention_mask": mask.astype(np.int64),
    }
    if rows.token_type_ids is not None:
        types = np.where(mask, rows.token_type_ids[source], data.pad_token_type_id)
        arrays["token_type_ids"] = types.astype(np.int64)
    inputs = to_device({"rows": chosen, "places": source, **arrays}, device)
    numbers, places = inputs.pop("rows"), inputs.pop("places")
    return PaddedBatch(rows=numbers, inputs=inputs, places=places, mask=mask)


def to_device(arrays: Mapping[str, NDArray[Any]], device: torch.device) -> dict[str, Tensor]:
    """The arrays on the device: a GPU's by one copy for which the host does not wait."""
    here = {name: torch.from_numpy(array) for name, array in arrays.items()}
    return here if device.type == "cpu" else _by_one_copy(here, device)


def _by_one_copy(here: Mapping[str, Tensor], device: torch.device) -> dict[str, Tensor]:
    ends = np.cumsum([-(-tensor.nbytes // _ALIGNED) * _ALIGNED for tensor in here.values()])
    # Pinned memory comes from torch's own pool, which waits for the copy before it lends it again.
    host = torch.empty(int(ends[-1]), dtype=torch.uint8, pin_memory=device.type == "cuda")
    parts = {}
    for (name, tensor), start in zip(here.items(), [0, *ends.tolist()], strict=False):
        parts[name] = slice(start, start + tensor.nbytes)
        host[parts[name]] = tensor.reshape(-1).view(torch.uint8)
    there = host.to(device, non_blocking=True)
    return {
        name: there[parts[name]].view(tensor.dtype).view(tensor.shape)
        for name, tensor in here.items()
    }
