"""The records of a search's journal: what happened, one frozen value and one JSON object each.

They must not know who writes or reads them. A record that a later version writes may hold more
fields; unknown fields are passed over, an unknown kind is an error.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import json
import math
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from elsa_tune.specs.trial import TrialStatus

Scalar = str | int | float | bool | None


class SearchStatus(enum.StrEnum):
    """How a search stands."""

    RUNNING = "running"  # its driver lives
    COMPLETED = "completed"  # the whole plan was carried out
    INTERRUPTED = "interrupted"  # Ctrl-C or SIGTERM; `resume` goes on
    FAILED = "failed"  # the driver ended with an error; `resume` goes on
    TIME_UP = "time_up"  # --max-time was reached; the answer is from what is done
    KILLED = "killed"  # the driver was; `resume` goes on; also concluded where no end is written


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """What all records share.

    time: seconds since the epoch, to the millisecond, strictly increasing within a journal (the
    journal sees to both): MLflow's metrics are told apart by it. 0 means that it has no time yet.
    """

    kind: ClassVar[str]
    time: float = 0.0

    @property
    def milliseconds(self) -> int:
        """`time` as MLflow counts it."""
        return round(self.time * 1000)


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchStarted(Record):
    """A driver took the search up: attempt 1 at first, 2, 3, ... at every resume.

    search_id: unique over all machines and for ever; a name may be used again after a deletion.
    """

    kind: ClassVar[str] = "search_started"
    name: str
    search_id: str
    attempt: int
    model: str
    task: str
    params: dict[str, str] = field(default_factory=dict)
    tags: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialStarted(Record):
    """A trial began, or began again from its first step (attempt 2, 3, ...)."""

    kind: ClassVar[str] = "trial_started"
    trial: str
    attempt: int = 1
    params: dict[str, Scalar] = field(default_factory=dict)
    tags: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Report(Record):
    """One evaluation of a running trial.

    evaluation: 1-based. step: optimiser steps done. metrics: `quality`, the task's metrics by their
    own names, losses. tags: what became known meanwhile, e.g. the node.
    """

    kind: ClassVar[str] = "report"
    trial: str
    attempt: int = 1
    evaluation: int
    step: int
    metrics: dict[str, float] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    tags: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialEnded(Record):
    """A trial's end, whatever it was.

    metrics: the once-per-trial ones; `quality` there is the trial's, under its selection. artifact:
    a file to keep with the run, relative to the search's folder.
    """

    kind: ClassVar[str] = "trial_ended"
    trial: str
    attempt: int = 1
    status: TrialStatus
    metrics: dict[str, float] = field(default_factory=dict)
    message: str = ""
    artifact: str | None = None
    tags: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision(Record):
    """What the search decided or measured once: a depth's learning rate, the plan, the answer."""

    kind: ClassVar[str] = "decision"
    what: str
    value: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchEnded(Record):
    """The driver let the search go; trials that had not ended by then were interrupted."""

    kind: ClassVar[str] = "search_ended"
    status: SearchStatus
    message: str = ""


_KINDS: dict[str, type[Record]] = {
    cls.kind: cls
    for cls in (SearchStarted, TrialStarted, Report, TrialEnded, Decision, SearchEnded)
}


_LATEST = 253_402_214_400.0  # the year 9999, beyond which no calendar of Python goes


@functools.cache
def _checks(kind: str) -> dict[str, Callable[[Any], bool]]:
    """Field by field of this kind, whether a value of JSON is of the field's type."""
    cls = _KINDS[kind]
    hints = typing.get_type_hints(cls)
    return {spec.name: _check(hints[spec.name]) for spec in dataclasses.fields(cls)}


def _check(hint: Any) -> Callable[[Any], bool]:
    if hint is Any:
        return lambda value: True
    container, inner = typing.get_origin(hint), typing.get_args(hint)
    if container is dict:
        fits = _check(inner[1])
        return lambda value: isinstance(value, dict) and all(map(fits, value.values()))
    if container is list:
        fits = _check(inner[0])
        return lambda value: isinstance(value, list) and all(map(fits, value))
    if inner:
        options = [_check(one) for one in inner]
        return lambda value: any(fits(value) for fits in options)
    if hint is int:
        # Longer ones are no count of ours, and more than a float may hold.
        return lambda value: type(value) is int and abs(value) < 2**63
    if hint is float:
        whole = _check(int)
        return lambda value: isinstance(value, float) or whole(value)
    # An enumeration's value is a text; which texts it has, it says itself.
    kind = str if issubclass(hint, enum.Enum) else hint
    return lambda value: isinstance(value, kind)


def encode(record: Record) -> str:
    """One line of JSON, without its newline. Numbers that are not finite become null."""
    values = {"kind": record.kind, "time": record.time}
    for spec in dataclasses.fields(record):
        values[spec.name] = _plain(getattr(record, spec.name))
    return json.dumps(values, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def decode(line: str) -> Record:
    """The record that `encode` wrote. Raises ValueError, with the reason, for anything else."""
    try:
        values = json.loads(line)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
    if "\\ud" in line.lower():
        # Half a character, which could be neither printed nor written: its error is a ValueError.
        json.dumps(values, ensure_ascii=False).encode()
    if not isinstance(values, dict) or "kind" not in values:
        raise ValueError("it is not a record")
    kind = values.pop("kind")
    if not isinstance(kind, str) or kind not in _KINDS:
        raise ValueError(f"it is of the unknown kind '{kind}', written by a newer elsa-tune")
    cls = _KINDS[kind]
    checks = _checks(kind)
    known = {name: value for name, value in values.items() if name in checks}
    if isinstance(metrics := known.get("metrics"), dict):
        known["metrics"] = {
            name: math.nan if value is None else value for name, value in metrics.items()
        }
    for name, value in known.items():
        if not checks[name](value):
            raise ValueError(f"the field {name} of this {kind} is of a wrong type")
    if not 0 <= known.get("time", 0.0) <= _LATEST:
        raise ValueError(f"the time of this {kind} is no time")
    if cls is TrialEnded and "status" in known:
        known["status"] = TrialStatus(known["status"])
    if cls is SearchEnded and "status" in known:
        known["status"] = SearchStatus(known["status"])
    try:
        return cls(**known)
    except TypeError as error:
        raise ValueError(f"a field is missing from this {kind}: {error}") from error


def param_text(value: Scalar) -> str:
    """A parameter as MLflow shows it: `true`, `false`, `none`, numbers that read back exactly."""
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def _plain(value: Any) -> Any:
    """JSON's own types; enumerations by value; what is not finite as null."""
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, bool | int | str) or value is None:
        return value
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(name): _plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(item) for item in value]
    if hasattr(value, "item"):  # a NumPy or torch scalar
        return _plain(value.item())
    return str(value)
