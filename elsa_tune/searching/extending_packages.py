"""The packages that extend elsa-tune and are used: recorded, and the same on all nodes."""

from collections.abc import Iterable

from elsa_tune.extensions import packages_that_bring
from elsa_tune.specs.adapt.candidate import Candidate
from elsa_tune.specs.search import SearchSpec
from elsa_tune.specs.task import TaskSpec


def packages_of_search(spec: SearchSpec) -> list[str]:
    """Return the packages that bring what a search uses, as pip calls them."""
    from elsa_tune.searching.planning.strategies import strategy_named  # a worker does without it

    modules = _modules(spec.task, spec.candidates)
    modules.add(strategy_named(spec.strategy).__module__)
    return packages_that_bring(modules)


def packages_of_trial(task: TaskSpec, candidate: Candidate) -> list[str]:
    """Return the packages that bring what a trial uses, as pip calls them."""
    return packages_that_bring(_modules(task, [candidate]))


def _modules(task: TaskSpec, candidates: Iterable[Candidate]) -> set[str]:
    modules = {task.kind.home}
    for metric in (task.metric, *task.companions):
        modules.add(metric.home)
    for candidate in candidates:
        modules.add(type(candidate).__module__)
        trained_by, _, _ = str(candidate.trains_by).partition(":")
        modules.add(trained_by)
    return modules
