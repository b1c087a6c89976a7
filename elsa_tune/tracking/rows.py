"""Recorded trials as result rows: the same from the MLflow store and from a search's journal.

What a row needs stands in these params and metrics: `model task phase seed learning_rate
frozen_layers embeddings_frozen layers (or fine_tuned_layers) metric selection train_size epochs
comparison search`, metrics `chance train_seconds peak_memory_mb trainable_parameters`.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from elsa_tune.errors import ResultsError, SpaceError
from elsa_tune.specs.checked import problems
from elsa_tune.specs.looks import Looks
from elsa_tune.specs.result_row import ResultRow
from elsa_tune.specs.trial import Phase
from elsa_tune.tracking.mlflow_reader import local_folder, read_searches
from elsa_tune.tracking.names import MACHINE_TAG
from elsa_tune.tracking.predictions import predictions_place
from elsa_tune.tracking.state import SearchState, TrialState

_ROW = TypeAdapter(ResultRow)
_DEPTH = ("frozen_layers", "embeddings_frozen")


def read_rows(
    tracking_uri: str, tasks: Sequence[str] | None = None, search: str | None = None
) -> list[ResultRow]:
    """`rows_of` all searches in a store on these tasks and of this name; errors as in
    `read_searches`.
    """
    return [
        row
        for state in read_searches(tracking_uri, tasks, search)
        for row in rows_of(state, local_folder(state.search.tags))
    ]


def rows_of(state: SearchState, folder: Path | None = None) -> list[ResultRow]:
    """One row a trial, in the order of their start; those of unfinished searches come with their
    status, and a final one, which is no result, has none. folder: the search's. Raises ResultsError
    for a trial that lacks what a row needs.
    """
    return [
        _row(state.search.name, trial, folder)
        for trial in state.trials.values()
        if trial.params.get("phase") != Phase.FINAL
    ]


def origin_of(state: SearchState) -> str:
    """When a search started and, where that is recorded, on which machine, as a page says it."""
    started = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(state.started))
    return ", ".join(filter(None, [started, state.search.tags.get(MACHINE_TAG)]))


def rates_text(rates: tuple[float, float]) -> str:
    """The lowest and the highest as one param: `1e-05..5e-05`."""
    return f"{rates[0]:g}..{rates[1]:g}"


def _row(search: str, trial: TrialState, folder: Path | None) -> ResultRow:
    recorded = {"search": search, **trial.params, **trial.latest}
    values: dict[str, Any] = {
        name: value for name, value in recorded.items() if value not in (None, "", "none")
    }
    artifact = trial.end.artifact if trial.end else None
    values |= {
        "depth": {name: values[name] for name in _DEPTH if name in values},
        "status": trial.status,
        "epochs_run": max((report.evaluation for report in trial.reports), default=None),
        "trial": trial.key,
        "quality": values.get("quality"),
        "examples": values.get("evaluation_examples"),
        "predictions": predictions_place(artifact, folder, trial.run_id),
    }
    if "given_rates" in values:
        values["given_rates"] = str(values["given_rates"]).split("..")
    try:
        if "layers" not in values:
            values["layers"] = int(values["frozen_layers"]) + int(values["fine_tuned_layers"])
        if "looks" in values:
            values["looks"] = Looks.of(str(values["looks"]))
        return _ROW.validate_python(values)
    except (KeyError, ValueError, SpaceError) as error:
        why = f"it has no {error}" if isinstance(error, KeyError) else str(error)
        if isinstance(error, ValidationError):
            why = problems(error)
        raise ResultsError(
            f"trial {trial.key} of search '{search}' is not a complete record: {why}; "
            f"ask another with `search`, or delete it: elsa-tune searches --delete {search}"
        ) from error
