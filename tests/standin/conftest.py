"""Tests on the stand-in for a GPU, skipped in a process that is not on it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.standin.run import LIBRARY, WHY_NOT

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if LIBRARY in os.environ:
        return
    why = os.environ.get(WHY_NOT, "run them by `make standin`")
    skipped = pytest.mark.skip(reason=f"no stand-in for a GPU: {why}")
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(skipped)
