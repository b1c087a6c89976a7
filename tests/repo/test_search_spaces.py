"""Every shipped search space is read by the code as it stands, and says when to use it."""

from __future__ import annotations

from pathlib import Path

import pytest

from elsa_tune.errors import SpaceError
from elsa_tune.specs import space
from elsa_tune.specs.space import load_space, shipped_spaces

SPACES = list(shipped_spaces().values())


def test_the_promised_spaces_are_there(root: Path) -> None:
    """The names that the documentation and the Makefile use."""
    assert sorted((root / "search_spaces").iterdir()) == SPACES
    names = {path.stem for path in SPACES}
    assert {"demo", "joint", "grid", "paper", "low_resource", "quick"} <= names


@pytest.mark.parametrize("path", SPACES, ids=lambda path: path.stem)
def test_it_parses(path: Path) -> None:
    load_space(path)


@pytest.mark.parametrize("path", SPACES, ids=lambda path: path.stem)
def test_it_says_when_to_use_it(path: Path) -> None:
    """The file begins with a comment, and that comment speaks of its use."""
    lines = path.read_text().splitlines()
    comment = []
    for line in lines:
        if not line.startswith("#"):
            break
        comment.append(line.lstrip("# "))
    text = " ".join(comment).lower()
    assert len(text) > 60
    assert "use" in text.split() or "used" in text.split()


def test_a_wheel_finds_them_beside_its_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An installed package looks inside itself first; where they are missing it says what to do."""
    package = tmp_path / "site-packages" / "elsa_tune"
    package.mkdir(parents=True)
    monkeypatch.setattr(space, "_PACKAGE", package)
    with pytest.raises(SpaceError, match=r"install elsa-tune again, or give `space`"):
        space.shipped_spaces()
    for folder in (package.parent / "search_spaces", package / "search_spaces"):
        folder.mkdir()
        (folder / "own.yaml").touch()
    assert space.shipped_spaces() == {"own": package / "search_spaces" / "own.yaml"}
