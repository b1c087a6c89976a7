"""A report on disk: one folder with the page, the figures and the tables.

Each file is written aside and then renamed, the page last: a reader meets old files or new ones,
never half of one.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

from elsa_tune.analysis.answer import Answer
from elsa_tune.analysis.answer_json import answer_object, answers_csv, as_json, curves_csv
from elsa_tune.errors import StorageError
from elsa_tune.report import figures, freeze_charts, search_charts
from elsa_tune.report.charts import Chart
from elsa_tune.report.page import Page, Section, page_html
from elsa_tune.report.search_charts import Histories
from elsa_tune.report.story import cards, facts, headline, paragraph, rules, story
from elsa_tune.report.subjects import Subject, subjects_of
from elsa_tune.report.tables import answers_table, curve_table, trials_table
from elsa_tune.specs.result_row import ResultRow
from elsa_tune.specs.trial import Phase
from elsa_tune.tables.results_csv import write_results

PAGE = "index.html"
TRIALS = "trials.csv"
FIGURES = "figures"
# Figures of an earlier report that this one has not: shown beside it they would mislead.
_OUR_FIGURES = re.compile(
    r"(freeze_curve|relative_change|training_time|trained_parameters|learning_rates|"
    r"early_stopping(-.+)?)\.(png|svg)"
)


def write_report(
    answers: Sequence[Answer],
    rows: Sequence[ResultRow],
    histories: Histories,
    folder: Path,
    *,
    published: Sequence[Answer] = (),
    command: str = "",
    origins: Mapping[str, str] | None = None,
    notes: Sequence[str] = (),
    files: Mapping[str, str] | None = None,
    stale: re.Pattern[str] | None = None,
) -> list[Path]:
    """Write the report of these answers and the rows they came from; returns its files, page first.

    histories: the score at each evaluation by (search, trial); may be empty. published: answers
    of printed tables, drawn over ours where model and task are the same. command: what made this
    report, for the reader to repeat. origins: when and where a search ran, by its name. notes:
    sentences that the page begins with. files: more of them, text by name. stale: the names of such
    files of an earlier report, removed where this one has none. Raises StorageError where the
    folder cannot be written.
    """
    check_folder(folder)
    rows = [row for row in rows if row.phase is not Phase.PROBE]  # the answers tell of it
    page = make_page(
        answers,
        rows,
        histories,
        published=published,
        command=command,
        origins=origins,
        notes=notes,
    )
    contents: dict[str, bytes] = {}
    for chart in page.charts:
        if chart.panels:
            for kind, drawn in figures.draw(chart).items():
                contents[f"{FIGURES}/{chart.key}.{kind}"] = drawn
    texts = {
        **(files or {}),
        "curve.csv": curves_csv(answer for answer in answers if answer.decided_by is None),
        "answers.csv": answers_csv(answers),
        "answers.json": as_json([answer_object(answer) for answer in answers]) + "\n",
        TRIALS: write_results(rows),
        PAGE: page_html(page),
    }
    contents |= {name: text.encode() for name, text in texts.items()}
    earlier = {folder / FIGURES: _OUR_FIGURES}
    if stale is not None:
        earlier[folder] = stale
    return _write(folder, contents, earlier)


def make_page(
    answers: Sequence[Answer],
    rows: Sequence[ResultRow],
    histories: Histories,
    *,
    published: Sequence[Answer] = (),
    command: str = "",
    origins: Mapping[str, str] | None = None,
    notes: Sequence[str] = (),
) -> Page:
    """All that the report shows; arguments as in `write_report`."""
    subjects = subjects_of(answers, rows)
    return Page(
        heading=headline(subjects),
        notes=tuple(notes),
        cards=tuple(cards(subjects[0])) if len(subjects) == 1 else (),
        story=tuple(story(answers, subjects)),
        facts=facts(subjects, origins or {}),
        overview=None if len(subjects) == 1 else answers_table(answers),
        warnings=_warnings(answers, subjects),
        charts=tuple(all_charts(subjects, histories, published)),
        sections=tuple(_section(subject) for subject in subjects),
        trials=trials_table(rows),
        rules=tuple(rules(answers)),
        commands=tuple(_commands(answers, command)),
    )


def all_charts(
    subjects: Sequence[Subject], histories: Histories, published: Sequence[Answer] = ()
) -> list[Chart]:
    """Every figure of a report, those that could not be drawn without panels."""
    return [
        freeze_charts.freeze_curve(subjects, published),
        freeze_charts.relative_change(subjects, published),
        freeze_charts.training_time(subjects),
        search_charts.learning_rates(subjects),
        *search_charts.early_stopping(subjects, histories),
    ]


def check_folder(folder: Path) -> None:
    """Raise StorageError if a report cannot be written there; makes nothing yet."""
    there = folder / FIGURES
    while not there.exists() and there != there.parent:
        there = there.parent
    if not there.is_dir():
        raise _cannot_write(folder, NotADirectoryError(20, f"{there} is a file"))
    # What is there must take the files, a folder that is not there yet must be made.
    if not all(os.access(place, os.W_OK | os.X_OK) for place in {there, folder} if place.is_dir()):
        raise _cannot_write(folder, PermissionError(13, "permission denied"))


def _cannot_write(folder: Path, error: OSError) -> StorageError:
    return StorageError(
        f"the report cannot be written to {folder}: {error.strerror or error}; "
        "name another folder with --out"
    )


def _warnings(answers: Sequence[Answer], subjects: Sequence[Subject]) -> dict[str, list[str]]:
    """Each warning once, with the names of the answers that carry it."""
    names = {id(subject.answer): subject.name for subject in subjects}
    found: dict[str, list[str]] = {}
    for answer in answers:
        name = names.get(id(answer), f"{answer.model}, all tasks together")
        for warning in answer.warnings:
            found.setdefault(warning, []).append(name)
    return found


def _section(subject: Subject) -> Section:
    return Section(
        name=subject.name,
        told=paragraph(subject.answer),
        next_step=subject.answer.next_step,
        table=curve_table(subject.answer, subject.name),
    )


def _commands(answers: Sequence[Answer], command: str) -> list[str]:
    target = f" --target {answers[0].target:g}" if answers else ""
    again = f"elsa-tune report --from {shlex.quote(TRIALS)}{target} --out again"
    return [
        *(["# this report, from where its trials are recorded", command, ""] if command else []),
        "# the same answers from the table beside this page",
        again,
    ]


def _write(
    folder: Path, contents: Mapping[str, bytes], earlier: Mapping[Path, re.Pattern[str]]
) -> list[Path]:
    """earlier: by folder, the names of what an older report left there."""
    written: list[Path] = []
    try:
        (folder / FIGURES).mkdir(parents=True, exist_ok=True)
        for name, content in contents.items():
            target = folder / name
            aside = target.with_name(f".{target.name}.part")
            try:
                aside.write_bytes(content)
                os.replace(aside, target)
            except OSError:
                aside.unlink(missing_ok=True)
                raise
            written.append(target)
        for place, names in earlier.items():
            for old in list(place.iterdir()):
                if names.fullmatch(old.name) and old not in written:
                    old.unlink()
    except OSError as error:
        raise _cannot_write(folder, error) from error
    return written[::-1]
