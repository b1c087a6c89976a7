"""What MLflow's pages show of an experiment: a view with the answers' columns, and a description.

The view is a saved one, as MLflow's own button saves it: a tag of the experiment that its pages
read (MLflow 3.17; others show their usual columns). Errors come as MLflow raises them.
"""

import json
import time
from collections.abc import Iterable, Mapping
from typing import Any, Final

from elsa_tune.tracking.journal_records import SearchStatus
from elsa_tune.tracking.mlflow import names
from elsa_tune.tracking.record_names import JOURNAL_TAG

VIEW: Final = "elsa-tune"
_VIEW_TAG: Final = f"mlflow.sharedViewState.{VIEW}"
_NOTE_TAG: Final = "mlflow.note.content"
_ANSWER: Final = (*names.ANSWER_TAGS, names.WAY_TAG)
_COLUMNS: Final = ("params.`model`", *(f"tags.`{name}`" for name in _ANSWER))
_MOST_LISTED = 20  # MLflow's limit is 5,000 characters (mlflow/utils/validation.py)
_NOTE_LENGTH = 5000
# A description without this line is somebody's own.
_OURS = "elsa-tune keeps this up to date for as long as this line stands here."


def experiment_tags() -> dict[str, str]:
    """Return the tags of a new experiment."""
    return {**names.EXPERIMENT_TAGS, _VIEW_TAG: _saved_view()}


def add_view(client: Any, experiment: Any) -> None:
    """Save the view of an experiment that was made without one."""
    if _VIEW_TAG not in experiment.tags:
        client.set_experiment_tag(experiment.experiment_id, _VIEW_TAG, _saved_view())


def page_of(address: str, experiment_id: str) -> str:
    """Return the page of an experiment's runs, with the columns of the view."""
    # Without the type MLflow 3 shows its menu for language models around the table.
    shown = f"runs?workflowType=machine_learning&viewStateShareKey={VIEW}"
    return f"{address.rstrip('/')}/#/experiments/{experiment_id}/{shown}"


def describe(client: Any, experiment_id: str) -> None:
    """Let the experiment's description say what its searches found, unless somebody wrote one."""
    experiment = client.get_experiment(experiment_id)
    before = experiment.tags.get(_NOTE_TAG, "")
    if before and _OURS not in before:
        return
    searches = client.search_runs(
        [experiment_id],
        # Trials have no journal of their own.
        filter_string=f"tags.`{JOURNAL_TAG}` LIKE '%'",
        order_by=["attributes.start_time DESC"],
        max_results=_MOST_LISTED,
    )
    text = _description(searches)
    if text != before:
        client.set_experiment_tag(experiment_id, _NOTE_TAG, text)


def _description(searches: Iterable[Any]) -> str:
    """Write the latest answer first, for MLflow folds all but a line, then a table of searches."""
    columns = ("search", "model", *_ANSWER)
    lines = [_table_line(columns), _table_line(["---"] * len(columns))]
    first = "No search has an answer yet."
    has_answer = False
    for run in searches:
        cells = _cells(run, columns)
        lines.append(_table_line(cells.values()))
        if has_answer or not _is_answered(run, cells):
            continue
        has_answer = True
        parts = [f"{name} {cells[name]}" for name in _ANSWER if cells[name] != "-"]
        answer = "; ".join(parts)
        first = f"{answer} (search {cells['search']})"
    while True:
        text = "\n".join([first, "", *lines, "", _OURS])
        if len(text) <= _NOTE_LENGTH:
            return text
        lines.pop()


def _is_answered(run: Any, cells: Mapping[str, str]) -> bool:
    """Whether a search found something, or that there is no answer, which takes a complete one."""
    told = {cells["k"], cells[names.WAY_TAG]} - {"-"}
    if told == {names.NO_ANSWER}:
        status: str | None = run.data.tags.get(names.STATUS_TAG)
        return status == SearchStatus.COMPLETED
    return bool(told)


def _cells(run: Any, columns: Iterable[str]) -> dict[str, str]:
    """Return what the table shows of a search, by column."""
    tags = {"model": run.data.params.get("model", "-"), **run.data.tags}
    tags["search"] = names.search_of(tags) or "-"
    cells = {}
    for name in columns:
        text = tags.get(name, "-").replace("|", "/")
        cells[name] = text[:100]
    return cells


def _table_line(cells: Iterable[str]) -> str:
    joined = " | ".join(cells)
    return f"| {joined} |"


def _saved_view() -> str:
    state = {
        "searchFilter": "",
        "orderByKey": "attributes.start_time",
        "orderByAsc": False,
        "selectedColumns": _COLUMNS,
    }
    now = int(1000 * time.time())
    view = {
        "name": VIEW,
        "createdAt": now,
        "updatedAt": now,
        "state": json.dumps(state),
    }
    return json.dumps(view)
