"""Where the files that ship with elsa-tune lie: in a checkout and in an installed wheel alike.

It must not know what is in them; `specs.space` reads a search space.
"""

from __future__ import annotations

from pathlib import Path

from elsa_tune.errors import SpaceError

_PACKAGE = Path(__file__).resolve().parent.parent


def search_space_folder() -> Path:
    """The folder of the shipped search spaces, absolute.

    In a wheel it is `elsa_tune/search_spaces`; in a checkout (an editable install, or the working
    directory on the path) it is `search_spaces` beside the package. Raises SpaceError where
    neither is.
    """
    for folder in (_PACKAGE / "search_spaces", _PACKAGE.parent / "search_spaces"):
        if folder.is_dir():
            return folder
    raise SpaceError(
        f"the shipped search spaces are neither in {_PACKAGE} nor beside it; "
        "install elsa-tune again, or give `space` the path of your own file"
    )
