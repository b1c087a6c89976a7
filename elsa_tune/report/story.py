"""What a report tells in words: the answer and its story, and what it came from."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from elsa_tune.analysis.answer import Answer
from elsa_tune.analysis.wording.answer import probe_sentence, saves_sentence
from elsa_tune.report.subjects import Subject
from elsa_tune.specs.result_row import ResultRow
from elsa_tune.words import listed, target_text


def headline(subjects: Sequence[Subject]) -> str:
    """The page's heading: what was asked of what."""
    models = list(dict.fromkeys(subject.answer.model for subject in subjects))
    tasks = list(dict.fromkeys(subject.answer.task for subject in subjects))
    who = models[0] if len(models) == 1 else f"{len(models)} models"
    what = tasks[0] if len(tasks) == 1 else f"{len(tasks)} tasks"
    keep = f" to keep {target_text(subjects[0].answer.target)}" if subjects else ""
    return f"How many layers must be fine-tuned{keep}: {who} on {what}"


def story(answers: Sequence[Answer], subjects: Sequence[Subject]) -> list[str]:
    """The one answer, then all that is said of it; of several what they have in common."""
    if len(subjects) == 1:
        answer = subjects[0].answer
        return [answer.sentence, *filter(None, [" ".join(beside(answer))])]
    missing = [subject.name for subject in subjects if not subject.answer.is_answered]
    first = f"{len(subjects) - len(missing)} of {len(subjects)} questions have an answer"
    if missing:
        names = listed(missing) if len(missing) <= 6 else f"{len(missing)} of them"
        first += f"; there is none for {names}, and the reason stands with each"
    together = [
        f"{answer.model}, all tasks together: {answer.sentence} {answer.certainty}".strip()
        for answer in answers
        if answer.decided_by is not None
    ]
    return [f"{first}.", *together]


def beside(answer: Answer) -> list[str]:
    """What it saves, how sure it is, and the floor that costs no training."""
    chosen, probe = answer.operating_point, answer.probe
    sentences = [
        "" if chosen is None else saves_sentence(chosen),
        answer.certainty,
        "" if probe is None else probe_sentence(probe),
    ]
    return [sentence for sentence in sentences if sentence]


def paragraph(answer: Answer) -> str:
    """One answer of several, with the gravest warning."""
    warned = [f"Warning: {warning.text}." for warning in answer.warnings[:1]]
    return " ".join([answer.sentence, *beside(answer), *warned])


def facts(subjects: Sequence[Subject], origins: Mapping[str, str]) -> dict[str, list[str]]:
    """Searches and data, as far as they are known. origins: when and where each search ran."""
    rows = [row for subject in subjects for row in subject.rows]
    names = dict.fromkeys(row.search for row in rows if row.search is not None)
    searches = [", ".join(filter(None, [name, origins.get(name)])) for name in names]
    data = [text for text in dict.fromkeys(map(_data, rows)) if text]
    return {name: texts for name, texts in (("Search", searches), ("Data", data)) if texts}


def _data(row: ResultRow) -> str:
    """A task's rows and their fingerprint, as far as they are known; "" where nothing is."""
    fingerprint = re.search(r"\bdata=(\w+)", row.comparison)
    known = [
        "" if row.train_size is None else f"{row.train_size:,} training rows",
        "" if row.examples is None else f"{row.examples:,} evaluation rows",
        "" if fingerprint is None else f"fingerprint {fingerprint[1]}",
    ]
    return ", ".join([row.task, *filter(None, known)]) if any(known) else ""
