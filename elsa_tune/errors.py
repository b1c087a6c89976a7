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
    typed = name.strip().lower().replace("-", "_")
    typed_words = sorted(typed.split("_"))
    candidates = list(known)
    for candidate in candidates:
        words = sorted(candidate.split("_"))
        if words == typed_words:
            return candidate
    for candidate in candidates:
        has_words = "_" in candidate
        if has_words and typed == _initials(candidate):
            return candidate
    return (
        _most_alike(typed, candidates, 0.8)
        or _with_words_more_or_fewer(typed, candidates)
        or _most_alike(typed, candidates, 0.6)
    )


def _initials(name: str) -> str:
    words = name.split("_")
    return "".join(word[:1] for word in words)


def _most_alike(typed: str, candidates: Sequence[str], likeness: float) -> str | None:
    """Return the candidate with the spelling most alike, from a likeness (0 to 1) on."""
    from difflib import get_close_matches  # only for whoever mistypes: the help answers without it

    matches = get_close_matches(typed, candidates, n=1, cutoff=likeness)
    if not matches:
        return None
    return matches[0]


def _with_words_more_or_fewer(typed: str, candidates: Iterable[str]) -> str | None:
    """Return the longest candidate that is a part of the typed name or has it as a part."""
    longest = ""
    typed_words = f"_{typed}_"
    for candidate in candidates:
        words = f"_{candidate}_"
        is_part = words in typed_words or typed_words in words
        if is_part and len(candidate) > len(longest):
            longest = candidate
    return longest or None


def shortened(text: str, most: int = SHOWN_LENGTH) -> str:
    """Return a text of at most so many characters, with the ends of a longer one."""
    if len(text) <= most:
        return text
    half = most // 2
    beginning = text[: half - 1]
    end = text[-half:]
    return f"{beginning}…{end}"


def shortlist(items: Iterable[object]) -> str:
    """Write a list that may be long, for an error: `a, b, c`, or ten and how many more."""
    texts = [shortened(str(item)) for item in items]
    return ", ".join(first_few(texts))


def first_few(lines: Sequence[str]) -> list[str]:
    """Return the lines of an error's list, or ten of them and `and 1,990 more`."""
    more = len(lines) - LISTED
    if more <= 1:  # `and 1 more` would be no shorter
        return list(lines)
    return [*lines[:LISTED], f"and {more:,} more"]


def _one_line(text: str) -> str:
    """Return a message in one line, with what it repeats of users and libraries shortened."""
    lines = [line.strip() for line in text.splitlines()]
    filled_lines = [line for line in lines if line]
    line = visible("; ".join(filled_lines))
    line = _QUOTED.sub(_shortened_quotation, line)
    return _LONG_WORD.sub(_shortened_word, line)


def _shortened_quotation(match: re.Match[str]) -> str:
    return f"'{shortened(match[1])}'"


def _shortened_word(match: re.Match[str]) -> str:
    return shortened(match[0])


def first_line(error: BaseException) -> str:
    """Return what another library's error says first, without colours, or else its name."""
    text = _COLOUR.sub("", str(error))
    lines = text.strip().splitlines()
    if not lines:
        return type(error).__name__
    return lines[0]


class ElsaTuneError(Exception):
    """Base of every error raised on purpose; `exit_status` is the command line's."""

    exit_status = 1

    def __str__(self) -> str:
        """Write the message in one line, and each further argument as a line below it."""
        lines = [_one_line(str(argument)) for argument in self.args]
        return "\n  ".join(lines)


class UsageError(ElsaTuneError):
    """Bad usage or bad input, found before any work starts."""

    exit_status = 2


class UnknownNameError(UsageError):
    """A name that is not known."""

    @classmethod
    def among(cls, what: str, name: str, known: Iterable[str], hint: str = "") -> Self:
        """Build the sentence "unknown WHAT 'NAME'; did you mean ...?" from the known names."""
        names = sorted(known)
        sentence = f"unknown {what} '{name}':"
        meant = nearest(name, names)
        if meant:
            sentence += f" did you mean '{meant}'?"
        sentence += f" known: {shortlist(names) or 'none'}."
        if hint:
            sentence += f" {hint}"
        return cls(sentence)


class ModelError(UsageError):
    """Weights or configuration missing, or an architecture whose layers cannot be frozen."""


class DataError(UsageError):
    """A file, split, column or label that is not what the task says."""


class SpaceError(UsageError, ValueError):
    """A search space or a setting with an impossible value; a ValueError too, for pydantic."""


class UnknownMethodError(SpaceError):
    """A record of a method of adaptation that nothing here brings; the record itself is sound."""


class ResultsError(UsageError):
    """A results table that cannot be read, or results that must not be pooled."""


class StorageError(UsageError):
    """A place that cannot be written, or a search name that is taken."""


class TrackingError(UsageError):
    """A store that does not answer or cannot be used, or a URI that names none."""


class ExtensionError(ElsaTuneError):
    """A package or a module that extends elsa-tune and cannot be imported.

    No UsageError: who reads on elsewhere after one of those would hide what the package lacks.
    """

    exit_status = 2


class RunError(ElsaTuneError):
    """The work itself failed."""


class DivergedError(RunError):
    """A trial whose loss or metric stopped being finite."""


class LeavingError(RunError):
    """A trial that leaves its node, which will end; it continues elsewhere."""


class NoAnswerError(ElsaTuneError):
    """None of what was asked has an answer in these results."""

    exit_status = 3


class InterruptedSearchError(ElsaTuneError):
    """Ctrl-C or SIGTERM; everything is saved and `elsa-tune resume` goes on."""

    exit_status = 130
