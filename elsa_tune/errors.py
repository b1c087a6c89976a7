"""The error tree: every failure a user can meet, with the exit status the command line gives it.

A message is one or two sentences: what was asked, what came, what to do.
"""

import re
from collections.abc import Iterable, Sequence
from typing import Self

from elsa_tune.visible import visible

# A value longer than this is shown by its beginning and its end.
SHOWN_LENGTH = 80
# Of a list longer than this, an error names the first.
LISTED = 10
# A long quotation, but of no path.
_QUOTED = re.compile(rf"(?<!\w)'([^'/][^']{{{SHOWN_LENGTH},}})'(?!\w)")
_LONG_WORD = re.compile(r"\S{400,}")
_COLOUR = re.compile(r"\x1b\[[\d;]*m")


def quoted(value: object) -> str:
    """Write a value as Python does, shortened to what an error shows of it."""
    return shortened(repr(value))


def nearest(name: str, known: Iterable[str]) -> str | None:
    """Return the known name that was most likely meant, None where there is no such name.

    That is one with the same words in another order (`macro_f1`), else with these initials (`lr`),
    else a spelling like it, else one with words more or fewer (`num_train_epochs`).
    """
    from difflib import get_close_matches  # only for whoever mistypes: the help answers without it

    asked = name.strip().lower().replace("-", "_")
    asked_words = sorted(asked.split("_"))
    candidates = list(known)
    for candidate in candidates:
        if sorted(candidate.split("_")) == asked_words:
            return candidate
    for candidate in candidates:
        initials = "".join(word[:1] for word in candidate.split("_"))
        if "_" in candidate and asked == initials:
            return candidate
    alike = get_close_matches(asked, candidates, n=1, cutoff=0.8)
    if alike:
        return alike[0]
    overlapping = []
    for candidate in candidates:
        is_part = f"_{candidate}_" in f"_{asked}_"
        if is_part or f"_{asked}_" in f"_{candidate}_":
            overlapping.append(candidate)
    if overlapping:
        return max(overlapping, key=len)
    alike = get_close_matches(asked, candidates, n=1, cutoff=0.6)
    return alike[0] if alike else None


def shortened(text: str, most: int = SHOWN_LENGTH) -> str:
    """Return a text of at most so many characters, with the ends of a longer one."""
    if len(text) <= most:
        return text
    half = most // 2
    return f"{text[: half - 1]}…{text[-half:]}"


def shortlist(items: Iterable[object], between: str = ", ") -> str:
    """Write a list that may be long, for an error: `a, b, c`, or ten and how many more."""
    texts = [shortened(str(item)) for item in items]
    return between.join(first_few(texts))


def first_few(lines: Sequence[str]) -> list[str]:
    """Return the lines of an error's list, or ten of them and `and 1,990 more`."""
    if len(lines) <= LISTED + 1:  # `and 1 more` would be no shorter
        return list(lines)
    return [*lines[:LISTED], f"and {len(lines) - LISTED:,} more"]


def _one_line(text: str) -> str:
    """Return a message in one line, with what it repeats of users and libraries shortened."""
    lines = [line.strip() for line in text.splitlines()]
    joined = visible("; ".join(line for line in lines if line))
    joined = _QUOTED.sub(lambda match: f"'{shortened(match[1])}'", joined)
    return _LONG_WORD.sub(lambda match: shortened(match[0]), joined)


def first_line(error: BaseException) -> str:
    """Return what another library's error says first, without colours, or else its name."""
    lines = _COLOUR.sub("", str(error)).strip().splitlines()
    return lines[0] if lines else type(error).__name__


class ElsaTuneError(Exception):
    """Base of every error raised on purpose; `exit_status` is the command line's."""

    exit_status = 1

    def __str__(self) -> str:
        """Write the message in one line, and each further argument as a line below it."""
        return "\n  ".join(_one_line(str(part)) for part in self.args)


class UsageError(ElsaTuneError):
    """Bad usage or bad input, found before any work starts."""

    exit_status = 2


class UnknownNameError(UsageError):
    """A name that is not known."""

    @classmethod
    def among(cls, what: str, name: str, known: Iterable[str], hint: str = "") -> Self:
        """Build the sentence "unknown WHAT 'NAME'; did you mean ...?" from the known names."""
        names = sorted(known)
        near = nearest(name, names)
        meant = f"did you mean '{near}'? " if near else ""
        tail = f" {hint}" if hint else ""
        return cls(f"unknown {what} '{name}': {meant}known: {shortlist(names)}.{tail}")


class ModelError(UsageError):
    """Weights or configuration missing, or an architecture whose layers cannot be frozen."""


class DataError(UsageError):
    """A file, split, column or label that is not what the task says."""


class SpaceError(UsageError, ValueError):
    """A search space or a setting with an impossible value; a ValueError too, for pydantic."""


class ResultsError(UsageError):
    """A results table that cannot be read, or results that must not be pooled."""


class StorageError(UsageError):
    """A place that cannot be written, or a search name that is taken."""


class TrackingError(UsageError):
    """An MLflow store that does not answer."""


class RunError(ElsaTuneError):
    """The work itself failed."""


class DivergedError(RunError):
    """A trial whose loss or metric stopped being finite."""


class NoAnswerError(ElsaTuneError):
    """None of what was asked has an answer in these results."""

    exit_status = 3


class InterruptedSearchError(ElsaTuneError):
    """Ctrl-C or SIGTERM; everything is saved and `elsa-tune resume` goes on."""

    exit_status = 130
