"""A report's page: one HTML file that needs nothing else and no script.

A content security policy forbids it the network. The same input gives the same bytes.
"""

import shlex
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from jinja2 import Environment, PackageLoader, StrictUndefined

from elsa_tune.analysis.answer import DEFAULT_TARGET, Answer, FirstLines
from elsa_tune.analysis.comparing.ways import WayComparison
from elsa_tune.analysis.curve import FreezeCurve
from elsa_tune.analysis.warning import DETAILS, AnswerWarning, WarningCode
from elsa_tune.analysis.wording.answer import probe_sentence, saves_sentence
from elsa_tune.analysis.wording.certainty import export_command
from elsa_tune.report.charts import Chart
from elsa_tune.report.figures import page_svgs
from elsa_tune.report.tables import (
    NO_TABLE,
    Table,
    cost_table,
    curve_table,
    kinds_of_guess,
    overview,
    ways_table,
    with_articles,
)
from elsa_tune.specs.cost import Cost
from elsa_tune.specs.policy import Policy
from elsa_tune.specs.result_row import Origin, ResultRow, SearchKey
from elsa_tune.specs.trial import PROBE_FEATURES
from elsa_tune.visible import visible
from elsa_tune.words import CHOSEN, CHOSEN_MARK, listed, number_text, target_text

MOST_NAMED = 6  # questions without an answer


# Where searches come from, by their names.
Origins = Mapping[SearchKey, Origin]


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawing:
    """A figure of one answer, drawn."""

    title: str
    caption: str  # how to read it
    svg: str  # the element, for the page


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """One answer on the page, or one comparison of ways where there is no freeze curve."""

    key: str  # what a link to it names
    name: str  # of the answer: `minilm on rte`
    card: FirstLines  # what stands first, in a box
    figures: Mapping[str, Drawing]  # by the key of their chart
    table: Table = NO_TABLE  # the curve
    costs: Table = NO_TABLE  # what its trials took
    in_full: str = ""  # the complete text
    warnings: tuple[str, ...]  # those that may change a decision
    remarks: tuple[str, ...]  # the warnings that change no decision
    # The comparison with ways that have no place on the curve; None where there are none.
    ways: FirstLines | None = None
    ways_warnings: tuple[str, ...] = ()  # of the comparison alone: the answer lacks them
    ways_table: Table = NO_TABLE  # also where ways alone were compared


def by_name(answers: Iterable[Answer]) -> dict[str, Answer]:
    """Name answers of one task each: `minilm on rte`, with the training size if there are several.

    Joint answers are left out.
    """
    single = [answer for answer in answers if answer.decided_by is None]
    train_sizes = {answer.train_size for answer in single}
    has_several_sizes = len(train_sizes) > 1
    named = {}
    for answer in single:
        name = f"{answer.model} on {answer.task}"
        if has_several_sizes:
            name += _size_text(answer)
        named[name] = answer
    return named


def _size_text(curve: FreezeCurve) -> str:
    return number_text(curve.train_size, " ({:,} examples)", " (all examples)")


def comparisons_by_name(
    named: Mapping[str, Answer], comparisons: Sequence[WayComparison]
) -> dict[str, WayComparison]:
    """Return comparisons by the names of the answers on the same model, task and training size.

    Those without one, for lack of a freeze curve, are named as an answer would be.
    """
    names = {(answer.model, answer.task, answer.train_size): name for name, answer in named.items()}
    train_sizes = {comparison.curve.train_size for comparison in comparisons}
    has_several_sizes = len(train_sizes) > 1
    compared: dict[str, WayComparison] = {}
    for comparison in comparisons:
        curve = comparison.curve
        name = f"{curve.model} on {curve.task}"
        if has_several_sizes:
            name += _size_text(curve)
        name = names.get((curve.model, curve.task, curve.train_size), name)
        compared[name] = comparison
    return compared


def page_html(
    answers: Sequence[Answer],
    rows: Sequence[ResultRow],
    charts: Sequence[Chart],
    command: str = "",
    origins: Origins | None = None,
    comparisons: Sequence[WayComparison] = (),
) -> str:
    """Return the complete file.

    Every name in it is text: the template escapes all but our own drawings. rows: of the trials
    that the answers came from. command: what made this report, for the reader to repeat. origins:
    of each search by its name and id. comparisons: with the ways that have no place on a curve.
    """
    environment = Environment(
        loader=PackageLoader("elsa_tune.report", "assets"),
        autoescape=True,
        finalize=_shown,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=StrictUndefined,
    )
    origins = origins or {}
    named = by_name(answers)
    compared = comparisons_by_name(named, comparisons)
    sections = _sections(named, _figures(charts), compared)
    target = DEFAULT_TARGET
    if answers:
        target = answers[0].target
    share = target_text(target)
    counted = summary(answers, comparisons)
    at_a_glance = None
    if counted:
        keys = {section.name: section.key for section in sections}
        at_a_glance = _overview(answers, named, compared, keys)
    procedures = [answer.claimed.procedure for answer in answers if answer.claimed]
    probe_features = ""
    if any(answer.probe for answer in answers):
        probe_features = PROBE_FEATURES
    # What else a folder or a store holds is not the page's.
    shown = {row.search_key for row in rows}
    commands = [origin.command for search, origin in origins.items() if search in shown]
    exports = [export_command(answer) for answer in named.values()]
    template = environment.get_template("page.html.jinja")
    return template.render(
        heading=_heading(answers, comparisons, share),
        summary=counted,
        facts=facts(rows, origins),
        overview=at_a_glance,
        sections=sections,
        chosen_mark=CHOSEN_MARK,
        chosen_name=CHOSEN,
        joint=_joint(answers),
        target=share,
        guess=with_articles(kinds_of_guess(_curves(answers, comparisons))),
        # Where ways alone were compared, no depth was decided on.
        has_depths=bool(answers) or not comparisons,
        ways_target=target_text(comparisons[0].target) if comparisons else "",
        procedures=_distinct(procedures),
        probe_features=probe_features,
        searches=_distinct(commands),
        exports=_distinct(exports),
        command=command,
        again=_again(target, answers, comparisons),
        lacking=listed(_lacking(answers, rows, comparisons)),
    )


def _lacking(
    answers: Sequence[Answer], rows: Sequence[ResultRow], comparisons: Sequence[WayComparison]
) -> list[str]:
    """Return what these answers rest on that the table of their trials does not hold."""
    units = {comparison.unit for comparison in comparisons}
    warnings = [warning for answer in answers for warning in answer.warnings]
    warnings += [warning for comparison in comparisons for warning in comparison.warnings]
    has_predictions = any(row.predictions for row in rows)
    is_lacking = {
        "predictions": has_predictions,
        # Where there are predictions, they decide.
        "an earlier version's rule": (
            not has_predictions and any(_certifies_by_seeds_alone(row) for row in rows)
        ),
        "the linear probe": any(answer.probe for answer in answers),
        "latencies": bool(units & {Cost.LATENCY, Cost.BUNDLE}),
        "the given learning rates": any(answer.within_given for answer in answers),
        "the trials that are left": any(one.code is WarningCode.INCOMPLETE for one in warnings),
    }
    return [what for what, lacks in is_lacking.items() if lacks]


def _certifies_by_seeds_alone(row: ResultRow) -> bool:
    """Whether a row's search is answered by a rule that no table is answered by."""
    return row.policy is not None and row.policy.by_seeds_alone != Policy().by_seeds_alone


def _again(target: float, answers: Sequence[Answer], comparisons: Sequence[WayComparison]) -> str:
    """Return the command that makes the report of its own table; that knows no latencies."""
    more = ""
    for task in _distinct(task for answer in answers for task in answer.excluded):
        more += f"--exclude-task {shlex.quote(task)} "
    units = {comparison.unit for comparison in comparisons}
    for unit in (Cost.TIME, Cost.MEMORY, Cost.PARAMETERS):
        # By time, ways are compared without being asked, but not where there are depths alone.
        is_asked = unit is not Cost.TIME or _are_depths(comparisons)
        if unit in units and is_asked:
            more += f"--cost {unit} "
    if answers:  # ways are compared by a target of their own
        more = f"--target {target:g} {more}"
    return f"elsa-tune report --from trials.csv {more}--out again"


def _are_depths(comparisons: Sequence[WayComparison]) -> bool:
    """Whether freeze depths alone were compared."""
    for comparison in comparisons:
        if not all(way.candidate.is_ranked for way in comparison.ways):
            return False
    return True


def _heading(answers: Sequence[Answer], comparisons: Sequence[WayComparison], share: str) -> str:
    """Return the question of the page, with what it is asked about."""
    question = f"How many layers must be fine-tuned to keep {share}"
    if comparisons and not answers:
        best = target_text(comparisons[0].target)
        question = f"The cheapest way to adapt the model that keeps {best} of the best"
    return f"{question}: {_about(_curves(answers, comparisons))}"


def _curves(answers: Sequence[Answer], comparisons: Sequence[WayComparison]) -> list[FreezeCurve]:
    """Return the curves of one task each that are answered or compared."""
    curves: list[FreezeCurve] = list(by_name(answers).values())
    curves += [comparison.curve for comparison in comparisons]
    return curves


def _about(curves: Iterable[FreezeCurve]) -> str:
    """Return `minilm on rte`, or how many models and tasks there are."""
    models: set[str] = set()
    tasks: set[str] = set()
    for curve in curves:
        models.add(curve.model)
        tasks.add(curve.task)
    of_models = _only_or_count(models, "models")
    on_tasks = _only_or_count(tasks, "tasks")
    return f"{of_models} on {on_tasks}"


def _only_or_count(names: Collection[str], what: str) -> str:
    """Return the one name that there is, or how many there are."""
    if len(names) != 1:
        return f"{len(names)} {what}"
    [name] = names
    return name


def _sections(
    named: Mapping[str, Answer],
    figures: Mapping[str, Mapping[str, Drawing]],
    comparisons: Mapping[str, WayComparison],
) -> list[Section]:
    """Return a section for each answer, and for each comparison that has none."""
    sections: list[Section] = []
    for name, answer in named.items():
        section = replace(
            _section(len(sections) + 1, name, answer, figures),
            table=curve_table(name, answer),
            costs=cost_table(name, answer),
            in_full=in_full(answer),
        )
        comparison = comparisons.get(name)
        if comparison is not None:
            section = _with_ways(section, name, answer, comparison)
        sections.append(section)
    for name, comparison in comparisons.items():
        if name not in named:
            section = _section(len(sections) + 1, name, comparison, figures)
            sections.append(replace(section, ways_table=ways_table(name, comparison)))
    return sections


def _with_ways(section: Section, name: str, answer: Answer, comparison: WayComparison) -> Section:
    """Return an answer's section with the comparison that is shown below it."""
    of_ways = [warning for warning in comparison.warnings if warning not in answer.warnings]
    warnings, remarks = _warned_of(of_ways)
    return replace(
        section,
        ways=comparison.first_lines,
        ways_warnings=warnings,
        ways_table=ways_table(name, comparison),
        remarks=(*section.remarks, *remarks),
    )


def _section(
    number: int,
    name: str,
    answered: Answer | WayComparison,
    figures: Mapping[str, Mapping[str, Drawing]],
) -> Section:
    """Return what every section has."""
    warnings, remarks = _warned_of(answered.warnings)
    return Section(
        key=f"answer-{number}",
        name=name,
        card=answered.first_lines,
        figures=figures.get(name, {}),
        warnings=warnings,
        remarks=remarks,
    )


def _warned_of(warnings: Iterable[AnswerWarning]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the texts of warnings that may change a decision, and of those that change none."""
    grave: list[str] = []
    remarks: list[str] = []
    for warning in warnings:
        if warning.code in DETAILS:
            remarks.append(warning.text)
        else:
            grave.append(warning.text)
    return tuple(grave), tuple(remarks)


def _overview(
    answers: Sequence[Answer],
    named: Mapping[str, Answer],
    comparisons: Mapping[str, WayComparison],
    keys: Mapping[str, str],
) -> Table:
    """Return a row for each answer, and for each comparison that has none.

    keys: of the sections that the rows lead to, by their names.
    """
    key_of_answer = {id(answer): keys[name] for name, answer in named.items()}
    rows = [(answer, key_of_answer.get(id(answer), "")) for answer in answers]
    ways = []
    beside = {}
    for name, comparison in comparisons.items():
        if name in named:
            beside[keys[name]] = comparison
        else:
            ways.append((comparison, keys[name]))
    return overview(rows, ways, beside)


def joint_by_name(answers: Sequence[Answer]) -> dict[str, Answer]:
    """Name joint answers: `minilm, all tasks together`, with a size as `by_name` does.

    One whose tasks were trained on unlike numbers of examples has no size to name.
    """
    has_several_sizes = len({one.train_size for one in answers if one.decided_by is None}) > 1
    joint = {}
    for answer in answers:
        if answer.decided_by is None:
            continue
        name = f"{answer.model}, all tasks together"
        sizes_differ = any(one.code is WarningCode.TRAIN_SIZES_DIFFER for one in answer.warnings)
        if has_several_sizes and not sizes_differ:
            name += _size_text(answer)
        joint[name] = answer
    return joint


def _joint(answers: Sequence[Answer]) -> list[tuple[str, FirstLines, str]]:
    """Return each joint answer's name, first lines and complete text."""
    named = joint_by_name(answers)
    return [(name, answer.first_lines, in_full(answer)) for name, answer in named.items()]


def _distinct(texts: Iterable[str]) -> list[str]:
    """Return texts in their order, each once, without empty ones."""
    return [text for text in dict.fromkeys(texts) if text]


def _shown(value: object) -> object:
    """Return a value as the page has it, our own drawings as they are."""
    is_our_drawing = hasattr(value, "__html__")
    if isinstance(value, str) and not is_our_drawing:
        return visible(value)
    return value


def _figures(charts: Sequence[Chart]) -> dict[str, dict[str, Drawing]]:
    """Return the drawings by the name of their answer and the key of their chart."""
    figures: dict[str, dict[str, Drawing]] = {}
    for chart in charts:
        svgs = page_svgs(chart)
        for panel, svg in zip(chart.panels, svgs, strict=True):
            drawing = Drawing(title=chart.title, caption=chart.caption, svg=svg)
            of_answer = figures.setdefault(panel.title, {})
            of_answer[chart.key] = drawing
    return figures


def summary(answers: Sequence[Answer], comparisons: Sequence[WayComparison] = ()) -> str:
    """Say how many of several questions have an answer; "" for one, whose card says all."""
    named = by_name(answers)
    is_answered = {name: answer.is_answered for name, answer in named.items()}
    for name, comparison in comparisons_by_name(named, comparisons).items():
        is_answered[name] = is_answered.get(name, False) or comparison.is_answered
    if len(is_answered) == 1:
        return ""
    unanswered = [name for name, has_answer in is_answered.items() if not has_answer]
    answered = len(is_answered) - len(unanswered)
    text = f"{answered} of {len(is_answered)} questions have an answer"
    if unanswered:
        names = listed(unanswered)
        if len(unanswered) > MOST_NAMED:
            names = f"{len(unanswered)} of them"
        text += f"; there is none for {names}, and the reason stands with each"
    return f"{text}."


def in_full(answer: Answer) -> str:
    """Return all that is said of an answer: raw, corrected, what it saves, how sure, the floor."""
    sentences = [
        answer.sentence,
        saves_sentence(answer.operating_point),
        answer.certainty,
        probe_sentence(answer.probe),
    ]
    return " ".join(sentence for sentence in sentences if sentence)


def facts(rows: Sequence[ResultRow], origins: Origins) -> dict[str, list[str]]:
    """Return searches and data, as far as they are known."""
    searches = []
    data = []
    for row in rows:
        data.append(_data(row))
        if not row.search:
            continue
        search = row.search
        origin = origins.get(row.search_key)
        if origin is not None and origin.place:
            search += f", {origin.place}"
        searches.append(search)
    texts_by_name = {"Search": _distinct(searches), "Data": _distinct(data)}
    return {name: texts for name, texts in texts_by_name.items() if texts}


def _data(row: ResultRow) -> str:
    """Return a task's rows and their fingerprint, as far as known; "" where nothing is."""
    details = []
    if row.train_size is not None:
        details.append(f"{row.train_size:,} training rows")
    if row.examples is not None:
        details.append(f"{row.examples:,} evaluation rows")
    fingerprint = row.comparison.data
    if fingerprint is not None:
        details.append(f"fingerprint {fingerprint}")
    if not details:
        return ""
    return ", ".join([row.task, *details])
