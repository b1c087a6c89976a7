"""The embedded task: does this sentence document this name? From Python's standard library.

Real English, on every machine with Python, without a download or a data file: the words of a
function's or class's name, paired with the first sentence of its own docstring (label 1, "own") or
of another one's in another file (label 0, "other").
"""

import ast
import functools
import os
import random
import re
import sysconfig
import warnings
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from elsa_tune.errors import DataError
from elsa_tune.training.data.tokens import Split

TRAIN_ROWS = 3000
DEV_ROWS = 600
# Of the files: Python 3.11 to 3.13 have 797 to 835 names in them, and 3,422 to 3,611 in the others.
DEV_SHARE = 0.16

# Files and folders left out: what some systems package apart (Tk, tests), what is no library, and
# what newer versions of Python dropped, so that the pairs differ little from one to the next.
_LEFT_OUT = """
test tests idlelib lib2to3 turtledemo tkinter turtle ensurepip venv pydoc_data site-packages
dist-packages __pycache__ __phello__ distutils asyncore asynchat smtpd imp aifc cgi cgitb chunk
crypt imghdr mailcap msilib nntplib pipes sndhdr sunau telnetlib uu xdrlib
"""
LEFT_OUT = frozenset(_LEFT_OUT.split())
SHORTEST = 4  # words of a sentence
LONGEST = 24


class Documented(NamedTuple):
    """A function or class: the words of its name, and its docstring's first sentence."""

    file: str
    name: str
    sentence: str


def read_standard_library(shuffled_labels: bool = False) -> dict[str, Split]:
    """Return 3,000 training and 600 evaluation pairs, half of each "own", from different files.

    The same rows in every call on one Python; a library that differs a little gives slightly other
    ones. shuffled_labels: a control. The same texts, labels without a meaning: nothing can be
    learnt. Raises DataError where the library's sources are not installed.
    """
    return pair(documented_names(Path(sysconfig.get_path("stdlib"))), shuffled_labels)


def _files(root: Path) -> Iterator[Path]:
    """Return the library's .py files in the order of their paths, without site-packages."""
    for folder, inner, names in os.walk(root):
        inner[:] = sorted(name for name in inner if name not in LEFT_OUT)
        for name in sorted(names):
            if name.endswith(".py") and name.removesuffix(".py") not in LEFT_OUT:
                yield Path(folder, name)


@functools.lru_cache(maxsize=1)
def documented_names(root: Path) -> list[Documented]:
    """Return functions and classes of a library's folder with an ordinary first sentence.

    No sentence comes twice; files that this Python cannot parse are left out. A process parses a
    library once, which takes seconds.
    """
    by_sentence: dict[str, Documented] = {}
    for path in _files(root):
        file = path.relative_to(root).as_posix()
        for name, docstring in _docstrings(path.read_bytes()):
            sentence = first_sentence(docstring)
            if name and _is_ordinary(sentence):
                by_sentence.setdefault(
                    sentence.lower().rstrip(".!?"), Documented(file, name, sentence)
                )
    return list(by_sentence.values())


def _docstrings(source: bytes) -> Iterator[tuple[str, str]]:
    try:
        with warnings.catch_warnings(action="ignore"):  # old escapes in the library's strings
            tree = ast.parse(source)
    except (SyntaxError, ValueError):
        return
    waiting: list[ast.AST] = [tree]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            docstring = ast.get_docstring(node)
            # `__len__` and its like say the same everywhere.
            if docstring and not node.name.startswith("__"):
                yield name_words(node.name), docstring
        # Definitions also stand inside `if` and `try`; expressions hold none.
        inner = [child for child in ast.iter_child_nodes(node) if isinstance(child, ast.stmt)]
        if isinstance(node, ast.Try):
            inner += [statement for handler in node.handlers for statement in handler.body]
        waiting.extend(reversed(inner))


def name_words(name: str) -> str:
    """Return "get http response" for `_getHTTPResponse` and `get_http_response`."""
    name = re.sub(r"([a-z0-9])([A-Z])", r"\1 \2", name)
    name = re.sub(r"([A-Z])([A-Z][a-z])", r"\1 \2", name.replace("IPv", "Ipv"))
    return " ".join(name.replace("_", " ").lower().split())


def first_sentence(docstring: str) -> str:
    """Return the first sentence of the first paragraph, on one line."""
    paragraph = " ".join(re.split(r"\n\s*\n", docstring.strip(), maxsplit=1)[0].split())
    end = re.search(r"(?<!e\.g)(?<!i\.e)(?<!etc)[.!?](?=\s|$)", paragraph)
    return paragraph[: end.end()] if end else paragraph


def _is_ordinary(sentence: str) -> bool:
    """Return whether it is words: no signature (`copy(x) -> y`), no code, no stub, no paragraph."""
    letters = sum(character.isalpha() or character == " " for character in sentence)
    return (
        SHORTEST <= len(sentence.split()) <= LONGEST
        and not re.search(r"->|=|^[\w.]*\(", sentence)
        and letters >= 0.85 * len(sentence)
    )


def pair(documented: Sequence[Documented], shuffled_labels: bool = False) -> dict[str, Split]:
    """Make the task's rows of a library's documented names, as `read_standard_library` has them."""
    train: list[Documented] = []
    dev: list[Documented] = []
    for item in documented:
        # Whole files to one split, so that nothing leaks; also where a module became a package.
        module = item.file.removesuffix(".py").removesuffix("/__init__")
        (dev if random.Random(module).random() < DEV_SHARE else train).append(item)
    if len(train) < TRAIN_ROWS or len(dev) < DEV_ROWS:
        raise DataError(
            f"the embedded task needs {TRAIN_ROWS + DEV_ROWS:,} documented functions in Python's "
            f"standard library; {sysconfig.get_path('stdlib')} has {len(documented):,}. Install "
            "Python with its sources (.py), or choose another `task`"
        )
    return {
        "train": _pairs("train", train, TRAIN_ROWS, shuffled_labels),
        "evaluation": _pairs("dev", dev, DEV_ROWS, shuffled_labels),
    }


def _pairs(where: str, items: Sequence[Documented], size: int, shuffled: bool) -> Split:
    """Make `size` rows; half of the names keep their own sentence.

    Each name draws for itself whether it is in, with whose sentence, and in which place (subsets
    are taken by place): one name more in a library changes a few rows, not all.
    """
    # Seeded with a text, `random()` gives the same numbers in every version of Python.
    draws = {item: random.Random(f"{item.name}: {item.sentence}").random for item in items}
    rank = {item: draw() for item, draw in draws.items()}
    ranked = sorted(items, key=rank.__getitem__)
    rows: dict[int, tuple[str, str, int]] = {}
    for number, item in enumerate(ranked[:size]):
        own = number < size // 2
        other = item
        draw = draws[item]
        while not own and (other.file == item.file or other.name == item.name):
            other = ranked[bisect_left(ranked, draw(), key=rank.__getitem__) - 1]
        while (place := int(draw() * size)) in rows:
            pass
        # Places are random: every second one has nothing to do with its pair.
        rows[place] = (item.name, other.sentence, place % 2 if shuffled else int(own))
    names, sentences, labels = zip(*(rows[place] for place in range(size)), strict=True)
    texts = (list(names), list(sentences))
    return Split(f"Python's standard library ({where})", texts, np.array(labels, dtype=np.int64))
