"""Divides rows into groups within which everything agrees: only their results may be pooled."""

import functools
import re
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass

from elsa_tune.errors import LISTED, ResultsError, shortlist
from elsa_tune.specs.policy import Policy, common_policy
from elsa_tune.specs.result_row import ResultRow
from elsa_tune.specs.task import Metric
from elsa_tune.specs.trial import Phase
from elsa_tune.words import number_text

# Two tables may print the same chance with four decimals or in full.
CHANCE_TOLERANCE = 1e-4


@dataclass(frozen=True, kw_only=True)
class ResultGroup:
    """Rows of one model, task and training size that agree in everything that matters."""

    searches: tuple[str, ...]  # whose rows these are; () for imported tables that name none
    chance: float | None  # None where no row knows it and the metric does not imply it
    examples: int | None  # evaluation examples E; None where not known
    units: int | None  # how many independent units those are; None where that was not found out
    rows: tuple[ResultRow, ...]  # of trials
    probe: ResultRow | None = None  # that of a linear probe on the frozen model

    @property
    def first(self) -> ResultRow:
        """A row, for what all of them have in common."""
        return self.rows[0]

    @functools.cached_property
    def policy(self) -> Policy:
        """The policy they are answered by: their searches' own; this version's for tables."""
        return common_policy(row.policy or Policy() for row in self.rows)


def comparison_groups(rows: Iterable[ResultRow]) -> tuple[ResultGroup, ...]:
    """Divide rows into groups of like results, in the order in which they first appear.

    Searches with the same comparison text are pooled when no measuring seed occurs in two of them:
    the same seed twice is the same trial twice, not a second measurement. Raises ResultsError
    where the rows of one group contradict one another in the number of layers or in chance.
    """
    alike: dict[tuple[object, ...], list[ResultRow]] = {}
    for row in rows:
        key = (row.model, row.task, row.train_size, row.metric, row.selection, row.comparison)
        alike.setdefault(key, []).append(row)
    parts: list[list[ResultRow]] = []
    for members in alike.values():
        if _share_a_seed(members):
            parts += _by_search(members)
        else:
            parts.append(members)
    groups: list[ResultGroup] = []
    for part in parts:
        # A search that has only been probed has no results yet.
        if any(row.phase is not Phase.PROBE for row in part):
            groups.append(_group(part))
    return tuple(groups)


def _share_a_seed(rows: Sequence[ResultRow]) -> bool:
    """Whether a measuring seed occurs in two searches."""
    search_of_seed: dict[int | None, str | None] = {}
    for row in rows:
        if row.phase is not Phase.MEASURE:
            continue
        first_search = search_of_seed.setdefault(row.seed, row.search)
        if row.search != first_search:
            return True
    return False


def _by_search(rows: Sequence[ResultRow]) -> list[list[ResultRow]]:
    """Return the rows of each search, in the order in which the searches first appear."""
    by_search: dict[str | None, list[ResultRow]] = {}
    for row in rows:
        by_search.setdefault(row.search, []).append(row)
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


def _rivals(several: Sequence[ResultGroup], in_short: Callable[[ResultGroup], str]) -> ResultsError:
    """Return the error for groups that would be one curve.

    It has a line for each: what tells it from the others, and what it says alone.
    """
    first = several[0].first
    common = set(_traits(first))
    for group in several[1:]:
        common &= set(_traits(group.first))
    lines = [_rival_line(group, common, in_short) for group in several[:LISTED]]
    if len(several) > LISTED:
        lines.append(f"and {len(several) - LISTED:,} more")
    ways = []
    if all(group.searches for group in several):
        ways.append("`search` NAME")
    train_sizes = {group.first.train_size for group in several}
    if len(train_sizes) == len(several):
        ways.append("`train_size`")
    remedy = "keep only one of them in the table"
    if ways:
        remedy = f"choose one with {' or '.join(ways)}"
    return ResultsError(
        f"{len(several)} sets of results that must not be averaged match {first.model} on "
        f"{first.task}; {remedy}:",
        *lines,
    )


def _rival_line(
    group: ResultGroup, common: Collection[str], in_short: Callable[[ResultGroup], str]
) -> str:
    """Return what tells a group from its rivals. common: the traits that all of them have."""
    name = shortlist(group.searches) or "(no search named)"
    measured = sum(row.phase is Phase.MEASURE for row in group.rows)
    rows = "row" if measured == 1 else "rows"
    own_traits = [trait for trait in _traits(group.first) if trait not in common]
    special = "; ".join(own_traits) or "same recipe, and seeds in common"
    return f"{name}: {measured} measuring {rows}; {special}; {in_short(group)}"


def _group(members: Sequence[ResultRow]) -> ResultGroup:
    """Return the group of these rows. Raises ResultsError where they contradict one another."""
    rows = [row for row in members if row.phase is not Phase.PROBE]
    # Like searches probe alike: the first stands for all.
    probes = [row for row in members if row.phase is Phase.PROBE and row.quality is not None]
    examples = [row.examples for row in rows if row.examples is not None]
    units = [row.evaluation_units for row in rows if row.evaluation_units is not None]
    searches = [row.search for row in rows if row.search is not None]
    _check_layers(rows)
    return ResultGroup(
        searches=tuple(dict.fromkeys(searches)),
        chance=_chance(rows),
        examples=min(examples, default=None),
        units=min(units, default=None),
        rows=tuple(rows),
        probe=probes[0] if probes else None,
    )


def _check_layers(rows: Sequence[ResultRow]) -> None:
    """Raise ResultsError where the rows disagree on the model's number of layers."""
    layers = sorted({row.layers for row in rows})
    if len(layers) > 1:
        raise ResultsError(
            f"{_where(rows)}: the rows say {layers[0]} and {layers[1]} layers; one model has one "
            "number of layers, so give different models different names"
        )


def _chance(rows: Sequence[ResultRow]) -> float | None:
    """Return the quality of a constant answer, as the rows or their metric know it."""
    chances = [row.chance for row in rows if row.chance is not None]
    if not chances:
        metric = Metric.named(rows[0].metric)
        return None if metric is None else metric.of_constants
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
    return f"{rows[0].model} on {rows[0].task}"


def _traits(row: ResultRow) -> list[str]:
    """Return what tells a row's group from others, one text each."""
    traits = [
        number_text(row.train_size, "{:,} training examples", "the whole training set"),
        f"metric {row.metric or 'not named'}",
        f"selection {row.selection or 'not named'}",
    ]
    for text in re.split(r"[;,\n]\s*", str(row.comparison)):
        if text:
            traits.append(text)
    return traits
