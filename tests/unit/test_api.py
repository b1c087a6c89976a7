"""`import elsa_tune`: its names, answers from any source, and rows that a program holds."""

from __future__ import annotations

import inspect
import subprocess
import sys
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import elsa_tune
from elsa_tune.errors import DataError, NoAnswerError, ResultsError, UnknownNameError, UsageError
from elsa_tune.tables.task_file import read_task_file
from elsa_tune.tables.task_frames import write_task

NAMES = ["Answers", "Curves", "Search", "answer", "bundle", "curve", "export", "freeze"]
NAMES += ["load_bundle", "load_search", "resume", "search"]


def results() -> pd.DataFrame:
    """Three seeds of four depths: half of the layers are enough."""
    quality = {0: 0.9, 3: 0.89, 4: 0.84, 6: 0.6}
    return pd.DataFrame(
        {"model": "m", "task": "t", "layers": 6, "frozen_layers": depth, "seed": seed}
        | {"quality": quality[depth] + seed / 1000, "chance": 0.5}
        for depth in quality
        for seed in (1, 2, 3)
    )


def test_these_names_and_no_others() -> None:
    assert sorted(elsa_tune.__all__) == sorted(["__version__", *NAMES])
    for name in NAMES:
        given = getattr(elsa_tune, name)
        assert (given.__doc__ or "").strip() and callable(given)
        if not inspect.isclass(given):
            hints = inspect.signature(given)
            assert hints.return_annotation is not inspect.Signature.empty
    with pytest.raises(AttributeError, match="no attribute 'sarch'"):
        _ = elsa_tune.sarch


def test_nothing_heavy_is_imported_before_it_is_used() -> None:
    code = (
        "import sys, elsa_tune; heavy = {'torch', 'ray', 'mlflow', 'pandas'}\n"
        "print(sorted(heavy & set(sys.modules)))\n"
        "elsa_tune.answer('published'); print(sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n['pandas']\n"


def test_an_error_in_a_dataframe_names_no_file() -> None:
    with pytest.raises(ResultsError, match=r"^the DataFrame, line 2: field 'quality'"):
        elsa_tune.answer(results().assign(quality=90))


def test_a_dataframe_and_its_file_have_one_answer(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    frame = results().set_index("seed", drop=False)  # an index that repeats
    file = tmp_path / "results.csv"
    frame.to_csv(file, index=False)
    [one] = elsa_tune.answer(frame)
    assert [one] == list(elsa_tune.answer(file)) == list(elsa_tune.answer(str(file)))
    assert one.operating_point is not None and one.operating_point.fine_tuned_layers == 2
    assert str(one).startswith("Fine-tune the last 3 of 6 layers: quality 89.2 (")
    [strict] = elsa_tune.answer(frame, target=0.98)
    assert strict.operating_point is not None and strict.operating_point.fine_tuned_layers == 3
    table = elsa_tune.curve(frame).to_dataframe()
    assert list(table["frozen_layers"]) == [0, 3, 4, 6]
    assert list(table["seeds"]) == [3, 3, 3, 3]
    assert capsys.readouterr().out == ""


def test_a_notebook_shows_first_lines_table_and_curve() -> None:
    found = elsa_tune.answer(results())
    shown = found._repr_html_()
    [one] = found
    assert f"<b>{one.first_lines.headline}</b>" in shown and "<li><b>How sure</b>" in shown
    assert "<table" in shown and "<svg" in shown
    assert one._repr_markdown_().startswith(f"**{one.first_lines.headline}**\n\n- **How sure** ")
    assert "<table" in elsa_tune.curve(results())._repr_html_()
    assert list(found.to_dataframe()["operating_point_fine_tuned_layers"]) == [2]


def test_published_numbers_are_a_source() -> None:
    found = elsa_tune.answer("published")
    assert {one.model for one in found} >= {"bert_base", "roberta_base"}


@pytest.mark.parametrize(
    ("source", "error", "words"),
    [
        (results().drop(columns="quality"), ResultsError, "quality"),
        (results().iloc[:0], ResultsError, "no rows|no result|empty"),
        ("no-such-search", UnknownNameError, "no-such-search"),
        (Path("no.csv"), DataError, "no.csv"),
    ],
)
def test_what_is_no_source_is_refused(
    source: Any,
    error: type[Exception],
    words: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises((error, NoAnswerError), match=words):
        elsa_tune.answer(source)
    with pytest.raises(UsageError):
        elsa_tune.answer(results(), target=1.5)


def rows(count: int = 8) -> pd.DataFrame:
    return pd.DataFrame(
        {"said": [f"text {n}" for n in range(count)], "mood": ["good", "bad"] * (count // 2)}
    )


class Dataset:
    """As datasets' Dataset gives its rows."""

    def to_pandas(self) -> pd.DataFrame:
        return rows()


def test_rows_become_a_task_file_named_by_their_content(tmp_path: Path) -> None:
    file = write_task(rows(), tmp_path, "own", "said", "mood")
    task = read_task_file(file)
    assert (task.name, task.classes, task.text_columns) == ("own", ("bad", "good"), ("said",))
    again = write_task(rows().sample(frac=1).sort_index(), tmp_path, "own", ["said"], "mood")
    assert again == file
    assert write_task(rows(10), tmp_path, "own", "said", "mood") != file
    for pair in ((rows(), rows(4)), {"train": Dataset(), "validation": Dataset(), "test": None}):
        kept = read_task_file(write_task(pair, tmp_path, "own", "said", "mood"))
        assert Path(kept.source.evaluation[0]).name == "evaluation.parquet"  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("labels", "classes"),
    [
        ([0, 1] * 4, ("0", "1")),
        ([0.0, 1.0] * 4, ("0", "1")),
        ([True, False] * 4, ("false", "true")),
        ([0.5, 1.25] * 4, ()),
    ],
)
def test_labels_are_classes_unless_they_have_fractions(
    labels: list[Any], classes: tuple[str, ...], tmp_path: Path
) -> None:
    frame = rows().assign(mood=labels)
    task = read_task_file(write_task(frame, tmp_path, "own", "said", "mood"))
    assert task.classes == classes


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (rows().rename(columns={"said": "text"}), "train rows have no column 'said'; they have"),
        (rows().assign(mood=[None, *["bad"] * 7]), "1 of 8 train rows have no label"),
        ((rows(), rows().assign(mood=float("nan"))), "8 of 8 evaluation rows have no label"),
        ({"train": rows()}, "splits train; a task needs `train` and `validation`"),
        ((rows(), [1, 2]), "as a DataFrame or a Dataset, not as a list"),
        (7, "two of them or a DatasetDict, not a int"),
    ],
)
def test_rows_that_are_no_task_are_refused(given: Any, words: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=words):
        write_task(given, tmp_path, "own", "said", "mood")
    assert not list(tmp_path.iterdir())
