"""A table of a search is answered as the search's journal is without predictions."""

from __future__ import annotations

import csv
import dataclasses
import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from elsa_tune.analysis.answer import Answer, Reason
from elsa_tune.analysis.answers import answer_curves, answer_rows
from elsa_tune.errors import ResultsError
from elsa_tune.results.columns import COLUMNS, EARLIER_COLUMNS, LOOKS, POLICY
from elsa_tune.results.results_csv import csv_text, import_results, write_results
from elsa_tune.searching.planning.strategies import strategy_of
from elsa_tune.searching.record import facts_of
from elsa_tune.sources.source import Question, target_of
from elsa_tune.sources.tables import Table
from elsa_tune.specs.policy import UNRECORDED, Policy
from elsa_tune.specs.result_row import ResultRow
from elsa_tune.specs.row_findings import FindingCode, RowFinding
from elsa_tune.specs.search import NO_LOOKS, Earlier
from elsa_tune.specs.trial import Phase
from elsa_tune.tracking.params import param_texts
from tests.unit.result_rows import as_table_has, seeds
from tests.unit.search_examples import make_spec
from tests.unit.test_hunt import CLEAR, Drawn
from tests.unit.test_hunt import spec as hunt_spec

pytestmark = pytest.mark.usefixtures("fewer_draws")


def hunted(folder: Path, first_deep: float, spread: float) -> list[ResultRow]:
    """Return the rows of a hunt through twelve layers, whose last three score `first_deep`."""
    one = Drawn(hunt_spec(folder), {**CLEAR, 9: first_deep}, spread)
    one.run()
    return [dataclasses.replace(row, policy=one.spec.policy) for row in one.rows.values()]


def even(*counts: int, **changes: Any) -> list[ResultRow]:
    """Return the rows of an even search of three seeds, with so many measured at each depth."""
    spec = make_spec(planned_seeds=3)
    rows: list[ResultRow] = []
    for candidate, count in zip(spec.candidates, counts, strict=False):
        quality = 0.9 - candidate.rank / 100
        looks = strategy_of(spec).looks(candidate, {})
        qualities = [quality, quality + 0.01, quality - 0.012, quality + 0.003][:count]
        values = {"looks": looks, "search": "s", "policy": spec.policy, "examples": 2000}
        rows += seeds(candidate, qualities, **{**values, **changes})
    return rows


def through_a_table(
    rows: Sequence[ResultRow], file: Path, columns: Sequence[str] = ()
) -> list[ResultRow]:
    """Return the rows as a table gives them back. columns: those it keeps; () for all."""
    text = write_results(rows)
    if columns:
        lines = list(csv.DictReader(io.StringIO(text)))
        text = csv_text(columns, [[line[name] for name in columns] for line in lines])
    file.write_text(text, encoding="utf-8")
    return import_results(file).rows


def only(rows: Sequence[ResultRow]) -> Answer:
    [answer] = answer_rows(rows)
    return answer


def check_same_certificate(rows: Sequence[ResultRow], file: Path) -> Answer:
    """Fail unless a table of the rows is as sure as they are; returns their answer."""
    of_rows = only(rows)
    of_table = only(through_a_table(rows, file))
    for name in (
        "certified",
        "corrected_certified",
        "plausible_candidates",
        "contrasts",
        "corrected_contrasts",
        "reason",
        "certainty",
    ):
        assert getattr(of_table, name) == getattr(of_rows, name), name
    return of_rows


def test_an_even_search(tmp_path: Path) -> None:
    rows = even(3, 3, 3)
    answer = check_same_certificate(rows, tmp_path / "trials.csv")
    assert answer.certified is not None and answer.looks is not None
    # Seeds beyond the planned ones are for the curve alone, also from a table.
    more = even(4, 4, 3)
    assert check_same_certificate(more, tmp_path / "trials.csv").contrasts == answer.contrasts


def test_a_hunt_whose_second_look_was_taken(tmp_path: Path) -> None:
    rows = hunted(tmp_path, 0.845, 0.02)
    answer = check_same_certificate(rows, tmp_path / "trials.csv")
    looks = [contrast.look for contrast in answer.contrasts.values() if contrast.look]
    assert max(look.number for look in looks) == 2
    assert max(look.level for look in looks) < 0.05


def test_a_hunt_that_left_its_ladder_out(tmp_path: Path) -> None:
    rows = hunted(tmp_path, 0.86, 0.004)
    answer = check_same_certificate(rows, tmp_path / "trials.csv")
    assert {row.looks.error for row in rows if row.looks} == {0.045}
    assert answer.certified is not None and not answer.certified.candidate.is_reference


@pytest.mark.parametrize(("target", "above"), [(0.8, 0.9), (0.95, 0.96)])
def test_the_target_that_a_search_was_planned_for_goes_with_its_table(
    target: float, above: float, tmp_path: Path
) -> None:
    rows = even(3, 3, 3, policy=Policy(), planned_target=target)
    again = through_a_table(rows, tmp_path / "trials.csv")
    assert {row.planned_target for row in again} == {target}
    assert target_of(again) == target and target_of(again, 0.7) == 0.7
    [planned] = answer_rows(again, target)
    assert planned.certified is not None
    [higher] = answer_rows(again, above)
    assert higher.reason is Reason.TARGET_NOT_PLANNED and higher.certified is None
    assert f"the search was planned for {100 * target:g} %" in higher.certainty


def test_a_table_of_looks_without_planned_targets_is_certified_at_the_default_one(
    tmp_path: Path,
) -> None:
    rows = even(3, 3, 3, policy=Policy(), planned_target=0.8)
    again = through_a_table(rows, tmp_path / "trials.csv", COLUMNS)
    assert target_of(again) == 0.9
    [curve] = Table(tmp_path / "trials.csv").curves(Question(), again, 0.91)
    assert curve.looks is not None and curve.looks.own_target is None
    [answer] = answer_curves([curve], 0.9)
    assert answer.certified is not None
    [higher] = answer_curves([curve], 0.91)
    assert higher.reason is Reason.TARGET_NOT_PLANNED and higher.certified is None
    assert "does not say which target its search was planned for" in higher.certainty
    assert "one above 90 % is exploratory" in str(higher.first_lines)


def test_a_table_without_looks_is_certified_at_any_target(tmp_path: Path) -> None:
    rows = even(3, 3, 3, looks=None, policy=None)
    [answer] = answer_rows(through_a_table(rows, tmp_path / "trials.csv"), 0.91)
    assert answer.certified is not None


def test_findings_and_earlier_searches_go_with_a_table(tmp_path: Path) -> None:
    names = ("N/A", 'a "b"')
    leaked = RowFinding(code=FindingCode.LEAKED_ROWS, count=41, of=484, same_label=41, names=names)
    earlier = Earlier(names=("one", "two"), seeds_are_fresh=False)
    rows = even(3, 3, 3, policy=Policy(), findings=(leaked,), earlier=earlier)
    file = tmp_path / "trials.csv"
    assert through_a_table(rows, file) == as_table_has(rows)
    of_table = only(import_results(file).rows)
    assert of_table.first_lines == only(as_table_has(rows)).first_lines
    assert of_table.first_lines.headline.startswith("Clean the data first: 41 of 484")
    assert "the third search of this question" in str(of_table)
    file.write_text(file.read_text().replace("leaked_rows", "odd", 1), encoding="utf-8")
    with pytest.raises(ResultsError, match=r"line 2: .*code"):
        import_results(file)


def test_what_was_not_planned_stays_so(tmp_path: Path) -> None:
    answer = check_same_certificate(even(3, 3, 3, looks=NO_LOOKS), tmp_path / "trials.csv")
    assert answer.reason is Reason.NOT_PLANNED_TO_CERTIFY


@pytest.mark.parametrize("changes", [{}, {"error": 0.1, "looks": ((3, 3), (6, 6))}])
def test_the_policy_is_read_back(changes: dict[str, Any], tmp_path: Path) -> None:
    policy = Policy(**changes)
    rows = even(3, 3, policy=policy)
    assert {row.policy for row in through_a_table(rows, tmp_path / "t.csv")} == {policy}


def test_a_table_of_scores_is_answered_by_this_versions_rule_for_them(tmp_path: Path) -> None:
    """A search recorded before the rule may keep its answer; a table has lost the predictions."""
    rows = even(3, 3, 3, policy=UNRECORDED, metric="f1")
    assert only(rows).certified is not None
    again = through_a_table(rows, tmp_path / "trials.csv")
    answer = only(again)
    assert answer.certified is None and answer.reason is Reason.EXAMPLES_UNKNOWN
    assert {row.policy for row in again} == {dataclasses.replace(UNRECORDED, by_seeds_alone=False)}


def test_a_hunts_table_of_an_earlier_version_certifies_nothing(tmp_path: Path) -> None:
    file = tmp_path / "trials.csv"
    hunt = through_a_table(hunted(tmp_path, 0.86, 0.004), file, EARLIER_COLUMNS)
    answer = only(hunt)
    assert answer.certified is None and answer.reason is Reason.LOOKS_NOT_RECORDED
    assert "an earlier version of elsa-tune wrote the table" in answer.certainty
    # A report of that table cannot bring them back.
    assert only(through_a_table(hunt, file)).reason is Reason.LOOKS_NOT_RECORDED
    # With as many seeds everywhere there was one test with all of them.
    rows = even(3, 3, 3, policy=Policy())
    without = through_a_table(rows, file, EARLIER_COLUMNS)
    assert only(without).certified == only(rows).certified is not None
    # Nobody else's table has all of the columns.
    foreign = [name for name in EARLIER_COLUMNS if name != "peak_memory_mb"]
    assert only(through_a_table(even(3, 2, 2), file, foreign)).looks is None


def test_looks_that_cannot_be_read_are_named_with_their_line(tmp_path: Path) -> None:
    file = tmp_path / "trials.csv"
    text = write_results(even(3, 3, policy=Policy()))
    file.write_text(text.replace("after N=0", "soon", 1), encoding="utf-8")
    with pytest.raises(ResultsError, match=r"line \d+: .*does not say when a depth is tested"):
        import_results(file)
    broken = text.replace("by_seeds_alone", "error").replace(": false", ": 2")
    file.write_text(broken, encoding="utf-8")
    with pytest.raises(ResultsError, match=r"line 2: .*error"):
        import_results(file)


def test_an_export_of_mlflow_has_the_looks_of_our_runs(tmp_path: Path) -> None:
    spec = make_spec(planned_seeds=3, evaluation_examples=872)
    lines = []
    for candidate in spec.candidates[:2]:
        for phase, seed in ((Phase.EXPLORE, 0), (Phase.MEASURE, 1), (Phase.MEASURE, 2)):
            texts = param_texts(facts_of(spec, spec.trial(phase, candidate, 2e-5, seed)))
            line = {f"params.{name}": text for name, text in texts.items()}
            lines.append({**line, "metrics.quality": "0.8", "tags.status": "completed"})
    header = list(lines[0])
    file = tmp_path / "runs.csv"
    file.write_text(csv_text(header, [[line[name] for name in header] for line in lines]))
    imported = import_results(file)
    looks = strategy_of(spec).looks(spec.candidates[1], {})
    assert [row.looks for row in imported.rows[3:]] == [None, looks, looks]
    assert {row.examples for row in imported.rows} == {872}
    assert f"{LOOKS} <- params.looks" in imported.notes
    assert POLICY not in "".join(imported.notes)
