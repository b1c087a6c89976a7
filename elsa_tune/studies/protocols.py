"""The two published studies: what each asks for, and what a smaller one leaves out in words."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from elsa_tune.tables.published import Study, printed_rows


class Scale(enum.StrEnum):
    """How much of a study is carried out: fewer seeds, tasks and examples, nothing else."""

    FULL = "full"
    HALF = "half"
    SMALL = "small"
    SMOKE = "smoke"  # shows that everything works, measures nothing


@dataclass(frozen=True, slots=True)
class Extent:
    """train_sizes: for the blog's study; for the paper's one, the most examples (None: all)."""

    seeds: int
    tasks: tuple[str, ...]
    train_sizes: tuple[int | None, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Protocol:
    """What a study asks for. space: the shipped search space that is its recipe for one search.

    models: those reproduced unless others are named; the first stands beside a model that the
    study does not have. metric: replaces every task's own. extents: by scale; `full` is the study
    itself.
    """

    space: str
    models: tuple[str, ...]
    metric: str | None
    extents: Mapping[Scale, Extent]


_PAPER_TASKS = ("cola", "sst2", "mrpc", "stsb", "qqp", "mnli", "qnli", "rte")
_BLOG_SIZES = (50, 100, 200, 500, 1000)

PROTOCOLS: dict[Study, Protocol] = {
    Study.ELSA: Protocol(
        space="paper",
        models=("bert_base", "roberta_base"),
        metric=None,
        extents={
            Scale.FULL: Extent(5, _PAPER_TASKS, (None,)),
            Scale.HALF: Extent(3, _PAPER_TASKS, (10_000,)),
            Scale.SMALL: Extent(3, ("cola", "sst2", "mrpc", "rte"), (1000,)),
            Scale.SMOKE: Extent(2, ("sst2",), (64,)),
        },
    ),
    Study.LOW_RESOURCE: Protocol(
        space="low_resource",
        models=("roberta_base",),
        metric="accuracy",
        extents={
            Scale.FULL: Extent(5, ("sst2", "cola"), _BLOG_SIZES),
            Scale.HALF: Extent(3, ("sst2", "cola"), _BLOG_SIZES),
            Scale.SMALL: Extent(3, ("sst2", "cola"), (50, 200)),
            Scale.SMOKE: Extent(2, ("sst2",), (50,)),
        },
    ),
}


def departures(
    study: Study,
    models: Sequence[str],
    seeds: Iterable[int],
    trained: Sequence[tuple[str, int, int]],
) -> tuple[str, ...]:
    """What differs from the study as it was published, one sentence each; () where nothing does.

    seeds: of each search at every depth. trained: each task with the examples that it is trained
    on, of those there are.
    """
    whole = PROTOCOLS[study].extents[Scale.FULL]
    said = []
    if set(seeds) != {whole.seeds}:
        here = " or ".join(map(str, sorted(set(seeds))))
        said.append(f"{here} seeds at each depth; the study has {whole.seeds}.")
    said += _other("tasks", [task for task, _, _ in trained], whole.tasks)
    reported = [row.model for row in printed_rows(study)]
    if not set(models) <= set(reported):
        said += _other("models", models, reported)
    if study is Study.ELSA:
        shrunk = [one for one in trained if one[1] < one[2]]
        said += [
            f"{task}: {used:,} of {there:,} training examples." for task, used, there in shrunk
        ]
    else:
        sizes = [f"{used:,}" for _, used, _ in trained]
        said += _other("training sizes", sizes, [f"{size:,}" for size in whole.train_sizes])
    return tuple(said)


def _other(what: str, here: Iterable[str], published: Iterable[str]) -> list[str]:
    """A sentence where they are not those of the study."""
    names, theirs = dict.fromkeys(here), dict.fromkeys(published)
    if names.keys() == theirs.keys():
        return []
    return [f"The {what} are {', '.join(names)}; the study has {', '.join(theirs)}."]
