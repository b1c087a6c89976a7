"""What a report is about: each answered curve, which a joint answer is not, with its rows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from elsa_tune.analysis.answer import Answer
from elsa_tune.analysis.groups import size_text
from elsa_tune.specs.result_row import ResultRow
from elsa_tune.words import listed


@dataclass(frozen=True, slots=True)
class Subject:
    """One answer with the rows it came from.

    name: `minilm on rte`, with the training size where the report has several.
    """

    answer: Answer
    rows: tuple[ResultRow, ...]
    name: str


def subjects_of(answers: Sequence[Answer], rows: Iterable[ResultRow]) -> list[Subject]:
    """The subjects in the order of the answers."""
    single = [answer for answer in answers if answer.decided_by is None]
    sizes_differ = len({answer.train_size for answer in single}) > 1
    of: dict[tuple[str, str, int | None], list[ResultRow]] = {}
    for row in rows:
        of.setdefault((row.model, row.task, row.train_size), []).append(row)
    found = []
    for answer in single:
        size = size_text(answer.train_size, " ({:,} examples)", " (all examples)")
        name = f"{answer.model} on {answer.task}{size if sizes_differ else ''}"
        own = of.get((answer.model, answer.task, answer.train_size), [])
        found.append(Subject(answer, tuple(own), name))
    return found


def printed_for(answer: Answer, printed: Sequence[Answer]) -> Answer | None:
    """The published answer on the same model and task, by the same metric where it is named.

    On the same number of examples where there is one, else on the whole training set.
    """
    same = {
        one.train_size: one
        for one in reversed(printed)
        if (one.model, one.task) == (answer.model, answer.task)
        and (answer.metric is None or one.metric == answer.metric)
    }
    return same.get(answer.train_size, same.get(None))


def left_out(reason: str, drawn: Sequence[Subject], subjects: Sequence[Subject]) -> tuple[str, ...]:
    """The sentence that says why some subjects, or all, are not in a figure; () for none."""
    names = {subject.name for subject in drawn}
    missing = [subject.name for subject in subjects if subject.name not in names]
    if not drawn:
        return (f"{reason}.",)
    return (f"{reason}: {listed(missing)}.",) if missing else ()
