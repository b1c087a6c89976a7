"""Recorded tables and journals are answered as they were, to the byte.

Where one is to change, `python tools/answers.py tests/published/answers.tar.xz --data` records all
of them anew; what it changes belongs into the commit's message.
"""

from __future__ import annotations

import difflib
import os
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

RECORDED = Path(__file__).with_name("answers.tar.xz")
SHOWN = 60  # lines of differences, and as many names of files that differ


def texts_of(folder: Path) -> dict[str, str]:
    """Return the text of each file in a folder, by its name."""
    return {file.name: file.read_text(encoding="utf-8") for file in sorted(folder.iterdir())}


def recorded_texts() -> dict[str, str]:
    """Return the text of each file in the archive, by its name."""
    texts = {}
    with tarfile.open(RECORDED) as archive:
        for entry in archive:
            content = archive.extractfile(entry)
            assert content is not None
            texts[entry.name] = content.read().decode("utf-8")
    return texts


def differences(before: dict[str, str], after: dict[str, str]) -> str:
    """Return what differs, file by file, as `diff -u` shows it; "" where nothing does."""
    names = [name for name in {**before, **after} if before.get(name) != after.get(name)]
    lines = []
    for name in names:
        old = before.get(name, "").splitlines()
        new = after.get(name, "").splitlines()
        lines += difflib.unified_diff(old, new, f"before/{name}", f"after/{name}", lineterm="", n=2)
    if not names:
        return ""
    shown = [f"{len(names)} files differ: {' '.join(names[:SHOWN])}", *lines[:SHOWN]]
    return "\n".join(shown)


def test_every_answer_is_what_it_was(root: Path, tmp_path: Path) -> None:
    program = [sys.executable, str(root / "tools" / "answers.py"), str(tmp_path), "--data"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    subprocess.run(program, check=True, env=environment)
    found = differences(recorded_texts(), texts_of(tmp_path))
    if found:
        pytest.fail(found, pytrace=False)


def test_a_difference_is_shown() -> None:
    before = {"a.json": "[\n1,\n2\n]", "b.json": "[]", "same.json": "[]"}
    found = differences(before, {**before, "a.json": "[\n1,\n3\n]", "new.json": "[]"})
    assert found.splitlines()[0] == "2 files differ: a.json new.json"
    assert "-2\n+3" in found and "after/new.json" in found
    assert differences(before, before) == ""
