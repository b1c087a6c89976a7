"""Repositories of the hub: asked for once and briefly, fetched into the hub's own cache."""

from __future__ import annotations

import contextlib
import logging
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import huggingface_hub
from huggingface_hub import constants
from huggingface_hub.utils import logging as hub_logging
from huggingface_hub.utils.tqdm import (
    are_progress_bars_disabled,
    disable_progress_bars,
    enable_progress_bars,
)

# Seconds until a hub that does not answer counts as unreachable.
TIMEOUT = 5.0


def is_offline() -> bool:
    """Whether the environment forbids to ask."""
    said = os.environ.get("HF_HUB_OFFLINE", os.environ.get("TRANSFORMERS_OFFLINE", ""))
    return constants.HF_HUB_OFFLINE or said.lower() in ("1", "true", "yes", "on")


def file_names(repository: str, revision: str | None = None, kind: str = "model") -> list[str]:
    """Of the files of a repository (kind `model` or `dataset`), with their folders. Raises the
    client's errors, and those of its HTTP library.
    """
    info = huggingface_hub.HfApi().repo_info(
        repository, revision=revision, repo_type=kind, timeout=TIMEOUT
    )
    return [file.rfilename for file in info.siblings or ()]


def fetch(
    repository: str, names: Sequence[str], revision: str | None = None, kind: str = "model"
) -> Path:
    """The folder of a commit, with these files in it. Raises as `file_names` does."""
    with _progress_for_people():
        # One worker: a model is one large file and a few small ones.
        folder = huggingface_hub.snapshot_download(
            repository,
            revision=revision,
            repo_type=kind,
            allow_patterns=list(names),
            max_workers=1,
        )
    return Path(folder)


@contextlib.contextmanager
def _progress_for_people() -> Iterator[None]:
    """Show the hub's progress bars on a terminal only, and keep its notices off."""
    verbosity = hub_logging.get_verbosity()
    hub_logging.set_verbosity(logging.ERROR)
    hide = not sys.stderr.isatty() and not are_progress_bars_disabled()
    if hide:
        disable_progress_bars()
    try:
        yield
    finally:
        hub_logging.set_verbosity(verbosity)
        if hide:
            enable_progress_bars()
