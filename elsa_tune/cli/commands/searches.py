"""The command `searches`: lists what is recorded, and deletes it.

It must not read journals or speak MLflow itself; `tracking` does.
"""

from __future__ import annotations

import json
import sys
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from elsa_tune.cli.options import AskedUri, StoragePath
from elsa_tune.cli.printing import Format, FormatOption

if TYPE_CHECKING:
    from elsa_tune.tracking.searches import SearchSummary


def searches(
    delete: Annotated[
        str | None,
        typer.Option("--delete", metavar="NAME", help="Delete this search and its MLflow runs."),
    ] = None,
    storage_path: StoragePath = None,
    tracking_uri: AskedUri = None,
    format: FormatOption = Format.TABLE,
) -> None:
    """What is recorded: every search, its state and its answer."""
    from elsa_tune.tracking.paths import StorePaths
    from elsa_tune.tracking.searches import delete_search, list_searches

    places = StorePaths(Path.cwd())
    storage = places.storage_at(storage_path)
    named = places.named_uri(tracking_uri)
    if delete is not None:
        runs = delete_search(storage, delete, named or places.tracking_uri())
        print(f"deleted search '{delete}' and {runs} MLflow runs", file=sys.stderr)
        return
    found, warnings = list_searches(storage, named)
    if named is None and not found:
        # Those of other folders: MLflow takes seconds to ask.
        found, warnings = list_searches(storage, places.tracking_uri())
    for warning in warnings:
        print(f"elsa-tune: {warning}", file=sys.stderr)
    if format is Format.JSON:
        print(json.dumps([_as_json(summary) for summary in found], indent=2, ensure_ascii=False))
    elif found:
        _print_table(found)
    else:
        print(f"no search is recorded in {storage}; `elsa-tune search` starts one", file=sys.stderr)


def _as_json(summary: SearchSummary) -> dict[str, Any]:
    return {
        "name": summary.name,
        "model": summary.model,
        "task": summary.task,
        "status": summary.status.value,
        "trials_done": summary.done,
        "trials_planned": summary.planned,
        "started": _when(summary.started),
        "answer": summary.answer,
        "folder": None if summary.folder is None else str(summary.folder),
    }


def _print_table(found: list[SearchSummary]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("search", "model", "task", "state"):
        table.add_column(heading, overflow="fold")
    table.add_column("trials", justify="right")
    table.add_column("started", no_wrap=True)
    table.add_column("answer", overflow="fold")
    for summary in found:
        planned = "?" if summary.planned is None else str(summary.planned)
        state = summary.status.value.replace("_", " ")
        if summary.folder is None:
            state += " (elsewhere)"
        table.add_row(
            summary.name,
            summary.model,
            summary.task,
            state,
            f"{summary.done} / {planned}",
            (_when(summary.started) or "")[:16].replace("T", " "),
            _answer_text(summary.answer),
        )
    # A pipe has no width: lines must not be folded at 80 columns there.
    Console(width=None if sys.stdout.isatty() else 400, highlight=False).print(table)


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


def _when(seconds: float) -> str | None:
    """Local time in ISO form, None where nothing was recorded."""
    return (
        datetime.fromtimestamp(seconds).astimezone().isoformat("T", "seconds") if seconds else None
    )
