"""The embedded task: its pairs, its splits, its control, and the program that made its rows."""

from __future__ import annotations

import platform
import re
import sysconfig
from pathlib import Path

import numpy as np
import pytest

from elsa_tune.training.data.embedded import file_of, read_embedded
from elsa_tune.training.data.tokens import Split
from tools.standard_library import (
    EVALUATION_ROWS,
    MADE_BY,
    TRAIN_ROWS,
    Documented,
    Row,
    documented_names,
    first_sentence,
    name_words,
    pair,
    table,
)


@pytest.fixture
def texts() -> dict[str, Split]:
    return read_embedded()


@pytest.fixture(scope="module")
def library() -> list[Documented]:
    return documented_names(Path(sysconfig.get_path("stdlib")))


def rows(split: Split) -> list[Row]:
    return list(zip(*split.texts, split.labels.tolist(), strict=True))


def test_sizes_and_balance(texts: dict[str, Split]) -> None:
    assert len(texts["train"]) == TRAIN_ROWS
    assert len(texts["evaluation"]) == EVALUATION_ROWS
    assert texts["train"].labels.mean() == texts["evaluation"].labels.mean() == 0.5


def test_no_sentence_is_in_both_splits(texts: dict[str, Split]) -> None:
    assert not set(texts["train"].texts[1]) & set(texts["evaluation"].texts[1])


@pytest.mark.skipif(
    platform.python_version() != MADE_BY, reason="another Python has another library"
)
def test_the_shipped_rows_are_those_of_the_program(library: list[Documented]) -> None:
    for split, made in pair(library).items():
        assert file_of(split).read_text(encoding="utf-8") == table(made)


def test_what_is_shipped_is_read_as_it_was_made(texts: dict[str, Split]) -> None:
    for name, split in texts.items():
        assert table(rows(split)) == file_of(name).read_text(encoding="utf-8")


def test_own_pairs_are_true_and_other_pairs_are_not(library: list[Documented]) -> None:
    """Label 1 exactly where some definition of that name says so."""
    true = {(item.name, item.sentence) for item in library}
    for made in pair(library).values():
        for name, sentence, label in made:
            assert ((name, sentence) in true) == bool(label), (name, sentence)


def test_neither_text_alone_gives_the_label_away(texts: dict[str, Split]) -> None:
    for column in texts["train"].texts:
        lengths = np.array([len(text) for text in column])
        assert abs(np.corrcoef(lengths, texts["train"].labels)[0, 1]) < 0.1


@pytest.mark.parametrize(("module", "split"), [("novel", "train"), ("added", "evaluation")])
def test_a_library_that_differs_a_little_gives_a_task_that_differs_a_little(
    library: list[Documented], module: str, split: str
) -> None:
    """One module more and one function less: at least 95 % of the rows stay, each in its split."""
    new = [
        Documented(f"{module}.py", f"new {number}", f"Say that this is the new number {number}.")
        for number in range(8)
    ]
    before, after = pair(library), pair(new + library[:100] + library[101:])
    for name, made in before.items():
        assert len(set(made) & set(after[name])) >= 0.95 * len(made)
    for one, other in ((before, after), (after, before)):
        assert not {row[1] for row in one["train"]} & {row[1] for row in other["evaluation"]}
    assert {item.name for item in new} & {row[0] for row in after[split]}
    # `train_size` takes rows by their places.
    places = [a == b for a, b in zip(before["train"], after["train"], strict=True)]
    assert np.mean(places) >= 0.95


def test_a_module_that_becomes_a_package_stays_in_its_split(
    library: list[Documented],
) -> None:
    packages = [
        item._replace(file=re.sub(r"(/__init__)?\.py$", "/__init__.py", item.file))
        for item in library
    ]
    assert pair(packages)["train"] == pair(library)["train"]


def test_the_control_has_the_same_texts_and_labels_that_mean_nothing(
    texts: dict[str, Split],
) -> None:
    shuffled = read_embedded(shuffled_labels=True)
    for name, split in texts.items():
        assert split.texts == shuffled[name].texts
        assert shuffled[name].labels.mean() == 0.5
        assert abs(float((split.labels == shuffled[name].labels).mean()) - 0.5) < 0.06


def test_a_library_that_is_too_small(library: list[Documented]) -> None:
    with pytest.raises(ValueError, match=r"needs 3,600 documented functions.*has 1$"):
        pair(library[:1])


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
