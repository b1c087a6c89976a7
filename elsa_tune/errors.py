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
_QUOTED = re.compile(rf"(?<!\w)'([^'/][^']{{{SHOWN_LENGTH},}})'(?!\w)")
_LONG_WORD = re.compile(r"\S{400,}")


def quoted(value: object) -> str:
    """A value as an error shows it: as Python writes it, at most so long."""
    return shortened(repr(value))


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The known name that was most likely meant, if any: its words in another order (`macro_f1`),
    its initials (`lr`), a spelling like it, words more or fewer (`num_train_epochs`).
    """
    from difflib import get_close_matches  # only for whoever mistypes: the help answers without it

    asked = name.strip().lower().replace("-", "_")
    words = {one: one.split("_") for one in known}
    found = [one for one in words if sorted(words[one]) == sorted(asked.split("_"))]
    found += [one for one in words if "_" in one and asked == "".join(w[:1] for w in words[one])]
    found += get_close_matches(asked, words, n=1, cutoff=0.8)
    within = [one for one in words if f"_{one}_" in f"_{asked}_" or f"_{asked}_" in f"_{one}_"]
    found += sorted(within, key=len, reverse=True)
    found += get_close_matches(asked, words, n=1, cutoff=0.6)
    return found[0] if found else None


def shortened(text: str, most: int = SHOWN_LENGTH) -> str:
    """A text of at most so many characters, with the ends of a longer one."""
    half = most // 2
    return text if len(text) <= most else f"{text[: half - 1]}…{text[-half:]}"


def shortlist(items: Iterable[object], between: str = ", ") -> str:
    """What an error names of a list that may be long: `a, b, c`, or ten and how many more."""
    return between.join(first_few([shortened(str(one)) for one in items]))


def first_few(lines: Sequence[str]) -> list[str]:
    """The lines of an error's list, or ten of them and `and 1,990 more`."""
    if len(lines) <= LISTED + 1:  # `and 1 more` would be no shorter
        return list(lines)
    return [*lines[:LISTED], f"and {len(lines) - LISTED:,} more"]


def _one_line(text: str) -> str:
    """Whatever a text repeats of a user's values or of a library's words."""
    line = visible("; ".join(filter(None, map(str.strip, text.splitlines()))))
    line = _QUOTED.sub(lambda found: f"'{shortened(found[1])}'", line)
    return _LONG_WORD.sub(lambda found: shortened(found[0]), line)


def first_line(error: BaseException) -> str:
    """What another library's error says first, without colours, or else its name."""
    lines = re.sub(r"\x1b\[[\d;]*m", "", str(error)).strip().splitlines()
    return lines[0] if lines else type(error).__name__


class ElsaTuneError(Exception):
    """Base of every error raised on purpose; `exit_status` is the command line's."""

    exit_status = 1

    def __str__(self) -> str:
        """The message in one line, and each further argument as a point of a list below it."""
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
    """A search space or a setting with an impossible value; pydantic reports it as a ValueError."""


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
