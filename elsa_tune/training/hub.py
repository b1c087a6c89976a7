"""Files of the Hugging Face hub: a commit of a model or of a data set, fetched into its cache."""

import contextlib
import logging
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import huggingface_hub
from huggingface_hub import constants as hub_constants
from huggingface_hub.utils import logging as hub_logging
from huggingface_hub.utils.tqdm import (
    are_progress_bars_disabled,
    disable_progress_bars,
    enable_progress_bars,
)

# Seconds until a hub that does not answer counts as unreachable.
TIMEOUT = 5.0


def fetch(
    repository: str,
    choose: Callable[[list[str]], Sequence[str]],
    revision: str | None = None,
    kind: str = "model",
) -> Path:
    """Fetch a commit of a repository (kind `model` or `dataset`) and return its folder.

    choose: gives the files that must be there, of the names of all, with their folders.

    Raises OSError where the environment forbids to ask, the client's errors, and those of its HTTP
    library. Meanwhile the client's notices are off, and its progress bars are for terminals only.
    """
    offline = os.environ.get("HF_HUB_OFFLINE", os.environ.get("TRANSFORMERS_OFFLINE", ""))
    if hub_constants.HF_HUB_OFFLINE or offline.lower() in ("1", "true", "yes", "on"):
        raise OSError("HF_HUB_OFFLINE forbids to ask it")
    info: Any = huggingface_hub.HfApi().repo_info(
        repository, revision=revision, repo_type=kind, timeout=TIMEOUT
    )
    present = [file.rfilename for file in info.siblings or ()]
    names = choose(present)
    with _quiet_client():
        # One worker: a model is one large file and a few small ones.
        folder = huggingface_hub.snapshot_download(
            repository, revision=revision, repo_type=kind, allow_patterns=list(names), max_workers=1
        )
    return Path(folder)


@contextlib.contextmanager
def _quiet_client() -> Iterator[None]:
    """Keep the hub's client quiet while inside."""
    has_terminal = sys.stderr is not None and sys.stderr.isatty()
    with contextlib.ExitStack() as as_before:
        as_before.callback(hub_logging.set_verbosity, hub_logging.get_verbosity())
        hub_logging.set_verbosity(logging.ERROR)
        if not has_terminal:
            as_before.enter_context(without_bars())
        yield


@contextlib.contextmanager
def without_bars() -> Iterator[None]:
    """Have the hub's client draw no progress bars while inside."""
    if are_progress_bars_disabled():
        yield
        return
    disable_progress_bars()
    try:
        yield
    finally:
        enable_progress_bars()
