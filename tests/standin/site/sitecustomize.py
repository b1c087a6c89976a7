"""Puts the stand-in under every Python process that finds this folder on its path.

The moment such a process imports torch, it has a GPU, and where it imports Ray, that is told of
one.
"""

import importlib.abc
import importlib.machinery
import importlib.util
import os
import sys
from pathlib import Path
from types import ModuleType

STANDIN = Path(__file__).resolve().parent.parent
# The stand-in is a package of the checkout that this folder belongs to.
sys.path.append(str(STANDIN.parent.parent))


class _Loader(importlib.abc.Loader):
    """Loads torch, then completes it."""

    def __init__(self, loader: importlib.abc.Loader) -> None:
        self._loader = loader

    def __getattr__(self, name: str) -> object:
        return getattr(self._loader, name)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        from tests.standin import standin

        self._loader.exec_module(module)
        standin.complete()


class _Finder(importlib.abc.MetaPathFinder):
    """Sees what is being looked for."""

    def find_spec(
        self, name: str, path: object = None, target: object = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name == "ray._private.thirdparty.pynvml" and "ELSA_TUNE_STANDIN_NVML" in os.environ:
            return importlib.util.spec_from_file_location(name, STANDIN / "nvml.py")
        if name not in ("torch", "torch.cuda") or "ELSA_TUNE_STANDIN" not in os.environ:
            return None
        from tests.standin import standin

        if name == "torch.cuda":
            standin.replace_driver()
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path)  # type: ignore[arg-type]
        if spec is not None and spec.loader is not None:
            standin.load(Path(spec.origin or "").parent)
            spec.loader = _Loader(spec.loader)
        return spec


sys.meta_path.insert(0, _Finder())
