"""`import elsa_tune`: its names, answers from any source, and rows that a program holds."""

from __future__ import annotations

import ast
import html
import inspect
import random
import subprocess
import sys
import traceback
from collections.abc import Callable
from dataclasses import fields
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any, get_type_hints

import numpy as np
import pandas as pd
import pytest

import elsa_tune
from elsa_tune import api
from elsa_tune.api import searching
from elsa_tune.api.arguments import time_text
from elsa_tune.errors import (
    DataError,
    ExtensionError,
    NoAnswerError,
    ResultsError,
    RunError,
    StorageError,
    UnknownNameError,
    UsageError,
)
from elsa_tune.searching.inputs import SearchOptions, read_duration
from elsa_tune.searching.request import Request
from elsa_tune.specs.arguments import checked
from elsa_tune.specs.space import FIELDS
from elsa_tune.specs.space_fields import SpaceFields
from elsa_tune.specs.task import Cleaning
from elsa_tune.specs.trial import TrialStatus
from elsa_tune.tasks.frames import write_task
from elsa_tune.tasks.task_file import read_task_file
from elsa_tune.tracking.journal_records import Record
from elsa_tune.tracking.places import StorePaths
from elsa_tune.training.data.preparation import read_splits
from elsa_tune.training.data.texts import read_texts
from tests.recorded_search import (
    journal_of,
    report,
    search_started,
    searched,
    trial_ended,
    trial_started,
)
from tests.unit.tiny_models import make_tiny

NAMES = ["Answers", "Comparisons", "Curves", "Search", "answer", "bundle", "compare", "curve"]
NAMES += ["export", "freeze", "load_bundle", "load_search", "predict", "resume", "search"]
FUNCTIONS = [name for name in NAMES if name[0].islower()]


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


def test_editors_find_the_names_where_they_are_when_they_are_used() -> None:
    """They run nothing, so that what is found when it is used must be written down for them."""
    module = ast.parse(Path(elsa_tune.__file__).read_text())
    found = {}
    for node in ast.walk(module):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("elsa_tune."):
            for alias in node.names:
                assert alias.asname == alias.name  # so that it counts as public
                found[alias.name] = node.module
    assert found == elsa_tune._SURFACE


def test_every_argument_has_a_kind_and_every_field_of_the_space_is_one() -> None:
    for name in FUNCTIONS:
        for argument, hint in get_type_hints(getattr(elsa_tune, name)).items():
            assert hint is not Any, (name, argument)
    options = inspect.signature(elsa_tune.search).parameters.keys()
    assert SpaceFields.__annotations__.keys() == FIELDS[""] - options
    names = {one.name for one in fields(SearchOptions)} - {"settings"}
    assert names <= options


VALID: dict[str, dict[str, Any]] = {
    "answer": {"source": "published"},
    "bundle": {"models": ["a", "b"], "out": "c"},
    "compare": {"source": "published"},
    "curve": {"source": "published"},
    "export": {"source": "moods", "out": "model"},
    "freeze": {"model": None},
    "load_bundle": {"folder": "router"},
    "load_search": {"name": "moods"},
    "predict": {"model": "model", "rows": ["a text"]},
    "resume": {"name": "moods"},
    "search": {"model": "minilm", "task": "stdlib"},
}
ARGUMENTS = [
    (name, argument)
    for name in FUNCTIONS
    for argument in inspect.signature(getattr(elsa_tune, name)).parameters
]


@pytest.mark.parametrize(("name", "argument"), ARGUMENTS)
@pytest.mark.parametrize("wrong", [object(), b"bytes", [object()]])
def test_an_argument_of_a_wrong_kind_is_one_sentence(
    name: str, argument: str, wrong: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    given = {"epochs": wrong} if argument == "fields" else {argument: wrong}
    with pytest.raises(UsageError) as refused:
        getattr(elsa_tune, name)(**{**VALID[name], **given})
    said = str(refused.value)
    assert "\n" not in said and " object at 0x" not in said
    own_words = argument in ("fields", "task", "rows") or (name, argument) == ("freeze", "model")
    assert own_words or said.startswith(f"`{argument}` is a")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: elsa_tune.search(7, "stdlib"), "`model` is 7; give a text or a path"),
        (lambda: elsa_tune.search("m", "t", seeds=True), "`seeds` is True; give a whole number"),
        (lambda: elsa_tune.search("m", "t", seeds="3"), "`seeds` is '3'; give a whole number"),
        (lambda: elsa_tune.search("m", "t", until="x"), "`until` is 'x'; give 'certified'"),
        (
            lambda: elsa_tune.search("m", "t", task_name="x"),
            "`task_name` is for rows that are given",
        ),
        (
            lambda: elsa_tune.bundle("mood", "b"),
            "`models` is 'mood'; give a list of texts or paths",
        ),
        (lambda: elsa_tune.resume("x", max_time=[60]), "a text, a number or a timedelta"),
        (lambda: elsa_tune.predict("m", "r.csv", task=3), "is 3; give a text or a list of texts"),
        (lambda: elsa_tune.predict("m", "r.csv", text={"a": 1}), "`text` is a dict; give a text"),
        (lambda: elsa_tune.freeze(object()), "a object is no transformers model"),  # type: ignore[arg-type]
    ],
)
def test_what_an_argument_is_and_what_to_give(call: Callable[[], Any], words: str) -> None:
    with pytest.raises(UsageError) as refused:
        call()
    assert words in str(refused.value)


def test_numbers_of_numpy_are_numbers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for given in ({"seeds": np.int64(3)}, {"gpu_hours": np.float32(2)}, {"epochs": np.int64(2)}):
        with pytest.raises(UnknownNameError, match="unknown search space 'none'"):
            elsa_tune.search("minilm", "stdlib", space="none", **given)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "argument", ["max_time", "checkpoint", "hung_after", "gpu_hours", "seeds", "cpus_per_trial"]
)
def test_a_span_of_time_of_numpy_is_no_number(argument: str) -> None:
    given: dict[str, Any] = {argument: np.timedelta64(3, "h")}
    for call in (
        lambda: elsa_tune.search("minilm", "stdlib", **given),
        lambda: elsa_tune.resume("moods", **given),
    ):
        with pytest.raises(UsageError, match=f"^`{argument}` is a timedelta64; give a "):
            call()


@pytest.mark.parametrize("given", [90, 90.0, "90s", "1.5m", timedelta(seconds=90)])
def test_a_time_is_a_text_seconds_or_a_timedelta(
    given: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = list[SearchOptions]()

    def stop(options: SearchOptions, task: str) -> None:
        asked.append(options)
        raise UsageError("enough")

    monkeypatch.setattr(searching, "read_request", stop)
    with pytest.raises(UsageError, match="enough"):
        elsa_tune.search("minilm", "stdlib", max_time=given)
    assert asked[0].max_time is not None and read_duration(asked[0].max_time) == 90
    for wrong in (0, -5, float("nan"), timedelta(0)):
        with pytest.raises(UsageError, match="write a time above 0 such as 90s"):
            read_duration(time_text(wrong))


def test_what_is_mended_in_given_rows_goes_into_their_task_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    mended = {"drop_leaked": True, "missing_labels": ["N/A"]}
    with pytest.raises(UnknownNameError, match="unknown search space 'none'"):
        elsa_tune.search("minilm", rows(), text="said", label="mood", space="none", **mended)  # type: ignore[arg-type]
    [file] = tmp_path.glob("mlruns/tasks/own-*/task.yaml")
    cleaning = read_task_file(file).cleaning
    assert (cleaning.drop_leaked, cleaning.missing_labels) == (True, ("N/A",))
    assert {one.name for one in fields(Cleaning)} <= inspect.signature(api.search).parameters.keys()
    with pytest.raises(UsageError, match="`drop_leaked` is for rows that are given here"):
        elsa_tune.search("minilm", "stdlib", drop_leaked=True)


def test_rows_are_kept_in_the_storage_that_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inside = tmp_path / "inside"
    inside.mkdir()
    monkeypatch.chdir(inside)
    folders = {
        ".": "_tasks",
        str(inside / "data"): "data/_tasks",
        "mlruns/searches": "mlruns/tasks",
    }
    for storage, folder in folders.items():
        with pytest.raises(UnknownNameError, match="unknown search space 'none'"):
            elsa_tune.search(
                "minilm", rows(), text="said", label="mood", space="none", storage_path=storage
            )
        [file] = inside.glob(f"{folder}/own-*/task.yaml")
        assert read_task_file(file).classes == ("bad", "good")
        with pytest.raises(UnknownNameError, match="no search is recorded"):
            elsa_tune.load_search("_tasks", storage_path=storage)
    assert list(tmp_path.iterdir()) == [inside]


@pytest.mark.parametrize(
    ("frame", "given", "words"),
    [
        (
            pd.DataFrame({"said": [], "mood": []}, dtype=str),
            {},
            "the given rows: the training rows have 0 different labels in column 'mood' (none)",
        ),
        (
            None,
            {"missing_labels": ["bad"]},
            "the given rows: the training rows have 1 different labels in column 'mood' (good)",
        ),
        (
            None,
            {"regression": True, "merge_labels": True},
            "the given rows: merge_labels is about classes",
        ),
        (None, {"metric": "spearman"}, "metric 'spearman' cannot score task 'own'"),
    ],
)
def test_errors_about_given_rows_name_no_file_of_ours(
    frame: pd.DataFrame | None,
    given: dict[str, Any],
    words: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    task = rows() if frame is None else frame
    with pytest.raises(DataError) as refused:
        elsa_tune.search("minilm", task, text="said", label="mood", **given)
    said = str(refused.value)
    assert said.startswith(words)
    assert "task.yaml" not in said and "regression: true" not in said
    assert "regression=True" in said or "merge_labels" in given


@pytest.mark.parametrize("part", ["training", "evaluation"])
def test_a_bad_cell_of_given_rows_is_said_of_these(
    part: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def begin(request: Request, say: object) -> None:
        read_splits(request.spec.task, request.spec.recipe)

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("elsa_tune.searching.launch.start", begin)
    model = make_tiny("bert", tmp_path / "model", layers=2)
    lists = rows().assign(said=[["a", "text"]] * 8)
    values = rows().assign(mood=[n / 2 for n in range(8)])
    infinite = values.replace(1.5, float("inf"))
    for good, bad, words in (
        (rows(), lists, "row 1 holds a list in column 'said'"),
        (values, infinite, "row 4: label 'inf' of task 'own' is not a finite number"),
    ):
        given = {"training": (bad, good), "evaluation": (good, bad)}[part]
        regression = None if bad is lists else True
        with pytest.raises(DataError, match=f"^the given {part} rows: {words}"):
            elsa_tune.search(model, given, text="said", label="mood", regression=regression)


@pytest.mark.parametrize("place", ["/proc/x", "/dev/null/x"])
def test_rows_that_cannot_be_kept_are_refused(place: str) -> None:
    with pytest.raises(StorageError, match=rf"^rows cannot be kept in {place}/_tasks/own-\w+: .*`"):
        elsa_tune.search("minilm", rows(), text="said", label="mood", storage_path=place)


def test_a_search_is_resumed_where_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    searched(tmp_path / "here")
    search = elsa_tune.load_search("first", storage_path="here")
    with pytest.raises(UsageError, match=r"^`storage_path` is there, but search 'first' is in /"):
        elsa_tune.resume(search, storage_path="there")
    for same in ("here", tmp_path / "here", None):
        with pytest.raises(StorageError, match="has no specification"):
            elsa_tune.resume(search, storage_path=same)


def test_values_show_themselves_on_one_line() -> None:
    answers = elsa_tune.answer(results().assign(metric="accuracy", examples=100_000))
    assert repr(answers[0]) == "Answer(m on t: last 3 of 6 layers, corrected certified)"
    nothing = elsa_tune.answer(results().assign(quality=0.5))
    assert repr(nothing[0]) == "Answer(m on t: none, full model did not learn)"
    assert repr(elsa_tune.curve(results())[0]) == "FreezeCurve(m on t: 4 of 4 depths measured)"
    assert repr(answers) == f"({answers[0]!r},)"


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


def test_columns_of_a_dataframe_are_named_and_may_be_percentages(
    capsys: pytest.CaptureFixture[str],
) -> None:
    frame = results()
    theirs = frame.rename(columns={"frozen_layers": "kept", "seed": "run"}).drop(columns="model")
    theirs["quality"] *= 100
    theirs["chance"] *= 100
    given: dict[str, Any] = {
        "map": {"frozen_layers": "kept", "seed": "run", "model": "=m"},
        "scale": "percent",
    }
    [found] = elsa_tune.answer(theirs, **given)
    [same] = elsa_tune.answer(frame)
    assert found.operating_point is not None and same.operating_point is not None
    assert found.operating_point.candidate == same.operating_point.candidate
    assert found.points[0].quality == pytest.approx(same.points[0].quality)
    said = capsys.readouterr().err
    assert said.startswith("the DataFrame:\n") and "frozen_layers <- kept" in said
    assert len(elsa_tune.curve(theirs, **given)) == 1
    assert len(elsa_tune.compare(theirs, **given)) == 1
    # A number is the value of all rows.
    means = frame[frame["seed"] == 1].drop(columns="seed")
    [of_means] = elsa_tune.curve(means, map={"runs": np.int64(3)})
    assert [point.seeds for point in of_means.points] == [3, 3, 3, 3]


@pytest.mark.parametrize(
    ("source", "given", "words"),
    [
        ("published", {"map": {"seed": "run"}}, "`map` and `scale` percent are for a results"),
        ("moods", {"scale": "percent"}, "`map` and `scale` percent are for a results table"),
        (results(), {"map": {"seed": None}}, "`map` has None for 'seed'; give a column of the"),
        (results(), {"map": {"sede": "run"}}, "unknown column 'sede'"),
        (results(), {"map": {"seed": "run"}}, "unknown column 'run'"),
    ],
)
def test_columns_that_are_named_wrongly_are_refused(
    source: Any, given: dict[str, Any], words: str
) -> None:
    for ask in (elsa_tune.answer, elsa_tune.curve, elsa_tune.compare):
        with pytest.raises(UsageError) as refused:
            ask(source, **given)
        assert str(refused.value).startswith(words)


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


@pytest.mark.parametrize("name", ["r.tsv", "./r.tsv", "R.CSV", "results", "in/results"])
def test_a_text_may_name_any_table(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("in").mkdir()
    results().to_csv(name, index=False, sep="\t" if name.endswith(".tsv") else ",")
    assert list(elsa_tune.answer(name)) == list(elsa_tune.answer(Path(name)))
    assert len(elsa_tune.answer(name)) == 1


def test_a_search_is_asked_by_its_folder_and_a_folder_of_searches_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    folder = searched(StorePaths(tmp_path).storage).folder
    (folder / "ray.json").write_text("{")
    expected = elsa_tune.answer("first")
    for place in (folder, str(folder), "mlruns/searches/first"):
        assert elsa_tune.answer(place) == expected
    for place in (".", "mlruns", "mlruns/searches", folder.parent):
        with pytest.raises(ResultsError) as refused:
            elsa_tune.answer(place)
        said = f"{place} is no results table, but has recorded searches: first; give the folder of"
        assert str(refused.value).startswith(said)
        assert elsa_tune.answer(str(refused.value).partition("such as ")[2]) == expected
    for empty in ("", " "):
        with pytest.raises(UsageError, match=r"^`source` is empty; give a search or its name, "):
            elsa_tune.answer(empty)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the user's home; work in another folder."""
    home = tmp_path / "home"
    work = tmp_path / "work"
    home.mkdir()
    work.mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.chdir(work)
    return home


def test_results_may_lie_in_the_users_home(home: Path) -> None:
    results().to_csv(home / "r.csv", index=False)
    expected = elsa_tune.answer(home / "r.csv")
    assert elsa_tune.answer("~/r.csv") == expected
    assert elsa_tune.answer(Path("~/r.csv")) == expected
    assert elsa_tune.curve("~/r.csv") == elsa_tune.curve(home / "r.csv")
    assert elsa_tune.compare("~/r.csv") == elsa_tune.compare(home / "r.csv")
    searched(home)
    [found] = elsa_tune.answer("~/first/journal.jsonl")
    assert found.search == "first"


def test_models_and_spaces_may_lie_in_the_users_home(home: Path) -> None:
    (home / "model").write_text("no folder")
    (home / "mine.yaml").write_text("epochs: none")
    calls: list[tuple[Callable[[], Any], str]] = [
        (lambda: elsa_tune.predict("~/model", ["a text"]), f"there is no folder {home}/model"),
        (lambda: elsa_tune.load_bundle("~/model"), f"there is no folder {home}/model"),
        (lambda: elsa_tune.bundle(["~/model"], "b"), f"there is no folder {home}/model"),
        (lambda: elsa_tune.bundle(["a"], "~/model"), f"^{home}/model is there already"),
        (lambda: elsa_tune.search("minilm", "stdlib", space="~/mine.yaml"), "epochs"),
    ]
    for call, words in calls:
        with pytest.raises(UsageError, match=words):
            call()


def test_what_is_exported_and_the_rows_of_files_may_lie_in_the_users_home(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    searched(home)
    search = elsa_tune.load_search("first", storage_path="~")
    requests: list[Any] = []
    monkeypatch.setattr("elsa_tune.exporting.model.export", lambda *given: requests.append(given))
    assert elsa_tune.export(search, "~/model", check="~/rows.csv") == home / "model"
    [(request, _)] = requests
    assert request.check == home / "rows.csv"
    asked: list[Any] = []
    monkeypatch.setattr("elsa_tune.exporting.predicting.Predictor", lambda *given, **more: given)
    monkeypatch.setattr(
        "elsa_tune.exporting.predicted_frame.predict_frame", lambda *given: asked.append(given)
    )
    elsa_tune.predict("~/model", "~/rows.csv")
    [((model, *_), rows, *_)] = asked
    assert (model, rows) == (home / "model", home / "rows.csv")


def test_a_recorded_search_is_meant_before_a_file_of_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    searched(StorePaths(tmp_path).storage)
    Path("first").write_text("no table")
    [found] = elsa_tune.answer("first")
    assert found.search == "first"
    for missing in ("frist", "there/r.tsv", "r.tsv"):
        with pytest.raises(UsageError, match=missing):
            elsa_tune.answer(missing)


def test_a_notebook_shows_first_lines_table_and_curve() -> None:
    found = elsa_tune.answer(results())
    shown = found._repr_html_()
    [one] = found
    assert f"<b>{one.first_lines.headline}</b>" in shown and "<li><b>How sure</b>" in shown
    assert "<table" in shown and "<svg" in shown
    assert one._repr_markdown_().startswith(f"**{one.first_lines.headline}**\n\n- **How sure** ")
    assert "<table" in elsa_tune.curve(results())._repr_html_()
    assert list(found.to_dataframe()["operating_point_fine_tuned_layers"]) == [2]


def test_a_notebook_shows_the_joint_answer() -> None:
    both = pd.concat([results(), results().assign(task="cola")])
    found = elsa_tune.answer(both)
    *_, joint = found
    shown = found._repr_html_()
    assert joint.task == "*" and f"<b>{html.escape(joint.first_lines.headline)}</b>" in shown
    assert shown.count(", all tasks together</p>") == 1


def test_a_notebook_shows_an_answer_of_which_nothing_is_measured(tmp_path: Path) -> None:
    table = tmp_path / "exploring.csv"
    table.write_text(
        "model,task,layers,frozen_layers,learning_rate,seed,quality,metric,phase\n"
        "bert,rte,12,0,2e-5,0,0.7,accuracy,explore\n"
        "bert,rte,12,6,2e-5,0,0.6,accuracy,explore\n"
    )
    shown = elsa_tune.answer(table)._repr_html_()
    assert "No answer" in shown and "<svg" not in shown


def test_names_that_look_like_formulas_stay_as_they_are() -> None:
    names = ["=cmd", "'=cmd", "-x", "'quoted'", "two\nlines"]
    table = pd.concat(results().assign(model=name, task=f"@{name}") for name in names)
    answers = elsa_tune.answer(table)
    frame = answers.to_dataframe()
    assert list(frame["model"]) == [one.model for one in answers] == names
    assert list(frame["task"]) == [one.task for one in answers]
    curves = elsa_tune.curve(table).to_dataframe()
    assert list(curves["model"].unique()) == names


@pytest.mark.parametrize(("task", "model"), [("NA", "1e5"), ("=cmd", "'-x"), ("+1", "@one")])
def test_names_in_tables_stay_the_texts_that_they_are(
    tmp_path: Path, task: str, model: str
) -> None:
    names = {"search": "001", "task": task, "model": model}
    records: list[Record] = [search_started("001", task=task)]
    for frozen, quality in ((0, 0.9), (0, 0.89), (3, 0.88), (3, 0.87)):
        key = f"measure-N{frozen}-s{len(records)}"
        records.append(trial_started(key, **names))
        records.append(report(key, 1, quality))
        records.append(trial_ended(key, TrialStatus.COMPLETED, quality))
    journal_of(tmp_path, "001", records)
    search = elsa_tune.load_search("001", storage_path=tmp_path)
    trials = search.trials()
    answers = elsa_tune.answer(trials).to_dataframe()
    comparisons = elsa_tune.compare(trials).to_dataframe()
    for table in (trials, search.to_dataframe(), answers, comparisons):
        for column, name in names.items():
            assert set(table[column]) == {name}
    # What is empty is missing, and numbers are numbers.
    curve = search.to_dataframe()
    assert curve["frozen_layers"].dtype == int and curve["quality"].dtype == float
    assert trials["seed"].dtype == int
    without = elsa_tune.curve(results()).to_dataframe()
    assert without["search"].isna().all() and without["learning_rate"].isna().all()


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


def test_names_from_numpy_are_texts(tmp_path: Path) -> None:
    frame = rows().assign(user=[1, 2] * 4)
    said, mood, user = frame.columns.to_numpy(dtype="str")
    own, odd = np.array(["own", "?"])
    given = {"group": user, "missing_labels": [odd]}
    file = write_task(frame, tmp_path, own, [said], mood, given)
    plain = {"group": "user", "missing_labels": ["?"]}
    assert write_task(frame, tmp_path, "own", ["said"], "mood", plain) == file
    task = read_task_file(file)
    assert (task.name, task.text_columns, task.label_column) == ("own", ("said",), "mood")


def test_what_a_program_notes_of_a_dataframe_is_not_kept(tmp_path: Path) -> None:
    frame = rows()
    frame.attrs = {"origin": np.array([1])}
    file = write_task(frame, tmp_path, "own", "said", "mood")
    assert file == write_task(rows(), tmp_path, "own", "said", "mood")
    assert list(frame.attrs) == ["origin"]


@pytest.mark.parametrize(
    ("labels", "classes"),
    [
        ([0, 1] * 4, ("0", "1")),
        ([0.0, 1.0] * 4, ("0", "1")),
        ([True, False] * 4, ("false", "true")),
        ([0.5, 1.25] * 4, ()),
        (pd.array([0.5, 1.25] * 4, dtype="float64[pyarrow]"), ()),
        (pd.array([0.0, 1.0] * 4, dtype="float64[pyarrow]"), ("0", "1")),
        (pd.Series([0.5, 1, None, 2] * 2, dtype=object), ()),
        (pd.Series([1.0, 2.0, None, 2] * 2, dtype=object), ("1", "2")),
        ([1e19, 2e19] * 4, (str(10**19), str(2 * 10**19))),
    ],
)
def test_labels_are_classes_unless_they_are_values(
    labels: list[Any], classes: tuple[str, ...], tmp_path: Path
) -> None:
    frame = rows().assign(mood=labels)
    task = read_task_file(write_task(frame, tmp_path, "own", "said", "mood"))
    assert task.classes == classes


@pytest.mark.parametrize(
    ("labels", "regression", "classes"),
    [
        ([2.0 * n for n in range(30)], None, 0),
        ([2.0 * n for n in range(30)], False, 30),
        # Class ids that are floats because one is missing.
        ([None, *(float(n) for n in range(29))], None, 29),
        ([float(n) for n in range(30)], True, 0),
        (list(range(30)), None, 30),
        (list(range(30)), True, 0),
        ([0.5 * (n % 2) for n in range(30)], False, 2),
    ],
)
def test_many_floats_are_values_unless_the_caller_says_otherwise(
    labels: list[float], regression: bool | None, classes: int, tmp_path: Path
) -> None:
    frame = rows(30).assign(mood=labels)
    further = {} if regression is None else {"regression": regression}
    task = read_task_file(write_task(frame, tmp_path, "own", "said", "mood", further))
    assert len(task.classes) == classes


@pytest.mark.parametrize("dtype", ["float64", "float64[pyarrow]", "object"])
def test_a_group_of_large_numbers_is_the_same_in_both_parts(dtype: str, tmp_path: Path) -> None:
    train = rows(8).assign(user=pd.Series([1e19, 2.0] * 4, dtype=dtype))
    dev = rows(4).assign(user=pd.Series([2.0, None, 3.0, 1e19], dtype=dtype))
    file = write_task((train, dev), tmp_path, "own", "said", "mood", {"group": "user"})
    splits = read_texts(read_task_file(file))
    of_train, of_dev = splits["train"].groups, splits["evaluation"].groups
    assert of_train is not None and of_dev is not None
    assert np.isin(of_dev, of_train).tolist() == [True, False, False, True]


@pytest.mark.parametrize("kind", ["csv", "frame", "numbers"])
def test_rows_without_a_label_are_skipped_and_counted(kind: str, tmp_path: Path) -> None:
    """In a DataFrame as in a file."""
    frame = rows(40).assign(mood=["good", None, "bad", "bad"] * 10)
    if kind == "numbers":
        frame["mood"] = frame["mood"].map({"good": 1.0, "bad": 0.0})
    file = write_task((frame, frame), tmp_path, "own", "said", "mood")
    if kind == "csv":
        frame.to_csv(tmp_path / "rows.csv", index=False)
        frame.to_csv(tmp_path / "held.csv", index=False)
        file = tmp_path / "task.yaml"
        file.write_text(
            "name: own\nfiles: {train: rows.csv, evaluation: held.csv}\ntext: said\nlabel: mood\n"
        )
    task = read_task_file(file)
    assert task.classes == (("0", "1") if kind == "numbers" else ("bad", "good"))
    train = read_texts(task)["train"]
    assert len(train) == 30
    [note] = train.notes
    assert note.startswith("10 of 40 rows of ") and "skipped: missing mood" in note


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (rows().rename(columns={"said": "text"}), "train rows have no column 'said'; they have"),
        ({"train": rows()}, "splits train; a task needs `train` and `validation`"),
        (
            rows().assign(mood=[1, "x"] * 4),
            "column 'mood' of the train rows holds int and str, and a column has one kind of value",
        ),
        (
            (rows(), rows(2).assign(said=["a", 5])),
            "column 'said' of the evaluation rows holds int and str",
        ),
        (
            rows().assign(mood=[1j, 2j] * 4),
            "column 'mood' of the train rows cannot be kept in a file",
        ),
        (
            pd.concat([rows(), rows()[["said"]]], axis="columns"),
            "the train rows have 2 columns 'said'; rename or drop all but one",
        ),
        ((rows(), [1, 2]), "as a DataFrame or a Dataset, not as a list"),
        (7, "two of them or a DatasetDict, not a int"),
    ],
)
def test_rows_that_are_no_task_are_refused(given: Any, words: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=words):
        write_task(given, tmp_path, "own", "said", "mood")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("text", "label", "words"),
    [
        ("mood", "mood", "`text` and `label` both name the column 'mood'"),
        (["said", "mood"], "mood", "`text` and `label` both name the column 'mood'"),
        (["said", "said"], "mood", "`text` names the column 'said' twice"),
    ],
)
def test_a_column_is_one_thing(text: Any, label: str, words: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=words):
        write_task(rows(), tmp_path, "own", text, label)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("../../x", "`task_name` must be letters, digits, '.', '_' and '-'"),
        ("", "`task_name` must be letters"),
        ("rte", "`task_name` 'rte' is a built-in name"),
        ("n" * 300, "`task_name` has 300 characters; give one of at most 100"),
    ],
)
def test_a_name_is_checked_before_anything_is_written(
    name: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(DataError, match=words):
        write_task(rows(), tmp_path / "searches" / "tasks", name, "said", "mood")
    assert not list(tmp_path.iterdir())


def test_a_search_leaves_pythons_generator_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ray draws from it while it starts."""
    drawn: list[float] = []

    def fail(*given: Any, **named: Any) -> None:
        drawn.append(random.random())
        raise RunError("Ray does not start")

    monkeypatch.setattr("elsa_tune.searching.launch.start", fail)
    monkeypatch.setattr("elsa_tune.searching.launch.resume", fail)
    monkeypatch.setattr("elsa_tune.searching.fetched.fetch_lacking", lambda requests, say: False)
    request = SimpleNamespace(columns="task own")
    monkeypatch.setattr(searching, "read_request", lambda wanted, task: request)
    before = random.getstate()
    with pytest.raises(RunError):
        elsa_tune.search("minilm", "rte")
    with pytest.raises(RunError):
        elsa_tune.resume(elsa_tune.Search("moods", tmp_path))
    assert random.getstate() == before
    assert len(drawn) == 2


@pytest.mark.parametrize(
    "ask",
    [
        lambda: elsa_tune.search("minilm", "stdlib", epchs=3),
        lambda: elsa_tune.answer("nonesuch"),
        lambda: elsa_tune.answer(3),  # type: ignore[arg-type]  # a wrong kind is what is tested
    ],
)
def test_an_error_comes_without_the_frames_and_the_errors_behind_it(
    ask: Callable[[], object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError) as caught:
        ask()
    printed = "".join(traceback.format_exception(caught.value))
    assert printed.count("Traceback") == 1
    frames = traceback.extract_tb(caught.value.__traceback__)
    files = [Path(frame.filename).name for frame in frames]
    assert files == ["test_api.py", "test_api.py", "arguments.py"]


def test_of_an_extension_that_breaks_it_is_shown_where() -> None:
    @checked()
    def ask() -> None:
        raise ExtensionError("package 'moods' cannot be used") from ValueError("in line 3")

    with pytest.raises(ExtensionError) as caught:
        ask()
    assert str(caught.value.__cause__) == "in line 3"
