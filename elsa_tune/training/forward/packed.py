"""Packed batches: the tokens of several rows one after the other, without padding.

Letters in shape comments: B rows of a batch, P tokens of all of them together, b rows and w tokens
of the longest row of one bucket.
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

from elsa_tune.training.data.batches import CPU, WIDTHS, to_device
from elsa_tune.training.data.tokens import IndexArray, Indices, TokenRows

# What one more bucket costs on a CPU (its own dozen small operations), in elements of its padded
# square of scores, per head and all. Measured: bench/results/step.json.
BUCKET_COST = 4000


class Attention(enum.Enum):
    """How rows of different lengths are attended."""

    BUCKETED = "bucketed"  # rows of similar length padded together: the fastest way on a CPU
    PADDED = "padded"  # all rows in one bucket: on a GPU, where a launch costs more than padding
    VARLEN = "varlen"  # by a kernel that reads where rows end: no padding, on GPUs that have it


@dataclass(frozen=True, slots=True)
class Layout:
    """The way in which packed rows are attended, and on which device."""

    device: torch.device = CPU  # where the batches lie
    attention: Attention = Attention.BUCKETED  # how their rows are attended
    dtype: torch.dtype = torch.float32  # of the queries, which masks need to have

    @classmethod
    def plain(cls, device: torch.device, dtype: torch.dtype = torch.float32) -> Self:
        """Return the layout that every device of that kind runs."""
        if device.type == "cpu":
            return cls(device)  # there scores are fp32
        return cls(device, Attention.PADDED, dtype)


@dataclass(frozen=True, slots=True)
class Bucket:
    """Some of a packed batch's rows, padded to w tokens each; the next bucket has the next ones.

    The tensors are None where all b rows have w tokens.
    """

    rows: int  # b
    width: int  # w
    tokens: int  # of all rows, without padding
    # int64 [b * w]: which of the tokens stands where; padding repeats a row's first token.
    index: Tensor | None = None
    real: Tensor | None = None  # int64 [tokens]: their places within `index`
    padding: Tensor | None = None  # bool [b, w]
    # [b, 1, 1, w]: 0 for tokens and -inf for padding, in the layout's dtype.
    bias: Tensor | None = None


@dataclass(frozen=True, slots=True)
class PackedBatch:
    """Rows in order of length, shortest first, their tokens one after the other."""

    layout: Layout  # the way in which it was packed
    rows: Tensor  # int64 [B]: their numbers in their split
    ids: Tensor  # int64 [P]
    types: Tensor | None  # int64 [P]; None where the model takes none
    positions: Tensor  # int64 [P]: of each token in its row, from 0; -1 for one that counts none
    places: Tensor  # int64 [P]: of each token in the split's flat arrays
    starts: Tensor  # int64 [B]: where each row's first token lies among the P
    row: Tensor  # int64 [P]: the row of each token in this batch
    inner: Tensor  # bool [P, 1]: whether the token is not its row's first
    # int32 [B + 1]: where rows begin and end, as varlen attention takes it.
    cu_seqlens: Tensor
    # int32 [B + 1]: the same of the first tokens alone, 0..B.
    cu_cls_tokens: Tensor
    longest: int  # tokens of the longest row, or the width of the one bucket
    buckets: tuple[Bucket, ...]  # all rows; none under `Attention.VARLEN`

    def __len__(self) -> int:
        return len(self.rows)

    def operand(self, hidden: Tensor) -> Tensor:
        """Return hidden states as a GPU's products take them, or autocast would for each anew."""
        if self.layout.attention is Attention.BUCKETED:
            return hidden
        return hidden.to(self.layout.dtype)

    def cls_tokens(self, hidden: Tensor) -> Tensor:
        """Return each row's first token [B, H], of hidden states [P, H]."""
        return gathered(hidden, self.starts, self.row, self.inner)


def pack(
    rows: TokenRows,
    indices: Indices,
    layout: Layout,
    numbers: IndexArray | None = None,
    uncounted: int | None = None,
) -> PackedBatch:
    """Pack the chosen rows of a split.

    numbers: what stands for each token id in its place. uncounted: the id, if any, of tokens that
    positions leave out.
    """
    chosen = np.asarray(indices, dtype=np.int64)
    first_places = rows.offsets[chosen]
    lengths = rows.offsets[chosen + 1] - first_places
    order = np.argsort(lengths, kind="stable")
    chosen = chosen[order]
    lengths = lengths[order]
    ends = np.concatenate([[0], np.cumsum(lengths)])
    bounds = _bounds(lengths, layout.attention)
    arrays = _token_arrays(rows, chosen, ends, numbers, uncounted)
    for first, last, width in bounds:
        if lengths[first] < width:
            bucket_arrays = _padding(lengths[first:last], width)
            for name, array in bucket_arrays.items():
                arrays[f"{name} {first}"] = array
    on_device = to_device(arrays, layout.device)
    longest = int(lengths[-1])
    buckets = []
    for first, last, width in bounds:
        tokens = int(ends[last] - ends[first])
        sizes = (last - first, width, tokens)
        bucket = _bucket(on_device, first, sizes, layout)
        buckets.append(bucket)
        longest = width  # the last bucket's
    return PackedBatch(
        layout=layout,
        types=on_device.pop("types", None),
        longest=longest,
        buckets=tuple(buckets),
        **on_device,
    )


def _token_arrays(
    rows: TokenRows,
    chosen: IndexArray,
    ends: IndexArray,
    numbers: IndexArray | None,
    uncounted: int | None,
) -> dict[str, NDArray[Any]]:
    """Return the arrays of a `PackedBatch` by name, of the chosen rows in their order.

    ends: 0, then where each of them ends among the P tokens.
    """
    starts = ends[:-1]
    lengths = np.diff(ends)
    row = np.repeat(np.arange(len(chosen)), lengths)
    tokens = np.arange(ends[-1])
    columns = tokens - starts[row]
    first_places = rows.offsets[chosen]
    places = first_places[row] + columns
    ids = rows.input_ids[places].astype(np.int64)
    positions = columns
    if uncounted is not None and uncounted in ids:
        positions = _positions(ids != uncounted, row, starts)
    if numbers is not None:
        ids = numbers[ids]
    is_inner = columns > 0
    cls_ends = np.arange(len(chosen) + 1)
    arrays: dict[str, NDArray[Any]] = {
        "rows": chosen,
        "ids": ids,
        "positions": positions,
        "places": places,
        "starts": starts,
        "row": row,
        "inner": is_inner[:, None],
        "cu_seqlens": ends.astype(np.int32),
        "cu_cls_tokens": cls_ends.astype(np.int32),
    }
    if rows.token_type_ids is not None:
        types = rows.token_type_ids[places]
        arrays["types"] = types.astype(np.int64)
    return arrays


def _positions(is_counted: NDArray[np.bool_], row: IndexArray, starts: IndexArray) -> IndexArray:
    """Return each token's position [P] in its row, where some count none and have -1.

    row: of each token. starts: where each row begins.
    """
    counted_before: IndexArray = np.cumsum(is_counted) - is_counted
    within_row: IndexArray = counted_before - counted_before[starts][row]
    return np.where(is_counted, within_row, -1)


def _bounds(lengths: IndexArray, attention: Attention) -> list[tuple[int, int, int]]:
    """Return each bucket's first row, the one behind its last, and its width.

    lengths: of the rows, ascending.
    """
    if attention is Attention.VARLEN:
        return []
    count = len(lengths)
    if attention is Attention.PADDED:
        longest = int(lengths[-1])
        width = math.ceil(longest / WIDTHS) * WIDTHS
        return [(0, count, width)]
    bounds = []
    first = 0
    for members in length_buckets(lengths, count, BUCKET_COST, power=2):
        last = first + len(members)
        longest = int(lengths[last - 1])
        bounds.append((first, last, longest))
        first = last
    return bounds


def _padding(lengths: IndexArray, width: int) -> dict[str, NDArray[Any]]:
    """Return index, real and padding of a `Bucket` of rows [b] padded to this width."""
    columns = np.arange(width)[None, :]
    is_token = columns < lengths[:, None]  # [b, w]
    starts = np.cumsum(lengths) - lengths
    token_columns = np.where(is_token, columns, 0)
    index = starts[:, None] + token_columns
    return {
        "index": index.ravel(),
        "real": np.flatnonzero(is_token),
        "padding": ~is_token,
    }


def _bucket(
    on_device: dict[str, Tensor],
    first: int,
    sizes: tuple[int, int, int],
    layout: Layout,
) -> Bucket:
    """Make the bucket that begins with this row, of its arrays, which are taken out.

    sizes: rows, width and tokens.
    """
    rows, width, _ = sizes
    padding = on_device.pop(f"padding {first}", None)
    if padding is None:
        return Bucket(*sizes)
    shape = (rows, 1, 1, width)
    bias = torch.zeros(shape, dtype=layout.dtype, device=layout.device)
    bias.masked_fill_(padding.view(shape), -math.inf)
    return Bucket(
        *sizes,
        index=on_device.pop(f"index {first}"),
        real=on_device.pop(f"real {first}"),
        padding=padding,
        bias=bias,
    )


def length_buckets(
    lengths: Sequence[int] | NDArray[np.int64],
    largest: int,
    cost_of_a_bucket: int,
    power: int = 1,
) -> list[NDArray[np.int64]]:
    """Divide positions [0, B) into buckets whose padded size is least in all, shortest rows first.

    Which examples make up a batch, and so the gradient of its mean loss, stays the same: buckets
    are forwarded one by one, and their gradients add up.
    largest: rows in a bucket at most, >= 1. cost_of_a_bucket: of one more bucket, beside its
    tokens, in tokens. power: of a row's length, that its cost grows with (2 for attention; costs
    are then in tokens squared). Exact, by dynamic programming over the batch in order of length:
    O(B x largest). Ties keep the batch's order.
    """
    order = np.argsort(np.asarray(lengths), kind="stable")
    ascending = [int(lengths[position]) for position in order]
    least_costs = [0]  # of the first i rows
    last_starts = [0]  # where their last bucket begins
    for end, length in enumerate(ascending, start=1):
        row_cost = length**power
        starts = range(max(0, end - largest), end)
        costs = [least_costs[start] + (end - start) * row_cost for start in starts]
        cheapest = int(np.argmin(costs))
        least_costs.append(costs[cheapest] + cost_of_a_bucket)
        last_starts.append(starts[cheapest])
    buckets = []
    end = len(ascending)
    while end > 0:
        start = last_starts[end]
        buckets.append(order[start:end])
        end = start
    return buckets[::-1]


def row_means(hidden: Tensor, batch: PackedBatch) -> Tensor:
    """Return the mean [B, H] of each row's tokens, of [P, H]."""
    shape = (len(batch), hidden.shape[1])
    sums = hidden.new_zeros(shape, dtype=torch.float32)
    sums = sums.index_add(0, batch.row, hidden.float())
    lengths = batch.cu_seqlens.diff()[:, None]
    means = sums / lengths
    return means.to(hidden.dtype)


def gathered(x: Tensor, index: Tensor, inverse: Tensor, blank: Tensor | None = None) -> Tensor:
    """Return x[index] of x [M, H], whose gradient is a gather too.

    The gradient is that of `inverse` [M], 0 where `blank` [M, 1].

    torch's own adds up, in a sort and six more kernels, what here is one number each.
    """
    return _Gathered.apply(x, index, inverse, blank)  # type: ignore[no-any-return, no-untyped-call]  # untyped


class _Gathered(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        index: Tensor,
        inverse: Tensor,
        blank: Tensor | None,
    ) -> Tensor:
        ctx.save_for_backward(inverse, blank)
        return x.index_select(0, index)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        inverse, blank = ctx.saved_tensors
        grad = grads[0].index_select(0, inverse)
        if blank is not None:
            grad.masked_fill_(blank, 0)
        return grad, None, None, None
