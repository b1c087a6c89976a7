"""Journals that somebody or something changed: every line is a record or a reason."""

from __future__ import annotations

import json
import random
import re
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

from elsa_tune.cli.app import main
from elsa_tune.errors import ElsaTuneError, ResultsError, StorageError
from elsa_tune.searching import launch
from elsa_tune.searching.specification import save_specification
from elsa_tune.sources.record import list_searches
from elsa_tune.tracking.journal import read_journal
from elsa_tune.tracking.journal_records import decode, encode
from elsa_tune.tracking.overflow import Overflow
from elsa_tune.tracking.paths import SearchPaths
from elsa_tune.tracking.places import StorePaths
from elsa_tune.tracking.rows import rows_of
from elsa_tune.tracking.state import SearchState
from tests.recorded_search import journal_of, probed, whole_search
from tests.unit.search_examples import make_spec

JUNK: list[Any] = [
    None, True, -1, 0, 1.5, 10**400, 2**70, "", "x", "\ud800", [], ["x"], [[[]]], {}, {"a": None},
    {"a": [1]}, float("nan"), float("inf"), -1e300,
]  # fmt: skip


def lines() -> list[str]:
    first, *rest = whole_search("mine", 2)
    return [encode(record) for record in (first, *probed(0.6, "mine"), *rest)]


def mutated(line: str, dice: random.Random) -> str:
    """One line with one change: a value replaced, taken out or moved, or a byte flipped."""
    if dice.random() < 0.2:
        place = dice.randrange(len(line))
        return line[:place] + chr(dice.randrange(32, 300)) + line[place + 1 :]
    try:
        values = json.loads(line)
    except ValueError:  # by an earlier change of a byte
        return line[:-1]
    table = values
    while True:
        name = dice.choice(list(table))
        if isinstance(table[name], dict) and table[name] and dice.random() < 0.7:
            table = table[name]
            continue
        break
    if dice.random() < 0.2:
        del table[name]
    else:
        table[name] = dice.choice(JUNK)
    return json.dumps(values)


@pytest.mark.parametrize("field", ["trial", "attempt", "params", "tags", "time"])
def test_a_field_of_a_wrong_type_is_a_reason(field: str) -> None:
    values = json.loads(lines()[1])
    values[field] = ["x"]
    with pytest.raises(
        ValueError, match=f"trial_started: field '{field}' must be .*, not \\['x'\\]"
    ):
        decode(json.dumps(values))


def test_150_damaged_journals_give_a_state_or_one_reason(tmp_path: Path) -> None:
    dice = random.Random(7)
    refused = 0
    for number in range(150):
        content = lines()
        for _ in range(dice.choice([1, 1, 3])):
            place = dice.randrange(len(content))
            content[place] = mutated(content[place], dice)
        paths = SearchPaths(tmp_path, f"s{number}")
        paths.folder.mkdir()
        paths.journal.write_text("\n".join(content) + "\n", encoding="utf-8")
        try:
            state = SearchState.replay(read_journal(paths.journal), alive=False)
            encode_all(state)
            rows_of(state)
        except ElsaTuneError as error:
            refused += 1
            assert "\n" not in str(error)
            # A line that no record can be read of, or a trial of whose records one lacks something.
            assert re.search(r"line \d+|trial \S+ of search 'mine'", str(error)), error
    assert 30 < refused < 140
    warnings: list[str] = []
    assert list_searches(tmp_path, None, warnings.append) and warnings


def encode_all(state: SearchState) -> None:
    """Check that what is shown of a search can be written."""
    text = json.dumps(
        [state.search.name, state.search.model, state.decisions, list(state.trials)], default=str
    )
    text.encode()


def test_a_bad_journal_hides_no_other_and_is_not_resumed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    storage = StorePaths(tmp_path).storage
    journal_of(storage, "good", list(whole_search("good", 1)))
    bad, shapeless = (SearchPaths(storage, name) for name in ("bad", "shapeless"))
    content = lines()
    values = json.loads(content[1])
    for paths, change in ((bad, {"trial": ["x"]}), (shapeless, {"params": {}, "trial": "t"})):
        paths.folder.mkdir()
        changed = [content[0], json.dumps(values | change), *content[5:]]
        paths.journal.write_text("\n".join(changed) + "\n")
        save_specification(make_spec(name=paths.name), paths)
    monkeypatch.setattr(sys, "argv", ["elsa-tune", "searches", "--format", "json"])
    with pytest.raises(SystemExit) as ended:
        main()
    out, err = capsys.readouterr()
    assert ended.value.code == 0
    assert "good" in {entry["name"] for entry in json.loads(out)}
    assert len(err.splitlines()) == 1 and "bad/journal.jsonl, line 2" in err
    with pytest.raises(StorageError, match=r"line 2 .*must be a text"):
        launch.resume(bad, print)
    with pytest.raises(StorageError, match="does not say what trial 't' is"):
        launch.resume(shapeless, print)


@pytest.mark.parametrize(
    "change",
    [
        {"search_id": "a\0b"},
        {"search_id": "a" * 15 + "\0"},
        {"params": {"target": 10**400}},
        {"params": {"target": "nan"}},
        {"params": {"target": "inf"}},
    ],
)
def test_a_search_with_an_odd_beginning_hides_no_other(
    change: dict[str, Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(tempfile, "gettempdir", lambda: str(tmp_path))
    monkeypatch.chdir(tmp_path)
    storage = StorePaths(tmp_path).storage
    journal_of(storage, "good", list(whole_search("good", 1)))
    odd = SearchPaths(storage, "odd")
    odd.folder.mkdir()
    first, *rest = lines()
    changed = json.dumps(json.loads(first) | change)
    odd.journal.write_text("\n".join([changed, *rest]) + "\n")
    monkeypatch.setattr(sys, "argv", ["elsa-tune", "searches", "--format", "json"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 0
    assert "good" in capsys.readouterr().out
    state = SearchState.replay(read_journal(odd.journal), alive=False)
    if "params" in change:
        with pytest.raises(ResultsError, match="the target of mine cannot be read: "):
            rows_of(state)


def test_an_id_that_no_file_name_can_have_keeps_nothing_elsewhere() -> None:
    overflow = Overflow("mine", "a\0b")
    assert not overflow.add(b"line\n") and overflow.place is None


@pytest.mark.parametrize("answer", [{"operating_point": 3}, {"operating_point": {}}, [{}], "x", 1])
def test_a_strange_answer_is_listed(
    answer: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from elsa_tune.cli.commands.searches import _answer_text

    assert _answer_text(answer)
