"""A training step on the stand-in, and how many kernels a GPU would launch for it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

import numpy as np
import pytest
import torch

from elsa_tune.specs.trial import TrialSpec
from elsa_tune.training import loop
from elsa_tune.training.data.tokens import TaskData
from elsa_tune.training.forward import equality, runner
from tests.standin.standin import Seen, watched

# How a step can be run, as the guide calls it.
ENDS, SQUARE, PADDED = "by the ends of rows", "in a padded square", "padded batches"
WAYS = (ENDS, SQUARE, PADDED)

# Kernels that an operation launches on CUDA where that is not one, read from torch's source: none
# for what only looks at memory in another way, several for what is put together from others.
_VIEWS = (
    *("view", "_unsafe_view", "t", "transpose", "permute", "expand", "slice", "select", "alias"),
    *("squeeze", "unsqueeze", "detach", "as_strided", "split", "split_with_sizes", "unbind"),
    *("empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided", "lift_fresh"),
    *("_reshape_alias", "copy to the device", "copy to the host", "index_put that adds up"),
)
FACTORS = {
    **dict.fromkeys(_VIEWS, 0),
    # Remainder, multiply, divide, arange, sort, and the scatter itself, behind a fill.
    **dict.fromkeys(("index_put", "index_put_", "_index_put_impl_"), 7),
    "native_layer_norm_backward": 3,
    "_scaled_dot_product_efficient_attention_backward": 3,
    "_flash_attention_backward": 3,
    "constant_pad_nd": 2,  # a fill and a copy
    # A sort of the ids, their runs, and the sums.
    "embedding_dense_backward": 6,
    # What goes over all parameters together: a few kernels, whatever the depth.
    "_foreach_norm": 0,
    "_fused_adamw_": 0,
}


def kernels(seen: Seen) -> dict[str, int]:
    """Return the launches by operation."""
    return {
        name: count * FACTORS.get(name, 1)
        for name, count in sorted(seen.operations.items())
        if FACTORS.get(name, 1)
    }


def force(way: str, patch: pytest.MonkeyPatch, *, goes_on: bool = True) -> None:
    """Let trials run this way. goes_on: whether padded batches begin behind kept hidden states."""
    doubt = "on purpose" if way == PADDED else None
    patch.setattr(runner, "packed_doubt", lambda *_: doubt)
    patch.setattr(equality, "_attends_varlen", lambda *_: way == ENDS)
    patch.setattr(runner, "tail_doubt", lambda *_: None if goes_on else "on purpose")


@contextlib.contextmanager
def training(trial: TrialSpec, data: TaskData) -> Iterator[Callable[[], None]]:
    """Yield a function that takes the next step of a trial."""
    steps = loop.steps(trial, data, device="cuda")
    with contextlib.closing(steps):
        yield lambda: np.asarray(next(steps)).sum()


def step(trial: TrialSpec, data: TaskData, *, may_wait: bool = False) -> Seen:
    """Take a step in the middle of a trial, in which torch refuses to let the host wait."""
    with training(trial, data) as go_on:
        go_on()  # what a trial does once
        torch.cuda.set_sync_debug_mode("default" if may_wait else "error")
        try:
            with watched() as seen:
                go_on()
        finally:
            torch.cuda.set_sync_debug_mode("default")
    return seen
