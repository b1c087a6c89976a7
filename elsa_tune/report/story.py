"""What a report tells in words: the answer at a glance, its story, and how it was decided."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from elsa_tune.analysis.answer import Answer, Certified
from elsa_tune.analysis.curve import SAME_QUALITY, CurvePoint
from elsa_tune.analysis.wording.answer import probe_sentence, saved_shares, saves_sentence
from elsa_tune.analysis.wording.certainty import plausible_text
from elsa_tune.report.subjects import Subject, models_of
from elsa_tune.specs.result_row import ResultRow
from elsa_tune.words import (
    BORDER_WORDS,
    depths_text,
    listed,
    metric_text,
    of_layers,
    percent,
    points,
    rate_text,
    spread,
    target_text,
)


def headline(subjects: Sequence[Subject]) -> str:
    """The page's heading: what was asked of what."""
    models = models_of(subjects)
    tasks = list(dict.fromkeys(subject.answer.task for subject in subjects))
    who = models[0] if len(models) == 1 else f"{len(models)} models"
    what = tasks[0] if len(tasks) == 1 else f"{len(tasks)} tasks"
    keep = f" to keep {target_text(subjects[0].answer.target)}" if subjects else ""
    return f"How many layers must be fine-tuned{keep}: {who} on {what}"


def story(answers: Sequence[Answer], subjects: Sequence[Subject]) -> list[str]:
    """What one answer's cards leave to say; for several answers what they have in common."""
    if len(subjects) == 1:
        answer = subjects[0].answer
        sentences = ["" if answer.is_answered else answer.sentence, _sure(answer), *_more(answer)]
        return [" ".join(filter(None, sentences))]
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


def paragraph(answer: Answer) -> str:
    """One answer of several, with the gravest warning."""
    chosen = answer.operating_point
    sentences = [
        answer.sentence,
        "" if chosen is None else saves_sentence(chosen),
        answer.certainty,
        *_more(answer),
        f"Warning: {answer.warnings[0].text}." if answer.warnings else "",
    ]
    return " ".join(filter(None, sentences))


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


@dataclass(frozen=True, slots=True)
class Card:
    """One number at a glance: what it is, the number, and a word on it."""

    name: str
    number: str
    note: str


def cards(answer: Answer) -> list[Card]:
    """The answer at a glance; [] where there is none."""
    chosen, sure, full = answer.operating_point, answer.certified, answer.full
    if chosen is None:
        return []
    kept = f"{percent(chosen.retention)} of the full model's {metric_text(answer.metric)} kept"
    found = [Card("operating point", _of(chosen, answer), kept)]
    if chosen.learning_rate is not None:
        note = f"best of {chosen.explored} exploring trials" if chosen.explored else ""
        if chosen.tried.at_border is not None:
            note = BORDER_WORDS[chosen.tried.at_border]
        found.append(Card("learning rate", rate_text(chosen.learning_rate), note))
    if saved := saved_shares(chosen):
        number, of, what = saved[0].partition(" of ")
        note = ", ".join(filter(None, [f"{of}{what}".strip(), *saved[1:]]))
        found.append(Card("saves", number, note))
    if (corrected := answer.corrected_operating_point) is not None:
        kept = f"{percent(corrected.corrected_retention)} kept"
        found.append(Card("corrected for chance", _of(corrected, answer), kept))
    if (within := answer.within_given) is not None and within.depth != chosen.depth:
        rates = "..".join(map(rate_text, answer.given_rates or ()))
        found.append(Card(f"within {rates}", _of(within, answer), "by single exploring runs"))
    if sure is not None:
        note = "no frozen depth is sure" if sure.depth.is_full_model else "and every larger number"
        found.append(Card(f"certified at {target_text(sure.confidence)}", _of(sure, answer), note))
    else:
        are_means = any(point.rates and not point.qualities for point in answer.points)
        found.append(Card("certified", "nothing", "needs single runs" if are_means else "yet"))
    if full is not None:
        note = f"{metric_text(answer.metric)}, {full.seeds} seed{'' if full.seeds == 1 else 's'}"
        found.append(Card("full model", spread(full.quality, full.std), note))
    return found


def _of(point: CurvePoint | Certified, answer: Answer) -> str:
    return of_layers(point.fine_tuned_layers, answer.layers)


def _sure(answer: Answer) -> str:
    """What may be the true answer, where a card tells what is certified; else why nothing is."""
    if answer.certified is None or answer.plausible is None:
        return answer.certainty
    return plausible_text(answer.plausible, measured=len(answer.measured))


def _more(answer: Answer) -> list[str]:
    """The best depth, and the floor that costs no training."""
    return [_best(answer), "" if answer.probe is None else probe_sentence(answer.probe)]


def _best(answer: Answer) -> str:
    best, full = answer.best, answer.full
    if best is None or best.quality is None or full is None or full.quality is None:
        return ""
    if best.depth.is_full_model or best.quality <= full.quality + SAME_QUALITY:
        return "The full model is also the best of all that was measured."
    return (
        f"The best of all that was measured is {depths_text([best.depth])} with "
        f"{points(best.quality)}, not the full model with {points(full.quality)}."
    )
