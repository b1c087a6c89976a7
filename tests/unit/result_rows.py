"""Rows for tests of `analysis`: short to write, complete to read; and a store that has them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from elsa_tune.analysis.answer import Answer
from elsa_tune.analysis.curve import FreezeCurve
from elsa_tune.analysis.warning import WarningCode
from elsa_tune.sources import source
from elsa_tune.specs.adapt.candidate import Candidate
from elsa_tune.specs.adapt.freeze import FreezeDepth
from elsa_tune.specs.comparison import Comparison
from elsa_tune.specs.policy import Policy
from elsa_tune.specs.result_row import ResultRow
from elsa_tune.specs.trial import Phase, TrialStatus
from elsa_tune.tracking.journal_records import SearchEnded, SearchStatus
from elsa_tune.tracking.mlflow.store import MlflowStore
from elsa_tune.tracking.state import SearchState
from tests.recorded_search import search_started

EMBEDDINGS_ONLY = FreezeDepth(0, True)

# By which scores alone are certified, as searches were before it took more.
BY_SEEDS_ALONE = Policy(by_seeds_alone=True)


def row(frozen: int | Candidate, quality: float | None, **changes: Any) -> ResultRow:
    """One completed measuring run of a six-layer model on a task whose constant answer has .5.

    Of a search that certifies scores alone, unless `policy` says otherwise.
    """
    values: dict[str, Any] = {
        "model": "minilm",
        "task": "rte",
        "layers": 6,
        "candidate": FreezeDepth(frozen, frozen > 0) if isinstance(frozen, int) else frozen,
        "quality": quality,
        "status": TrialStatus.COMPLETED,
        "phase": Phase.MEASURE,
        "metric": "accuracy",
        "chance": 0.5,
        "learning_rate": 3e-5,
        "seed": 1,
        "policy": BY_SEEDS_ALONE,
    }
    values |= changes
    if isinstance(values.get("comparison"), str):
        values["comparison"] = Comparison.read(values["comparison"])
    return ResultRow(**values)


def as_table_has(rows: Sequence[ResultRow]) -> list[ResultRow]:
    """Return the rows as a table gives them back, which certifies no scores alone."""
    read: list[ResultRow] = []
    for one in rows:
        policy = one.policy and replace(one.policy, by_seeds_alone=False)
        read.append(replace(one, policy=policy))
    return read


def seeds_advised(answer: Answer) -> int | None:
    """Return the seeds that would probably certify the operating point in a new search."""
    assert answer.operating_point is not None
    advice = answer.would_certify.get(answer.operating_point.candidate)
    return None if advice is None else advice.seeds


def takes_more_rows(answer: Answer) -> bool:
    """Whether more evaluation rows would certify the operating point, and more seeds would not."""
    assert answer.operating_point is not None
    advice = answer.would_certify.get(answer.operating_point.candidate)
    if advice is None or advice.seeds is not None:
        return False
    return advice.evaluation_rows is not None


def seeds(frozen: int | Candidate, qualities: Sequence[float], **changes: Any) -> list[ResultRow]:
    """One run a quality, with seeds 1, 2, ..."""
    return [row(frozen, quality, seed=seed, **changes) for seed, quality in enumerate(qualities, 1)]


def falling_curve(**changes: Any) -> list[ResultRow]:
    """Return a complete curve, three seeds a depth.

    N = 4 keeps 90 % raw, N = 3 corrected for chance.
    """
    means = {0: 0.90, 3: 0.88, 4: 0.83, 5: 0.76, 6: 0.60}
    return [
        one
        for frozen, mean in means.items()
        for one in seeds(
            frozen,
            [mean - 0.01, mean, mean + 0.01],
            **{"learning_rate": 5e-5 if frozen else 3e-5, **changes},
        )
    ]


def fill_store(
    monkeypatch: pytest.MonkeyPatch, rows: Sequence[ResultRow], **tags: str
) -> list[str]:
    """Put rows where the MLflow store would be; returns the URIs it is asked at.

    tags: of each search, beside its usual ones.
    """
    asked: list[str] = []
    kept: dict[tuple[str, str], list[ResultRow]] = {}
    for one in rows:
        name = one.search or ""
        of_search = replace(one, search_id=search_started(name).search_id)
        kept.setdefault((name, one.task), []).append(of_search)

    def searches(
        store: MlflowStore, tasks: Sequence[str] | None = None, search: str | None = None
    ) -> list[SearchState]:
        asked.append(store.uri)
        end = SearchEnded(status=SearchStatus.COMPLETED)
        states = []
        for name, task in kept:
            if search in (None, name) and (tasks is None or task in tasks):
                began = search_started(name, task=task)
                began = replace(began, tags={**began.tags, **tags})
                states.append(SearchState(search=began, end=end))
        return states

    def rows_of(state: SearchState, folder: Path | None = None) -> list[ResultRow]:
        return kept.get((state.search.name, state.search.task)) or read(state, folder)

    read = source.rows_of
    monkeypatch.setattr(source, "rows_of", rows_of)
    monkeypatch.setattr(MlflowStore, "searches", searches)
    return asked


def codes(found: Answer | FreezeCurve) -> list[WarningCode]:
    """Return the codes of its warnings, in order."""
    return [warning.code for warning in found.warnings]


def warned(found: Answer | FreezeCurve, code: WarningCode) -> str:
    """Return the text of the one warning of this code."""
    (text,) = [warning.text for warning in found.warnings if warning.code is code]
    return text
