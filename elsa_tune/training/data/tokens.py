"""Tokenised examples: ragged rows of token ids, saved, loaded, and padded into batches.

It must not know texts, tasks or tokenizers. Shapes: B batch, T tokens of the longest row of a
batch, E examples; the flat arrays hold all rows' tokens one after the other.
"""

from __future__ import annotations

import json
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Final, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from elsa_tune.files import write_aside

# The name of the split that is held out of the training set.
HOLDOUT: Final = "holdout"


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

    def take(self, chosen: NDArray[np.int64]) -> TokenRows:
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

    evaluation: the split that gives the quality. holdout: examples held out of the training set,
    which choose learning rate and evaluation under `selection: holdout`. companions: further
    evaluation splits, scored with the same metric and logged under their names
    (`mnli_mismatched`). padding_side: the tokenizer's
    (XLNet: left). fingerprint: sha256 over texts, labels, subset, max_length and tokenizer. chance:
    of the headline metric, the best constant prediction on `evaluation`. train_size: training
    examples, subset and holdout taken. notes: what a reader of the results should be told.
    """

    train: TokenRows
    evaluation: TokenRows
    companions: dict[str, TokenRows]
    pad_token_id: int
    padding_side: Literal["right", "left"]
    pad_token_type_id: int
    fingerprint: str
    chance: float
    train_size: int
    holdout: TokenRows | None = None
    notes: tuple[str, ...] = ()

    def save(self, path: Path) -> None:
        """Write one .npz, aside and then renamed: needs numpy alone to read. Raises OSError."""
        arrays: dict[str, NDArray[Any]] = {}
        for name, rows in self.splits().items():
            arrays[f"{name}/input_ids"] = rows.input_ids
            arrays[f"{name}/offsets"] = rows.offsets
            arrays[f"{name}/labels"] = rows.labels
            if rows.token_type_ids is not None:
                arrays[f"{name}/token_type_ids"] = rows.token_type_ids
        facts = {
            "companions": list(self.companions),
            "holdout": self.holdout is not None,
            "pad_token_id": self.pad_token_id,
            "padding_side": self.padding_side,
            "pad_token_type_id": self.pad_token_type_id,
            "fingerprint": self.fingerprint,
            "chance": self.chance,
            "train_size": self.train_size,
            "notes": list(self.notes),
        }
        arrays["facts"] = np.frombuffer(json.dumps(facts).encode(), dtype=np.uint8)

        def write(file: BinaryIO) -> None:
            np.savez(file, **arrays)  # type: ignore[arg-type]  # its stub wants a flag

        write_aside(path, write)

    @classmethod
    def load(cls, path: Path) -> TaskData:
        """Read what `save` wrote. Raises ValueError for a file that is truncated, corrupt or of
        another kind, OSError for one that cannot be opened: in both cases build it again.
        """
        try:
            # Every member of the archive has its own checksum, verified as it is read. Opened here:
            # np.load leaves a file it cannot read open.
            with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
                arrays = {name: archive[name] for name in archive.files}
            facts = json.loads(arrays["facts"].tobytes())
            # Files of earlier versions say nothing of a holdout, and have none.
            held_out = [HOLDOUT] if facts.get("holdout") else []
            rows = {
                name: _rows_from(arrays, name)
                for name in ("train", "evaluation", *held_out, *facts["companions"])
            }
            return cls(
                train=rows.pop("train"),
                evaluation=rows.pop("evaluation"),
                holdout=rows.pop(HOLDOUT, None),
                companions=rows,
                pad_token_id=facts["pad_token_id"],
                padding_side=facts["padding_side"],
                pad_token_type_id=facts["pad_token_type_id"],
                fingerprint=facts["fingerprint"],
                chance=facts["chance"],
                train_size=facts["train_size"],
                notes=tuple(facts["notes"]),
            )
        except (zipfile.BadZipFile, KeyError, EOFError, ValueError, TypeError) as error:
            raise ValueError(f"{path} is no saved task data: {error}") from error

    def splits(self) -> dict[str, TokenRows]:
        """Every split by name: `train`, `evaluation`, `holdout` where there is one, and the
        companions.
        """
        held_out = {} if self.holdout is None else {HOLDOUT: self.holdout}
        return {"train": self.train, "evaluation": self.evaluation, **held_out, **self.companions}


def _rows_from(arrays: dict[str, NDArray[Any]], name: str) -> TokenRows:
    rows = TokenRows(
        input_ids=arrays[f"{name}/input_ids"],
        offsets=arrays[f"{name}/offsets"],
        token_type_ids=arrays.get(f"{name}/token_type_ids"),
        labels=arrays[f"{name}/labels"],
    )
    if len(rows.labels) != len(rows) or rows.offsets[-1] != len(rows.input_ids):
        raise ValueError(f"the rows of '{name}' do not fit their offsets")
    return rows


def pad_batch(
    rows: TokenRows, indices: Sequence[int] | NDArray[np.integer[Any]], data: TaskData
) -> dict[str, torch.Tensor]:
    """The chosen rows padded to the longest of them, on the tokenizer's side.

    Returns input_ids, attention_mask and, where the model takes them, token_type_ids: int64 [B, T];
    labels: int64 or float32 [B].
    """
    chosen = np.asarray(indices, dtype=np.int64)
    mask, source = padded_places(rows, chosen, data.padding_side)
    real = source[mask]
    batch = {
        "input_ids": _padded(rows.input_ids, real, mask, data.pad_token_id),
        "attention_mask": torch.from_numpy(mask.astype(np.int64)),
        "labels": torch.from_numpy(rows.labels[chosen]),
    }
    if rows.token_type_ids is not None:
        batch["token_type_ids"] = _padded(rows.token_type_ids, real, mask, data.pad_token_type_id)
    return batch


def padded_places(
    rows: TokenRows, chosen: NDArray[np.int64], side: str
) -> tuple[NDArray[np.bool_], NDArray[np.int64]]:
    """Where tokens are in a padded batch (bool [B, T]), and which of the split's (int64 [B, T]); at
    padding the row's first.
    """
    starts = rows.offsets[chosen]
    lengths = rows.offsets[chosen + 1] - starts  # [B]
    width = int(lengths.max())
    columns = np.arange(width, dtype=np.int64)[None, :]  # [1, T]
    pads = (width - lengths)[:, None]  # [B, 1]
    if side == "left":
        mask, place = columns >= pads, columns - pads
    else:
        mask, place = columns < lengths[:, None], columns
    return mask, starts[:, None] + np.where(mask, place, 0)


def _padded(
    flat: NDArray[Any], real: NDArray[np.int64], mask: NDArray[np.bool_], pad: int
) -> torch.Tensor:
    padded = np.full(mask.shape, pad, dtype=np.int64)  # [B, T]
    padded[mask] = flat[real]
    return torch.from_numpy(padded)
