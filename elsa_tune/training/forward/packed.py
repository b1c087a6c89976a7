"""Packed batches: the tokens of several rows one after the other, without padding.

It must not know models. Letters in shape comments: B rows of a batch, P tokens of all of them
together, b rows and w tokens of the longest row of one attention group.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from elsa_tune.training.data.tokens import TokenRows
from elsa_tune.training.forward.groups import length_groups

IndexArray = NDArray[np.int64]

# What one more attention group costs on a CPU (its own dozen small operations), in elements of its
# padded square of scores, per head and all. Measured: bench/results/step.json.
GROUP_COST = 4000


@dataclass(frozen=True, slots=True)
class AttentionGroup:
    """Rows first..last-1 of a packed batch, attended together because their lengths are similar.

    index: int64 [b * w], where each token of the padded group lies among the P tokens (padding
    repeats a row's first token), None where all b rows have w tokens and so lie in one block.
    bias: fp32 [b, 1, 1, w], 0 for tokens and -inf for padding; None where there is none.
    real: int64, the places of the group's own tokens within `index`; None where `index` is.
    start, stop: the group's block among the P tokens.
    """

    first: int
    last: int
    width: int
    start: int
    stop: int
    index: Tensor | None
    bias: Tensor | None
    real: Tensor | None

    @property
    def rows(self) -> int:
        """b, the number of rows."""
        return self.last - self.first


@dataclass(frozen=True, slots=True)
class PackedBatch:
    """Rows in order of length, shortest first, their tokens one after the other.

    chosen: int64 [B], the rows' numbers in their split, in this batch's order. source: int64 [P],
    where each token lies in the split's flat arrays; both stay off the device. position:
    int64 [P], 0.. within its row. starts: int64 [B], where each row's first token lies among the P.
    groups cover all rows. by_torch: attention by torch's own kernels also on a CPU, as several
    models in one pass need it.
    """

    chosen: IndexArray
    source: IndexArray
    position: Tensor
    starts: Tensor
    groups: tuple[AttentionGroup, ...]
    by_torch: bool = False

    def __len__(self) -> int:
        return len(self.chosen)


def pack(
    rows: TokenRows,
    indices: Sequence[int] | NDArray[np.integer[Any]],
    device: torch.device,
    *,
    one_group: bool = False,
) -> PackedBatch:
    """Pack the chosen rows. one_group: attend them all in one padded square (for GPUs, where one
    launch costs more than padding), instead of in groups of similar length.
    """
    chosen = np.asarray(indices, dtype=np.int64)
    lengths = rows.offsets[chosen + 1] - rows.offsets[chosen]
    order = np.argsort(lengths, kind="stable")
    chosen, lengths = chosen[order], lengths[order]
    ends = np.cumsum(lengths)
    starts = ends - lengths
    position = np.arange(ends[-1], dtype=np.int64) - np.repeat(starts, lengths)
    source = np.repeat(rows.offsets[chosen], lengths) + position
    bounds = [(0, len(chosen))] if one_group else _bounds(lengths)
    return PackedBatch(
        chosen=chosen,
        source=source,
        position=_tensor(position, device),
        starts=_tensor(starts, device),
        groups=tuple(_group(first, last, lengths, starts, device) for first, last in bounds),
    )


def row_means(hidden: Tensor, batch: PackedBatch) -> Tensor:
    """Mean [B, H] of each row's tokens, of [P, H]."""
    row = (batch.position == 0).cumsum(0) - 1  # [P]
    sums = hidden.new_zeros((len(batch), hidden.shape[1]), dtype=torch.float32)
    sums = sums.index_add(0, row, hidden.float())
    lengths = torch.diff(batch.starts, append=batch.starts.new_tensor([len(hidden)]))
    return (sums / lengths[:, None]).to(hidden.dtype)


def _bounds(lengths: IndexArray) -> list[tuple[int, int]]:
    """First and last row of each group; `lengths` ascends, so groups are runs of it."""
    sizes = [len(group) for group in length_groups(lengths, len(lengths), GROUP_COST, power=2)]
    ends = np.cumsum(sizes).tolist()
    return [(end - size, end) for end, size in zip(ends, sizes, strict=True)]


def _group(
    first: int, last: int, lengths: IndexArray, starts: IndexArray, device: torch.device
) -> AttentionGroup:
    own, begin = lengths[first:last], starts[first:last]
    width = int(own[-1])
    start, stop = int(begin[0]), int(begin[-1] + own[-1])
    if int(own[0]) == width:
        return AttentionGroup(first, last, width, start, stop, None, None, None)
    index, bias, real = padded_square(begin, own, width)
    return AttentionGroup(
        first=first,
        last=last,
        width=width,
        start=start,
        stop=stop,
        index=_tensor(index, device),
        bias=_tensor(bias, device),
        real=_tensor(real, device),
    )


def padded_square(
    starts: IndexArray, lengths: IndexArray, width: int
) -> tuple[IndexArray, NDArray[np.float32], IndexArray]:
    """index, bias and real of an `AttentionGroup` of rows [b] padded to this width."""
    columns = np.arange(width, dtype=np.int64)[None, :]
    is_token = columns < lengths[:, None]  # [b, w]
    index = starts[:, None] + np.where(is_token, columns, 0)
    bias = np.where(is_token, np.float32(0), np.float32(-np.inf))[:, None, None, :]
    return index.ravel(), bias, np.flatnonzero(is_token)


def _tensor(array: NDArray[Any], device: torch.device) -> Tensor:
    return torch.from_numpy(array).to(device, non_blocking=True)
