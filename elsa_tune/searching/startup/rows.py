"""How many rows a search has, and the search as it would be carried out, without a touch."""

import dataclasses
from typing import NamedTuple

from elsa_tune.searching.output import Say
from elsa_tune.searching.request import Request
from elsa_tune.specs.model import ModelSource, ModelSpec
from elsa_tune.specs.row_findings import finding_lines
from elsa_tune.specs.search import SearchSpec
from elsa_tune.specs.task import GlueSource, TaskSpec
from elsa_tune.specs.trial import Recipe
from elsa_tune.tracking.artifacts.places import artifacts_at

# Labelled training and (matched) evaluation rows of GLUE, by hub configuration (Wang et al. 2018,
# Table 1).
PUBLISHED_SIZES = {
    "cola": (8551, 1043),
    "sst2": (67349, 872),
    "mrpc": (3668, 408),
    "stsb": (5749, 1500),
    "qqp": (363846, 40430),
    "mnli": (392702, 9815),
    "qnli": (104743, 5463),
    "rte": (2490, 277),
    "wnli": (635, 71),
}


class Rows(NamedTuple):
    """How many examples a task has, and what guessing scores on them."""

    train: int  # those in use, a holdout included
    evaluation: int
    units: int  # how many independent units the evaluation examples are
    chance: float  # the quality of the best constant answer


def plan(request: Request, rows: Rows) -> SearchSpec:
    """Return the search as it would be carried out; nothing is touched."""
    from elsa_tune.training.loop import evaluation_steps

    spec = request.spec
    if spec.artifacts is not None:
        artifacts_at(spec.artifacts)  # raises for an unknown scheme
    train_examples = rows.train - round(rows.train * (spec.recipe.holdout or 0.0))
    evaluation_steps(spec.recipe, train_examples)  # raises where an epoch has fewer steps
    return dataclasses.replace(
        spec,
        chance=rows.chance,
        train_examples=train_examples,
        evaluation_examples=rows.evaluation,
        evaluation_units=rows.units,
    )


def rows_in_use(
    task: TaskSpec,
    recipe: Recipe,
    say: Say = lambda line: None,
    model: ModelSpec | None = None,
) -> Rows:
    """Return how many examples a task has, and what guessing scores on them.

    Nothing is written. GLUE on the hub is not downloaded for a plan: its sizes are published, and
    what guessing scores by most metrics; by the others an even guess is assumed.
    say: called with what is odd about the rows. model: whose tokens are counted, in some of the
    rows; of one on the hub they are not, for nothing is fetched here.
    """
    from elsa_tune.tasks.types.scores import chance
    from elsa_tune.training.data.preparation import planned_findings, read_splits, size_in_use
    from elsa_tune.training.data.row_checks import units_of

    if isinstance(task.source, GlueSource) and task.source.data_dir is None:
        train_rows, evaluation_rows = PUBLISHED_SIZES[task.source.config]
        guessing = task.known_chance
        if guessing is None:
            guessing = 1 / task.outputs
        in_use = size_in_use(task, recipe, train_rows)
        return Rows(in_use, evaluation_rows, units=evaluation_rows, chance=guessing)
    splits = read_splits(task, recipe)
    if model is not None and model.source is ModelSource.HUB:
        model = None
    findings = planned_findings(model, task, recipe, splits)
    for line in finding_lines(findings, task.is_published):
        say(line)
    train = len(splits["train"]) + len(splits.get("holdout", ()))
    evaluation = splits["evaluation"]
    units = units_of(evaluation)
    distinct = len(evaluation) if units is None else int(units.max()) + 1
    guessing = chance(task.metric, evaluation.labels, task.class_count)
    return Rows(train, len(evaluation), distinct, guessing)
