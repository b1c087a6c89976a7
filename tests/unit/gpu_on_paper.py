"""A GPU's training step without a GPU: every operation that one would launch, seen on `meta`.

Tensors on `meta` have shapes and kinds and no numbers, so that whatever looks at a number, or mixes
devices, raises. What torch does on CUDA and not on `meta` is put in by hand: autocast, the fused
dropout, and which attention kernel runs. Launches are counted by a table of factors, which says how
many kernels an operation is there; they were read from torch's source, not measured.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from elsa_tune.specs.trial import Precision, TrialSpec
from elsa_tune.training import loop
from elsa_tune.training.data.tokens import TaskData
from elsa_tune.training.forward import runner
from elsa_tune.training.forward.equality import Setting
from elsa_tune.training.forward.packed import Attention, Layout

META = torch.device("meta")

# Kernels that an operation launches on CUDA, where that is not one: none for what only looks at
# memory in another way, several for what is put together from others.
_VIEWS = (
    *("view", "_unsafe_view", "t", "transpose", "permute", "expand", "slice", "select", "alias"),
    *("squeeze", "unsqueeze", "detach", "as_strided", "split", "split_with_sizes", "unbind"),
    *("empty", "empty_like", "empty_strided", "new_empty", "lift_fresh", "_reshape_alias"),
)
FACTORS = {
    **dict.fromkeys(_VIEWS, 0),
    # Remainder, multiply, divide, arange, sort, and the scatter itself, behind a fill.
    **dict.fromkeys(("index_put", "index_put_", "_index_put_impl_"), 7),
    "native_layer_norm_backward": 3,
    "_scaled_dot_product_efficient_attention_backward": 3,
    "_flash_attention_backward": 3,
    # A sort of the ids, their runs, and the sums.
    "embedding_dense_backward": 6,
    # The gradient's norm: there a few kernels for all parameters together.
    "linalg_vector_norm": 0,
}
# CUDA's autocast (ATen/autocast_mode.h), as far as encoders call it.
_IN_HALF: tuple[Callable[..., Any], ...] = (
    *(F.linear, torch.matmul, torch.bmm, torch.baddbmm, torch.addmm, torch.mm),
    *(Tensor.matmul, Tensor.__matmul__, Tensor.bmm, torch.einsum),
)
_IN_FULL: tuple[Callable[..., Any], ...] = (
    *(F.layer_norm, F.softmax, torch.softmax, Tensor.softmax, F.cross_entropy, F.mse_loss),
    *(torch.log, Tensor.log, Tensor.pow, torch.pow, Tensor.norm, torch.nn.functional.log_softmax),
    *(Tensor.sum, torch.sum, Tensor.cumsum, torch.cumsum),
)


class LikeCuda(TorchFunctionMode):
    """torch's functions as they are on CUDA. half: within autocast to bf16."""

    def __init__(self, half: bool) -> None:
        super().__init__()
        self._half = half
        self._cast: dict[int, Tensor] = {}

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        if func is F.scaled_dot_product_attention:
            return self._attention(*args, **kwargs)
        if func is F.dropout:
            return self._dropout(*args, **kwargs)
        if self._half and func in _IN_HALF:
            args = [self._to(value, torch.bfloat16) for value in args]
            kwargs = {name: self._to(value, torch.bfloat16) for name, value in kwargs.items()}
        elif self._half and func in _IN_FULL:
            args = [self._to(value, torch.float32) for value in args]
        return func(*args, **kwargs)

    def _to(self, value: Any, dtype: torch.dtype) -> Any:
        if not isinstance(value, Tensor) or not value.is_floating_point() or value.dtype == dtype:
            return value
        if dtype == torch.bfloat16 and value.is_leaf and value.requires_grad:
            # autocast keeps its copies of weights to its end.
            return self._cast.setdefault(id(value), value.to(dtype))
        return value.to(dtype)

    def _attention(self, q: Any, k: Any, v: Any, **how: Any) -> Tensor:
        if self._half:
            q, k, v = (self._to(x, torch.bfloat16) for x in (q, k, v))
        mask = how.get("attn_mask")
        if mask is not None:
            assert mask.dtype in (q.dtype, torch.bool)
            mask = mask.expand(*q.shape[:3], k.shape[2])
            if mask.dtype == torch.bool:
                mask = torch.zeros_like(mask, dtype=q.dtype).masked_fill(~mask, -torch.inf)
        scale = how.get("scale")
        kernel = torch.ops.aten._scaled_dot_product_efficient_attention
        out: Tensor = kernel(q, k, v, mask, True, how.get("dropout_p", 0.0), False, scale=scale)[0]
        return out

    @staticmethod
    def _dropout(x: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
        assert not inplace
        return torch.native_dropout(x, p, True)[0] if training and p > 0 else x


@dataclass
class Launches(TorchDispatchMode):
    """What reaches the device: operations by their name, and copies to it by their bytes."""

    operations: Counter[str] = field(default_factory=Counter)
    accumulating: int = 0
    copies: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        out = func(*args, **kwargs)
        given, made = list(_tensors((args, kwargs))), list(_tensors(out))
        name = func.overloadpacket.__name__
        on_device = [tensor for tensor in (*given, *made) if tensor.device == META]
        if any(t.device == META for t in made) and any(t.device.type == "cpu" for t in given):
            if name in ("_to_copy", "copy_", "to"):
                self.copies.append(next(t.nbytes for t in given if t.device.type == "cpu"))
            elif any(t.device.type == "cpu" and t.ndim > 0 for t in given):
                raise AssertionError(f"{name} mixes devices")
        elif on_device:
            self.operations[name] += 1
            if name in ("index_put", "index_put_", "_index_put_impl_"):
                self.accumulating += bool(args[3] if len(args) > 3 else kwargs.get("accumulate"))
        return out

    @property
    def kernels(self) -> dict[str, int]:
        """Launches by operation."""
        return {
            name: count * FACTORS.get(name, 1)
            for name, count in sorted(self.operations.items())
            if FACTORS.get(name, 1)
        }


def _tensors(tree: Any) -> Iterator[Tensor]:
    if isinstance(tree, Tensor):
        yield tree
    elif isinstance(tree, list | tuple):
        for part in tree:
            yield from _tensors(part)
    elif isinstance(tree, dict):
        yield from _tensors(list(tree.values()))


class OnPaper(torch.optim.AdamW):
    """An optimiser whose step is left out: on a GPU it is a few kernels for all parameters."""

    def step(self, *_: Any) -> None:
        """Nothing."""


def step_on_paper(
    trial: TrialSpec,
    data: TaskData,
    attention: Attention | None,
    patch: pytest.MonkeyPatch,
    goes_on: bool = True,
) -> Launches:
    """One training step as a GPU would run it. attention: None for padded batches; goes_on: whether
    those begin behind kept hidden states.
    """
    half = trial.recipe.precision is Precision.BF16
    dtype = torch.bfloat16 if half else torch.float32
    patch.setattr(Setting, "arithmetic", lambda self: LikeCuda(half))
    patch.setattr(runner, "packed_doubt", lambda *_: "on purpose" if attention is None else None)
    patch.setattr(runner, "tail_doubt", lambda *_: None if goes_on else "on purpose")
    patch.setattr(runner, "packed_layout", lambda *_: (Layout(META, attention, dtype), []))
    patch.setattr(runner, "room", lambda device: 2**40)
    patch.setattr(loop, "adamw", lambda trained, trial: OnPaper(trained, lr=trial.learning_rate))
    training = loop.steps(trial, data, device="meta")
    with contextlib.closing(training):
        next(training)  # what a trial does once
        with Launches() as seen:
            next(training)
    return seen
