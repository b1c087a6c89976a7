"""`elsa-tune searches`: the recorded searches, listed or deleted."""

import contextlib
from collections import Counter
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from elsa_tune.cli.options import (
    AskedUri,
    JobAddress,
    StoragePath,
    asking_store,
    pointing_at_clusters,
)
from elsa_tune.cli.printing import FormatOption, local_time, show
from elsa_tune.errors import (
    ElsaTuneError,
    SpaceError,
    StorageError,
    UnknownNameError,
    UsageError,
    first_few,
)
from elsa_tune.searching.output import say
from elsa_tune.tracking.paths import SearchPaths, find_search
from elsa_tune.tracking.places import StorePaths
from elsa_tune.words import frozen_text, trials_text

if TYPE_CHECKING:
    from elsa_tune.searching.jobs.server import Job
    from elsa_tune.sources.source import Searches
    from elsa_tune.tracking.state import SearchState
    from elsa_tune.tracking.store import RecordStore

LISTED = ("name", "model", "task", "status", "trials_done", "trials_planned", "started", "answer")

_Listed = dict[str, Any]  # a search, as JSON has it


def searches(
    name: Annotated[
        str | None,
        typer.Argument(metavar="NAME", help="A search to look at. Default: all."),
    ] = None,
    delete: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Delete this search and its runs in its store."),
    ] = None,
    storage_path: StoragePath = None,
    tracking_uri: AskedUri = None,
    address: JobAddress = None,
    format: FormatOption = "table",
) -> None:
    """List the recorded searches: state, answer, what to type."""
    places = StorePaths(Path.cwd())
    storage = places.storage_at(storage_path)
    uri = places.named_uri(tracking_uri)
    if delete is not None:
        if name not in (None, delete):
            raise UsageError(f"search '{name}' and --delete {delete} are two; name one")
        _delete(delete, storage, tracking_uri)
        return
    warnings: list[str] = []
    recorded = _recorded(places, storage_path, uri, warnings)
    for warning in dict.fromkeys(warnings):
        say(f"elsa-tune: {warning}")
    submitted = [] if address is None else _submitted(address, recorded)
    if not recorded and not warnings and not submitted:
        if name is not None:
            with pointing_at_clusters(address):
                find_search(storage, name)  # which says what there is instead
        if format == "table":
            say(f"no search is recorded in {storage}; `elsa-tune search` starts one")
            return
    names = Counter(state.search.name for _, state in recorded)
    rows = list(submitted)
    for folder, state in recorded:
        has_namesake = names[state.search.name] > 1
        rows.append(_as_json(folder, state, tracking_uri, has_namesake=has_namesake))
    if name is not None:
        with pointing_at_clusters(address):
            rows = _only(rows, name)
    if format == "table":
        _show_table(rows, recorded)
    else:
        show(rows, format)


def _show_table(rows: Sequence[_Listed], recorded: "Searches") -> None:
    """Print searches as a table, and below it what else there is to say of them."""
    readable = []
    for row in rows:
        answer = _found_text(row["answer"], row["comparison"])
        readable.append({**row, "answer": answer, "status": _status_text(row)})
    namesakes = _namesakes(recorded, {row["name"] for row in rows})
    columns = list(LISTED)
    if namesakes:
        columns.insert(1, "search_id")
    show(readable, "table", columns)
    for line in namesakes:
        say(line)
    for row in rows:
        if row["waits_for"] is not None:
            say(f"search '{row['name']}' waits for {row['waits_for']}")
    _say_next(rows)


def _status_text(row: _Listed) -> str:
    """Return a search's status, of one that runs with what it has."""
    status: str = row["status"]
    if status != "running" or row["trials_running"] is None:
        return status
    if row["trials_running"]:
        return f"running ({trials_text(row['trials_running'])})"
    return "running (no trial)"


def _delete(name: str, storage: Path, tracking_uri: str | None) -> None:
    """Delete a search. tracking_uri: the store whose runs go, None for the search's own."""
    from elsa_tune.tracking.deletion import delete_search
    from elsa_tune.tracking.stores import store_at

    if tracking_uri is None:
        store = _own_store(find_search(storage, name))
    else:
        store = store_at(StorePaths(Path.cwd()).tracking_uri(tracking_uri))
    runs = delete_search(storage, name, store.uri, say)
    say(f"deleted search '{name}' and {runs} {store.name} runs")


def _own_store(paths: SearchPaths) -> "RecordStore":
    """Return the store that a search is recorded in; the default one where that cannot be read."""
    from elsa_tune.searching.specification import load_specification
    from elsa_tune.searching.startup.stores import store_of
    from elsa_tune.tracking.stores import store_at

    try:
        return store_of(load_specification(paths))
    except StorageError:  # deleting is the way out of it
        return store_at(StorePaths(Path.cwd()).tracking_uri())


def _recorded(
    places: StorePaths,
    storage_path: str | None,
    uri: str | None,
    warnings: list[str],
) -> "Searches":
    """Return the searches in the folder and in the store that is named, if one is.

    Where neither is named and the folder has none, those of the default store. warnings: takes
    what could not be read.
    """
    from elsa_tune.sources.record import list_searches

    storage = places.storage_at(storage_path)
    recorded = list_searches(storage, uri, warnings.append)
    is_named = uri is not None or storage_path is not None
    if not recorded and not is_named and places.database.exists():
        # Those of other folders: MLflow takes seconds to ask.
        recorded = list_searches(storage, places.tracking_uri(), warnings.append)
    return recorded


def _submitted(address: str, recorded: "Searches") -> list[_Listed]:
    """Return the searches of a cluster's jobs whose record is not at hand, the latest first."""
    from elsa_tune.searching.jobs.progress import JobProgress, read_progress
    from elsa_tune.searching.jobs.server import JobServer

    server = JobServer(address)
    listed = set()
    rows = []
    for job in server.jobs():
        if job.name in listed or _is_at_hand(job, recorded):
            continue
        listed.add(job.name)
        about = job.metadata or {}
        verb = "logs" if job.is_over else "watch"
        progress = JobProgress()
        if job.status == "RUNNING":
            # Its log may not be there yet, or be gone with its node: the list is worth more.
            with contextlib.suppress(ElsaTuneError):
                progress = read_progress(server.log(job))
        row = {
            "name": job.name,
            "search_id": None,
            "model": about.get("model"),
            "task": about.get("task"),
            "status": job.state,
            "trials_done": progress.done,
            "trials_planned": progress.planned,
            "trials_running": None if progress.done is None else progress.running,
            "waits_for": progress.waits_for,
            "started": local_time(job.started),
            "answer": None,
            "comparison": None,
            "folder": None,
            "next": f"elsa-tune {verb} {job.name} --address {server.url}",
        }
        rows.append(row)
    return rows


def _is_at_hand(job: "Job", recorded: "Searches") -> bool:
    """Whether the record of a job's search is among those that are listed.

    One that has ended is, where any search of its name is; one under way may share its name with an
    older search of this folder, and is another one.
    """
    for folder, state in recorded:
        if state.search.name != job.name:
            continue
        if job.is_over or state.status.value == job.state:
            return True
        record = (job.metadata or {}).get("record")
        if folder is not None and str(folder) == record:
            return True
    return False


def _only(rows: Sequence[_Listed], name: str) -> list[_Listed]:
    """Return the searches of that name. Raises UnknownNameError where there are none."""
    matching = [row for row in rows if row["name"] == name]
    if not matching:
        names = {row["name"] for row in rows}
        raise UnknownNameError.among("search", name, names)
    return matching


def _namesakes(recorded: "Searches", names: Collection[str]) -> list[str]:
    """Return what tells searches of one name apart, a text for each such name among these."""
    from elsa_tune.sources.meant import told_apart

    described: dict[str, list[str]] = {}
    for folder, state in recorded:
        described.setdefault(state.search.name, []).append(told_apart(state, folder))
    texts = []
    for name, of_name in described.items():
        if len(of_name) > 1 and name in names:
            lines = [f"{len(of_name)} searches are named '{name}':", *first_few(of_name)]
            texts.append("\n  ".join(lines))
    return texts


def _say_next(rows: Sequence[_Listed]) -> None:
    """Print what to type about the latest complete search, and about those that are not."""
    complete: list[str] = []
    unfinished: list[str] = []
    for row in rows:
        command = row["next"]
        if command is None:
            continue
        if command.startswith("elsa-tune resume "):
            unfinished.append(command)
        else:
            complete.append(command)
    if complete:
        say(f"Next: {complete[0]}")
    if unfinished:
        others = ""
        if len(unfinished) > 1:
            others = f" ({len(unfinished)} are not complete)"
        say(f"Next: {unfinished[0]}{others}")


def _next(
    folder: Path | None, state: "SearchState", tracking_uri: str | None, *, has_namesake: bool
) -> str | None:
    """Return the command for a search; None while it runs.

    tracking_uri: the store, where one was typed. has_namesake: another search has its name.
    """
    from elsa_tune.tracking.journal_records import SearchStatus
    from elsa_tune.tracking.record_names import COMPARISON

    asks = "compare" if COMPARISON in state.decisions else "answer"
    if folder is None:
        named = state.search.search_id if has_namesake else state.search.name
        return f"elsa-tune {asks} {named}{asking_store(tracking_uri)}"
    if state.status is SearchStatus.RUNNING:
        return None
    verb = asks if state.is_complete else "resume"
    arguments = SearchPaths(folder.parent, folder.name).arguments
    return f"elsa-tune {verb} {arguments}"


def _as_json(
    folder: Path | None, state: "SearchState", tracking_uri: str | None, *, has_namesake: bool
) -> _Listed:
    from elsa_tune.searching.planning.plan import trials_in_all
    from elsa_tune.tracking.record_names import ANSWER, COMPARISON

    return {
        "name": state.search.name,
        "search_id": state.search.search_id,
        "model": state.search.model,
        "task": state.search.task,
        "status": state.status.value,
        "trials_done": state.trials_done,
        "trials_planned": trials_in_all(folder, state),
        "trials_running": state.trials_running,
        "waits_for": state.waits_for,
        "started": local_time(state.started),
        "answer": state.decisions.get(ANSWER),
        "comparison": state.decisions.get(COMPARISON),
        "folder": None if folder is None else str(folder),
        "next": _next(folder, state, tracking_uri, has_namesake=has_namesake),
    }


def _found_text(answer: Any, comparison: Any) -> str:
    """Return what a search found in a few words: of its ways, where these were compared."""
    text = _answer_text(answer)
    for compared in comparison if isinstance(comparison, list) else ():
        recommended = compared.get("recommended") if isinstance(compared, dict) else None
        if isinstance(recommended, dict) and recommended.get("label") is not None:
            way = _way_text(recommended, compared.get("layers"))
            text = f"the cheapest good way: {way}; depths: {text}"
    return text


def _way_text(recommended: dict[str, Any], layers: int | None) -> str:
    """Return a recorded way in a few words: a depth's label alone does not tell what it counts."""
    from elsa_tune.specs.adapt.candidates import told_candidate

    label = str(recommended["label"])
    if layers is None:
        return label
    try:
        candidate = told_candidate(recommended)
    except SpaceError:  # a method that this version does not know
        return label
    return frozen_text(candidate, layers)


def _answer_text(answer: Any) -> str:
    """Return a recorded answer in a few words, of several answers one after the other."""
    if isinstance(answer, list) and answer:
        return "; ".join(_answer_text(part) for part in answer)
    if isinstance(answer, str) and answer:
        return answer
    if not isinstance(answer, dict) or "operating_point" not in answer:
        return "-"
    # Searches of earlier versions recorded no recommendation.
    recorded = answer.get("recommendation", answer["operating_point"])
    advice = recorded if isinstance(recorded, dict) else {}
    if advice.get("action") == "linear_model":
        return "fine-tune nothing: a linear model is enough"
    fine_tuned = advice.get("fine_tuned_layers")
    if fine_tuned is not None:
        return f"{fine_tuned} of {answer.get('layers', '?')} layers fine-tuned"
    if advice.get("label") is not None:
        return f"{advice['label']} fine-tuned"
    reason = str(answer.get("reason")).replace("_", " ")
    return f"none: {reason}"
