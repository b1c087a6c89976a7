"""The two published studies: what each asks for, the steps that shrink it, and what was shrunk in
words.

It must not know how a search runs; `reproduction` makes searches of it.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass


class Study(enum.StrEnum):
    """Which study."""

    ELSA = "elsa"  # Lee, Tang, Lin 2019: the whole training set, depths L/2..L
    LOW_RESOURCE = "low-resource"  # the blog's: 50 to 1,000 examples, depths 0..L


class Scale(enum.StrEnum):
    """How much of a study is carried out: fewer seeds, tasks and examples, nothing else."""

    FULL = "full"
    HALF = "half"
    SMALL = "small"
    SMOKE = "smoke"  # shows that everything works, measures nothing


@dataclass(frozen=True, slots=True, kw_only=True)
class Extent:
    """Seeds of each depth, tasks, and training sizes: several for the blog's study, at most so
    many examples for the paper's (None: all).
    """

    seeds: int
    tasks: tuple[str, ...]
    train_sizes: tuple[int | None, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Protocol:
    """What a study asks for. space: the shipped search space that is its recipe for one search.

    models: those reproduced unless others are named. known_models: all it reports. metric: replaces
    every task's own. extents: by scale; `full` is the study itself.
    """

    source: str
    space: str
    models: tuple[str, ...]
    known_models: tuple[str, ...]
    metric: str | None
    extents: Mapping[Scale, Extent]

    @property
    def whole(self) -> Extent:
        """The study as it was published."""
        return self.extents[Scale.FULL]


_PAPER_TASKS = ("cola", "sst2", "mrpc", "stsb", "qqp", "mnli", "qnli", "rte")
_BLOG_SIZES = (50, 100, 200, 500, 1000)

PROTOCOLS: dict[Study, Protocol] = {
    Study.ELSA: Protocol(
        source="Lee, Tang, Lin 2019, What Would Elsa Do? (arXiv 1911.03090)",
        space="paper",
        models=("bert_base", "roberta_base"),
        known_models=("bert_base", "roberta_base", "bert_large", "roberta_large"),
        metric=None,
        extents={
            Scale.FULL: Extent(seeds=5, tasks=_PAPER_TASKS, train_sizes=(None,)),
            Scale.HALF: Extent(seeds=3, tasks=_PAPER_TASKS, train_sizes=(10_000,)),
            Scale.SMALL: Extent(
                seeds=3, tasks=("cola", "sst2", "mrpc", "rte"), train_sizes=(1000,)
            ),
            Scale.SMOKE: Extent(seeds=2, tasks=("sst2",), train_sizes=(64,)),
        },
    ),
    Study.LOW_RESOURCE: Protocol(
        source="the low-resource blog study, appendix",
        space="low_resource",
        models=("roberta_base",),
        known_models=("roberta_base",),
        metric="accuracy",
        extents={
            Scale.FULL: Extent(seeds=5, tasks=("sst2", "cola"), train_sizes=_BLOG_SIZES),
            Scale.HALF: Extent(seeds=3, tasks=("sst2", "cola"), train_sizes=_BLOG_SIZES),
            Scale.SMALL: Extent(seeds=3, tasks=("sst2", "cola"), train_sizes=(50, 200)),
            Scale.SMOKE: Extent(seeds=2, tasks=("sst2",), train_sizes=(50,)),
        },
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Trained:
    """What one task is trained on: so many examples of those there are."""

    task: str
    examples: int
    of: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Edition:
    """A study as it is carried out here. seeds: of its searches, usually one number. departures:
    what differs from the published study, in sentences.
    """

    study: Study
    scale: Scale
    models: tuple[str, ...]
    trained: tuple[Trained, ...]
    seeds: tuple[int, ...]
    departures: tuple[str, ...]


def departures(
    study: Study, models: Sequence[str], seeds: Sequence[int], trained: Sequence[Trained]
) -> tuple[str, ...]:
    """What differs from the study as it was published, one sentence each; () where nothing does.

    seeds: of each search at every depth. trained: of every task and training size.
    """
    protocol = PROTOCOLS[study]
    whole = protocol.whole
    tasks = tuple(dict.fromkeys(one.task for one in trained))
    said = [_of_seeds(sorted(set(seeds)), whole.seeds)]
    said.append(_of_names("task", tasks, whole.tasks))
    said.append(_of_names("model", models, protocol.known_models, all_wanted=False))
    if study is Study.ELSA:
        said += [
            f"{one.task}: {one.examples:,} of {one.of:,} training examples."
            for one in trained
            if one.examples < one.of
        ]
    else:
        sizes = tuple(dict.fromkeys(f"{one.examples:,}" for one in trained))
        published = tuple(f"{size:,}" for size in whole.train_sizes if size is not None)
        said.append(_of_names("training size", sizes, published))
    return tuple(sentence for sentence in said if sentence)


def _of_seeds(seeds: Sequence[int], published: int) -> str:
    if set(seeds) <= {published}:
        return ""
    return f"{' or '.join(map(str, seeds))} seeds at each depth; the study has {published}."


def _of_names(
    what: str, names: Sequence[str], published: Sequence[str], *, all_wanted: bool = True
) -> str:
    """Which are left out, and which the study does not have."""
    missing = [name for name in published if name not in names] if all_wanted else []
    others = [name for name in names if name not in published]
    said = []
    if missing:
        said.append(f"{what}s left out: {', '.join(missing)}")
    if others:
        said.append(f"{what}s that the study does not have: {', '.join(others)}")
    return _sentence("; ".join(said)) if said else ""


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}."
