"""What a store of files is: the seam between a search's folder and whatever keeps a copy of it."""

from pathlib import Path
from typing import BinaryIO, Protocol


class ArtifactStore(Protocol):
    """Keeps files under names with `/` in them: a search's name, then a path in its folder.

    A file that is written takes the place of the one before it, as a whole or not at all. Whatever
    a method raises means that it could not be done; only FileNotFoundError says more. Used by one
    thread at a time.
    """

    @property
    def url(self) -> str:
        """The place that it keeps them in, which has no secret in it."""
        ...

    def open_reader(self, name: str) -> BinaryIO:
        """Open a file to be read. Raises FileNotFoundError where there is none."""
        ...

    def write(self, name: str, content: bytes | Path) -> None:
        """Keep these bytes, or those of a file on this machine."""
        ...

    def remove(self, name: str) -> None:
        """Remove a file, if it is there."""
        ...

    def sizes(self, folder: str) -> dict[str, int]:
        """Return the bytes of every file whose name begins with `folder` and a `/`, by its name.

        Raises FileNotFoundError where the store's own place, as a bucket, is missing.
        """
        ...


def read(store: ArtifactStore, name: str) -> bytes | None:
    """Return a file's bytes; None where there is none."""
    try:
        with store.open_reader(name) as file:
            return file.read()
    except FileNotFoundError:
        return None
