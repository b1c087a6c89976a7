"""What another package would register, for a while: other tests know only what ships."""

from __future__ import annotations

import contextlib
import importlib
import sys
from collections.abc import Iterator
from typing import Any

from elsa_tune.specs.adapt import candidates
from elsa_tune.specs.task import Metric, TaskKind


@contextlib.contextmanager
def registered(name: str) -> Iterator[Any]:
    """Import a module that registers something; forget all of it afterwards."""
    from elsa_tune.tasks.types import registry

    registries: list[dict[Any, Any]] = [
        candidates._METHODS,
        candidates._CONTESTED,
        TaskKind.known,
        Metric.known,
        registry._TYPES,
        registry._KERNELS,
        registry._FURTHER_KINDS,
    ]
    before = [dict(each) for each in registries]
    sys.modules.pop(name, None)
    try:
        yield importlib.import_module(name)
    finally:
        sys.modules.pop(name, None)
        for each, kept in zip(registries, before, strict=True):
            each.clear()
            each.update(kept)
