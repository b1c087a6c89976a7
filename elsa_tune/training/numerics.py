"""How a trial computes: its precision, its random numbers, and the same numbers every time."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from typing import Any

import torch

from elsa_tune.errors import SpaceError
from elsa_tune.specs.trial import Precision


def has_bf16_units() -> bool:
    """Whether this machine's GPU has units for bf16 and TF32 (NVIDIA's have since Ampere); others
    emulate bf16, more slowly than they compute fp32.
    """
    return bool(torch.cuda.is_bf16_supported(including_emulation=False))


def resolve_precision(
    precision: Precision, device: str, has_units: bool | None = None
) -> Precision:
    """What `auto` means on a `cpu` or on `cuda`: bf16 where the GPU has units for it, else fp32.

    has_units: of all GPUs that will train; by default this machine's is asked. Raises SpaceError
    for arithmetic that the device has not.
    """
    on_gpu = device == "cuda"
    if on_gpu and has_units is None:
        has_units = has_bf16_units()
    if precision is Precision.AUTO:
        return Precision.BF16 if on_gpu and has_units else Precision.FP32
    if on_gpu and not has_units and precision is not Precision.FP32:
        raise SpaceError(
            f"precision is {precision}, but a GPU that would train has no units for it (NVIDIA's "
            "have since Ampere); use fp32"
        )
    if precision is Precision.TF32 and not on_gpu:
        raise SpaceError("precision is tf32, which only GPUs have; use fp32 or bf16")
    return precision


@contextlib.contextmanager
def reproducible(
    seed: int, device: torch.device, precision: Precision = Precision.FP32
) -> Iterator[None]:
    """Seed torch for one trial, and put the process back as it was."""
    if device.type == "cuda":
        # Read by cuBLAS at its first use; without it matrix products may differ between runs.
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    deterministic: Any = torch.utils.deterministic
    with contextlib.ExitStack() as stack:
        stack.callback(
            torch.use_deterministic_algorithms,
            torch.are_deterministic_algorithms_enabled(),
            warn_only=torch.is_deterministic_algorithms_warn_only_enabled(),
        )
        fills = deterministic.fill_uninitialized_memory
        stack.callback(setattr, deterministic, "fill_uninitialized_memory", fills)
        stack.callback(
            torch.backends.cuda.enable_cudnn_sdp, torch.backends.cuda.cudnn_sdp_enabled()
        )
        stack.callback(torch.set_float32_matmul_precision, torch.get_float32_matmul_precision())
        stack.enter_context(forked(device))
        torch.manual_seed(seed)
        torch.use_deterministic_algorithms(True, warn_only=True)
        # Fills every new tensor to catch readers of garbage: a debugging aid that costs each step.
        deterministic.fill_uninitialized_memory = False
        # It plans for every new shape, for seconds in all, and rounds dropout to sixteenths.
        torch.backends.cuda.enable_cudnn_sdp(False)
        torch.set_float32_matmul_precision("high" if precision is Precision.TF32 else "highest")
        yield


def forked(device: torch.device) -> contextlib.AbstractContextManager[None]:
    """Afterwards the device's and the host's random numbers are where they were."""
    return torch.random.fork_rng(devices=[device] if device.type == "cuda" else [])


def made_strict(step: Callable[[], object], device: torch.device) -> str | None:
    """Let torch refuse, within `reproducible`, what has no deterministic form, if a step (forwards
    and backwards) needs nothing of the kind. Else what to tell: which operation it needs.

    Where torch only warns, kernels with a faster form that adds up in any order take it.
    """
    torch.use_deterministic_algorithms(True)
    try:
        with forked(device):
            step()
    except RuntimeError as error:
        first = str(error).partition("\n")[0]
        if "determin" not in first:
            raise
        torch.use_deterministic_algorithms(True, warn_only=True)
        return f"the same seed may give other losses on this GPU: {first}"
    return None
