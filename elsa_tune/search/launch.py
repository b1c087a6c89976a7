"""Starting and resuming a search: everything is checked first, then Ray is brought up and the plan
carried out.

The way of a search is read here top-down: `start` or `resume`, then `_session`, then
`run.SearchRun`.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import platform
import subprocess
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from elsa_tune.analysis.answer import Answer
from elsa_tune.analysis.answer_json import answer_object
from elsa_tune.analysis.answers import answer_rows
from elsa_tune.errors import DataError, ElsaTuneError, ModelError, SpaceError, StorageError
from elsa_tune.search.plan import Estimate, estimate
from elsa_tune.specs.freeze import FULL_MODEL, FreezeDepth
from elsa_tune.specs.model import ModelSpec
from elsa_tune.specs.result import ResultRow
from elsa_tune.specs.search import Resources, SearchSpec
from elsa_tune.specs.space import Space
from elsa_tune.specs.task import GlueSource, TaskSpec
from elsa_tune.specs.trial import Precision, Recipe
from elsa_tune.tracking.forwarder import Forwarder
from elsa_tune.tracking.journal import Journal, read_journal
from elsa_tune.tracking.lock import holder, is_held
from elsa_tune.tracking.mlflow_store import MlflowStore
from elsa_tune.tracking.paths import SearchPaths, StorePaths
from elsa_tune.tracking.records import Decision, SearchEnded, SearchStarted, SearchStatus
from elsa_tune.tracking.state import SearchState
from elsa_tune.training.tokens import TaskData

ANSWER = "answer"
# How long the end of a search waits for MLflow to take what it has not taken yet.
FLUSH_SECONDS = 30.0
_PACKAGES = ("elsa-tune", "torch", "transformers", "datasets", "ray", "optuna", "mlflow")

# Labelled training and (matched) evaluation rows of GLUE, by hub configuration (Wang et al. 2018,
# Table 1).
PUBLISHED_SIZES = {
    "cola": (8551, 1043),
    "sst2": (67349, 872),
    "mrpc": (3668, 408),
    "stsb": (5749, 1500),
    "qqp": (363846, 40430),
    "mnli": (392702, 9815),
    "qnli": (104743, 5463),
    "rte": (2490, 277),
    "wnli": (635, 71),
}

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A search as it was asked for, each part checked by itself.

    trials: exploring trials in all, seeds: measuring trials per depth; None takes the space's.
    max_time: seconds. cpus_per_trial and gpus_per_trial: None lets the machine decide.
    """

    name: str
    model: ModelSpec
    layers: int
    task: TaskSpec
    recipe: Recipe
    space: Space
    space_name: str
    storage: Path
    tracking_uri: str
    trials: int | None = None
    seeds: int | None = None
    max_time: float | None = None
    address: str | None = None
    cpus_per_trial: float | None = None
    gpus_per_trial: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """A session's end: how, with which answer, and where everything lies. unsent: records MLflow
    lacks.
    """

    spec: SearchSpec
    paths: SearchPaths
    status: SearchStatus
    message: str
    answers: tuple[Answer, ...]
    unsent: int = 0

    @property
    def tracking_uri(self) -> str:
        """The store of this session."""
        return self.spec.tracking_uri


def plan(request: Request, train_examples: int, evaluation_examples: int) -> Estimate:
    """What the search would cost at most; nothing is touched."""
    spec = _spec(request, Resources(cpus=1, gpus=0))
    _check_evaluations(spec.recipe, train_examples)
    return estimate(
        dataclasses.replace(
            spec, train_examples=train_examples, evaluation_examples=evaluation_examples
        )
    )


def sizes(task: TaskSpec, recipe: Recipe) -> tuple[int, int]:
    """Training and evaluation examples, read without writing anything.

    GLUE on the hub is not downloaded for a plan: its sizes are published.
    """
    from elsa_tune.training.texts import read_texts

    if isinstance(task.source, GlueSource) and task.source.data_dir is None:
        train, evaluation = PUBLISHED_SIZES[task.source.config]
    else:
        texts = read_texts(task)
        train = len(texts.train)
        evaluation = len(texts.evaluation) if texts.evaluation else 0
    if recipe.train_size is not None and recipe.train_size > train:
        raise DataError(
            f"train_size is {recipe.train_size:,}, but task '{task.name}' has {train:,} training "
            "rows; "
            "give at most so many, or leave it out for all of them"
        )
    return recipe.train_size or train, evaluation


def start(request: Request, say: Say) -> Finished:
    """Carry out a new search. Raises UsageErrors before any work starts, RunError when nothing
    works.
    """
    paths = SearchPaths(request.storage, request.name)
    if paths.exists:
        raise _taken(paths)
    from elsa_tune.training.encoder import pinned

    draft = _spec(request, Resources(cpus=1, gpus=0))
    paths.check_writable()
    try:
        store = _open_store(draft.tracking_uri)
        draft = dataclasses.replace(draft, model=pinned(draft.model))
        data, fingerprints = _inputs(draft)
        _check_evaluations(draft.recipe, len(data.train))
        draft = dataclasses.replace(
            draft,
            chance=data.chance,
            train_examples=len(data.train),
            evaluation_examples=len(data.evaluation),
            fingerprints=fingerprints,
            versions=_versions(),
        )
    except BaseException:
        # Nothing has begun: the name stays free.
        _remove_if_empty(paths.folder)
        raise
    from elsa_tune.search.cluster import ray_session

    try:
        with ray_session(request.address) as capacity:
            spec = dataclasses.replace(
                draft, resources=capacity.resources(request.cpus_per_trial, request.gpus_per_trial)
            )
            spec = dataclasses.replace(spec, recipe=_settled(spec))
            save_specification(spec, paths)
            return _session(spec, paths, data, store, say)
    finally:
        _remove_if_empty(paths.folder)


def resume(
    paths: SearchPaths,
    say: Say,
    *,
    max_time: float | None = None,
    tracking_uri: str | None = None,
    address: str | None = None,
) -> Finished:
    """Go on with a search after any interruption; a finished one is only answered.

    max_time (seconds for this session), tracking_uri and address: None takes what the search was
    started with. A new store is given everything from the journal's beginning.
    """
    spec = load_specification(paths)
    records = read_journal(paths.journal)
    if is_held(paths.lock):
        raise StorageError(
            f"search '{paths.name}' is running: {holder(paths.lock)} writes {paths.journal}; "
            "wait for it or end it"
        )
    state = SearchState.replay(records, alive=False)
    if state.status is SearchStatus.COMPLETED:
        return Finished(
            spec=spec,
            paths=paths,
            status=SearchStatus.COMPLETED,
            message="it is complete: nothing is left to do",
            answers=tuple(_answers(state, say)),
            unsent=_send_the_rest(spec, paths),
        )
    if max_time is not None:
        spec = dataclasses.replace(spec, max_time=max_time)
    if tracking_uri is not None:
        spec = dataclasses.replace(spec, tracking_uri=tracking_uri)
    if address is not None:
        spec = dataclasses.replace(spec, address=address)
    store = _open_store(spec.tracking_uri)
    data, fingerprints = _inputs(spec)
    _check_unchanged(spec, fingerprints)
    from elsa_tune.search.cluster import ray_session

    with ray_session(spec.address) as capacity:
        capacity.resources(spec.resources.cpus, spec.resources.gpus)
        return _session(spec, paths, data, store, say)


def _send_the_rest(spec: SearchSpec, paths: SearchPaths) -> int:
    """Hand MLflow what a finished search could not; returns how many records it still lacks."""
    with Journal(paths.journal):
        forwarder = Forwarder(paths.journal, _store(spec.tracking_uri), paths.forwarded)
        return forwarder.start().close(FLUSH_SECONDS) if forwarder.lag else 0


def _session(
    spec: SearchSpec, paths: SearchPaths, data: TaskData, store: MlflowStore, say: Say
) -> Finished:
    """One driver's time with a search, from taking its lock to the last record."""
    from elsa_tune.search.board import Board
    from elsa_tune.search.record import SearchRecord
    from elsa_tune.search.run import SearchRun
    from elsa_tune.search.stopping import Interruption

    with Journal(paths.journal) as journal:
        earlier = read_journal(paths.journal)
        forwarder = Forwarder(paths.journal, store, paths.forwarded).start()
        record = SearchRecord(spec, paths, journal, forwarder, earlier, say)
        attempt = SearchState.replay(earlier).attempt + 1
        interruption = Interruption()
        status, message = SearchStatus.FAILED, ""
        with interruption.caught(say):
            try:
                record.write(_started(spec, attempt))
                board = Board(spec, record.known_trials, lambda: _provisional(record.rows))
                with board:
                    outcome = SearchRun(spec, data, record, board, interruption).run()
                status, message = outcome.status, outcome.message
            except KeyboardInterrupt:
                status = SearchStatus.INTERRUPTED
            except BaseException as error:
                message = f"{type(error).__name__}: {error}"
                raise
            finally:
                interruption.closing = True
                answers = _answers(record.state(), say)
                found = [answer_object(answer) for answer in answers]
                record.write(Decision(what=ANSWER, value=found))
                record.write(SearchEnded(status=status, message=message))
                unsent = forwarder.close(FLUSH_SECONDS)
    return Finished(
        spec=spec,
        paths=paths,
        status=status,
        message=message,
        answers=tuple(answers),
        unsent=unsent,
    )


# ---- the specification ----


def _spec(request: Request, resources: Resources) -> SearchSpec:
    space = request.space
    depths = space.depths_for(request.layers)
    rates = space.rates
    if rates.values is not None and len(rates.values) == 1:
        # One rate leaves nothing to explore.
        explored: tuple[FreezeDepth, ...] = ()
        tries = 0
    else:
        explored = (FULL_MODEL,) if space.follows_full_model else depths
        if space.follows_full_model and FULL_MODEL not in depths:
            raise SpaceError(
                "learning_rate is from_full_model, but depths leave the full model (0) out; add 0"
            )
        tries = _tries(request, len(explored))
        if rates.values is not None:
            tries = min(tries, len(rates.values))
    return SearchSpec(
        name=request.name,
        search_id=uuid.uuid4().hex,
        model=request.model,
        layers=request.layers,
        task=request.task,
        recipe=request.recipe,
        space=request.space_name,
        depths=depths,
        explored=explored,
        rates=rates,
        tries=tries,
        sampler=space.sampler,
        asha=space.asha_setting,
        seeds=_at_least_one("--seeds", request.seeds, space.seeds),
        seed=space.seed,
        resources=resources,
        tracking_uri=request.tracking_uri,
        address=request.address,
        max_time=request.max_time,
    )


def _tries(request: Request, depths: int) -> int:
    """Exploring trials per depth: every depth gets as many as any other."""
    if request.trials is None:
        return request.space.tries
    trials = _at_least_one("--trials", request.trials, 1)
    if trials < depths:
        raise SpaceError(
            f"--trials is {trials}, but {depths} depths are explored with equally many tries each; "
            f"give at least {depths}, or fewer depths by --set depths=[0,...]"
        )
    return trials // depths


def _at_least_one(name: str, given: int | None, otherwise: int) -> int:
    if given is None:
        return otherwise
    if given < 1:
        raise SpaceError(f"{name} is {given}; it must be 1 or more")
    return given


def save_specification(spec: SearchSpec, paths: SearchPaths) -> None:
    """Write it aside, then give it its name: a search never has half a specification, nor
    another's.

    Raises StorageError when a search of this name began meanwhile.
    """
    aside = paths.specification.with_suffix(f".{os.getpid()}.tmp")
    aside.write_bytes(TypeAdapter(SearchSpec).dump_json(spec, indent=1))
    try:
        os.link(aside, paths.specification)  # unlike a rename it fails where the name is taken
    except FileExistsError:
        raise _taken(paths) from None
    finally:
        aside.unlink()


def _taken(paths: SearchPaths) -> StorageError:
    return StorageError(
        f"a search named '{paths.name}' exists in {paths.storage}; go on with it by "
        f"`elsa-tune resume {paths.name}`, or choose another --name"
    )


def load_specification(paths: SearchPaths) -> SearchSpec:
    """Read it back; StorageError when it is missing or damaged."""
    try:
        return TypeAdapter(SearchSpec).validate_json(paths.specification.read_bytes())
    except (OSError, ValidationError, ElsaTuneError) as error:
        raise StorageError(
            f"the specification of search '{paths.name}' ({paths.specification}) cannot be read: "
            f"{error}"
        ) from error


def _settled(spec: SearchSpec) -> Recipe:
    """The recipe with its precision decided, once, on a machine like those that will train."""
    from elsa_tune.training.loop import resolve_precision

    if spec.resources.gpus == 0:
        precision = resolve_precision(spec.recipe.precision, "cpu")
    else:
        import ray

        probe = ray.remote(num_gpus=spec.resources.gpus)(resolve_precision)
        precision = ray.get(probe.remote(spec.recipe.precision, "cuda"))
    return dataclasses.replace(spec.recipe, precision=Precision(precision))


# ---- what a search stands on ----


def _store(tracking_uri: str) -> MlflowStore:
    return MlflowStore(tracking_uri, StorePaths(Path.cwd()).artifact_root_for(tracking_uri))


def _open_store(tracking_uri: str) -> MlflowStore:
    store = _store(tracking_uri)
    store.check()
    store.initialise()
    return store


def _inputs(spec: SearchSpec) -> tuple[TaskData, dict[str, str]]:
    """The tokenised data, and fingerprints of it and of the weights, which are thereby known to be
    there.
    """
    from elsa_tune.training.data import prepare
    from elsa_tune.training.encoder import weights_fingerprint

    data = prepare(spec.model, spec.task, spec.recipe)
    return data, {"weights": weights_fingerprint(spec.model), "data": data.fingerprint}


def _check_evaluations(recipe: Recipe, train_examples: int) -> None:
    """Raise SpaceError where an epoch has fewer steps than evaluations."""
    from elsa_tune.training.loop import evaluation_steps

    evaluation_steps(recipe, train_examples)


def _check_unchanged(spec: SearchSpec, fingerprints: dict[str, str]) -> None:
    if fingerprints["data"] != spec.fingerprints["data"]:
        raise DataError(
            f"the data of task '{spec.task.name}' changed since search '{spec.name}' began; put "
            "it back, "
            "or start a new search: results on different data are not comparable"
        )
    if fingerprints["weights"] != spec.fingerprints["weights"]:
        raise ModelError(
            f"the weights of '{spec.model.name}' changed since search '{spec.name}' began; put "
            "them back, "
            "or start a new search"
        )


def _versions() -> dict[str, str]:
    versions = {"python": platform.python_version()}
    for package in _PACKAGES:
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            versions[package] = "unknown"
    with_git = ["git", "-C", str(Path(__file__).parent), "rev-parse", "HEAD"]
    try:
        run = subprocess.run(with_git, capture_output=True, text=True, timeout=5, check=True)
        versions["git_commit"] = run.stdout.strip()
    except (OSError, subprocess.SubprocessError):
        versions["git_commit"] = "unknown"
    return {f"version.{name}": version for name, version in versions.items()}


def _started(spec: SearchSpec, attempt: int) -> SearchStarted:
    asha = f"grace {spec.asha.grace}, factor {spec.asha.reduction_factor:g}" if spec.asha else "off"
    return SearchStarted(
        name=spec.name,
        search_id=spec.search_id,
        attempt=attempt,
        model=spec.model.name,
        task=spec.task.name,
        params={
            "space": spec.space,
            "layers": str(spec.layers),
            "depths": " ".join(depth.label for depth in spec.depths),
            "exploring_trials": str(spec.exploring_trials),
            "measuring_trials": str(spec.measuring_trials),
            "sampler": spec.sampler.value,
            "asha": asha,
            "seed": str(spec.seed),
            "train_examples": str(spec.train_examples),
            "evaluation_examples": str(spec.evaluation_examples),
            "chance": f"{spec.chance:.6g}",
            "comparison": spec.comparison,
        },
        tags={
            **spec.versions,
            **{f"fingerprint.{name}": value for name, value in spec.fingerprints.items()},
            "cpus_per_trial": f"{spec.resources.cpus:g}",
            "gpus_per_trial": f"{spec.resources.gpus:g}",
        },
    )


# ---- the answer ----


def _answers(state: SearchState, say: Say) -> list[Answer]:
    """The answer so far; results that cannot be answered are said, never a reason to lose the
    record.
    """
    from elsa_tune.tracking.results import rows_of

    try:
        return answer_rows(rows_of(state))
    except ElsaTuneError as error:
        say(str(error))
        return []


def _provisional(rows: Callable[[], list[ResultRow]]) -> str | None:
    try:
        answers = answer_rows(rows())
    except ElsaTuneError:
        return None
    return answers[0].sentence if answers else None


def _remove_if_empty(folder: Path) -> None:
    with contextlib.suppress(OSError):
        folder.rmdir()
