"""The embedded task: its pairs, its splits, its control, and what it needs of the machine."""

from __future__ import annotations

import re
import sys
import sysconfig
from pathlib import Path

import numpy as np
import pytest

from elsa_tune.errors import DataError
from elsa_tune.training.data import standard_library
from elsa_tune.training.data.standard_library import (
    DEV_ROWS,
    TRAIN_ROWS,
    Documented,
    documented_names,
    first_sentence,
    name_words,
    pair,
    read_standard_library,
)
from elsa_tune.training.data.tokens import Split


@pytest.fixture
def texts() -> dict[str, Split]:
    return read_standard_library()


@pytest.fixture
def library() -> list[Documented]:
    return documented_names(Path(sysconfig.get_path("stdlib")))


def evaluation_of(texts: dict[str, Split]) -> Split:
    return texts["evaluation"]


def test_sizes_and_balance(texts: dict[str, Split]) -> None:
    assert len(texts["train"]) == TRAIN_ROWS
    assert len(evaluation_of(texts)) == DEV_ROWS
    assert texts["train"].labels.mean() == evaluation_of(texts).labels.mean() == 0.5


def test_no_sentence_is_in_both_splits(texts: dict[str, Split]) -> None:
    train, dev = set(texts["train"].texts[1]), set(evaluation_of(texts).texts[1])
    assert not train & dev


def test_own_pairs_are_true_and_other_pairs_are_not(
    texts: dict[str, Split], library: list[Documented]
) -> None:
    """Label 1 exactly where some definition of that name says so."""
    true = {(item.name, item.sentence) for item in library}
    for split in (texts["train"], evaluation_of(texts)):
        for name, sentence, label in zip(*split.texts, split.labels, strict=True):
            assert ((name, sentence) in true) == bool(label), (name, sentence)


def test_neither_text_alone_gives_the_label_away(texts: dict[str, Split]) -> None:
    names, sentences = texts["train"].texts
    for column in (names, sentences):
        lengths = np.array([len(text) for text in column])
        assert abs(np.corrcoef(lengths, texts["train"].labels)[0, 1]) < 0.1


def test_the_same_rows_again_and_without_parsing(
    texts: dict[str, Split], monkeypatch: pytest.MonkeyPatch
) -> None:
    def parse(source: bytes) -> list[Documented]:
        raise AssertionError("parsed again")

    monkeypatch.setattr(standard_library, "_docstrings", parse)
    again = read_standard_library()
    assert again["train"].texts == texts["train"].texts
    assert again["train"].labels.tolist() == texts["train"].labels.tolist()


Rows = list[tuple[str, str, int]]


def rows(split: Split) -> Rows:
    return list(zip(*split.texts, split.labels.tolist(), strict=True))


@pytest.mark.parametrize(("module", "in_dev"), [("novel", False), ("added", True)])
def test_a_library_that_differs_a_little_gives_a_task_that_differs_a_little(
    library: list[Documented], module: str, in_dev: bool
) -> None:
    """One module more and one function less: at least 95 % of the rows stay, each in its split."""
    new = [
        Documented(f"{module}.py", f"new {number}", f"Say that this is the new number {number}.")
        for number in range(8)
    ]
    before, after = pair(library), pair(new + library[:100] + library[101:])
    evaluations = evaluation_of(before), evaluation_of(after)
    for one, other in ((before["train"], after["train"]), evaluations):
        assert len(set(rows(one)) & set(rows(other))) >= 0.95 * len(one)
    assert not {row[1] for row in rows(before["train"])} & set(evaluations[1].texts[1])
    assert not {row[1] for row in rows(evaluations[0])} & set(after["train"].texts[1])
    assert {item.name for item in new} & set(
        (evaluations[1] if in_dev else after["train"]).texts[0]
    )
    # `train_size` takes rows by their places.
    places = [a == b for a, b in zip(rows(before["train"]), rows(after["train"]), strict=True)]
    assert np.mean(places) >= 0.95


def test_a_module_that_becomes_a_package_stays_in_its_split(
    library: list[Documented],
) -> None:
    packages = [
        item._replace(file=re.sub(r"(/__init__)?\.py$", "/__init__.py", item.file))
        for item in library
    ]
    assert rows(pair(packages)["train"]) == rows(pair(library)["train"])


def test_nothing_is_imported(texts: dict[str, Split]) -> None:
    # Imported, these two print a poem and open a browser.
    assert "this" not in sys.modules
    assert "antigravity" not in sys.modules


def test_the_control_has_the_same_texts_and_labels_that_mean_nothing(
    texts: dict[str, Split],
) -> None:
    shuffled = read_standard_library(shuffled_labels=True)
    for one, other in (
        (texts["train"], shuffled["train"]),
        (evaluation_of(texts), evaluation_of(shuffled)),
    ):
        assert one.texts[0] == other.texts[0]
        assert other.labels.mean() == 0.5
        assert abs(float((one.labels == other.labels).mean()) - 0.5) < 0.06


def test_a_python_without_sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "os.py").write_text('def one():\n    """Do one thing and say so."""\n')
    monkeypatch.setattr(sysconfig, "get_path", lambda name: str(tmp_path))
    with pytest.raises(
        DataError, match=r"needs 3,600 documented functions.*has 1\. Install Python"
    ):
        read_standard_library()


SOURCE = b'''
"""The file's own docstring is no definition's."""
if True:
    def get_HTTPResponse(self):
        """Return the next response, e.g. a page. And more.

        A second paragraph.
        """
        def inner_one():
            """Do this one thing
            over two lines.
            """
try:
    pass
except ImportError:
    class _FallBack:
        """A class that stands in for it."""
        def __len__(self):
            """Say how long it is."""
        async def run(self):
            """Too short."""
        def call(self):
            """call(x, y) -> the result of it."""
        def again(self):
            """a class that stands in for it"""
'''


def test_what_is_collected(tmp_path: Path) -> None:
    for file, source in {"a.py": SOURCE, "broken.py": b"def (:", "null.py": b"\0"}.items():
        (tmp_path / file).write_bytes(source)
    found = documented_names(tmp_path)
    assert found == [
        Documented("a.py", "get http response", "Return the next response, e.g. a page."),
        Documented("a.py", "inner one", "Do this one thing over two lines."),
        Documented("a.py", "fall back", "A class that stands in for it."),
    ]


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("get_http_response", "get http response"),
        ("_getHTTPResponse", "get http response"),
        ("BaseHTTPRequestHandler", "base http request handler"),
        ("IPv4Address", "ipv4 address"),
        ("L", "l"),
    ],
)
def test_name_words(name: str, words: str) -> None:
    assert name_words(name) == words


def test_first_sentence() -> None:
    assert first_sentence("One here. Two there.") == "One here."
    assert first_sentence("No end\n  of line\n\nmore.") == "No end of line"
    assert first_sentence("Version 3.11 is it.  So.") == "Version 3.11 is it."
