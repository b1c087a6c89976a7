"""What the documents take from code and measurements is what these say now.

`make documents` writes it anew.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tools import documents
from tools.documents import MARKED, PARTS, marked


def test_every_computed_part_stands_in_its_page_once(root: Path) -> None:
    pages = [root / "README.md", *(root / "docs").rglob("*.md")]
    places = []
    for page in pages:
        for match in MARKED.finditer(page.read_text(encoding="utf-8")):
            places.append((match[2], page.relative_to(root).as_posix()))
    assert sorted(places) == sorted((name, part.page) for name, part in PARTS.items())


@pytest.mark.parametrize("name", PARTS)
def test_the_page_says_what_the_code_says(name: str) -> None:
    part = PARTS[name]
    assert marked(part.page)[name] == part.make(), documents.__doc__


def test_a_part_is_written_where_it_stands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(documents, "ROOT", tmp_path)
    monkeypatch.setitem(PARTS, "first", documents.Part("page.md", lambda: "new \\1\n"))
    page = tmp_path / "page.md"
    around = "<!-- computed: {} -->\nold\n<!-- end -->\n"
    page.write_text("before\n" + around.format("first") + around.format("second"))
    documents.write("first")
    assert marked("page.md") == {"first": "new \\1\n", "second": "old\n"}
    assert re.sub("new .*", "old", page.read_text()) == (
        "before\n" + around.format("first") + around.format("second")
    )
