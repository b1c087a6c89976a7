"""Names that stand in stores and files already: whoever renames one loses what was recorded."""

from __future__ import annotations

from pathlib import Path

from elsa_tune.tracking import names
from elsa_tune.tracking.paths import SearchPaths, StorePaths


def test_tags_prefixes_and_experiments_keep_their_names() -> None:
    persisted = {
        "SEARCH_ID_TAG": "elsa_tune.search_id",
        "SEARCH_TAG": "elsa_tune.search",
        "OTHER_SEARCH_TAG": "elsa_tune.searching",
        "TRIAL_TAG": "elsa_tune.trial",
        "JOURNAL_TAG": "elsa_tune.journal",
        "HOST_TAG": "elsa_tune.host",
        "STATUS_TAG": "status",
        "ATTEMPT_TAG": "attempt",
        "ATTEMPT_STARTED_TAG": "elsa_tune.attempt_started",
        "CHANGED_PARAM_PREFIX": "param.",
        "DECISION_PREFIX": "decision.",
        "PARENT_TAG": "mlflow.parentRunId",
        "TRIAL_QUALITY": "trial_quality",
        "EVALUATION": "evaluation",
        "EXPERIMENT_PREFIX": "elsa-tune/",
        "PREDICTIONS": "predictions",
        "ANSWER": "answer",
        "DESCRIPTION": "description",
        "LADDER": "ladder",
        "REPORT": "report",
        "MACHINE_TAG": "machine",
    }
    assert {name: getattr(names, name) for name in persisted} == persisted


def test_files_keep_their_names(tmp_path: Path) -> None:
    places = StorePaths(tmp_path)
    paths = SearchPaths(places.storage, "mine")
    files = (places.database, places.artifact_root, paths.journal, paths.specification)
    files += (paths.forwarded, paths.predictions, paths.report)
    assert [str(file.relative_to(tmp_path)) for file in files] == [
        "mlruns/mlflow.db",
        "mlruns/artifacts",
        "mlruns/searches/mine/journal.jsonl",
        "mlruns/searches/mine/search.json",
        "mlruns/searches/mine/forwarded.json",
        "mlruns/searches/mine/predictions",
        "mlruns/searches/mine/report",
    ]
