"""A store of files that is a folder, such as one that several machines mount."""

import contextlib
import shutil
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import BinaryIO

from elsa_tune.files import write_aside


@dataclass(frozen=True, slots=True)
class FolderArtifacts:
    """Artifacts as files below a folder, which is made when it is needed.

    Folders below it come with their first file and go with their last.
    """

    url: str  # the folder's path, absolute

    def open_reader(self, name: str) -> BinaryIO:
        return self._file(name).open("rb")

    def write(self, name: str, content: bytes | Path) -> None:
        if isinstance(content, bytes):
            write_aside(self._file(name), content)
            return
        with content.open("rb") as source:
            write_aside(self._file(name), partial(shutil.copyfileobj, source))

    def remove(self, name: str) -> None:
        file = self._file(name)
        file.unlink(missing_ok=True)
        top = Path(self.url)
        with contextlib.suppress(OSError):  # of a folder that holds something else
            for folder in file.parents:
                if folder == top:
                    return
                folder.rmdir()

    def sizes(self, folder: str) -> dict[str, int]:
        sizes: dict[str, int] = {}
        top = Path(self.url)
        for file in (top / folder).rglob("*"):
            if file.is_file() and not file.name.endswith(".part"):
                name = file.relative_to(top).as_posix()
                sizes[name] = file.stat().st_size
        return sizes

    def _file(self, name: str) -> Path:
        return Path(self.url) / name
