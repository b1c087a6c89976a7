"""The records of a search's journal: what happened, one frozen value and one JSON object each.

Unknown fields, of a later version, are passed over; an unknown kind is an error.
"""

import dataclasses
import enum
import math
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar

from pydantic import BeforeValidator, Field, TypeAdapter, ValidationError
from pydantic_core import PydanticSerializationError, from_json, to_json

from elsa_tune.specs.checked import problems
from elsa_tune.specs.trial import TrialStatus
from elsa_tune.tracking.params import Params, params_record, read_params

# Longer ones are no count of ours, and more than a float may hold.
_Whole = Annotated[int, Field(gt=-(2**63), lt=2**63)]
# What is not finite stands as null in a line.
_Metric = Annotated[float, BeforeValidator(lambda value: math.nan if value is None else value)]
# Until the year 9999, beyond which no calendar of Python goes.
_Time = Annotated[float, Field(ge=0, le=253_402_214_400)]


class SearchStatus(enum.StrEnum):
    """How a search stands."""

    RUNNING = "running"  # its driver lives
    COMPLETED = "completed"  # the whole plan was carried out
    INTERRUPTED = "interrupted"  # Ctrl-C or SIGTERM; `resume` goes on
    FAILED = "failed"  # the driver ended with an error; `resume` goes on
    TIME_UP = "time_up"  # `max_time` was reached; the answer is from what is done
    KILLED = "killed"  # the driver was; `resume` goes on; also concluded where no end is written


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """What all records share."""

    kind: ClassVar[str]
    # Seconds since the epoch, to the millisecond, strictly increasing within a journal (the journal
    # sees to both): MLflow's metrics are told apart by it. 0 means that it has no time yet.
    time: _Time = 0.0

    @property
    def milliseconds(self) -> int:
        return round(self.time * 1000)


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchStarted(Record):
    """A driver took the search up."""

    kind: ClassVar[str] = "search_started"
    name: str  # the search's
    search_id: str  # unique over all machines and for ever, where a name may be used again
    attempt: _Whole  # 1 at first, 2, 3, ... at every resume
    model: str  # its name
    task: str  # its name
    params: dict[str, Any] = field(default_factory=dict)  # texts in what earlier versions wrote
    tags: dict[str, str] = field(default_factory=dict)  # versions, fingerprints, the machine


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialStarted(Record):
    """A trial began, or began again from its first step (attempt 2, 3, ...)."""

    kind: ClassVar[str] = "trial_started"
    trial: str  # its key
    attempt: _Whole = 1
    params: Params = field(default_factory=lambda: read_params({}))  # what the trial is
    tags: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Report(Record):
    """One evaluation of a running trial."""

    kind: ClassVar[str] = "report"
    trial: str  # its key
    attempt: _Whole = 1  # of the trial
    evaluation: _Whole  # 1-based
    step: _Whole  # optimiser steps done
    # `quality`, the task's metrics by their own names, losses.
    metrics: dict[str, _Metric] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)  # for people, a sentence each
    tags: dict[str, str] = field(default_factory=dict)  # what became known meanwhile, as the node
    restored: bool = False  # an earlier attempt made it, and this one continued behind it


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialEnded(Record):
    """A trial's end, whatever it was."""

    kind: ClassVar[str] = "trial_ended"
    trial: str  # its key
    attempt: _Whole = 1  # of the trial
    status: TrialStatus  # how it ended
    # The once-per-trial ones; `quality` is the trial's, under its selection.
    metrics: dict[str, _Metric] = field(default_factory=dict)
    message: str = ""  # what went wrong
    artifact: str | None = None  # a file to keep with the run, relative to the search's folder
    tags: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class LatePredictions(Record):
    """The predictions of a trial have come whose end was recorded without them."""

    kind: ClassVar[str] = "late_predictions"
    trial: str  # its key
    artifact: str  # their file, relative to the search's folder


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision(Record):
    """What the search decided or measured once: a depth's learning rate, the plan, the answer."""

    kind: ClassVar[str] = "decision"
    what: str  # its name; the last decision of a name counts
    value: Any  # ready for JSON


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchEnded(Record):
    """The driver let the search go; trials that had not ended by then were interrupted."""

    kind: ClassVar[str] = "search_ended"
    status: SearchStatus  # how it ended
    message: str = ""  # why, where the plan was not carried out


_KINDS = (
    SearchStarted,
    TrialStarted,
    Report,
    TrialEnded,
    LatePredictions,
    Decision,
    SearchEnded,
)
_ADAPTERS: dict[str, TypeAdapter[Any]] = {cls.kind: TypeAdapter(cls) for cls in _KINDS}


def encode(record: Record) -> str:
    """Return one line of JSON, without its newline.

    Numbers that are not finite become null, and half characters, as paths that are not UTF-8 have
    them, are written out: a trial may name such a file as it fails.
    """
    fields: dict[str, Any] = {"kind": record.kind}
    for spec in dataclasses.fields(record):
        fields[spec.name] = getattr(record, spec.name)
    if isinstance(record, TrialStarted):
        fields["params"] = params_record(record.params)
    try:
        line = to_json(fields, inf_nan_mode="null", fallback=_plain)
    except PydanticSerializationError:
        line = to_json(_written_out(fields), inf_nan_mode="null", fallback=_plain)
    return line.decode()


def decode(line: str) -> Record:
    """Return the record that `encode` wrote. Raises ValueError for anything else."""
    values = from_json(line)
    if not isinstance(values, dict) or "kind" not in values:
        raise ValueError("it is not a record")
    kind = values["kind"]
    if not isinstance(kind, str) or kind not in _ADAPTERS:
        raise ValueError(f"it is of the unknown kind '{kind}', written by a newer elsa-tune")
    adapter = _ADAPTERS[kind]
    try:
        record: Record = adapter.validate_json(line, strict=True)
        return record
    except ValidationError as error:
        raise ValueError(f"{kind}: {problems(error)}") from error


def _written_out(value: Any) -> Any:
    """Return a value with `\\udce9` in place of each half character in its texts."""
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, dict):
        return {_written_out(key): _written_out(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_written_out(part) for part in value]
    return value


def _plain(value: Any) -> Any:
    """Return a NumPy or torch scalar as its number, and what else JSON lacks as text."""
    if hasattr(value, "item"):
        return value.item()
    return str(value)
