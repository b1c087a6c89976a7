"""What every test may use: the shared data where it lies beside the checkout, and a quiet
environment.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
SHARED = ROOT.parent / "shared"


@pytest.fixture(scope="session")
def root() -> Path:
    """The top of the checkout."""
    return ROOT


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of real data beside the checkout; the test is skipped, with this reason, where it
    is absent.
    """
    if not SHARED.is_dir():
        pytest.skip("needs ../shared (real GLUE data and published numbers), which is not here")
    return SHARED


@pytest.fixture(autouse=True)
def quiet_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """No network, no user's cache, no colours: tests see neither the machine's state nor leave
    any.
    """
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("ELSA_TUNE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    yield
