"""The report as one HTML page that needs nothing else: words, figures, tables, and no script.

Everything is in the file, and a content security policy forbids it the network. The same input
gives the same bytes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from jinja2 import Environment, PackageLoader, StrictUndefined

from elsa_tune.analysis.answer import Answer
from elsa_tune.report.charts import Chart
from elsa_tune.report.figures import page_svgs
from elsa_tune.report.story import facts, headline, paragraph, story
from elsa_tune.report.subjects import Subject
from elsa_tune.report.tables import answers_table, curve_table
from elsa_tune.specs.trial import PROBE_FEATURES
from elsa_tune.words import target_text

# Nothing may be fetched, from anywhere, and nothing runs; what styles stands in the page itself.
POLICY = "default-src 'none'; style-src 'unsafe-inline'"


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """What a report shows beside its answers.

    published: answers of printed tables, drawn over ours where model and task are the same.
    command: what made this report, for the reader to repeat. origins: when and where a search ran,
    by its name.
    """

    published: Sequence[Answer] = ()
    command: str = ""
    origins: Mapping[str, str] = field(default_factory=dict)


def page_html(
    answers: Sequence[Answer],
    subjects: Sequence[Subject],
    charts: Sequence[Chart],
    context: Context,
) -> str:
    """The whole file. Every name in it is text: the template escapes all but our own drawings."""
    environment = Environment(
        loader=PackageLoader("elsa_tune.report", "assets"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=StrictUndefined,
    )
    target = answers[0].target if answers else 0.9
    return environment.get_template("page.html.jinja").render(
        policy=POLICY,
        heading=headline(subjects),
        story=story(answers, subjects),
        facts=facts(subjects, context.origins),
        overview=None if len(answers) == 1 else answers_table(answers),
        warnings=_warnings(answers, subjects),
        charts=charts,
        page_svgs=page_svgs,
        sections=[
            (one.name, paragraph(one.answer), one.answer.next_step, curve_table(one))
            for one in subjects
        ],
        target=target_text(target),
        procedures=list(dict.fromkeys(a.certified.procedure for a in answers if a.certified)),
        probe_features=PROBE_FEATURES if any(answer.probe for answer in answers) else "",
        command=context.command,
        again=f"elsa-tune report --from trials.csv --target {target:g} --out again",
    )


def _warnings(answers: Sequence[Answer], subjects: Sequence[Subject]) -> dict[str, list[str]]:
    """Each warning once, with the names of the answers that carry it."""
    names = {id(subject.answer): subject.name for subject in subjects}
    found: dict[str, list[str]] = {}
    for answer in answers:
        name = names.get(id(answer), f"{answer.model}, all tasks together")
        for warning in answer.warnings:
            found.setdefault(warning.text, []).append(name)
    return found
