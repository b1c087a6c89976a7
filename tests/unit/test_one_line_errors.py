"""Whatever comes from outside, an error is one line, soon, and of a bearable length."""

from __future__ import annotations

import io
import json
import os
import re
import resource
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from elsa_tune.errors import (
    DataError,
    ElsaTuneError,
    SpaceError,
    StorageError,
    UnknownNameError,
    UsageError,
    first_line,
    shortlist,
)
from elsa_tune.files import expanded
from elsa_tune.searching.specification import (
    load_specification,
    replace_specification,
    save_specification,
)
from elsa_tune.specs.space import FIELDS, load_space
from elsa_tune.tasks.task_file import read_task_file, resolve_task
from elsa_tune.tracking.artifacts.places import artifacts_url
from elsa_tune.tracking.paths import SearchPaths
from elsa_tune.tracking.places import StorePaths
from tests.conftest import Run
from tests.recorded_search import searched
from tests.unit.search_examples import make_spec

BOMB = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{name}: &{name} [{', '.join(9 * ['*' + before])}]\n"
    for before, name in zip("abcdefgh", "bcdefghi", strict=True)
)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (BOMB, "longer than 250,000 characters"),
        (f"a: &a {'x' * 20_000}\nb: [{', '.join(100 * ['*a'])}]\n", "longer than 250,000"),
        ("a: &a [*a]\n", "longer than 250,000"),
        (f"depths: [{', '.join(map(str, range(200_000)))}]\n", "longer than 250,000"),
        ("epochs: 3\nseeds: 1\nepochs: 4\n", "line 3: field 'epochs' is written twice"),
        ("epochs: 3\n? \n: 4\n", "line 2: a field has no name"),
        ("[" * 5000, "nested too deeply"),
        ("a: [1\nb: 2\n", "line 2: "),
        ("a: b: c", "line 1: mapping values are not allowed here"),
        ("a: \x00", "unacceptable character"),
    ],
)
def test_yaml_that_cannot_be_read(text: str, reason: str, tmp_path: Path) -> None:
    file = tmp_path / "x.yaml"
    file.write_text(text)
    for read, kind in ((load_space, SpaceError), (read_task_file, DataError)):
        started = time.process_time()
        with pytest.raises(kind) as refused:  # type: ignore[call-overload]
            read(file)
        assert reason in str(refused.value) and "\n" not in str(refused.value)
        assert time.process_time() - started < 20


def test_a_value_of_a_setting_that_cannot_be_read() -> None:
    with pytest.raises(SpaceError, match="is not a YAML value"):
        load_space("quick", ['epochs=!!int ""'])


@pytest.mark.parametrize("content", ["{}", "", "[1, 2]", '{"name": 1, "model": {"a": 2}}', "\x00"])
def test_a_damaged_specification_is_one_sentence(content: str, tmp_path: Path) -> None:
    paths = SearchPaths(tmp_path, "mine")
    paths.folder.mkdir()
    paths.specification.write_text(content)
    with pytest.raises(StorageError, match=r"search\.json\) cannot be read: ") as refused:
        load_specification(paths)
    assert len(str(refused.value).splitlines()) == 1 and len(str(refused.value)) < 500
    if content == "{}":
        assert "field 'name' is missing; field 'search_id' is missing; " in str(refused.value)


WRONG = (None, True, -1, 0.5, 2e9, "", "x", [], [1, "x"], {}, {"a": 1}, [[{}]], "nan", [None])
# Pydantic's own words, and the names of classes.
PYDANTIC = re.compile(
    r"[Ii]nput should|[Vv]alid(ation)?\b|instance of|keyword|Extra|\b(Rate|Glue|Free|Fil|Emb)\w+"
)


@pytest.mark.parametrize("name", sorted(FIELDS[""]))
def test_a_setting_is_refused_in_our_words(name: str) -> None:
    refusals = 0
    for value in [*WRONG, {1: {}}]:
        try:
            load_space("joint", [f"{name}={json.dumps(value)}"])
        except SpaceError as refused:
            refusals += 1
            assert not PYDANTIC.search(str(refused)), refused
            assert name in str(refused)
    assert refusals


def test_a_specification_is_refused_in_our_words(tmp_path: Path) -> None:
    paths = SearchPaths(tmp_path, "example")
    paths.folder.mkdir()
    save_specification(make_spec(), paths)
    whole = json.loads(paths.specification.read_text())
    for holder in (whole, whole["model"], whole["task"], whole["task"]["source"], whole["rates"]):
        for name, value in list(holder.items()):
            for wrong in WRONG:
                holder[name] = wrong
                paths.specification.write_text(json.dumps(whole))
                try:
                    load_specification(paths)
                except StorageError as refused:
                    assert not PYDANTIC.search(str(refused)), refused
            holder[name] = value


def test_a_specification_that_finds_no_room_is_one_sentence_and_the_one_before_stays(
    tmp_path: Path,
) -> None:
    paths = SearchPaths(tmp_path, "example")
    paths.folder.mkdir()
    spec = make_spec()
    save_specification(spec, paths)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    # The size limit of a file fails like a full disk.
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, hard))
    try:
        with pytest.raises(StorageError, match=r"search\.json cannot be written: .*; make room"):
            replace_specification(replace(spec, seeds=spec.seeds + 1), paths)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert load_specification(paths) == spec
    assert not list(paths.folder.glob("*.part"))


def test_a_long_value_is_shown_by_its_ends() -> None:
    with pytest.raises(SpaceError) as refused:
        load_space("quick", ["depths=" + 5000 * "ä"])
    assert len(str(refused.value)) < 500
    with pytest.raises(SpaceError) as refused:
        load_space("quick", [5000 * "k" + "=1"])
    assert len(str(refused.value)) < 1000
    shown = str(ElsaTuneError(f"name '{3000 * 'ab '}' is it's own\nand\n  more {5000 * 'x'}"))
    assert len(shown) < 250 and "…" in shown and "is it's own; and; more" in shown
    path = "/tmp/" + 20 * "folder/"
    assert path in str(ElsaTuneError(f"no '{path}'"))


def test_of_a_librarys_error_the_first_line_without_its_colours() -> None:
    torchs = RuntimeError("\n\x1b[1;31mFailed\x1b[0m to export the model\n\x1b[96mSummary\x1b[0m")
    assert first_line(torchs) == "Failed to export the model"
    assert first_line(KeyError()) == "KeyError"


def test_of_a_long_list_ten_are_named_and_the_others_counted() -> None:
    assert shortlist([1, "b"]) == "1, b" and shortlist([]) == ""
    assert shortlist(range(11)) == "0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10"
    assert shortlist(range(2000)) == "0, 1, 2, 3, 4, 5, 6, 7, 8, 9, and 1,990 more"
    unknown = str(UnknownNameError.among("search", "mien", [*map(str, range(2000)), "mine"]))
    assert "did you mean 'mine'?" in unknown and "and 1,991 more" in unknown and len(unknown) < 200


def test_thousands_of_searches_that_rival_are_not_listed(tmp_path: Path, run: Run) -> None:
    file = tmp_path / "results.csv"
    lines = ["model,task,layers,frozen_layers,quality,seed,search,recipe"]
    lines += [f"m,t,6,{n},0.8,1,s{one},r{one}" for one in range(2000) for n in (0, 3)]
    file.write_text("\n".join(lines))
    refused = run("operating-point", "--from", file, "--map", "comparison=recipe")
    assert refused.status == 2
    _, listing = refused.err.split("2000 sets of results", 1)
    listed = listing.splitlines()[1:]
    assert len(listed) == 11 and listed[-1].strip() == "and 1,990 more"


def test_hundreds_of_classes_are_not_listed(tmp_path: Path, run: Run) -> None:
    rows = [f"words and words {n},class {n % 300}" for n in range(900)]
    (tmp_path / "rows.csv").write_text("\n".join(["text,label", *rows, "more words,klass 1"]))
    task = tmp_path / "task.yaml"
    classes = ", ".join(f"class {n}" for n in range(300))
    task.write_text(f"name: x\nfiles: rows.csv\ntext: text\nlabel: label\nclasses: [{classes}]\n")
    refused = run("tasks", task)
    assert refused.status == 2 and "label 'klass 1' is not one of" in refused.err
    assert "and 290 more" in refused.err and len(refused.err) < 600


LONG = "n" * 300  # more than a file's name may have


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("tasks", f"{LONG}.csv"), ".csv cannot be read: File name too long"),
        (("tasks", f"{LONG}.yaml"), ".yaml cannot be read: File name too long"),
        (("tasks", "~no-such-user.yaml"), "data file ~no-such-user.yaml does not exist"),
        (("models", "~no-such-user"), "model folder '~no-such-user' does not exist"),
        (("models", LONG), " cannot be used: File name too long; name another place"),
        (("resume", "--storage-path", LONG), " cannot be used: File name too long"),
    ],
)
def test_a_path_that_cannot_be_followed(
    arguments: tuple[str, ...],
    words: str,
    run: Run,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    status, out, said = run(*arguments)
    assert (status, out) == (2, "")
    [line] = said.splitlines()
    assert line.startswith("elsa-tune: ") and words in line


def test_a_file_may_be_called_as_no_user(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    rows = "good words,good\nbad words,bad\n" * 4
    Path("~no-such-user.csv").write_text(f"text,label\n{rows}")
    assert expanded("~no-such-user.csv") == Path("~no-such-user.csv")
    assert expanded("~/rows.csv") == Path.home() / "rows.csv"
    assert resolve_task("~no-such-user.csv").classes == ("bad", "good")
    with pytest.raises(UsageError, match="begins with a user who is not known here"):
        artifacts_url("~no-such-user/kept", tmp_path)


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("command", ["spaces", "--version"])
def test_a_full_disk_behind_stdout_is_one_sentence(
    command: str, unbuffered: str, root: Path
) -> None:
    """Also where what is left is written as Python exits."""
    code = "from elsa_tune.cli.app import main; main()"
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-c", code, command],
            env={**os.environ, "PYTHONUNBUFFERED": unbuffered},
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            cwd=root,
            timeout=200,
            check=False,
        )
    assert done.returncode == 2
    assert done.stderr == "elsa-tune: stdout cannot be written: No space left on device\n"


@pytest.mark.parametrize("command", ["answer", "answer --details", "curve", "compare"])
def test_a_full_disk_behind_tables_is_one_sentence(
    command: str, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tables are written by rich's console, here at once, as under PYTHONUNBUFFERED."""
    searched(StorePaths(tmp_path).storage)
    monkeypatch.chdir(tmp_path)
    with open("/dev/full", "wb", buffering=0) as full:
        monkeypatch.setattr("sys.stdout", io.TextIOWrapper(full, write_through=True))
        refused = run(*command.split(), "first")
    assert refused.status == 2
    assert refused.err == "elsa-tune: stdout cannot be written: No space left on device\n"
