"""A study as a plan: which searches, what was shrunk, what is left, how long it takes."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import signal
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from elsa_tune.cli.app import app
from elsa_tune.cli.commands.reproduce import conclude
from elsa_tune.errors import (
    ElsaTuneError,
    InterruptedSearchError,
    RunError,
    SpaceError,
    StorageError,
    TrackingError,
    UsageError,
)
from elsa_tune.results.published import Study
from elsa_tune.searching import several
from elsa_tune.searching.cluster import ray_session
from elsa_tune.searching.inputs import SearchOptions
from elsa_tune.searching.planning.strategies import strategy_of
from elsa_tune.searching.probe_time import training_seconds
from elsa_tune.searching.request import Request
from elsa_tune.searching.several import carry_out, plan_of_recorded
from elsa_tune.searching.specification import save_specification, with_seeds
from elsa_tune.specs.adapt.freeze import FULL_MODEL, FreezeDepth
from elsa_tune.specs.search import SearchSpec
from elsa_tune.specs.trial import Phase, Precision, TrialStatus
from elsa_tune.specs.trial_facts import TrialFacts
from elsa_tune.studies.protocols import PROTOCOLS, Scale, StudySize, asked, published
from elsa_tune.studies.reproduction import StudyRun, plan_study, read_study
from elsa_tune.tracking.journal import Journal
from elsa_tune.tracking.journal_records import (
    Record,
    SearchEnded,
    SearchStarted,
    SearchStatus,
    TrialEnded,
    TrialStarted,
)
from elsa_tune.tracking.params import read_params
from elsa_tune.tracking.paths import SearchPaths
from tests.recorded_search import probed

DEPTHS = tuple(FreezeDepth.of(n) for n in (0, 3, 4, 5, 6))


def request(
    folder: Path,
    study: Study = Study.ELSA,
    task: str = "rte",
    train_size: int | None = None,
    seeds: int = 2,
) -> Request:
    """One search of a study with MiniLM."""
    wanted = StudySize(seeds, (task,), (train_size,))
    (search,) = plan_study(study, Scale.FULL, ["minilm"], wanted, kept_in(folder)).searches
    return search


def kept_in(folder: Path) -> SearchOptions:
    uri = f"sqlite:///{folder}/mlflow.db"
    return SearchOptions(
        model="any", task=["any"], storage_path=f"{folder}/searches", tracking_uri=uri
    )


def spec_of(search: Request) -> SearchSpec:
    """Return what a search's specification is once it has started."""
    spec = search.spec
    settled = dataclasses.replace(spec.recipe, precision=Precision.FP32)
    return dataclasses.replace(spec, recipe=settled)


def record(search: Request, records: list[Record]) -> None:
    """Put a search on disk as if it had run."""
    paths = search.paths
    paths.check_writable()
    save_specification(spec_of(search), paths)
    with Journal(paths.journal) as journal:
        for one in records:
            journal.append(one)


def trials(search: Request, keep: int | None = None, **metrics: float) -> list[Record]:
    """Return the records of the whole plan's trials, or of its first few."""
    spec = spec_of(search)
    planned = [
        *(spec.trial(Phase.EXPLORE, FULL_MODEL, rate, 0) for rate in spec.rates.values or ()),
        *(
            spec.trial(Phase.MEASURE, depth, 3e-5, seed)
            for seed in spec.measuring_seeds
            for depth in spec.candidates
        ),
    ]
    found: list[Record] = []
    for trial in planned[:keep]:
        params: dict[str, Any] = {
            "model": "minilm",
            "task": trial.task.name,
            "phase": trial.phase.value,
            "seed": trial.seed,
            "learning_rate": trial.learning_rate,
            "frozen_layers": trial.candidate.frozen_layers,
            "embeddings_frozen": trial.candidate.embeddings_frozen,
            "layers": 6,
        }
        found.append(TrialStarted(trial=trial.key, params=read_params(params)))
        found.append(
            TrialEnded(
                trial=trial.key, status=TrialStatus.COMPLETED, metrics={"quality": 0.6, **metrics}
            )
        )
    return found


def began(search: Request) -> SearchStarted:
    return SearchStarted(
        name=search.name, search_id="1", attempt=1, model="minilm", task=search.spec.task.name
    )


def finished(search: Request) -> Request:
    """Record the search with all its trials, and return it."""
    record(search, [began(search), *trials(search), SearchEnded(status=SearchStatus.COMPLETED)])
    return search


# ---- the plan ----


def test_names_follow_from_study_model_task_and_size(tmp_path: Path) -> None:
    assert request(tmp_path).name == "elsa-minilm-rte"
    assert request(tmp_path, train_size=1000).name == "elsa-minilm-rte-1000"
    # At most so many: all of RTE's.
    assert request(tmp_path, train_size=2490).name == "elsa-minilm-rte"
    small = request(tmp_path, Study.LOW_RESOURCE, "sst2", 50)
    assert small.name == "low-resource-minilm-sst2-50"


def test_the_papers_search_is_a_line_search_and_five_seeds_from_half_of_the_layers(
    tmp_path: Path,
) -> None:
    spec = request(tmp_path, seeds=5).spec
    assert spec.candidates == DEPTHS
    assert spec.explored == (FULL_MODEL,) and strategy_of(spec).exploring_trials == 5
    assert spec.rates.values == (1e-5, 2e-5, 3e-5, 4e-5, 5e-5)
    assert strategy_of(spec).measuring_trials == 25 and spec.asha is None
    assert spec.recipe.frozen_dropout and spec.recipe.train_size is None


def test_the_blogs_search_is_one_rate_ten_epochs_and_the_best_of_them(tmp_path: Path) -> None:
    spec = request(tmp_path, Study.LOW_RESOURCE, "cola", 50, seeds=5).spec
    assert [depth.label for depth in spec.candidates] == [
        "0",
        "embeddings",
        "1",
        "2",
        "4",
        "5",
        "6",
    ]
    assert strategy_of(spec).exploring_trials == 0 and spec.rates.values == (5e-5,)
    assert strategy_of(spec).measuring_trials == 35
    assert (spec.recipe.epochs, spec.recipe.warmup_ratio, spec.recipe.train_size) == (10, 0.1, 50)
    assert spec.recipe.selection.value == "best_epoch"
    assert spec.task.metric.value == "accuracy"


def test_more_seeds_go_to_the_recorded_search_and_fewer_take_none_away(tmp_path: Path) -> None:
    record(request(tmp_path, seeds=3), [])
    assert request(tmp_path, seeds=5).seeds == 5
    assert request(tmp_path, seeds=2).seeds == 3


def test_a_name_that_another_recipe_has_is_refused(tmp_path: Path) -> None:
    search = request(tmp_path)
    other = dataclasses.replace(search.spec.recipe, epochs=7)
    record(dataclasses.replace(search, spec=dataclasses.replace(search.spec, recipe=other)), [])
    with pytest.raises(StorageError, match=r"here epochs 3 \(recorded: 7\).*`storage_path`"):
        request(tmp_path)


def test_two_models_of_one_name_are_refused(tmp_path: Path) -> None:
    wanted = StudySize(2, ("rte",), (None,))
    with pytest.raises(UsageError, match="would share the search name 'elsa-minilm-rte'"):
        plan_study(Study.ELSA, Scale.FULL, ["minilm", "minilm"], wanted, kept_in(tmp_path))


# ---- what is there, and what is left ----


def test_before_anything_ran_all_is_left(tmp_path: Path) -> None:
    found = plan_of_recorded(request(tmp_path))
    assert found.state.status_text == "not begun" and not found.is_complete
    assert found.trials == 15
    assert found.left == Counter({FULL_MODEL: 7, **dict.fromkeys(DEPTHS[1:], 2)})


def test_what_was_interrupted_has_the_rest_left(tmp_path: Path) -> None:
    search = request(tmp_path)
    ended = SearchEnded(status=SearchStatus.INTERRUPTED)
    done = [*probed(0.6, search.name), *trials(search, keep=7)]
    record(search, [began(search), *done, ended])
    found = plan_of_recorded(search)
    assert found.state.status_text == "interrupted"
    assert found.left == Counter({FULL_MODEL: 1, DEPTHS[1]: 1, **dict.fromkeys(DEPTHS[2:], 2)})


def test_what_is_finished_is_complete_until_more_seeds_are_asked_for(tmp_path: Path) -> None:
    search = finished(request(tmp_path))
    found = plan_of_recorded(search)
    assert found.is_complete and not found.left
    more = plan_of_recorded(dataclasses.replace(search, spec=with_seeds(search.spec, 4)))
    assert not more.is_complete
    assert more.left == Counter(dict.fromkeys(DEPTHS, 2))


def test_a_completed_search_is_done_whatever_of_its_exploring_is_missing(tmp_path: Path) -> None:
    search = request(tmp_path)
    ended = SearchEnded(status=SearchStatus.COMPLETED)
    record(search, [began(search), *trials(search)[2:], ended])
    assert plan_of_recorded(search).is_complete


@pytest.mark.parametrize("how", [TrialStatus.FAILED, TrialStatus.DIVERGED])
def test_a_completed_search_has_left_what_it_gave_up_and_not_what_diverged(
    tmp_path: Path, how: TrialStatus
) -> None:
    search = request(tmp_path)
    begun, end, *rest = trials(search)
    assert isinstance(end, TrialEnded)
    given_up = dataclasses.replace(end, status=how, metrics={}, message="a worker died")
    ended = SearchEnded(status=SearchStatus.COMPLETED)
    record(search, [began(search), begun, given_up, *rest, ended])
    found = plan_of_recorded(search)
    left = Counter({FULL_MODEL: 1}) if how is TrialStatus.FAILED else Counter()
    assert found.left == left and found.is_complete == (not left)


def test_mismatched_mnli_is_read_from_the_same_trials(tmp_path: Path) -> None:
    search = request(tmp_path, task="mnli", seeds=1)
    record(search, [began(search), *trials(search, mnli_mismatched=0.4)])
    results = read_study(of(search))
    assert len(results.rows) == 10
    ours = [(one.curve.task, one.ours.quality) for one in results.table]
    assert ours == [("mnli", 0.6)] * 5 + [("mnli_mismatched", 0.4)] * 5
    # It is judged by it, not searched on it.
    assert {answer.task for answer in results.answers} == {"mnli"}


def test_a_search_that_was_exported_is_read_as_before(tmp_path: Path) -> None:
    search = finished(request(tmp_path))
    before = read_study(of(search))
    final = spec_of(search).trial(Phase.FINAL, FULL_MODEL, 3e-5, 9)
    start = next(one for one in trials(search) if isinstance(one, TrialStarted))
    assert isinstance(start.params, TrialFacts)
    params = dataclasses.replace(start.params, phase=Phase.FINAL, seed=9)
    with Journal(search.paths.journal) as journal:
        journal.append(TrialStarted(trial=final.key, params=params))
    after = read_study(of(search))
    assert not after.unread and (after.rows, after.left) == (before.rows, before.left)


def test_what_has_not_begun_has_no_results(tmp_path: Path) -> None:
    results = read_study(of(request(tmp_path)))
    assert not results.rows and not results.table and results.left == 15


# ---- carrying it out ----


@pytest.fixture
def no_checks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor a Ray."""
    monkeypatch.setattr(several, "_check_inputs", lambda searches: None)
    monkeypatch.setattr(
        ray_session,
        "ray_session",
        lambda address, packages: contextlib.nullcontext(ray_session.RaySession(int)),
    )


def two(folder: Path) -> list[Request]:
    return [request(folder), request(folder, task="cola")]


def of(*searches: Request) -> StudyRun:
    return StudyRun(study=Study.ELSA, searches=searches, heading="Here.")


@pytest.mark.usefixtures("no_checks")
@pytest.mark.parametrize("error", [RunError, SpaceError, StorageError, TrackingError])
def test_a_search_that_fails_does_not_keep_the_next_from_running(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: type[ElsaTuneError]
) -> None:
    asked = []

    def start(request: Any, say: Any) -> Any:
        asked.append(request.name)
        raise error("every trial failed")

    monkeypatch.setattr(several, "start", start)
    failed = carry_out(two(tmp_path), lambda message: None)
    assert asked == ["elsa-minilm-rte", "elsa-minilm-cola"]
    assert failed == dict.fromkeys(asked, "every trial failed")


@pytest.mark.usefixtures("no_checks")
def test_an_interrupted_search_ends_the_plan(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def start(request: Any, say: Any) -> Any:
        asked.append(request.name)
        raise InterruptedSearchError("interrupted")

    monkeypatch.setattr(several, "start", start)
    with pytest.raises(InterruptedSearchError, match="the same command goes on"):
        carry_out(two(tmp_path), lambda message: None)
    assert asked == ["elsa-minilm-rte"]


@pytest.mark.usefixtures("no_checks")
def test_a_search_that_cannot_be_read_does_not_hide_the_tables_of_the_others(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    searches = [finished(search) for search in two(tmp_path)]
    SearchPaths(searches[1].storage, searches[1].name).journal.write_text("{}\n")
    failed = carry_out(searches, lambda message: None)
    assert failed.keys() == {"elsa-minilm-cola"}
    with pytest.raises(RunError, match=r"1 of 2 searches are incomplete \(elsa-minilm-cola\)"):
        conclude(of(*searches), failed)
    told = capsys.readouterr()
    assert "search 'elsa-minilm-cola' is not in the table" in told.err
    assert "4 of 6" in told.out and "Not read: elsa-minilm-cola." in told.out


@pytest.mark.usefixtures("no_checks")
def test_a_complete_search_without_a_specification_is_said_in_its_turn(tmp_path: Path) -> None:
    searches = [finished(search) for search in two(tmp_path)]
    searches[1].paths.specification.write_text("{}\n")
    failed = carry_out(searches, lambda message: None)
    assert failed.keys() == {"elsa-minilm-cola"}
    assert "cannot be read" in failed["elsa-minilm-cola"]


@pytest.mark.usefixtures("no_checks")
def test_ctrl_c_stops_the_plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def start(request: Any, say: Any) -> Any:
        asked.append(request.name)
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(several, "start", start)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(InterruptedSearchError):
            carry_out(two(tmp_path), lambda message: None)
    finally:
        signal.signal(signal.SIGINT, before)
    assert asked == ["elsa-minilm-rte"]


def test_what_the_last_search_lacks_is_said_before_the_first_begins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(several, "start", lambda request, say: pytest.fail("it began"))
    # One step an epoch cannot be evaluated twice.
    searches = [request(tmp_path, Study.LOW_RESOURCE, "stdlib", size) for size in (50, 8)]
    with pytest.raises(SpaceError, match="evaluations_per_epoch"):
        carry_out(searches, lambda message: None)


# ---- what was shrunk ----


def test_what_is_asked_stands_beside_what_was_published() -> None:
    assert published(Study.ELSA) == (
        "5 seeds at each depth; models bert_base, roberta_base, bert_large, roberta_large; tasks "
        "cola, sst2, mrpc, stsb, qqp, mnli, qnli, rte; all training examples"
    )
    assert published(Study.LOW_RESOURCE) == (
        "5 seeds at each depth; models roberta_base; tasks sst2, cola; "
        "50, 100, 200, 500, 1,000 training examples"
    )
    assert asked(Study.ELSA, ["minilm"] * 2, [8, 5], ["rte", "rte"], [1000]) == (
        "5 or 8 seeds at each depth; models minilm; tasks rte; at most 1,000 training examples"
    )


@pytest.mark.parametrize("study", Study)
def test_each_scale_asks_for_no_more_than_the_one_before(study: Study) -> None:
    sizes = [PROTOCOLS[study].sizes[scale] for scale in Scale]
    for larger, smaller in itertools.pairwise(sizes):
        assert smaller.seeds <= larger.seeds
        assert set(smaller.tasks) <= set(larger.tasks)
        total = [sum(size or 10**6 for size in one.train_sizes) for one in (larger, smaller)]
        assert total[1] <= total[0]
        assert smaller != larger


# ---- how long ----


def test_hours_come_from_depths_tokens_and_the_full_model_s_pace(tmp_path: Path) -> None:
    spec = request(tmp_path).spec
    left = Counter({FULL_MODEL: 2, FreezeDepth.of(3): 1, FreezeDepth.of(6): 1})
    # Dropout runs in the frozen layers: they cost a third of those that train.
    full = (3 * 1000 + 3 * 100 / 3) / 100.0
    expected = (2 + (1 + 3) / 6 + 1 / 3) * full
    assert training_seconds(spec, left, 1000, 100, 100.0) == pytest.approx(expected)
    assert training_seconds(spec, Counter(), 1000, 100, 100.0) == 0.0


# ---- the command line ----


@pytest.fixture
def ask(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str) -> Any:
        return CliRunner().invoke(app, ["reproduce", *arguments])

    return run


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("elsa", "--models", "minilm", "--train-size", "50,100"), "one training size"),
        (("elsa", "--models", "minilm", "--train-size", "many"), "a number of examples"),
        (("elsa", "--models", "minilm", "--tasks", "mrcp"), "did you mean 'mrpc'"),
        (("elsa", "--models", "minilmm", "--tasks", "stdlib"), "did you mean 'minilm'"),
        (
            ("low-resource", "--models", "minilm", "--tasks", "stsb"),
            "'accuracy' cannot score task 'stsb'",
        ),
        (
            ("low-resource", "--models", "minilm", "--tasks", "wnli", "--train-size", "1000"),
            "has 635 training rows",
        ),
    ],
)
def test_bad_input_is_one_sentence_before_anything_starts(
    ask: Any, tmp_path: Path, arguments: tuple[str, ...], sentence: str
) -> None:
    result = ask(*arguments)
    assert isinstance(result.exception, UsageError)
    assert sentence in str(result.exception)
    assert not list(tmp_path.iterdir())


def test_a_dry_run_without_weights_has_the_trials_and_says_why_it_has_no_hours(ask: Any) -> None:
    result = ask("elsa", "--models", "roberta_base", "--tasks", "rte,stsb", "--dry-run")
    assert result.exit_code == 0, result.exception
    lines = [" ".join(line.split()) for line in result.stdout.splitlines()]
    assert any(line.startswith("elsa-roberta_base-rte 45 45") for line in lines)
    assert "in all 90 90 -" in lines
    assert "Here: 5 seeds at each depth; models roberta_base; tasks rte, stsb;" in result.stdout
    assert lines[-1].startswith("time: not known")
