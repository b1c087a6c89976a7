"""Divides rows into groups within which everything agrees: only their results may be pooled."""

import functools
import re
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass

from elsa_tune.errors import LISTED, ResultsError, shortlist
from elsa_tune.specs.policy import Policy, common_policy
from elsa_tune.specs.result_row import ResultRow, SearchKey
from elsa_tune.specs.task import Metric
from elsa_tune.specs.trial import Phase
from elsa_tune.words import number_text

# Two tables may print the same chance with four decimals or in full.
CHANCE_TOLERANCE = 1e-4


@dataclass(frozen=True, kw_only=True)
class ResultGroup:
    """Rows of one model, task and training size that agree in everything that matters."""

    searches: tuple[str, ...]  # whose rows these are; () for imported tables that name none
    search_ids: tuple[str, ...]  # likewise; () where none is known
    chance: float | None  # None where no row knows it and the metric does not imply it
    examples: int | None  # evaluation examples E; None where not known
    units: int | None  # how many independent units those are; None where that was not found out
    rows: tuple[ResultRow, ...]  # of trials
    probe: ResultRow | None = None  # that of a linear probe on the frozen model

    @property
    def first(self) -> ResultRow:
        """A row, for what all of them have in common."""
        return self.rows[0]

    @property
    def layers(self) -> int:
        """L of the model; 0 where no row knows it, as in tables of methods alone."""
        for row in self.rows:
            if row.layers is not None:
                return row.layers
        return 0

    @functools.cached_property
    def policy(self) -> Policy:
        """The policy they are answered by: their searches' own; this version's for tables."""
        policies: list[Policy] = []
        for row in self.rows:
            policy = row.policy or Policy()
            policies.append(policy)
        return common_policy(policies)


def equal_units(examples: int, units: int | None) -> int:
    """Return how many units of equal size tell as much as E examples of U units may tell.

    The number alone is known, of scores without predictions. The most unlike sizes are one unit of
    E - U + 1 examples beside single ones, which tell least (Kish 1965, Survey Sampling).
    """
    if units is None or units >= examples:
        return examples
    largest = examples - units + 1
    return examples**2 // (units - 1 + largest**2)


def comparison_groups(rows: Iterable[ResultRow]) -> tuple[ResultGroup, ...]:
    """Divide rows into groups of like results, in the order in which they first appear.

    Searches with the same comparison text are pooled when no measuring seed occurs in two of them:
    the same seed twice is the same trial twice, not a second measurement. Raises ResultsError
    where the rows of one group contradict one another in the number of layers or in chance.
    """
    rows_alike: dict[tuple[object, ...], list[ResultRow]] = {}
    for row in rows:
        key = (
            row.model,
            row.task,
            row.train_size,
            row.metric,
            row.selection,
            row.comparison,
        )
        rows_alike.setdefault(key, []).append(row)
    rows_of_groups: list[list[ResultRow]] = []
    for alike in rows_alike.values():
        if _share_a_seed(alike):
            rows_of_groups += _by_search(alike)
        else:
            rows_of_groups.append(alike)
    groups: list[ResultGroup] = []
    for rows_of_group in rows_of_groups:
        # A search that has only been probed has no results yet.
        has_results = any(row.phase is not Phase.PROBE for row in rows_of_group)
        if has_results:
            group = _group(rows_of_group)
            groups.append(group)
    return tuple(groups)


def _share_a_seed(rows: Sequence[ResultRow]) -> bool:
    """Whether a measuring seed occurs in two searches."""
    search_of_seed: dict[int | None, SearchKey] = {}
    for row in rows:
        if row.phase is not Phase.MEASURE:
            continue
        first_search = search_of_seed.setdefault(row.seed, row.search_key)
        if row.search_key != first_search:
            return True
    return False


def _by_search(rows: Sequence[ResultRow]) -> list[list[ResultRow]]:
    """Return the rows of each search, in the order in which the searches first appear."""
    by_search: dict[SearchKey, list[ResultRow]] = {}
    for row in rows:
        by_search.setdefault(row.search_key, []).append(row)
    return list(by_search.values())


def require_one_each(
    groups: Sequence[ResultGroup],
    in_short: Callable[[ResultGroup], str],
    *,
    train_sizes_apart: bool = True,
) -> None:
    """Raise ResultsError, listing the groups as `in_short` has them, where several are one curve.

    train_sizes_apart: several training sizes are answers of their own; else they are rivals too.
    """
    rivals: dict[tuple[object, ...], list[ResultGroup]] = {}
    for group in groups:
        row = group.first
        key: tuple[object, ...] = (row.model, row.task)
        if train_sizes_apart:
            key = (*key, row.train_size)
        rivals.setdefault(key, []).append(group)
    for several in rivals.values():
        if len(several) > 1:
            raise _rivals(several, in_short)


def _rivals(
    several: Sequence[ResultGroup],
    in_short: Callable[[ResultGroup], str],
) -> ResultsError:
    """Return the error for groups that would be one curve.

    It has a line for each: what tells it from the others, and what it says alone.
    """
    first = several[0].first
    common = set(_traits(first))
    for group in several:
        traits = _traits(group.first)
        common.intersection_update(traits)
    have_names_twice = _have_names_twice(several)
    lines: list[str] = []
    for group in several[:LISTED]:
        line = _rival_line(group, common, in_short, with_ids=have_names_twice)
        lines.append(line)
    more = len(several) - LISTED
    if more > 0:
        lines.append(f"and {more:,} more")
    remedy = _remedy(several)
    return ResultsError(
        f"{len(several)} sets of results that must not be averaged match {first.model} on "
        f"{first.task}; {remedy}:",
        *lines,
    )


def _remedy(several: Sequence[ResultGroup]) -> str:
    """Write by which settings one of the groups can be chosen, or what to do without any."""
    settings = []
    if _have_names_twice(several):
        settings.append("`search` ID")
    elif all(group.searches for group in several):
        settings.append("`search` NAME")
    train_sizes = {group.first.train_size for group in several}
    if len(train_sizes) == len(several):
        settings.append("`train_size`")
    if not settings:
        return "keep only one of them in the table"
    either = " or ".join(settings)
    return f"choose one with {either}"


def _have_names_twice(groups: Sequence[ResultGroup]) -> bool:
    """Whether each group's searches have ids, and a name stands for several of these."""
    names: set[str] = set()
    ids: set[str] = set()
    for group in groups:
        if not group.search_ids:
            return False
        names.update(group.searches)
        ids.update(group.search_ids)
    return len(names) < len(ids)


def _rival_line(
    group: ResultGroup,
    common: Collection[str],
    in_short: Callable[[ResultGroup], str],
    *,
    with_ids: bool,
) -> str:
    """Return what tells a group from its rivals. common: the traits that all of them have."""
    name = shortlist(group.searches) or "(no search named)"
    if with_ids:
        name += f" (ID {shortlist(group.search_ids)})"
    measured = 0
    for row in group.rows:
        if row.phase is Phase.MEASURE:
            measured += 1
    rows = "row" if measured == 1 else "rows"
    own_traits = [trait for trait in _traits(group.first) if trait not in common]
    special = "; ".join(own_traits) or "same recipe, and seeds in common"
    answer = in_short(group)
    return f"{name}: {measured} measuring {rows}; {special}; {answer}"


def _group(members: Sequence[ResultRow]) -> ResultGroup:
    """Return the group of these rows. Raises ResultsError where they contradict one another."""
    rows: list[ResultRow] = []
    probe: ResultRow | None = None
    for row in members:
        if row.phase is not Phase.PROBE:
            rows.append(row)
        elif probe is None and row.quality is not None:
            probe = row  # like searches probe alike: the first stands for all
    examples: list[int] = []
    units: list[int] = []
    searches: dict[SearchKey, None] = {}  # each once, in the rows' order
    for row in rows:
        searches[row.search_key] = None
        if row.examples is not None:
            examples.append(row.examples)
        if row.evaluation_units is not None:
            units.append(row.evaluation_units)
    _check_layers(rows)
    return ResultGroup(
        searches=tuple(name for name, _ in searches if name is not None),
        search_ids=tuple(search_id for _, search_id in searches if search_id is not None),
        chance=_chance(rows),
        examples=min(examples, default=None),
        units=min(units, default=None),
        rows=tuple(rows),
        probe=probe,
    )


def _check_layers(rows: Sequence[ResultRow]) -> None:
    """Raise ResultsError where the rows disagree on the model's number of layers."""
    layer_counts = sorted({row.layers for row in rows if row.layers is not None})
    if len(layer_counts) < 2:
        return
    first = layer_counts[0]
    second = layer_counts[1]
    raise ResultsError(
        f"{_where(rows)}: the rows say {first} and {second} layers; one model has one "
        "number of layers, so give different models different names"
    )


def _chance(rows: Sequence[ResultRow]) -> float | None:
    """Return the quality of a constant answer, as the rows or their metric know it."""
    chances = [row.chance for row in rows if row.chance is not None]
    if not chances:
        [metric_name] = {row.metric for row in rows}
        metric = Metric.named(metric_name)
        if metric is None:
            return None
        return metric.of_constants
    lowest = min(chances)
    highest = max(chances)
    if highest - lowest > CHANCE_TOLERANCE:
        raise ResultsError(
            f"{_where(rows)}: the rows say chance is {lowest:g} and {highest:g}; they were "
            "scored on different evaluation sets or by different metrics, so keep them apart"
        )
    return lowest


def _where(rows: Sequence[ResultRow]) -> str:
    """Return how messages begin that are about these rows."""
    first = rows[0]
    return f"{first.model} on {first.task}"


def _traits(row: ResultRow) -> list[str]:
    """Return what tells a row's group from others, one text each."""
    size = number_text(row.train_size, "{:,} training examples", "the whole training set")
    metric = row.metric or "not named"
    selection = row.selection or "not named"
    traits = [size, f"metric {metric}", f"selection {selection}"]
    comparison = str(row.comparison)
    for text in re.split(r"[;,\n]\s*", comparison):
        if text:
            traits.append(text)
    return traits
