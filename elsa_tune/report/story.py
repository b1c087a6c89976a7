"""What a report tells in words: the answer at a glance, its story, and how it was decided."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from elsa_tune.analysis.answer import Answer
from elsa_tune.analysis.curve import SAME_QUALITY
from elsa_tune.analysis.wording.answer import probe_sentence, saved_shares, saves_sentence
from elsa_tune.analysis.wording.certainty import plausible_text
from elsa_tune.report.subjects import Subject
from elsa_tune.specs.result_row import ResultRow
from elsa_tune.specs.trial import PROBE_FEATURES
from elsa_tune.words import (
    BORDER_WORDS,
    depths_text,
    layers_text,
    listed,
    metric_text,
    percent,
    points,
    rate_text,
    spread,
    target_text,
)

PROBE_RULE = (
    "The linear probe is a logistic or ridge regression on what the frozen model gives (its "
    f"{PROBE_FEATURES}), its penalty chosen on training rows alone. Nothing of the model is "
    "trained; it is a floor for every depth, and never the answer."
)


def headline(subjects: Sequence[Subject]) -> str:
    """The page's heading: what was asked of what."""
    models = list(dict.fromkeys(subject.answer.model for subject in subjects))
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
    return [
        _overview(subjects),
        *(_joint(answer) for answer in answers if answer.decided_by is not None),
    ]


def paragraph(answer: Answer) -> str:
    """One answer of several, with the gravest warning."""
    chosen = answer.operating_point
    sentences = [
        answer.sentence,
        "" if chosen is None else saves_sentence(chosen),
        answer.certainty,
        *_more(answer),
        f"Warning: {answer.warnings[0]}." if answer.warnings else "",
    ]
    return " ".join(filter(None, sentences))


def facts(subjects: Sequence[Subject], origins: Mapping[str, str]) -> dict[str, list[str]]:
    """Where the numbers come from: searches, with when and where each ran (`origins`, by its name),
    and data; nothing of what is not known.
    """
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


def cards(subject: Subject) -> list[Card]:
    """The answer at a glance; [] where there is none."""
    answer = subject.answer
    chosen, corrected, full = (
        answer.operating_point,
        answer.corrected_operating_point,
        answer.full,
    )
    if chosen is None:
        return []
    kept = f"{percent(chosen.retention)} of the full model's {metric_text(answer.metric)} kept"
    found = [Card("operating point", _of(chosen.fine_tuned_layers, answer), kept)]
    if chosen.learning_rate is not None:
        point = next(point for point in answer.points if point.depth == chosen.depth)
        note = f"best of {point.explored} exploring trials" if point.explored else ""
        if point.tried.at_border is not None:
            note = BORDER_WORDS[point.tried.at_border]
        found.append(Card("learning rate", rate_text(chosen.learning_rate), note))
    if saved := saved_shares(chosen):
        number, of, what = saved[0].partition(" of ")
        note = ", ".join(filter(None, [f"{of}{what}".strip(), *saved[1:]]))
        found.append(Card("saves", number, note))
    if corrected is not None:
        kept = f"{percent(corrected.corrected_retention)} kept"
        found.append(Card("corrected for chance", _of(corrected.fine_tuned_layers, answer), kept))
    within = answer.within_given
    if within is not None and within.depth != chosen.depth:
        name = f"within {'..'.join(map(rate_text, within.given_rates))}"
        number = _of(within.fine_tuned_layers, answer)
        found.append(Card(name, number, "by single exploring runs"))
    sure = answer.certified
    if sure is not None:
        name = f"certified at {target_text(sure.confidence)}"
        if sure.depth.is_full_model:
            found.append(Card(name, f"all {layers_text(answer.layers)}", "no frozen depth is sure"))
        else:
            number = _of(sure.fine_tuned_layers, answer)
            found.append(Card(name, number, "and every larger number"))
    else:
        are_means = any(point.rates and not point.qualities for point in answer.points)
        found.append(Card("certified", "nothing", "needs single runs" if are_means else "yet"))
    if full is not None and full.quality is not None:
        seeds = f"{full.seeds} seed{'' if full.seeds == 1 else 's'}"
        note = f"{metric_text(answer.metric)}, {seeds}"
        found.append(Card("full model", spread(full.quality, full.std), note))
    return found


def _of(fine_tuned: int, answer: Answer) -> str:
    return f"{fine_tuned} of {layers_text(answer.layers)}"


def rules(answers: Sequence[Answer]) -> list[str]:
    """How the answers were decided, a sentence or two a step; of one answer also how surely."""
    target = target_text(answers[0].target) if answers else "the target"
    procedures = dict.fromkeys(a.certified.procedure for a in answers if a.certified is not None)
    how = f" ({listed(procedures)})" if procedures else ""
    return [
        "Quality is the task's one headline metric. Only measuring trials give a depth's quality: "
        "the mean over their seeds at the depth's learning rate. Exploring trials look for that "
        "rate; those, and trials that were stopped or failed, measure nothing. A measuring seed "
        "that diverged counts as chance, one that collapsed to a constant answer as it is.",
        "The full model, with nothing frozen, is the reference. It must have learnt: its mean lies "
        "above a constant answer's quality with 95 % confidence. If not, there is no answer.",
        f"A depth with N frozen layers reaches the target when its mean is at least {target} of "
        "the full model's. The operating point is the smallest number k = L - N of fine-tuned "
        "layers, among those measured, that does.",
        "Corrected for chance, both qualities are counted from that of a constant answer: near "
        "chance the raw share says little.",
        "The certified number is the smallest k that, with every larger measured k, reaches the "
        f"target with family-wise 95 % confidence{how}. The plausible numbers are those that "
        "cannot be ruled out as the true operating point.",
        *([answers[0].certainty] if len(answers) == 1 and answers[0].certified is not None else []),
        *([PROBE_RULE] if any(answer.probe is not None for answer in answers) else []),
    ]


def _overview(subjects: Sequence[Subject]) -> str:
    answered = [subject for subject in subjects if subject.answer.is_answered]
    target = target_text(subjects[0].answer.target)
    if not answered:
        return (
            f"None of the {len(subjects)} questions asked, how few layers keep {target} of the "
            "full model's quality, has an answer in these results; the reasons stand with each."
        )
    frozen = [s for s in answered if _tuned(s) < s.answer.layers]
    whole = [subject.name for subject in answered if subject not in frozen]
    sentences = [
        f"{len(answered)} of {len(subjects)} questions have an answer: how few of the last layers "
        f"keep {target} of the full model's quality."
    ]
    if frozen:
        least = min(frozen, key=lambda s: _tuned(s) / s.answer.layers)
        most = max(frozen, key=lambda s: _tuned(s) / s.answer.layers)
        sentences.append(f"The fewest suffice for {_kept(least)}.")
        if most is not least:
            sentences.append(
                f"Of those that can freeze any, {_kept(most)} needs the largest share."
            )
    if whole:
        names = listed(whole) if len(whole) <= 6 else f"{len(whole)} of them"
        sentences.append(f"All layers must be fine-tuned for {names}.")
    stricter = sum(_needs_more_corrected(subject.answer) for subject in answered)
    if stricter:
        needs = "one of them needs" if stricter == 1 else f"{stricter} of them need"
        sentences.append(f"Corrected for chance, {needs} more layers than that.")
    certain = sum(
        sure is not None and not sure.depth.is_full_model
        for sure in (subject.answer.certified for subject in answered)
    )
    sure = "1 is" if certain == 1 else f"{certain or 'none'} are"
    sentences.append(f"With 95 % certainty, {sure} known to keep it with some layers frozen.")
    if len(answered) < len(subjects):
        missing = [subject.name for subject in subjects if subject not in answered]
        names = listed(missing) if len(missing) <= 6 else f"{len(missing)} questions"
        sentences.append(f"There is no answer for {names}; the reason stands with each.")
    return " ".join(sentences)


def _needs_more_corrected(answer: Answer) -> bool:
    raw, corrected = answer.operating_point, answer.corrected_operating_point
    return (
        raw is not None
        and corrected is not None
        and corrected.fine_tuned_layers > raw.fine_tuned_layers
    )


def _joint(answer: Answer) -> str:
    return f"{answer.model}, all tasks together: {answer.sentence} {answer.certainty}".strip()


def _tuned(subject: Subject) -> int:
    chosen = subject.answer.operating_point
    return subject.answer.layers if chosen is None else chosen.fine_tuned_layers


def _kept(subject: Subject) -> str:
    return f"{subject.name} ({_tuned(subject)} of {subject.answer.layers})"


def _sure(answer: Answer) -> str:
    """What may be the true answer, where a card tells what is certified; else why nothing is."""
    if answer.certified is None or answer.plausible is None:
        return answer.certainty
    depths = [p for p in answer.points if p.quality is not None and not p.depth.is_embeddings_only]
    return plausible_text(answer.plausible, measured=len(depths))


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
