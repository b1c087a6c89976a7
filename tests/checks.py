"""Checks for `examine`, in a module of their own: each runs in a process that imports it anew."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

from elsa_tune.errors import UsageError


def well(text: str) -> str:
    return text


def refused() -> str:
    raise UsageError("give another one")


def broken() -> str:
    raise ValueError("a library's words\nand more of them")


def killed() -> str:
    os.kill(os.getpid(), signal.SIGKILL)
    return ""


def hanging(pid: str) -> str:
    Path(pid).write_text(str(os.getpid()))
    time.sleep(600)
    return ""
