"""Names and shapes of a checkpoint's tensors, read of its files without the values."""

import tarfile
from collections.abc import Iterable
from pathlib import Path

import safetensors
import torch

from elsa_tune.files import is_pointer, pointer_text

# How torch's own files begin: zip archives, or before 1.6 pickles.
_ZIP = b"PK"
_PICKLE = b"\x80"


def stand_ins(files: Iterable[Path]) -> dict[str, torch.Tensor] | None:
    """Return a tensor of each name and shape that takes no memory; its values are not those.

    None where only reading everything would tell: of pickles. Raises ValueError for what holds no
    weights, and whatever safetensors and torch raise for damaged files.
    """
    tensors: dict[str, torch.Tensor] = {}
    for file in files:
        if is_pointer(file):
            raise ValueError(pointer_text(file.name))
        with file.open("rb") as opened:
            start = opened.read(len(_ZIP))
        if file.suffix == ".safetensors":
            shapes = _of_safetensors(file)
        elif start.startswith(_ZIP):
            shapes = _of_archive(file)
        elif start.startswith(_PICKLE) or tarfile.is_tarfile(file):
            return None
        else:
            raise ValueError(f"{file.name} is no file of torch")
        for name, shape in shapes.items():
            tensors[name] = torch.zeros(()).expand(shape)
    return tensors


def _of_safetensors(file: Path) -> dict[str, list[int]]:
    shapes = {}
    with safetensors.safe_open(file, framework="pt") as opened:
        for name in opened.keys():  # noqa: SIM118 - it is no mapping
            shapes[name] = opened.get_slice(name).get_shape()
    return shapes


def _of_archive(file: Path) -> dict[str, list[int]]:
    found = torch.load(file, map_location="cpu", weights_only=True, mmap=True)
    shapes = {}
    for name, value in found.items():
        if isinstance(value, torch.Tensor):
            shapes[name] = list(value.shape)
    return shapes
