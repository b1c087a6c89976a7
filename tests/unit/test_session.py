"""The end of a search's session: neither its answer nor its drawings may cost it the end."""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import os
import shutil
import signal
import subprocess
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
import typer

from elsa_tune import testing
from elsa_tune.analysis.answers import answer_rows
from elsa_tune.cli.commands.search import _conclude
from elsa_tune.errors import NoAnswerError, RunError
from elsa_tune.report import folder as report_folder
from elsa_tune.searching import answering, launch, session
from elsa_tune.searching.cluster import ray_session
from elsa_tune.searching.cluster.shares import settled_recipe
from elsa_tune.searching.planning.known import KnownTrial, measured_rates
from elsa_tune.searching.planning.strategies import strategy_of
from elsa_tune.searching.specification import load_specification, save_specification
from elsa_tune.searching.startup import versions
from elsa_tune.searching.startup.versions import versions_here, with_versions
from elsa_tune.searching.tune.stopper import SearchStopper
from elsa_tune.specs.adapt.freeze import FULL_MODEL, FreezeDepth
from elsa_tune.specs.rate_space import RateList
from elsa_tune.specs.result_row import ResultRow
from elsa_tune.specs.search import Extension, Resources, SearchSpec
from elsa_tune.specs.trial import Phase, Precision, TrialStatus
from elsa_tune.tracking import stores
from elsa_tune.tracking.forwarder import Forwarder
from elsa_tune.tracking.journal import Journal, is_held, read_journal
from elsa_tune.tracking.journal_records import Record, SearchEnded, SearchStatus
from elsa_tune.tracking.paths import SearchPaths
from elsa_tune.tracking.places import StorePaths
from elsa_tune.tracking.state import SearchState
from elsa_tune.tracking.store import AccessRefusedError
from elsa_tune.training.machine import Gpu
from tests.recorded_search import search_started
from tests.searching import wait_for
from tests.unit.result_rows import falling_curve, row
from tests.unit.search_examples import DEPTHS, make_spec
from tests.unit.tiny_trials import make_data


def fail(*args: Any, **named: Any) -> None:
    raise ValueError("operands could not be broadcast")


def test_whatever_the_answer_meets_is_said_and_survived(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(answering, "freeze_curves", fail)
    said: list[str] = []
    paths = SearchPaths(tmp_path, "mine")
    ended = paths, SearchStatus.COMPLETED, said.append
    assert answering.answers_of(make_spec(), SearchState.replay([]), *ended) == []
    assert said == ["no answer could be computed: ValueError: operands could not be broadcast"]


def test_a_drawing_that_fails_is_said_and_survived(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(report_folder, "write_report", fail)
    said: list[str] = []
    paths = SearchPaths(tmp_path, "mine")
    assert not answering.has_drawn(SearchState.replay([]), paths, [], [], said.append)
    assert said == ["no report was drawn: ValueError: operands could not be broadcast"]


@pytest.mark.parametrize(
    ("units", "precision"), [([True, True], Precision.BF16), ([True, False], Precision.FP32)]
)
def test_a_mixed_cluster_has_one_precision(units: list[bool], precision: Precision) -> None:
    gpus = [
        Gpu(torch="2.13", name="GPU", memory=16 * 2**30, has_bf16=has, has_flash=has)
        for has in units
    ]
    spec = make_spec(resources=Resources(cpus=1, gpus=0.5))
    said: list[str] = []
    assert settled_recipe(spec, gpus, said.append).precision is precision
    assert said == []


Said = list[tuple[str, str]]


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch) -> Said:
    """Return what a session's board was told; nothing is trained, sent, answered or drawn."""
    told: Said = []
    nothing: Any = SimpleNamespace(
        offer=lambda record: None, close=lambda: 0, finish=lambda *_: 0, lag=0, uri="", trouble=""
    )
    monkeypatch.setattr(session, "Forwarder", lambda *given: SimpleNamespace(start=lambda: nothing))
    monkeypatch.setattr(session, "answers_of", lambda *given: [])
    for way in ("phase", "stopping"):
        monkeypatch.setattr(
            session.Board, way, lambda self, message, way=way: told.append((way, message))
        )
    return told


def ended(
    monkeypatch: pytest.MonkeyPatch,
    folder: Path,
    run: Callable[[], Any],
    artifacts: str | None = None,
) -> SearchStatus:
    """How a session ends whose search does this."""
    sink = SimpleNamespace(name="a store")
    nothing: Any = SimpleNamespace(uri="", sink=lambda journal: sink)
    monkeypatch.setattr(session, "SearchRun", lambda *given: SimpleNamespace(run=run))
    paths = SearchPaths(folder, "mine")
    before = [signal.signal(number, signal.SIG_DFL) for number in (signal.SIGINT, signal.SIGHUP)]
    try:
        with contextlib.suppress(OSError), Journal(paths.journal) as journal:
            session.run_session(make_spec(artifacts=artifacts), journal, nothing, nothing)
    finally:
        for number, handler in zip((signal.SIGINT, signal.SIGHUP), before, strict=True):
            signal.signal(number, handler)
    return SearchState.replay(read_journal(paths.journal)).status


def test_a_search_whose_terminal_is_closed_was_interrupted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: Said
) -> None:
    def closed() -> None:
        with contextlib.suppress(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGHUP)
        raise OSError(errno.EIO, "Input/output error")

    assert ended(monkeypatch, tmp_path, closed) is SearchStatus.INTERRUPTED


@pytest.mark.parametrize(
    ("lag", "status", "waits"),
    [
        (101, SearchStatus.COMPLETED, ["sending 101 records to a store", "finish"]),
        (100, SearchStatus.TIME_UP, ["finish"]),
        (101, SearchStatus.INTERRUPTED, ["close"]),
    ],
)
def test_the_end_waits_for_the_store_unless_somebody_is_in_a_hurry(
    lag: int,
    status: SearchStatus,
    waits: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    said: Said,
) -> None:
    done: list[str] = []
    forwarder = SimpleNamespace(
        offer=lambda record: None,
        close=lambda: done.append("close"),
        finish=lambda is_hurried: done.append("finish"),
        lag=lag,
        trouble="",
    )
    started = SimpleNamespace(start=lambda: forwarder)
    monkeypatch.setattr(session, "Forwarder", lambda *given: started)
    monkeypatch.setattr(session.Board, "say", lambda self, line: done.append(line))

    def run() -> SearchEnded:
        if status is SearchStatus.INTERRUPTED:
            os.kill(os.getpid(), signal.SIGINT)
        return SearchEnded(status=status)

    assert ended(monkeypatch, tmp_path, run) is status
    assert done == waits


def test_the_board_is_told_that_the_store_refuses_access(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: Said
) -> None:
    class Refusing:
        """A store that lets nobody write, and one record that it was offered."""

        name = "a store"
        uri = "records://host/db"

        def begin_again(self) -> None: ...

        def learn(self, record: Record) -> None: ...

        def send(self, batch: Sequence[Record]) -> None:
            raise AccessRefusedError

        def trouble(self, error: Exception) -> str:
            return "lets you read alone"

    monkeypatch.setattr(session, "Forwarder", Forwarder)
    lines: list[str] = []
    told = threading.Event()

    def tell(board: object, line: str) -> None:
        lines.append(line)
        told.set()

    monkeypatch.setattr(session.Board, "say", tell)
    paths = SearchPaths(tmp_path, "mine")
    store: Any = SimpleNamespace(uri=Refusing.uri, sink=lambda journal: Refusing())
    with Journal(paths.journal) as journal:
        running = session._Session(make_spec(), paths, journal, store)
        running.record.write(search_started("mine"))
        assert told.wait(60)
        assert running._forwarder.close(0.1) == 1
    assert lines == [
        "a store at records://host/db lets you read alone; the search goes on, its journal has "
        "all, and what is missing is sent as soon as that is mended"
    ]


def test_a_search_whose_place_another_has_ends_in_a_sentence_and_leaves_that_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: Said
) -> None:
    lines: list[str] = []
    monkeypatch.setattr(session.Board, "say", lambda self, line: lines.append(line))
    paths = SearchPaths(tmp_path, "mine")
    with contextlib.ExitStack() as other:

        def deleted_and_begun_again() -> SearchEnded:
            shutil.rmtree(paths.folder)
            journal = other.enter_context(Journal(paths.journal))
            journal.append(search_started("mine", search_id="another"))
            return SearchEnded(status=SearchStatus.COMPLETED)

        with pytest.raises(RunError, match=r"^the folder of search 'mine' was deleted"):
            ended(monkeypatch, tmp_path, deleted_and_begun_again)
        assert is_held(paths.lock)
    assert [record.kind for record in read_journal(paths.journal)] == ["search_started"]
    names = {file.name for file in paths.folder.iterdir()}
    assert names == {"journal.jsonl", "journal.lock", "journal.holder"}
    assert lines == []


def test_a_search_whose_place_another_has_leaves_its_copy_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: Said
) -> None:
    lines: list[str] = []
    monkeypatch.setattr(session.Board, "say", lambda self, line: lines.append(line))
    paths = SearchPaths(tmp_path, "mine")
    paths.folder.mkdir()
    paths.specification.write_text('{"search_id": "its own"}')
    copy = tmp_path / "kept" / "mine"
    kept: dict[str, bytes] = {}
    with contextlib.ExitStack() as other:

        def deleted_and_begun_again() -> SearchEnded:
            wait_for(lambda: (copy / "journal" / "000000000000.jsonl").exists())
            kept.update(files_of(copy))
            shutil.rmtree(paths.folder)
            journal = other.enter_context(Journal(paths.journal))
            journal.append(search_started("mine", search_id="another"))
            return SearchEnded(status=SearchStatus.COMPLETED)

        with pytest.raises(RunError, match=r"^the folder of search 'mine' was deleted"):
            ended(monkeypatch, tmp_path, deleted_and_begun_again, str(tmp_path / "kept"))
    assert files_of(copy) == kept and len(kept) == 2
    (line,) = lines
    assert line.endswith("`storage_path`; nothing more is copied from this machine")


def files_of(copy: Path) -> dict[str, bytes]:
    """Return what a folder has of a search, but for the note of its driver."""
    files = [file for file in copy.rglob("*") if file.is_file() and file.name != "lease.json"]
    return {str(file.relative_to(copy)): file.read_bytes() for file in files}


def test_a_run_ends_once_another_search_has_its_place() -> None:
    limit: Any = SimpleNamespace(has_passed=lambda: False)
    repeats: Any = SimpleNamespace(too_many=None)
    interruption: Any = SimpleNamespace(requested=False)
    watch: Any = SimpleNamespace(lost=None, unfit=None)
    for is_taken in (False, True):
        stopper = SearchStopper(limit, repeats, interruption, watch, lambda taken=is_taken: taken)
        assert stopper.stop_all() is is_taken


def test_ctrl_c_is_shown_before_anything_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: Said
) -> None:
    def interrupted() -> SearchEnded:
        os.kill(os.getpid(), signal.SIGINT)
        assert said == [("stopping", "Ctrl-C once more stops at once")]
        return SearchEnded(status=SearchStatus.INTERRUPTED)

    assert ended(monkeypatch, tmp_path, interrupted) is SearchStatus.INTERRUPTED


TRIED = ((1e-5, 0.7), (2e-5, 0.9), (5e-5, 0.7), (1e-4, 0.7))
FURTHER = ", then outward from a best rate at the border"


@pytest.mark.parametrize(
    ("tries_left_out", "said"),
    [
        ((), []),
        ((3, 7, 11), [f"exploring: 2 trials over 2 depths{FURTHER}"]),
        ((6, 7), [f"exploring: 2 trials over 1 depth{FURTHER}"]),
        ((0, 1), [f"exploring: 2 trials over the full model{FURTHER}"]),
    ],
)
def test_a_resumed_search_announces_what_is_left_to_explore(
    tries_left_out: tuple[int, ...], said: list[str]
) -> None:
    depths = DEPTHS[:3]
    rates = RateList(values=tuple(rate for rate, _ in TRIED))
    spec = make_spec(candidates=depths, explored=depths, tries=4, rates=rates, extend=Extension())
    known = []
    for depth in depths:
        for rate, quality in TRIED:
            known.append(ended_trial(spec, Phase.EXPLORE, depth, rate, quality))
    left = [one for place, one in enumerate(known) if place not in tries_left_out]
    # One depth is being measured already, and keeps its rate.
    left.append(ended_trial(spec, Phase.MEASURE, depths[2], 2e-5, 0.9))
    told: list[str] = []
    resumed: Any = SimpleNamespace(
        _plan=SimpleNamespace(known=left, strategy=strategy_of(spec), lacks_probe=False),
        _rates=measured_rates(left),
        _board=SimpleNamespace(phase=told.append),
    )
    session.SearchRun._announce(resumed)
    assert told == said


@pytest.mark.parametrize(("limit", "said"), [(12, ""), (13, FURTHER), (None, FURTHER)])
def test_what_a_limit_leaves_no_trials_for_is_not_announced(limit: int | None, said: str) -> None:
    depths = DEPTHS[:3]
    spec = make_spec(
        candidates=depths,
        explored=depths,
        tries=4,
        rates=RateList(values=tuple(rate for rate, _ in TRIED)),
        extend=Extension(),
        exploring_limit=limit,
    )
    assert strategy_of(spec).further_words == said


def ended_trial(
    spec: SearchSpec, phase: Phase, depth: FreezeDepth, rate: float, quality: float
) -> KnownTrial:
    return KnownTrial(
        trial=spec.trial(phase, depth, rate, 0),
        status=TrialStatus.COMPLETED,
        qualities=(quality,) * spec.recipe.evaluations,
    )


def test_while_the_reference_runs_there_is_not_yet_an_answer() -> None:
    def so_far(*rows: ResultRow) -> str | None:
        return answering.provisional(lambda: list(rows), 0.9)

    explored = row(FULL_MODEL, 0.8, phase=Phase.EXPLORE)
    frozen = [row(FreezeDepth(3, True), 0.88, seed=seed) for seed in (1, 2, 3)]
    full = [row(FULL_MODEL, 0.9, seed=seed) for seed in (1, 2, 3)]
    assert so_far() is None
    assert so_far(explored) == so_far(*frozen) == so_far(*full) == "not yet"
    assert "3 of 6 layers" in (so_far(*full, *frozen) or "")


def test_a_search_is_answered_at_the_target_that_it_walked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [row(FULL_MODEL, 0.9, seed=seed) for seed in (1, 2, 3)]
    rows += [row(FreezeDepth(3, True), 0.83, seed=seed) for seed in (1, 2, 3)]
    monkeypatch.setattr(answering, "rows_of", lambda state, folder: rows)
    ended = SearchPaths(tmp_path, "mine"), SearchStatus.COMPLETED, lambda message: None
    for target, layers in ((0.9, 3), (0.95, 6)):
        spec = make_spec(target=target)
        [answer] = answering.answers_of(spec, SearchState.replay([]), *ended)
        assert answer.operating_point is not None
        assert (answer.target, answer.operating_point.fine_tuned_layers) == (target, layers)


@pytest.mark.parametrize(
    "status",
    [
        SearchStatus.COMPLETED,
        SearchStatus.TIME_UP,
        SearchStatus.INTERRUPTED,
        SearchStatus.FAILED,
    ],
)
def test_what_to_type_next_is_a_line_of_the_answer(
    status: SearchStatus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The model, where the plan was carried out; before that, the rest of the plan."""
    rows = [dataclasses.replace(one, trial=f"{n}") for n, one in enumerate(falling_curve())]
    rows = [dataclasses.replace(one, search="mine") for one in rows]
    monkeypatch.setattr(answering, "rows_of", lambda state, folder: rows)
    ended = SearchPaths(tmp_path, "mine"), status, lambda message: None
    [answer] = answering.answers_of(make_spec(name="mine"), SearchState.replay([]), *ended)
    [step] = [text for label, text in answer.first_lines.lines if label == "Next"]
    if status is SearchStatus.COMPLETED:
        assert step.endswith(f"elsa-tune export mine --storage-path {tmp_path} --out mine-model")
        assert answer.first_lines.headline.startswith("Fine-tune the last 3 of 6 layers ")
    else:
        assert step == f"elsa-tune resume mine --storage-path {tmp_path}"
        assert answer.first_lines.headline.startswith("So far: fine-tune the last 3 of 6 layers ")


def test_why_there_is_no_answer_is_said_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (answer,) = answer_rows([row(FULL_MODEL, 0.9, seed=seed) for seed in (1, 2, 3)])
    finished = answering.Finished(
        make_spec(name="mine"),
        SearchPaths(tmp_path, "mine"),
        SearchStatus.COMPLETED,
        message="",
        answers=(answer,),
    )
    with pytest.raises(typer.Exit) as ended:
        _conclude(finished)
    assert ended.value.exit_code == NoAnswerError.exit_status
    shown = capsys.readouterr()
    assert " ".join((shown.out + shown.err).split()).count(answer.sentence) == 1
    with pytest.raises(NoAnswerError, match="no trial has a result"):
        _conclude(dataclasses.replace(finished, answers=()))


def test_rows_that_were_skipped_are_said_before_ray_starts() -> None:
    said: list[str] = []
    skipped = "1 of 4 rows of train.tsv skipped: missing text (line 3)"
    launch._say_ready(dataclasses.replace(make_data(), notes=(skipped,)), said.append)
    assert said == [f"note: {skipped}", "starting Ray"]


def test_a_folder_that_was_moved_has_its_store_with_it(tmp_path: Path) -> None:
    here, there = StorePaths(tmp_path / "here"), StorePaths(tmp_path / "there")
    paths = SearchPaths(here.storage, "mine")
    paths.folder.mkdir(parents=True)
    spec = make_spec(tracking_uri=here.tracking_uri())
    save_specification(spec, paths)
    assert load_specification(paths) == spec
    here.working_directory.rename(there.working_directory)
    moved = load_specification(SearchPaths(there.storage, "mine"))
    assert moved.tracking_uri == there.tracking_uri()


def test_a_store_that_was_written_whole_is_read_as_before(tmp_path: Path) -> None:
    paths = SearchPaths(StorePaths(tmp_path).storage, "mine")
    paths.folder.mkdir(parents=True)
    uri = StorePaths(tmp_path).tracking_uri()
    save_specification(make_spec(tracking_uri=uri), paths)
    text = paths.specification.read_text()
    assert uri not in text
    paths.specification.write_text(text.replace("sqlite:///mlflow.db", uri))
    assert load_specification(paths).tracking_uri == uri


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
def test_only_a_repository_of_the_packages_own_files_is_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def git(*words: str) -> str:
        named = ("-c", "user.name=me", "-c", "user.email=me@here")
        command = ["git", "-C", str(tmp_path), *named, *words]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()

    def recorded() -> str:
        return versions_here()["version.git_commit"]

    file = tmp_path / ".venv" / "elsa_tune" / "searching" / "startup" / "versions.py"
    file.parent.mkdir(parents=True)
    file.write_text("")
    monkeypatch.setattr(versions, "__file__", str(file))
    assert recorded() == "unknown"
    git("init", "--quiet")
    git("commit", "--quiet", "--allow-empty", "--message", "a project of somebody's")
    assert recorded() == "unknown"
    git("add", "--force", str(file))
    git("commit", "--quiet", "--message", "the package itself")
    assert recorded() == git("rev-parse", "HEAD")


def test_another_version_than_the_search_began_with_is_said_and_recorded() -> None:
    here = versions_here()
    said: list[str] = []
    same = make_spec(versions=here)
    assert with_versions(same, said.append) == same and said == []
    before = {**here, "version.elsa-tune": "0.0.1", "version.torch": "1.0"}
    resumed = with_versions(make_spec(versions=before), said.append)
    assert resumed.versions == here
    now = f"elsa-tune {here['version.elsa-tune'][:12]}, torch {here['version.torch'][:12]}"
    assert said == [
        "note: search 'example' was started with elsa-tune 0.0.1, torch 1.0; this session trains "
        f"with {now}, and chooses and certifies by the policy that the search was started with"
    ]
    # One recorded before versions were: nothing to compare.
    assert with_versions(make_spec(), said.append).versions == here and len(said) == 1


def test_ctrl_c_ends_a_pretended_search_as_it_ends_any_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended = SearchStatus.INTERRUPTED

    def run_session(
        spec: SearchSpec, journal: Journal, *given: object, **named: object
    ) -> answering.Finished:
        folder = journal.path.parent
        paths = SearchPaths(folder.parent, folder.name)
        return answering.Finished(spec, paths, ended, message="", answers=())

    monkeypatch.setattr(session, "run_session", run_session)
    monkeypatch.setattr(ray_session, "ray_session", lambda address: contextlib.nullcontext(Mock()))
    monkeypatch.setattr(stores, "store_at", Mock())
    spec = testing.example_spec()
    with pytest.raises(KeyboardInterrupt):
        testing.search(spec, Mock(), tmp_path)
    ended = SearchStatus.TIME_UP
    assert not testing.search(spec, Mock(), tmp_path).trials
