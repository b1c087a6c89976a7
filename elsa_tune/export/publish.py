"""An exported folder on its way out: ONNX files, where optimum is installed, and the hub."""

from __future__ import annotations

import importlib
import importlib.util
import re
from pathlib import Path

from elsa_tune.errors import RunError, UsageError, first_line

_HUB_ID = re.compile(r"[\w.-]+/[\w.-]+")


def check_onnx() -> None:
    """Raise UsageError where optimum is not installed."""
    found = importlib.util.find_spec("optimum")
    if found is None or importlib.util.find_spec("optimum.exporters") is None:
        raise UsageError(
            "ONNX files are made by optimum, which is not installed; pip install 'optimum[onnx]', "
            "or leave `onnx` out"
        )


def write_onnx(folder: Path) -> None:
    """Beside the weights, in `onnx/`. Raises RunError where optimum cannot."""
    exporter = importlib.import_module("optimum.exporters.onnx")
    try:
        exporter.main_export(str(folder), output=folder / "onnx", task="text-classification")
    except Exception as error:  # of any library below it
        raise RunError(f"optimum made no ONNX file: {first_line(error)}") from error


def check_hub_id(name: str) -> None:
    """Raise UsageError for what can be no model's name on the hub."""
    if not _HUB_ID.fullmatch(name):
        raise UsageError(f"`push` {name}: write owner/name, as the hub calls a model")


def push(folder: Path, name: str) -> str:
    """Upload the folder, private where it is new; returns the model's address.

    Raises RunError in one sentence.
    """
    from huggingface_hub import HfApi
    from huggingface_hub.utils.tqdm import disable_progress_bars

    disable_progress_bars()
    api = HfApi()
    try:
        address = api.create_repo(name, private=True, exist_ok=True)
        api.upload_folder(repo_id=name, folder_path=folder, commit_message="Exported by elsa-tune")
    except Exception as error:  # the client's, the server's and the network's: no common base
        raise RunError(
            f"{name} could not be pushed ({first_line(error)}); {folder} is complete: log in by "
            f"`hf auth login`, then run `hf upload {name} {folder}`"
        ) from error
    return str(address)
