"""The names under which the record stands in MLflow: tags, metrics, experiments, run statuses."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from elsa_tune.specs.trial import TrialStatus
from elsa_tune.tracking.journal_records import SearchStatus

# The tags by which runs are found again; values of other tags may be anything.
SEARCH_ID_TAG: Final = "elsa_tune.search_id"
SEARCH_TAG: Final = "elsa_tune.search"
TRIAL_TAG: Final = "elsa_tune.trial"
# The journal's place, so that a reader on the driver's machine can tell whether the driver lives.
JOURNAL_TAG: Final = "elsa_tune.journal"
HOST_TAG: Final = "elsa_tune.host"
STATUS_TAG: Final = "status"
ATTEMPT_TAG: Final = "attempt"
# When the last attempt began, in milliseconds: what was logged before belongs to earlier attempts.
ATTEMPT_STARTED_TAG: Final = "elsa_tune.attempt_started"
# A param cannot be changed in MLflow: the value that a later attempt had stands in this tag.
CHANGED_PARAM_PREFIX: Final = "param."
DECISION_PREFIX: Final = "decision."
PARENT_TAG: Final = "mlflow.parentRunId"
# The trial's quality under its selection; `quality` is each evaluation's.
TRIAL_QUALITY: Final = "trial_quality"
EVALUATION: Final = "evaluation"

EXPERIMENT_PREFIX: Final = "elsa-tune/"
PREDICTIONS_FOLDER: Final = "predictions"
# On a trial's run: its predictions' file, relative to the search's folder and to the artifacts.
PREDICTIONS_TAG: Final = "predictions"
# The decisions that say what a search found: its answer's JSON objects, and the same in Markdown.
ANSWER: Final = "answer"
DESCRIPTION: Final = "description"
# The decision that names the folder of figures and page, and the folder's name in MLflow.
REPORT: Final = "report"
# On the search's run: the machine that its driver runs on.
MACHINE_TAG: Final = "machine"
# MLflow's limit (mlflow/utils/validation.py).
TAG_LENGTH: Final = 8000

# What MLflow calls the ends of trials and searches.
RUN_STATUS: Final[dict[str, str]] = {
    TrialStatus.COMPLETED: "FINISHED",
    TrialStatus.STOPPED_EARLY: "FINISHED",
    SearchStatus.TIME_UP: "FINISHED",
    TrialStatus.FAILED: "FAILED",
    TrialStatus.DIVERGED: "FAILED",
    TrialStatus.INTERRUPTED: "KILLED",
    SearchStatus.KILLED: "KILLED",
}


def after_prefix(prefix: str, tags: Mapping[str, str]) -> dict[str, str]:
    """The tags whose names begin so, by the rest of their names."""
    return {
        name.removeprefix(prefix): value for name, value in tags.items() if name.startswith(prefix)
    }
