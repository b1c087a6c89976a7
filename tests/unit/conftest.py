"""What holds for unit tests alone."""

from __future__ import annotations

import errno
import fcntl
import os
import sys
import time
from collections.abc import Iterator
from typing import BinaryIO

import pytest

# Of this process. Tests take at most five on a fast, idle machine; a slow or busy one takes up to
# three times that.
CPU_SECONDS = 30.0
# Whoever comes first pays for importing these.
HEAVY = ("torch", "transformers", "mlflow", "ray", "optuna", "sklearn", "matplotlib")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """Fail a test that is not a unit test by what it costs."""
    imported, began = sys.modules.keys() & set(HEAVY), time.process_time()
    yield
    spent = time.process_time() - began
    if spent > CPU_SECONDS and imported == sys.modules.keys() & set(HEAVY):
        pytest.fail(f"{spent:.1f} s of CPU: a unit test has {CPU_SECONDS:g}", pytrace=False)


@pytest.fixture
def fewer_draws(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Draw 1,000 times: quantiles as of 10,000 draws, to a few per cent of a standard error."""
    from elsa_tune.analysis.statistics import intervals, resampling

    for module in (intervals, resampling):
        monkeypatch.setattr(module, "RESAMPLES", 1000)
    monkeypatch.setattr(resampling.resample, "__defaults__", (1000,))
    intervals._student.cache_clear()
    yield
    intervals._student.cache_clear()


@pytest.fixture
def nfs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lock as NFS does: exclusively only what was opened to be written, else what may be read."""
    lock_here = fcntl.flock

    def flock(file: BinaryIO, kind: int) -> None:
        access = fcntl.fcntl(file, fcntl.F_GETFL) & os.O_ACCMODE
        lacking = os.O_RDONLY if kind & fcntl.LOCK_EX else os.O_WRONLY
        if access == lacking:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        lock_here(file, kind)

    monkeypatch.setattr(fcntl, "flock", flock)
