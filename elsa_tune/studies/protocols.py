"""The two published studies: what each asks for, and how much of it."""

import enum
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from elsa_tune.results.published import Study, printed_rows
from elsa_tune.words import seeds_text


class Scale(enum.StrEnum):
    """How much of a study is carried out: fewer seeds, tasks and examples, nothing else."""

    FULL = "full"
    HALF = "half"
    SMALL = "small"
    SMOKE = "smoke"  # shows that everything works, measures nothing


@dataclass(frozen=True, slots=True)
class StudySize:
    """How much of a study is carried out."""

    seeds: int  # measuring trials per depth
    tasks: tuple[str, ...]
    # Of the blog's study, each answered for itself; of the paper's one, the most examples (None:
    # all).
    train_sizes: tuple[int | None, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Protocol:
    """What a study asks for."""

    space: str  # the shipped search space that is its recipe for one search
    models: tuple[str, ...]  # those reproduced unless others are named
    metric: str | None  # replaces every task's own
    sizes: Mapping[Scale, StudySize]  # `full` is the study itself


_PAPER_TASKS = ("cola", "sst2", "mrpc", "stsb", "qqp", "mnli", "qnli", "rte")
_BLOG_SIZES = (50, 100, 200, 500, 1000)

PROTOCOLS: dict[Study, Protocol] = {
    Study.ELSA: Protocol(
        space="paper",
        models=("bert_base", "roberta_base"),
        metric=None,
        sizes={
            Scale.FULL: StudySize(5, _PAPER_TASKS, (None,)),
            Scale.HALF: StudySize(3, _PAPER_TASKS, (10_000,)),
            Scale.SMALL: StudySize(3, ("cola", "sst2", "mrpc", "rte"), (1000,)),
            Scale.SMOKE: StudySize(2, ("sst2",), (64,)),
        },
    ),
    Study.LOW_RESOURCE: Protocol(
        space="low_resource",
        models=("roberta_base",),
        metric="accuracy",
        sizes={
            Scale.FULL: StudySize(5, ("sst2", "cola"), _BLOG_SIZES),
            Scale.HALF: StudySize(3, ("sst2", "cola"), _BLOG_SIZES),
            Scale.SMALL: StudySize(3, ("sst2", "cola"), (50, 200)),
            Scale.SMOKE: StudySize(2, ("sst2",), (50,)),
        },
    ),
}


def asked(
    study: Study,
    models: Iterable[str],
    seeds: Iterable[int],
    tasks: Iterable[str],
    sizes: Iterable[int | None],
) -> str:
    """Return what is carried out, in one line; any value may come several times."""
    counts_of_seeds = sorted(set(seeds))
    if len(counts_of_seeds) == 1:
        of_seeds = seeds_text(counts_of_seeds[0])
    else:
        of_seeds = " or ".join(map(str, counts_of_seeds)) + " seeds"
    models_text = ", ".join(dict.fromkeys(models))
    tasks_text = ", ".join(dict.fromkeys(tasks))
    counts = [f"{size:,}" for size in dict.fromkeys(sizes) if size is not None]
    examples = ", ".join(counts) or "all"
    if counts and study is Study.ELSA:
        examples = f"at most {examples}"
    return (
        f"{of_seeds} at each depth; models {models_text}; tasks {tasks_text}; "
        f"{examples} training examples"
    )


def published(study: Study) -> str:
    """Return what the study itself carried out, in one line."""
    whole = PROTOCOLS[study].sizes[Scale.FULL]
    models = [row.model for row in printed_rows(study)]
    return asked(study, models, [whole.seeds], whole.tasks, whole.train_sizes)
