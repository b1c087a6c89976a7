"""What MLflow's pages show of an experiment: a view with the answers' columns, and a description.

The view is a saved one, as MLflow's own button saves it: a tag of the experiment that its pages
read (MLflow 3.17; others show their usual columns). Errors come as MLflow raises them.
"""

import json
import time
from collections.abc import Iterable
from typing import Any, Final

from elsa_tune.tracking import mlflow_names as names
from elsa_tune.tracking.record_names import JOURNAL_TAG

VIEW: Final = "elsa-tune"
_VIEW_TAG: Final = f"mlflow.sharedViewState.{VIEW}"
_NOTE_TAG: Final = "mlflow.note.content"
_COLUMNS: Final = (
    "params.`model`",
    *(f"tags.`{name}`" for name in names.ANSWER_TAGS),
)
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
    before = client.get_experiment(experiment_id).tags.get(_NOTE_TAG, "")
    if before and _OURS not in before:
        return
    searches = client.search_runs(
        [experiment_id],
        # Trials have no journal of their own.
        filter_string=f"tags.`{JOURNAL_TAG}` LIKE '%'",
        order_by=["attributes.start_time DESC"],
        max_results=_MOST_LISTED,
    )
    if (text := _description(searches)) != before:
        client.set_experiment_tag(experiment_id, _NOTE_TAG, text)


def _description(searches: Iterable[Any]) -> str:
    """Write the latest answer first, for MLflow folds all but a line, then a table of searches."""
    columns = ("search", "model", *names.ANSWER_TAGS)
    table = [columns, ("---",) * len(columns)]
    for run in searches:
        tags = {"model": run.data.params.get("model", "-"), **run.data.tags}
        tags["search"] = names.search_of(tags) or "-"
        table.append(tuple(tags.get(name, "-").replace("|", "/")[:100] for name in columns))
    lines = [f"| {' | '.join(cells)} |" for cells in table]
    search, _, *answer = next((row for row in table[2:] if row[2] != "-"), ("",) * len(columns))
    first = "No search has an answer yet."
    if search:
        told = zip(names.ANSWER_TAGS, answer, strict=True)
        first = f"{'; '.join(f'{name} {value}' for name, value in told)} (search {search})"
    while len(text := "\n".join([first, "", *lines, "", _OURS])) > _NOTE_LENGTH:
        lines.pop()
    return text


def _saved_view() -> str:
    state = {
        "searchFilter": "",
        "orderByKey": "attributes.start_time",
        "orderByAsc": False,
        "selectedColumns": _COLUMNS,
    }
    now = int(1000 * time.time())
    return json.dumps(
        {"name": VIEW, "createdAt": now, "updatedAt": now, "state": json.dumps(state)}
    )
