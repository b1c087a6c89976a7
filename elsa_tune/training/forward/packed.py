"""Packed batches: the tokens of several rows one after the other, without padding.

Letters in shape comments: B rows of a batch, P tokens of all of them together, b rows and w tokens
of the longest row of one padded square.
"""

import enum
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from elsa_tune.training.data.tokens import CPU, WIDTHS, IndexArray, Indices, TokenRows, to_device

# What one more attention group costs on a CPU (its own dozen small operations), in elements of its
# padded square of scores, per head and all. Measured: bench/results/step.json.
GROUP_COST = 4000


class Attention(enum.Enum):
    """How rows of different lengths are attended."""

    GROUPS = "groups"  # rows of similar length in one padded square: the fastest way on a CPU
    SQUARE = "square"  # all rows in one: on a GPU, where a launch costs more than padding
    ENDS = "ends"  # by a kernel that is told where rows end: no padding, on GPUs that have it


@dataclass(frozen=True, slots=True)
class Layout:
    """Where and how packed rows are attended. dtype: of the queries, which masks need to have."""

    device: torch.device = CPU
    attention: Attention = Attention.GROUPS
    dtype: torch.dtype = torch.float32

    @classmethod
    def plain(cls, device: torch.device, dtype: torch.dtype = torch.float32) -> Self:
        """The one that every device of that kind runs."""
        if device.type == "cpu":
            return cls(device)  # there scores are fp32
        return cls(device, Attention.SQUARE, dtype)


@dataclass(frozen=True, slots=True)
class Square:
    """Some of a packed batch's rows, padded to w tokens each; the next square has the next ones.

    rows: b. width: w. tokens: of all rows, without padding. index: int64 [b * w], which of them
    stands where in the square (padding repeats a row's first token). real: int64 [tokens], their
    places within `index`. padding: bool [b, w]. bias: [b, 1, 1, w], 0 for tokens and -inf for
    padding, in the layout's dtype. All four are None where all b rows have w tokens.
    """

    rows: int
    width: int
    tokens: int
    index: Tensor | None = None
    real: Tensor | None = None
    padding: Tensor | None = None
    bias: Tensor | None = None


@dataclass(frozen=True, slots=True)
class PackedBatch:
    """Rows in order of length, shortest first, their tokens one after the other.

    rows: int64 [B], their numbers in their split. ids, positions (0.. within its row) and places
    (in the split's flat arrays): int64 [P]; types: the same, or None where the model takes none;
    starts: int64 [B], where each row's first token lies among the P; row: int64 [P], the row of
    each token in this batch; inner: bool [P, 1], whether it is not its row's first. ends: int32
    [B + 1], where rows begin and end; each: int32 [B + 1], 0..B. squares cover all rows; there are
    none under `Attention.ENDS`. longest: tokens of the longest row, or of the one square.
    """

    layout: Layout
    rows: Tensor
    ids: Tensor
    types: Tensor | None
    positions: Tensor
    places: Tensor
    starts: Tensor
    row: Tensor
    inner: Tensor
    ends: Tensor
    each: Tensor
    longest: int
    squares: tuple[Square, ...]

    def __len__(self) -> int:
        return len(self.rows)

    def operand(self, hidden: Tensor) -> Tensor:
        """Hidden states as a GPU's products take them; autocast would round them for each."""
        return hidden if self.layout.attention is Attention.GROUPS else hidden.to(self.layout.dtype)

    def firsts(self, hidden: Tensor) -> Tensor:
        """Each row's first token [B, H], of hidden states [P, H]."""
        return gathered(hidden, self.starts, self.row, self.inner)


def pack(
    rows: TokenRows, indices: Indices, layout: Layout, numbers: IndexArray | None = None
) -> PackedBatch:
    """Pack the chosen rows of a split. numbers: what stands for each token id in their place."""
    chosen = np.asarray(indices, dtype=np.int64)
    lengths = rows.offsets[chosen + 1] - rows.offsets[chosen]
    order = np.argsort(lengths, kind="stable")
    chosen, lengths = chosen[order], lengths[order]
    ends = np.concatenate([[0], np.cumsum(lengths)])
    starts, row = ends[:-1], np.repeat(np.arange(len(chosen)), lengths)
    positions = np.arange(ends[-1]) - starts[row]
    source = rows.offsets[chosen][row] + positions
    ids = rows.input_ids[source].astype(np.int64)
    arrays: dict[str, NDArray[Any]] = {
        "rows": chosen,
        "ids": ids if numbers is None else numbers[ids],
        "positions": positions,
        "places": source,
        "starts": starts,
        "row": row,
        "inner": positions[:, None] > 0,
        "ends": ends.astype(np.int32),
        "each": np.arange(len(chosen) + 1, dtype=np.int32),
    }
    if rows.token_type_ids is not None:
        arrays["types"] = rows.token_type_ids[source].astype(np.int64)
    bounds = _bounds(lengths, layout.attention)
    for first, last, width in bounds:
        if lengths[first] < width:
            padded = _padded_square(lengths[first:last], width)
            arrays |= {f"{name} {first}": array for name, array in padded.items()}
    there = to_device(arrays, layout.device)
    squares = []
    for first, last, width in bounds:
        own = {name: there.pop(f"{name} {first}", None) for name in ("index", "real", "padding")}
        if own["padding"] is not None:
            shape = (last - first, 1, 1, width)
            bias = torch.zeros(shape, dtype=layout.dtype, device=layout.device)
            own["bias"] = bias.masked_fill_(own["padding"].view(shape), -math.inf)
        squares.append(Square(last - first, width, int(ends[last] - ends[first]), **own))
    return PackedBatch(
        layout=layout,
        types=there.pop("types", None),
        longest=bounds[-1][2] if bounds else int(lengths[-1]),
        squares=tuple(squares),
        **there,
    )


def _bounds(lengths: IndexArray, attention: Attention) -> list[tuple[int, int, int]]:
    """Of each square its first row, the one behind its last, and its width; `lengths` ascends."""
    if attention is Attention.ENDS:
        return []
    if attention is Attention.SQUARE:
        return [(0, len(lengths), -(-int(lengths[-1]) // WIDTHS) * WIDTHS)]
    sizes = [len(group) for group in length_groups(lengths, len(lengths), GROUP_COST, power=2)]
    ends = np.cumsum(sizes).tolist()
    return [(end - size, end, int(lengths[end - 1])) for end, size in zip(ends, sizes, strict=True)]


def length_groups(
    lengths: Sequence[int] | NDArray[np.int64], largest: int, cost_of_a_group: int, power: int = 1
) -> list[NDArray[np.int64]]:
    """Positions [0, B) in groups whose padded size is least in all, shortest examples first.

    Which examples make up a batch, and so the gradient of its mean loss, stays the same: groups are
    forwarded one by one, and their gradients add up.
    largest: examples in a group at most, >= 1. cost_of_a_group: of one more group, beside its
    tokens, in tokens. power: of a row's length, that its cost grows with (2 for attention; costs
    are then in tokens squared). Exact, by dynamic programming over the batch in order of length:
    O(B x largest). Ties keep the batch's order.
    """
    order = np.argsort(np.asarray(lengths), kind="stable")
    tallest = [int(lengths[position]) for position in order]
    # best[i]: least cost of the first i examples; first[i]: where their last group begins.
    best, first = [0], [0]
    for end in range(1, len(tallest) + 1):
        starts = range(max(0, end - largest), end)
        costs = [
            best[start] + (end - start) * tallest[end - 1] ** power + cost_of_a_group
            for start in starts
        ]
        cheapest = int(np.argmin(costs))
        best.append(costs[cheapest])
        first.append(starts[cheapest])
    groups: list[NDArray[np.int64]] = []
    end = len(tallest)
    while end > 0:
        groups.append(order[first[end] : end])
        end = first[end]
    return groups[::-1]


def _padded_square(lengths: IndexArray, width: int) -> dict[str, NDArray[Any]]:
    """index, real and padding of a `Square` of rows [b] padded to this width."""
    columns = np.arange(width)[None, :]
    is_token = columns < lengths[:, None]  # [b, w]
    index = (np.cumsum(lengths) - lengths)[:, None] + np.where(is_token, columns, 0)
    return {"index": index.ravel(), "real": np.flatnonzero(is_token), "padding": ~is_token}


def row_means(hidden: Tensor, batch: PackedBatch) -> Tensor:
    """Mean [B, H] of each row's tokens, of [P, H]."""
    sums = hidden.new_zeros((len(batch), hidden.shape[1]), dtype=torch.float32)
    sums = sums.index_add(0, batch.row, hidden.float())
    return (sums / batch.ends.diff()[:, None]).to(hidden.dtype)


def gathered(x: Tensor, index: Tensor, inverse: Tensor, blank: Tensor | None = None) -> Tensor:
    """x[index] of x [M, H], whose gradient is a gather too: that of `inverse` [M], 0 where `blank`
    [M, 1]. torch's own adds up, in a sort and six more kernels, what here is one number each.
    """
    return _Gathered.apply(x, index, inverse, blank)  # type: ignore[no-any-return, no-untyped-call]  # untyped


class _Gathered(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, index: Tensor, inverse: Tensor, blank: Tensor | None
    ) -> Tensor:
        ctx.save_for_backward(inverse, blank)
        return x.index_select(0, index)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        inverse, blank = ctx.saved_tensors
        grad = grads[0].index_select(0, inverse)
        return grad if blank is None else grad.masked_fill_(blank, 0), None, None, None
