"""Repositories of the hub: asked for once and briefly, fetched into the hub's own cache."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import huggingface_hub
from huggingface_hub import constants
from huggingface_hub.utils import logging as hub_logging
from huggingface_hub.utils.tqdm import disable_progress_bars

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
    info: Any = huggingface_hub.HfApi().repo_info(
        repository, revision=revision, repo_type=kind, timeout=TIMEOUT
    )
    return [file.rfilename for file in info.siblings or ()]


def fetch(
    repository: str, names: Sequence[str], revision: str | None = None, kind: str = "model"
) -> Path:
    """The folder of a commit, with these files in it. Raises as `file_names` does.

    From then on the client's notices are off, and its progress bars are for terminals only.
    """
    hub_logging.set_verbosity(logging.ERROR)
    if not sys.stderr.isatty():
        disable_progress_bars()
    # One worker: a model is one large file and a few small ones.
    folder = huggingface_hub.snapshot_download(
        repository, revision=revision, repo_type=kind, allow_patterns=list(names), max_workers=1
    )
    return Path(folder)
