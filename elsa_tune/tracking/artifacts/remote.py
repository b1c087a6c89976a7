"""A store of files at any URL that fsspec knows; the only module that imports fsspec.

Credentials are the business of the library behind it, which takes them from the environment.
"""

import contextlib
import shutil
import tempfile
import uuid
from importlib import metadata
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO, cast

from elsa_tune.errors import UsageError
from elsa_tune.tracking.uris import reason, scheme_of

INSTALL = "pip install 'elsa-tune[artifacts]'"
# The packages that fsspec reaches a store by, where it is another one than the extra's.
_PACKAGES = {"gs": "gcsfs", "gcs": "gcsfs", "abfs": "adlfs", "abfss": "adlfs", "az": "adlfs"}
_BY_EXTRA = frozenset({"s3", "s3a"})
# In these a folder is only the beginning of a name; to make one could make a bucket.
_WITHOUT_FOLDERS = frozenset({*_PACKAGES, *_BY_EXTRA, "oci", "oss", "r2"})
# How a file ends that is still being written, or whose write broke off.
_ASIDE = ".part"
# In these fsspec removes a folder with all that is in it.
_REMOVED_WITH_CONTENT = frozenset({"hdfs", "arrow_hdfs"})
# Up to here a file is read at once.
_IN_MEMORY = 64 * 1024**2


def packages_of(artifacts: str) -> set[str]:
    """Return the packages that a store needs, given its URL; none for a folder."""
    scheme = scheme_of(artifacts) if "://" in artifacts else ""
    if scheme in _BY_EXTRA:
        return {"fsspec", "s3fs"}
    if scheme in _PACKAGES:
        return {"fsspec", _PACKAGES[scheme]}
    packages: set[str] = set()
    for entry_point in metadata.entry_points(group="fsspec.specs", name=scheme):
        if entry_point.dist is not None:  # the package that brings the file system
            packages |= {"fsspec", entry_point.dist.name}
    return packages


def check_scheme(artifacts: str) -> None:
    """Raise UsageError for a URL whose scheme means nothing to fsspec.

    Its package may be missing here, and so may fsspec, without which nothing is known.
    """
    scheme = scheme_of(artifacts)
    try:
        import fsspec
    except ImportError:
        return
    if scheme not in fsspec.available_protocols():
        raise _unknown_scheme(artifacts, scheme)


def _unknown_scheme(url: str, scheme: str) -> UsageError:
    return UsageError(
        f"`artifacts` {url} has the unknown scheme '{scheme}'; give a folder, or a URL that begins "
        "with s3://, gs://, abfs:// or another scheme of fsspec"
    )


class RemoteArtifacts:
    """Artifacts below a URL, such as `s3://bucket/prefix`.

    Raises UsageError where the scheme is unknown, its package is missing, or fsspec cannot open it.
    Most stores are not asked yet; some, as FTP's, are connected to. Where folders are real, those
    below the URL come with their first file and go with their last, but on HDFS. There a file is
    written beside its place and moved, for a write that breaks off leaves half of it.
    """

    def __init__(self, url: str) -> None:
        self.url = url
        self._scheme = scheme_of(url)
        self._files, top = _opened(url)
        self._top = top.rstrip("/")
        # Of this object alone, so that no other driver's write is mixed with its own. What a killed
        # one leaves stays, and is no artifact (`sizes`).
        self._aside = f"{uuid.uuid4().hex[:8]}{_ASIDE}"

    def open_reader(self, name: str) -> BinaryIO:
        # A library's own reader may raise in its own words only when it is read.
        file = tempfile.SpooledTemporaryFile(max_size=_IN_MEMORY)  # noqa: SIM115  # its caller's
        try:
            with self._files.open(self._path(name), "rb") as source:
                shutil.copyfileobj(source, file, 2**20)
        except BaseException:
            file.close()
            raise
        file.seek(0)
        return cast(BinaryIO, file)

    def write(self, name: str, content: bytes | Path) -> None:
        path = self._path(name)
        if self._scheme in _WITHOUT_FOLDERS:
            self._put(path, content)
            return
        folder = PurePosixPath(path).parent
        self._files.makedirs(str(folder), exist_ok=True)
        if not _can_move(self._files):
            self._put(path, content)
            return
        aside = str(folder / f".{PurePosixPath(path).name}.{self._aside}")
        try:
            self._put(aside, content)
        except BaseException:
            with contextlib.suppress(Exception):  # where the connection is lost, it stays
                self._files.rm_file(aside)
            raise
        self._move(aside, path)

    def _put(self, path: str, content: bytes | Path) -> None:
        if isinstance(content, bytes):
            self._files.pipe_file(path, content)
        else:
            self._files.put_file(str(content), path)

    def _move(self, aside: str, path: str) -> None:
        """Move a file into the place of another.

        Some servers refuse that where there is another, with an error (SMB) or without (WebHDFS).
        """
        with contextlib.suppress(Exception):  # what is wrong is raised by what follows
            self._files.mv(aside, path)
        if not self._has(aside):
            return
        if self._has(path):
            self._files.rm_file(path)
        self._files.mv(aside, path)

    def _has(self, path: str) -> bool:
        """Whether a file is in its folder. File systems name the error otherwise if it is not."""
        wanted = PurePosixPath(path)
        found = self._files.ls(str(wanted.parent), detail=False)
        return any(PurePosixPath(one).name == wanted.name for one in found)

    def remove(self, name: str) -> None:
        try:
            self._files.rm_file(self._path(name))
        except FileNotFoundError:
            return
        if self._scheme in _WITHOUT_FOLDERS | _REMOVED_WITH_CONTENT:
            return
        with contextlib.suppress(Exception):  # of a folder that holds something else
            for folder in PurePosixPath(name).parents[:-1]:
                path = self._path(str(folder))
                if self._files.ls(path, detail=False):
                    return
                self._files.rmdir(path)

    def sizes(self, folder: str) -> dict[str, int]:
        found = self._files.find(self._path(folder), detail=True)
        sizes: dict[str, int] = {}
        for path, about in found.items():
            name = path.removeprefix(self._top).lstrip("/")
            if name.startswith(f"{folder}/") and not name.endswith(_ASIDE):
                sizes[name] = int(about["size"])
        return sizes

    def _path(self, name: str) -> str:
        return f"{self._top}/{name}"


def _can_move(files: Any) -> bool:
    """Whether a file system moves files; others copy them, which can break off as a write can."""
    from fsspec import AbstractFileSystem

    return type(files).mv is not AbstractFileSystem.mv


def _opened(url: str) -> tuple[Any, str]:
    """Return fsspec's file system of a URL, and the path in it. Raises UsageError without any."""
    _check_known(url)
    import fsspec

    try:
        # Nobody else's settings, and no listing of a minute ago.
        files, path = fsspec.url_to_fs(url, skip_instance_cache=True, use_listings_cache=False)
    except Exception as error:  # whatever the library behind it raises
        raise UsageError(
            f"`artifacts` {url} cannot be opened ({reason(error, url)}); check the URL and whether "
            "its server answers, or give another place"
        ) from error
    return files, path


def _check_known(url: str) -> None:
    """Raise UsageError for a URL that fsspec, as it is installed here, has no class for."""
    scheme = scheme_of(url)
    try:
        import fsspec
    except ImportError:
        raise UsageError(
            f"`artifacts` {url} needs the package fsspec, which is not installed here: {INSTALL}"
        ) from None
    try:
        fsspec.get_filesystem_class(scheme)
    except ValueError:
        raise _unknown_scheme(url, scheme) from None
    except ImportError as error:
        if scheme in _BY_EXTRA:
            remedy = f"needs the package s3fs, which is not installed here: {INSTALL}"
        elif scheme in _PACKAGES:
            package = _PACKAGES[scheme]
            remedy = f"needs the package {package}, which is not installed here: pip install "
            remedy += package
        else:
            remedy = f"needs a package that is not installed here ({reason(error)}); install it"
        raise UsageError(f"`artifacts` {url} {remedy}") from error
