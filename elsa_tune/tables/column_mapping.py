"""Where each of our columns comes from: its own name, what the user said, or a tool's habit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from elsa_tune.errors import ResultsError, UnknownNameError, UsageError
from elsa_tune.tables.result_fields import COLUMNS, REQUIRED
from elsa_tune.tables.tool_exports import SYNONYMS, Tool, candidates, metric_of

# A header of an export can have hundreds.
SHOWN_COLUMNS = 20

# What other tables call the columns, for the hint when one is missing.
_LOOKALIKES = SYNONYMS | {
    "quality": ("mean_accuracy", "accuracy", "score", "value", "quality_percent", "eval_accuracy"),
    "frozen_layers": ("frozen", "n_frozen", "freeze", "frozen_layer"),
    "seed": ("random_seed", "seeds"),
    "runs": ("n_runs", "seeds"),
}


@dataclass(frozen=True, slots=True)
class ColumnMapping:
    """What the user said: for one of our columns the table's (sources), or a value for all rows
    (constants).
    """

    sources: Mapping[str, str] = field(default_factory=dict)
    constants: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, texts: Sequence[str]) -> ColumnMapping:
        """Read `OURS=THEIRS`, and `OURS==VALUE` for a value that the table does not have.

        Raises UsageError for any other text or a column named twice, UnknownNameError for a column
        that is not ours.
        """
        sources: dict[str, str] = {}
        constants: dict[str, str] = {}
        for text in texts:
            column, equals, rest = text.partition("=")
            is_value = rest.startswith("=")
            rest = rest.removeprefix("=")
            if not (column and equals and rest):
                raise UsageError(
                    f"`map` is '{text}'; it must be OURS=THEIRS, as in "
                    "frozen_layers=config/frozen, or OURS==VALUE, as in model==bert_base"
                )
            if column not in COLUMNS:
                raise UnknownNameError.among("column", column, COLUMNS, hint="It is in `map`.")
            if column in sources or column in constants:
                raise UsageError(f"`map` names {column} twice; leave one out")
            (constants if is_value else sources)[column] = rest
        return cls(sources, constants)

    def __bool__(self) -> bool:
        return bool(self.sources or self.constants)


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """Where in a line each of our columns stands.

    places: index of the cell. constants: the value of columns without one. told: one line per
    column, for the reader; () where a table has our names and nothing was mapped.
    """

    places: Mapping[str, int]
    constants: Mapping[str, str]
    told: tuple[str, ...]

    def cells(self, line: Sequence[str]) -> dict[str, str]:
        """The cells of a line by our names, empty ones left out."""
        found = {name: line[place] for name, place in self.places.items() if line[place]}
        return {**found, **self.constants}


def lay_out(path: Path, header: Sequence[str], mapping: ColumnMapping, tool: Tool | None) -> Layout:
    """Find our columns in a header.

    What the user said counts first, then what a recognised tool's names mean, then our own names.
    Raises ResultsError where a needed column is missing or stands twice, or where several of a
    tool's columns can be meant; UnknownNameError where the user named one that is not there.
    """
    separator = next((s for s in ";\t|" if s in header[0]), "") if len(header) == 1 else ""
    if separator:
        name = {"\t": "tabs"}.get(separator, f"'{separator}'")
        raise ResultsError(f"{path}, line 1: columns are separated by {name}; use commas")
    sources = {}
    for column in COLUMNS:
        if column not in mapping.constants:
            source = _source(path, header, column, mapping, tool)
            if source is not None:
                sources[column] = source
    constants = dict(mapping.constants)
    _require(path, header, {*sources, *constants}, tool)
    told = [f"{ours} <- {theirs}" for ours, theirs in sources.items()]
    told += [f"{ours} <- '{value}' in every row" for ours, value in constants.items()]
    quality = sources.get("quality", "")
    metric = metric_of(quality)
    if metric is not None and "metric" not in {*sources, *constants}:
        constants["metric"] = metric
        told.append(f"metric <- '{metric}', by the name of {quality}")
    is_mapped = tool is not None or mapping
    return Layout(
        places={ours: header.index(theirs) for ours, theirs in sources.items()},
        constants=constants,
        told=tuple(told) if is_mapped else (),
    )


def _source(
    path: Path, header: Sequence[str], column: str, mapping: ColumnMapping, tool: Tool | None
) -> str | None:
    if column in mapping.sources:
        return _named(path, header, mapping.sources[column])
    found = [] if tool is None else candidates(tool, header, column)
    if len(found) > 1:
        raise ResultsError(
            f"{path}, line 1: {column} can be {' or '.join(found)}; choose one, as in `map` "
            f"{column}={found[0]}"
        )
    own = [name for name in header if name.lower() == column]
    if len(own) > 1 and not found:
        raise ResultsError(f"{path}, line 1: column {column} occurs more than once")
    return next(iter([*found, *own]), None)


def _named(path: Path, header: Sequence[str], name: str) -> str:
    """The column that the user named, in whatever case."""
    if name in header:
        return name
    alike = [theirs for theirs in header if theirs.lower() == name.lower()]
    if len(alike) == 1:
        return alike[0]
    raise UnknownNameError.among("column", name, header, hint=f"Looked in {path}.")


def _require(path: Path, header: Sequence[str], found: set[str], tool: Tool | None) -> None:
    missing = [name for name in REQUIRED if name not in found]
    if not found & {"seed", "runs"}:
        missing.append("seed (one row a run) or runs (a row is the mean of so many)")
    if not missing:
        return
    known = [name.lower() for name in header]
    names = [name.split()[0] for name in missing]
    hints = [
        f"Is {other} the {name}? Then add `map` {name}={other}."
        for name in names
        for other in _LOOKALIKES.get(name, ())
        if other in known
    ]
    if not hints and names == ["seed"]:
        hints = ["Name it with `map` seed=COLUMN; without one, `map` runs==1 says a row is a run."]
    hints.append(
        f"Name another column with `map` {names[0]}=COLUMN, or a value for all rows with `map` "
        f"{names[0]}==VALUE."
    )
    shown = ", ".join(header[:SHOWN_COLUMNS])
    if len(header) > SHOWN_COLUMNS:
        shown += f" and {len(header) - SHOWN_COLUMNS} more"
    export = f" of an export from {tool}" if tool is not None else ""
    raise ResultsError(
        f"{path}, line 1{export}: missing columns {', '.join(missing)}; it has {shown}. {hints[0]}"
    )
