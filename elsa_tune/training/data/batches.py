"""Rows of a split in padded batches, on the device.

Shapes: B batch, T tokens of the longest row of a batch.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from elsa_tune.training.data.tokens import Indices, TaskData, TokenRows

CPU: Final = torch.device("cpu")
# Bytes: where each array of one copy begins, for its numbers to be readable there.
_ALIGNED = 16
# A GPU's batches have few widths, and masks that its kernels take as they are.
WIDTHS = 16

Tensors = dict[str, Tensor]  # by name


@dataclass(frozen=True, slots=True)
class PaddedBatch:
    """Rows padded to the longest of them, on a GPU a little further, on the tokenizer's side."""

    rows: Tensor  # int64 [B], their numbers in their split
    # What a model takes, int64 [B, T]: input_ids, attention_mask and, if any, token_type_ids.
    inputs: Tensors
    places: Tensor  # int64 [B, T], the split's token that stands there; at padding the row's first
    mask: NDArray[np.bool_]  # [B, T], whether a token stands there; on the host


def pad_batch(
    rows: TokenRows,
    indices: Indices,
    data: TaskData,
    device: torch.device = CPU,
) -> PaddedBatch:
    """Return the chosen rows of a split, on the device."""
    chosen = np.asarray(indices, dtype=np.int64)
    starts = rows.offsets[chosen]
    lengths = rows.offsets[chosen + 1] - starts  # [B]
    width = int(lengths.max())
    if device.type != "cpu":
        # Never wider than the split: a model may have no further positions.
        width = min(_rounded_up(width, WIDTHS), rows.longest)
    columns = np.arange(width, dtype=np.int64)[None, :]  # [1, T]
    pads = (width - lengths)[:, None]  # [B, 1]
    if data.padding_side == "left":
        mask = columns >= pads
        place = columns - pads
    else:
        mask = columns < lengths[:, None]
        place = columns
    place_in_row = np.where(mask, place, 0)
    source = starts[:, None] + place_in_row
    ids = np.where(mask, rows.input_ids[source], data.pad_token_id)
    arrays: dict[str, NDArray[Any]] = {
        "rows": chosen,
        "places": source,
        "input_ids": ids.astype(np.int64),
        "attention_mask": mask.astype(np.int64),
    }
    if rows.token_type_ids is not None:
        types = np.where(mask, rows.token_type_ids[source], data.pad_token_type_id)
        arrays["token_type_ids"] = types.astype(np.int64)
    inputs = to_device(arrays, device)
    numbers = inputs.pop("rows")
    places = inputs.pop("places")
    return PaddedBatch(rows=numbers, inputs=inputs, places=places, mask=mask)


def _rounded_up(number: int, unit: int) -> int:
    """Return the least multiple of the unit that is no less than the number."""
    return -(-number // unit) * unit


def to_device(arrays: Mapping[str, NDArray[Any]], device: torch.device) -> Tensors:
    """Put the arrays on the device: a GPU's by one copy for which the host does not wait."""
    on_host = {name: torch.from_numpy(array) for name, array in arrays.items()}
    if device.type == "cpu":
        return on_host
    return _by_one_copy(on_host, device)


def _by_one_copy(on_host: Tensors, device: torch.device) -> Tensors:
    places = {}  # of each array among the bytes of the copy
    end = 0
    for name, tensor in on_host.items():
        places[name] = slice(end, end + tensor.nbytes)
        end += _rounded_up(tensor.nbytes, _ALIGNED)
    # Pinned memory comes from torch's own pool, which waits for the copy before it lends it again.
    copy = torch.empty(
        end,
        dtype=torch.uint8,
        pin_memory=device.type == "cuda",
    )
    for name, tensor in on_host.items():
        flat = tensor.reshape(-1)
        copy[places[name]] = flat.view(torch.uint8)
    copied = copy.to(device, non_blocking=True)
    arrays = {}
    for name, tensor in on_host.items():
        array = copied[places[name]].view(tensor.dtype)
        arrays[name] = array.view(tensor.shape)
    return arrays
