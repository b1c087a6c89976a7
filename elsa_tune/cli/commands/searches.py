"""The command `searches`: lists what is recorded, and deletes it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from elsa_tune.cli.options import AskedUri, StoragePath
from elsa_tune.cli.printing import FormatOption, local_time, show
from elsa_tune.search.saying import say

if TYPE_CHECKING:
    from elsa_tune.tracking.searches import RecordedSearch

LISTED = (
    *("name", "model", "task", "status", "trials_done", "trials_planned", "started", "answer"),
)


def searches(
    delete: Annotated[
        str | None,
        typer.Option("--delete", metavar="NAME", help="Delete this search and its MLflow runs."),
    ] = None,
    storage_path: StoragePath = None,
    tracking_uri: AskedUri = None,
    format: FormatOption = "table",
) -> None:
    """List the recorded searches, with state and answer."""
    from elsa_tune.tracking.paths import StorePaths
    from elsa_tune.tracking.searches import delete_search, list_searches

    places = StorePaths(Path.cwd())
    storage = places.storage_at(storage_path)
    named = places.named_uri(tracking_uri)
    if delete is not None:
        runs = delete_search(storage, delete, named or places.tracking_uri())
        say(f"deleted search '{delete}' and {runs} MLflow runs")
        return
    found, warnings = list_searches(storage, named)
    if named is None and not found:
        # Those of other folders: MLflow takes seconds to ask.
        found, warnings = list_searches(storage, places.tracking_uri())
    for warning in warnings:
        say(f"elsa-tune: {warning}")
    if not found and format == "table":
        say(f"no search is recorded in {storage}; `elsa-tune search` starts one")
        return
    rows = [_as_json(search) for search in found]
    if format == "table":
        rows = [one | {"answer": _answer_text(one["answer"])} for one in rows]
    show(rows, format, LISTED)


def _as_json(search: RecordedSearch) -> dict[str, Any]:
    from elsa_tune.search.planning.plan import trials_in_all

    return {
        "name": search.name,
        "model": search.state.search.model,
        "task": search.state.search.task,
        "status": search.state.status.value,
        "trials_done": search.done,
        "trials_planned": trials_in_all(search),
        "started": local_time(search.state.started),
        "answer": search.answer,
        "folder": None if search.folder is None else str(search.folder),
    }


def _answer_text(answer: Any) -> str:
    """A recorded answer in a few words; of several answers one after the other."""
    if isinstance(answer, list) and answer:
        return "; ".join(_answer_text(one) for one in answer)
    if isinstance(answer, dict) and "operating_point" in answer:
        point = answer["operating_point"]
        if isinstance(point, dict):
            tuned, layers = point.get("fine_tuned_layers", "?"), answer.get("layers", "?")
            return f"{tuned} of {layers} layers fine-tuned"
        return f"none: {str(answer.get('reason')).replace('_', ' ')}"
    return answer if isinstance(answer, str) and answer else "-"
