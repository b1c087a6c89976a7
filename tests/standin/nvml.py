"""In the place of Ray's copy of pynvml: a driver that tells of as many GPUs as it is told.

ELSA_TUNE_STANDIN_NVML is their number. Ray asks the driver what there is, and believes it, whether
or not torch can use it.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any


class NVMLError(Exception):
    """What pynvml raises for whatever it cannot tell."""


def nvmlInit() -> None:
    """Nothing to do."""


def nvmlShutdown() -> None:
    """Nothing to do."""


def nvmlDeviceGetCount() -> int:
    """How many GPUs the driver has."""
    return int(os.environ["ELSA_TUNE_STANDIN_NVML"])


def nvmlDeviceGetHandleByIndex(index: int) -> int:
    """Return what stands for a GPU in other calls."""
    return index


def nvmlDeviceGetName(handle: int) -> str:
    """For Ray's accelerator type."""
    return "NVIDIA H100 80GB HBM3"


def __getattr__(name: str) -> Callable[..., Any]:
    def unknown(*_: Any) -> Any:
        raise NVMLError(name)

    return unknown
