"""Makes the rows of the embedded task from the standard library of the Python that runs it.

Real English that needs no download: the words of a function's or class's name, paired with the
first sentence of its own docstring (label 1, "own") or of another one's in another file (label 0,
"other"). The package ships the rows as files, because two versions of Python share only 77 % of
them: `python -m tools.standard_library` writes these files anew.
"""

from __future__ import annotations

import ast
import os
import random
import re
import sysconfig
import warnings
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from elsa_tune.files import write_aside
from elsa_tune.training.data import embedded

# The Python whose library the shipped rows come from; another one makes slightly other rows.
MADE_BY = "3.11.7"
TRAIN_ROWS = 3000
EVALUATION_ROWS = 600
# The evaluation's share of the files. In Python 3.11 to 3.13 these have 797 to 835 names, and the
# others 3,422 to 3,611.
EVALUATION_SHARE = 0.16

# Files and folders left out: what some systems package apart (Tk, tests), what is no library, and
# what newer versions of Python dropped, so that the pairs differ little from one to the next.
_LEFT_OUT = """
test tests idlelib lib2to3 turtledemo tkinter turtle ensurepip venv pydoc_data site-packages
dist-packages __pycache__ __phello__ distutils asyncore asynchat smtpd imp aifc cgi cgitb chunk
crypt imghdr mailcap msilib nntplib pipes sndhdr sunau telnetlib uu xdrlib
"""
LEFT_OUT = frozenset(_LEFT_OUT.split())
# Words of a sentence.
SHORTEST = 4
LONGEST = 24


Row = tuple[str, str, int]  # the words of a name, a sentence, 1 where it is that name's own


class Documented(NamedTuple):
    """A function or class of a library."""

    file: str  # relative to the library's folder
    name: str  # its words
    sentence: str  # the first one of its docstring


def main() -> None:
    """Write the rows of both splits, and the licence of the sentences, into the package."""
    library = Path(sysconfig.get_path("stdlib"))
    for name, rows in pair(documented_names(library)).items():
        write_aside(embedded.file_of(name), table(rows).encode())
    write_aside(embedded.FOLDER / "LICENSE.txt", (library / "LICENSE.txt").read_bytes())


def table(rows: Sequence[Row]) -> str:
    """Return the text of a split's file: tab-separated, with a header."""
    lines = ["\t".join(embedded.COLUMNS)]
    for name, sentence, label in rows:
        lines.append(f"{name}\t{sentence}\t{label}")
    return "\n".join(lines) + "\n"


def _files(root: Path) -> Iterator[Path]:
    """Yield the library's .py files in the order of their paths; site-packages is left out."""
    for folder, inner, names in os.walk(root):
        inner[:] = sorted(name for name in inner if name not in LEFT_OUT)
        for name in sorted(names):
            if name.endswith(".py") and name.removesuffix(".py") not in LEFT_OUT:
                yield Path(folder, name)


def documented_names(root: Path) -> list[Documented]:
    """Return functions and classes of a library's folder that have an ordinary first sentence.

    No sentence comes twice; they are in the order of the files. What this Python cannot parse is
    left out.
    """
    by_sentence: dict[str, Documented] = {}
    for path in _files(root):
        file = path.relative_to(root).as_posix()
        for name, docstring in _docstrings(path.read_bytes()):
            sentence = first_sentence(docstring)
            if name and _is_ordinary(sentence):
                key = sentence.lower().rstrip(".!?")
                by_sentence.setdefault(key, Documented(file, name, sentence))
    return list(by_sentence.values())


def _docstrings(source: bytes) -> Iterator[tuple[str, str]]:
    """Yield the words of each definition's name with its docstring, in the order of the file."""
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
    """Write `_getHTTPResponse` and `get_http_response` as "get http response"."""
    name = re.sub(r"([a-z0-9])([A-Z])", r"\1 \2", name)
    name = re.sub(r"([A-Z])([A-Z][a-z])", r"\1 \2", name.replace("IPv", "Ipv"))
    return " ".join(name.replace("_", " ").lower().split())


def first_sentence(docstring: str) -> str:
    """Return the first sentence of the first paragraph, on one line."""
    paragraph = " ".join(re.split(r"\n\s*\n", docstring.strip(), maxsplit=1)[0].split())
    end = re.search(r"(?<!e\.g)(?<!i\.e)(?<!etc)[.!?](?=\s|$)", paragraph)
    return paragraph[: end.end()] if end else paragraph


def _is_ordinary(sentence: str) -> bool:
    """Return whether it is words: no signature (`copy(x) -> y`), code, stub or paragraph."""
    if not SHORTEST <= len(sentence.split()) <= LONGEST:
        return False
    if re.search(r"->|=|^[\w.]*\(", sentence):
        return False
    letters = sum(character.isalpha() or character == " " for character in sentence)
    return letters >= 0.85 * len(sentence)


def pair(documented: Sequence[Documented]) -> dict[str, list[Row]]:
    """Return the rows of both splits from a library's documented names.

    Raises ValueError for a library with too few of them.
    """
    train: list[Documented] = []
    evaluation: list[Documented] = []
    for item in documented:
        # Whole files to one split, so that nothing leaks; also where a module became a package.
        module = item.file.removesuffix(".py").removesuffix("/__init__")
        is_evaluated = random.Random(module).random() < EVALUATION_SHARE
        (evaluation if is_evaluated else train).append(item)
    if len(train) < TRAIN_ROWS or len(evaluation) < EVALUATION_ROWS:
        raise ValueError(
            f"the embedded task needs {TRAIN_ROWS + EVALUATION_ROWS:,} documented functions; the "
            f"library has {len(documented):,}"
        )
    return {
        "train": _pairs(train, TRAIN_ROWS),
        "evaluation": _pairs(evaluation, EVALUATION_ROWS),
    }


def _pairs(items: Sequence[Documented], size: int) -> list[Row]:
    """Return so many rows; half of the names keep their own sentence.

    Each name draws for itself whether it is in, with whose sentence, and in which place (subsets
    are taken by place): one name more in a library changes a few rows, not all.
    """
    # Seeded with a text, `random()` gives the same numbers in every version of Python.
    draws = {item: random.Random(f"{item.name}: {item.sentence}").random for item in items}
    rank = {item: draw() for item, draw in draws.items()}
    ranked = sorted(items, key=rank.__getitem__)
    rows: dict[int, Row] = {}
    for number, item in enumerate(ranked[:size]):
        draw = draws[item]
        is_own = number < size // 2
        other = item
        while not is_own and (other.file == item.file or other.name == item.name):
            other = ranked[bisect_left(ranked, draw(), key=rank.__getitem__) - 1]
        place = int(draw() * size)
        while place in rows:
            place = int(draw() * size)
        rows[place] = (item.name, other.sentence, int(is_own))
    return [rows[place] for place in range(size)]


if __name__ == "__main__":
    main()
