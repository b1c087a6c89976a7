"""Reports for the tests: results with every feature a figure shows, and their answers."""

from __future__ import annotations

from elsa_tune.analysis.answer import Answer
from elsa_tune.analysis.answers import answer_rows
from elsa_tune.report.charts import all_charts
from elsa_tune.report.page import Origins, by_name, page_html
from elsa_tune.specs.result_row import ResultRow
from elsa_tune.specs.trial import Phase, TrialStatus
from tests.unit.result_rows import falling_curve, row

# What HTML, a script and matplotlib's formulas would each take for their own.
NASTY = '</script><b onclick="x">&amp; $a_1$'


def searched(search: str = "first", **changes: str) -> list[ResultRow]:
    """Return a measured curve with its exploring trials.

    Of two rates, one was stopped at each depth.
    """
    rows = falling_curve(
        learning_rate=3e-5,
        search=search,
        train_seconds=60.0,
        trainable_parameters=5_000_000,
        **changes,
    )
    for depth in sorted({one.candidate for one in rows}):
        for rate, status in ((3e-5, TrialStatus.COMPLETED), (1e-5, TrialStatus.STOPPED_EARLY)):
            rows.append(
                row(
                    depth,
                    0.7 if status is TrialStatus.STOPPED_EARLY else 0.8,
                    phase=Phase.EXPLORE,
                    status=status,
                    learning_rate=rate,
                    seed=0,
                    search=search,
                    trial=f"explore-N{depth.label}-{rate:g}",
                    **changes,
                )
            )
    return rows


def named(rows: list[ResultRow]) -> dict[str, Answer]:
    """Return the answers on these rows by their names."""
    return by_name(answer_rows(rows))


def answers_of(rows: list[ResultRow]) -> list[Answer]:
    """Their answers, joint ones too."""
    return answer_rows(rows)


def page_of(rows: list[ResultRow], command: str = "", origins: Origins | None = None) -> str:
    """Return the page of these rows."""
    answers = answers_of(rows)
    return page_html(answers, rows, all_charts(by_name(answers)), command, origins)
