"""Ragged rows: padding on both sides, and what changes all of them."""

from __future__ import annotations

import dataclasses
import pickle

import numpy as np
import torch

from elsa_tune.training.data import batches
from elsa_tune.training.data.batches import pad_batch, to_device
from elsa_tune.training.data.tokens import TaskData, TokenRows

ROWS = [[1, 7, 2], [1, 2], [1, 8, 9, 5, 2]]


def rows_of(rows: list[list[int]], labels: list[float], types: bool = True) -> TokenRows:
    lengths = [len(row) for row in rows]
    flat = [token for row in rows for token in row]
    return TokenRows(
        input_ids=np.array(flat, dtype=np.int32),
        offsets=np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64),
        token_type_ids=np.array([t % 2 for t in flat], dtype=np.int8) if types else None,
        labels=np.array(labels, dtype=np.int64),
    )


def data_of(rows: TokenRows, **changes: object) -> TaskData:
    data = TaskData(
        train=rows,
        evaluation=rows,
        companions={"mnli_mismatched": rows},
        pad_token_id=0,
        padding_side="right",
        pad_token_type_id=0,
        fingerprint="abc",
        chance=0.5,
        notes=("1 of 4 rows skipped",),
    )
    return dataclasses.replace(data, **changes)


def test_lengths() -> None:
    rows = rows_of(ROWS, [0, 1, 1])
    assert len(rows) == 3
    assert rows.lengths.tolist() == [3, 2, 5]


def test_padding_right() -> None:
    rows = rows_of(ROWS, [0, 1, 2])
    padded = pad_batch(rows, [2, 1], data_of(rows, pad_token_id=99, pad_token_type_id=3))
    batch = padded.inputs
    assert batch["input_ids"].tolist() == [[1, 8, 9, 5, 2], [1, 2, 99, 99, 99]]
    assert batch["attention_mask"].tolist() == [[1, 1, 1, 1, 1], [1, 1, 0, 0, 0]]
    assert batch["token_type_ids"].tolist() == [[1, 0, 1, 1, 0], [1, 0, 3, 3, 3]]
    assert padded.rows.tolist() == [2, 1]
    assert padded.places.tolist() == [[5, 6, 7, 8, 9], [3, 4, 3, 3, 3]]
    assert all(tensor.dtype == torch.int64 for tensor in batch.values())


def test_padding_left() -> None:
    rows = rows_of(ROWS, [0, 1, 2])
    data = data_of(rows, padding_side="left", pad_token_id=5, pad_token_type_id=3)
    batch = pad_batch(rows, np.array([0, 1]), data).inputs
    assert batch["input_ids"].tolist() == [[1, 7, 2], [5, 1, 2]]
    assert batch["attention_mask"].tolist() == [[1, 1, 1], [0, 1, 1]]
    assert batch["token_type_ids"].tolist() == [[1, 1, 0], [3, 1, 0]]


def test_a_batch_is_as_wide_as_its_own_longest_row() -> None:
    rows = rows_of(ROWS, [0, 1, 2], types=False)
    batch = pad_batch(rows, [1], data_of(rows)).inputs
    assert batch["input_ids"].shape == (1, 2)
    assert "token_type_ids" not in batch


def test_on_a_gpu_batches_have_few_widths_and_none_beyond_the_split() -> None:
    rows = rows_of([[1] * count for count in (3, 17, 20, 40)], range(4), types=False)
    widths = [
        pad_batch(rows, chosen, data_of(rows), torch.device("meta")).inputs["input_ids"].shape[1]
        for chosen in ([0], [0, 1], [2], [3, 0])
    ]
    assert widths == [16, 32, 32, 40]


def test_arrays_of_every_kind_come_through_one_copy() -> None:
    arrays = {
        "a": np.arange(6, dtype=np.int64).reshape(2, 3),
        "b": np.array([True, False, True])[:, None],
        "c": np.arange(5, dtype=np.int32),
        "d": np.array([0.5, -2.0], dtype=np.float32),
    }
    here = to_device(arrays, torch.device("cpu"))
    there = batches._by_one_copy(here, torch.device("cpu"))
    for name in arrays:
        assert torch.equal(here[name], there[name]) and here[name].dtype == there[name].dtype
    assert len({tensor.untyped_storage().data_ptr() for tensor in there.values()}) == 1


def test_every_split_has_its_name_and_rows_are_taken_by_number() -> None:
    rows = rows_of(ROWS, [0, 1, 2])
    data = data_of(rows, holdout=rows)
    assert list(data.splits()) == ["train", "evaluation", "holdout", "mnli_mismatched"]
    for split in data.splits().values():
        one = split.take(np.array([2, 0]))
        assert one.labels.tolist() == [2, 0]
        assert one.input_ids.tolist() == [1, 8, 9, 5, 2, 1, 7, 2]


def test_pickled_it_is_as_small_as_its_arrays() -> None:
    data = data_of(rows_of(ROWS * 1000, [0, 1, 2] * 1000), companions={})
    arrays = 2 * sum(
        array.nbytes for array in (data.train.input_ids, data.train.offsets, data.train.labels)
    )
    assert len(pickle.dumps(data)) < arrays + 2 * 12_000  # token types, and little else
