"""Hides what a machine that only trains does not have.

It hides it from import, from who looks whether it could be imported, and from importlib.metadata.
See tests/bare_machine/__init__.py.
"""

import json
import os
import re
import sys
from importlib.machinery import ModuleSpec, PathFinder

_there = json.loads(os.environ["ELSA_TUNE_BARE_MACHINE"])
_modules, _folders = frozenset(_there["modules"]), tuple(_there["folders"])
_distributions = frozenset(_there["distributions"])


class _Finder:
    """The finder of modules and distributions on sys.path, without those."""

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        spec = PathFinder.find_spec(name, path, target)  # type: ignore[arg-type]
        if spec is None or name.partition(".")[0] in _modules:
            return spec
        places = [spec.origin or "", *(spec.submodule_search_locations or ())]
        return None if any(place.startswith(_folders) for place in places) else spec

    @staticmethod
    def find_distributions(*context: object) -> object:
        for found in PathFinder.find_distributions(*context):  # type: ignore[arg-type]
            if re.sub(r"[-_.]+", "-", found.name).lower() in _distributions:
                yield found

    invalidate_caches = PathFinder.invalidate_caches


sys.meta_path[:] = [_Finder if finder is PathFinder else finder for finder in sys.meta_path]
