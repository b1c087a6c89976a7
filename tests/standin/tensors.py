"""The stand-in's tensors: each holds one of the CPU's, and every operation passes through `run`."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.utils import _foreach_utils

from tests.standin.attention import OWN, default_generator
from tests.standin.standin import GIB, _lock, gpu, state

CUDA = torch.device("cuda", 0)

COPIES = {"_to_copy", "copy_", "_copy_from"}
# The host asks for a number, or for how many there are: it waits until the device has it.
LOOKS = {"_local_scalar_dense", "nonzero", "masked_select", "item", "is_nonzero", "equal"}
# Indices may lie on the host: CUDA copies them, and waits.
INDEXED = {"index", "index_put", "index_put_", "_index_put_impl_"}
# What a gradient of an index is: a sort, and six more kernels.
ADDING_UP = "index_put that adds up"
# CUDA's kernels of these add up in any order, and say so where torch is strict.
UNORDERED = {"cumsum", "scatter_add", "scatter_add_", "put_"}
# What these have registered ends with them.
_registered: list[torch.library.Library] = []
_UNWRITTEN = {"empty", "empty_strided", "empty_like", "new_empty", "new_empty_strided"}


class CudaTensor(torch.Tensor):
    """A tensor on the stand-in's device. held: where its numbers are."""

    held: torch.Tensor

    @staticmethod
    def __new__(cls, real: torch.Tensor) -> CudaTensor:
        with torch.inference_mode(False):
            made: CudaTensor = torch.Tensor._make_wrapper_subclass(  # type: ignore[attr-defined]
                cls,
                real.size(),
                strides=real.stride(),
                storage_offset=real.storage_offset(),
                dtype=real.dtype,
                layout=real.layout,
                device=CUDA,
                requires_grad=False,
            )
        made.held = real
        made._lies_at = _take(real)
        return made

    def __del__(self) -> None:
        _give_back(self.__dict__.get("_lies_at"))

    def __repr__(self, **_: Any) -> str:
        return f"CudaTensor({tuple(self.shape)}, {self.dtype})"

    def tolist(self) -> Any:
        return self.cpu().tolist()  # torch has none for subclasses

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return run(func, *args, **(kwargs or {}))


def install() -> None:
    """Have whatever the dispatcher finds for CUDA come here, from now on, in every thread.

    Also what has no tensor: `torch.empty(..., device="cuda")`.
    """
    everything = torch.library.Library("_", "IMPL")
    everything.fallback(run, "CUDA")
    # torch has one of its own for every device, which `torch.tensor(1.0, device="cuda")` reaches.
    copying = torch.library.Library("aten", "IMPL")
    copying.impl("copy_", functools.partial(run, torch.ops.aten.copy_.default), "CUDA")
    _registered.extend((everything, copying))
    # As torch takes plain tensors of a GPU: many at once.
    _foreach_utils._foreach_supported_types.append(CudaTensor)


# ---- memory ----


def _take(real: torch.Tensor) -> int | None:
    storage = real.untyped_storage()
    at, size = storage.data_ptr(), storage.nbytes()
    if not at:
        return None
    with _lock:
        known, count = state.allocated.get(at, (size, 0))
        if not count:
            limit = min(state.fraction * gpu.gib, gpu.gib - gpu.others_gib) * GIB
            if state.in_use + size > limit:
                raise torch.OutOfMemoryError(
                    f"CUDA out of memory. Tried to allocate {size / 2**20:.2f} MiB."
                )
            state.in_use += size
            state.peak = max(state.peak, state.in_use)
        state.allocated[at] = known, count + 1
    return at


def _give_back(at: int | None) -> None:
    if at is None:
        return
    with _lock:
        size, count = state.allocated.pop(at)
        if count > 1:
            state.allocated[at] = size, count - 1
        else:
            state.in_use -= size


# ---- operations ----


def _waits(what: str) -> None:
    state.waits[what] += 1
    if state.raises_on_waits:
        raise RuntimeError(f"called a synchronizing CUDA operation: {what}")


def run(func: Any, *args: Any, **kwargs: Any) -> Any:
    """One operation, as a GPU takes it."""
    if torch.is_inference_mode_enabled() and func._can_decompose():
        # Without autograd's keys torch hands over what is put together from other operations.
        out = func.decompose(*args, **kwargs)
        if out is not NotImplemented:
            return out
    name = func.overloadpacket.__name__
    given = list(_leaves((*args, *kwargs.values())))
    there = [one for one in given if isinstance(one, CudaTensor)]
    here = [
        one for one in given if isinstance(one, torch.Tensor) and not isinstance(one, CudaTensor)
    ]
    device = kwargs.get("device")
    makes_there = device is not None and torch.device(device).type == "cuda"
    makes_here = device is not None and not makes_there
    state.operations[name] += 1
    _check(name, func, args, kwargs, there, here)
    real_args = _mapped(_real, args)
    real_kwargs = {key: _mapped(_real, value) for key, value in kwargs.items()}
    if makes_there:
        real_kwargs["device"] = torch.device("cpu")
    real_kwargs.pop("pin_memory", None)
    if _draws(func) and real_kwargs.get("generator") is None:
        real_kwargs["generator"] = default_generator()
    compute = OWN.get(name, func)
    try:
        out = compute(*real_args, **real_kwargs)
    except RuntimeError as error:
        if "can't allocate memory" not in str(error):
            raise
        raise torch.OutOfMemoryError("CUDA out of memory.") from None
    if name in _UNWRITTEN and isinstance(out, torch.Tensor) and out.is_floating_point():
        out.fill_(float("nan"))
    if state.tape is not None:
        assert name not in LOOKS, f"a captured step looks at numbers: {name}"
        state.tape.append((compute, real_args, real_kwargs, out))
    if makes_here or name in LOOKS or (name == "copy_" and not isinstance(args[0], CudaTensor)):
        return args[0] if name == "copy_" else out
    # What writes into an argument gives that argument back.
    known = {id(one.held): one for one in there}

    def wrapped(one: Any) -> Any:
        if not isinstance(one, torch.Tensor) or isinstance(one, CudaTensor):
            return one
        return known.get(id(one)) if id(one) in known else CudaTensor(one)

    return _mapped(wrapped, out)


def _leaves(tree: Any) -> Iterator[Any]:
    """Yield what an operation was given, of lists too."""
    for one in tree:
        if isinstance(one, list | tuple):
            yield from _leaves(one)
        else:
            yield one


def _mapped(change: Callable[[Any], Any], tree: Any) -> Any:
    if isinstance(tree, list | tuple):
        return type(tree)([_mapped(change, one) for one in tree])
    return change(tree)


def _real(one: Any) -> Any:
    return one.held if isinstance(one, CudaTensor) else one


@functools.cache
def _draws(func: Any) -> bool:
    """Whether it takes a generator."""
    return any(argument.name == "generator" for argument in func._schema.arguments)


def _check(
    name: str, func: Any, args: Any, kwargs: Any, there: list[CudaTensor], here: list[torch.Tensor]
) -> None:
    """Raise what CUDA would, and count what the host waits for."""
    if name in LOOKS and there:
        _waits(name)
    if name in INDEXED:
        if any(one is not None and one.dtype == torch.bool for one in args[1]):
            _waits("nonzero")  # how many there are decides the shape
        if len(args) > 3 and args[3]:
            state.operations[ADDING_UP] += 1
    if name in COPIES:
        _check_copy(name, args, kwargs)
    elif there and here:
        if name in INDEXED:
            _waits("indices from the host")
        elif any(one.ndim > 0 for one in here):
            raise RuntimeError(
                "Expected all tensors to be on the same device, but found at least two devices, "
                f"cuda:0 and cpu! ({func})"
            )
    is_strict = (
        torch.are_deterministic_algorithms_enabled()
        and not torch.is_deterministic_algorithms_warn_only_enabled()
    )
    if is_strict and name in UNORDERED and there and there[0].is_floating_point():
        raise RuntimeError(f"{name}_cuda_kernel does not have a deterministic implementation")


def _check_copy(name: str, args: Any, kwargs: Any) -> None:
    if name == "copy_":
        to, source = args[0], args[1]
        non_blocking = bool(args[2]) if len(args) > 2 else bool(kwargs.get("non_blocking"))
        to_device, from_device = isinstance(to, CudaTensor), isinstance(source, CudaTensor)
    else:
        source, non_blocking = args[0], bool(kwargs.get("non_blocking"))
        from_device = isinstance(source, CudaTensor)
        to_device = (
            from_device
            if kwargs.get("device") is None
            else torch.device(kwargs["device"]).type == "cuda"
        )
    if to_device and not from_device:
        state.operations["copy to the device"] += 1
        if not non_blocking or not source.is_pinned():
            _waits("a copy to the device that waits")
    if from_device and not to_device:
        state.operations["copy to the host"] += 1
        if not non_blocking:
            _waits("a copy to the host")
