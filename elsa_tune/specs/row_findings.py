"""Findings: what is odd about a task's rows, as a value and as the sentence that says it."""

import enum
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from elsa_tune.errors import shortened
from elsa_tune.specs.policy import Policy

# Classes, columns or reasons that a sentence names; of more it says how many.
MOST_NAMED = 3
# A class or label in a sentence has at most so many characters.
_NAME_LENGTH = 40


class FindingCode(enum.StrEnum):
    """Kinds of findings, the gravest for an answer first."""

    LEAKED_ROWS = "leaked_rows"  # evaluation rows whose text is also trained on
    LEAKED_GROUPS = "leaked_groups"  # evaluation rows of a group that is also trained on
    FEW_UNITS = "few_units"  # evaluation rows that are far fewer independent units
    CUT_TEXTS = "cut_texts"  # rows of more tokens than are read of one
    CONTRADICTING_LABELS = "contradicting_labels"  # one text with two labels
    CLASSES_NOT_EVALUATED = "classes_not_evaluated"  # no evaluation row has them
    CLASSES_NOT_TRAINED = "classes_not_trained"  # no training row has them
    LABELS_ALIKE = "labels_alike"  # classes that differ by blanks, case or `.0` alone
    LABEL_LOOKS_MISSING = "label_looks_missing"  # a class called N/A
    ROWS_LOST = "rows_lost"  # many were left out when the files were read
    DUPLICATE_ROWS = "duplicate_rows"  # a split has a text and its label twice
    EMPTY_TEXTS = "empty_texts"  # one of two texts is empty


@dataclass(frozen=True, slots=True, kw_only=True)
class RowFinding:
    """Something that is odd about a number of rows."""

    code: FindingCode  # what is odd
    count: int  # of rows; for CLASSES_* of classes, for FEW_UNITS of units
    of: int  # how many were looked at
    where: str = "training"  # their split; for rows that were lost their files
    exact: int | None = None  # leaked rows that are in training letter for letter
    # Leaked rows that are in training with their label, and so too easy; None for numbers.
    same_label: int | None = None
    texts: int | None = None  # different texts among contradicting rows
    groups: int | None = None  # how many groups the rows are of; None where none were named
    names: tuple[str, ...] = ()  # some of the classes, columns or reasons concerned
    named: int = 0  # how many of these there are in all
    # Of cut texts: how many tokens of a row are read; what share of these rows' tokens that is; the
    # tokens of the longest row of any split; how many the model takes, None for no limit.
    max_length: int | None = None
    read: float | None = None
    longest: int | None = None
    most: int | None = None

    @property
    def share(self) -> float:
        """The share of what was looked at, 0..1."""
        if not self.of:
            return 0.0
        return self.count / self.of

    @property
    def concerns_answers(self) -> bool:
        """Whether a reader of an answer must know it; repeated training rows change none."""
        if self.code is FindingCode.DUPLICATE_ROWS:
            return self.where != "training"
        return self.code is not FindingCode.EMPTY_TEXTS

    @property
    def fact(self) -> str:
        """What was counted, a clause without a full stop."""
        some = f"{self.count:,} of {self.of:,}"
        share = share_text(self.share)
        counted = f"{some} {self.where} rows ({share})"
        match self.code:
            case FindingCode.LEAKED_ROWS:
                return f"{counted} are also in training{self._alike}"
            case FindingCode.LEAKED_GROUPS:
                groups = _count(self.groups or 0, "group")
                return f"{counted}, of {groups}, have rows of their group in training"
            case FindingCode.FEW_UNITS:
                units = _count(self.count, "unit")
                alike = "the same text" if self.groups is None else "the same group"
                return f"the {self.of:,} {self.where} rows count as {units} ({alike}: one unit)"
            case FindingCode.CUT_TEXTS:
                read = share_text(self.read or 0.0)
                longer = f"{counted} are longer than max_length {self.max_length or 0:,}"
                return f"{longer}, and {read} of their tokens are read"
            case FindingCode.CONTRADICTING_LABELS:
                return f"{self._texts} more than one label, in {counted}"
            case FindingCode.CLASSES_NOT_EVALUATED | FindingCode.CLASSES_NOT_TRAINED:
                return f"{some} classes {_has(self.count)} no {self.where} row ({self._listed})"
            case FindingCode.LABELS_ALIKE:
                alike = "classes differ by blanks, case or a trailing .0 alone"
                return f"{alike} ({self._listed}), in {counted}"
            case FindingCode.LABEL_LOOKS_MISSING:
                return f"a class looks like a missing label ({self._listed}), in {counted}"
            case FindingCode.ROWS_LOST:
                return f"{some} rows of {self.where} are left out ({share}): {self._listed}"
            case FindingCode.DUPLICATE_ROWS:
                return f"{counted} repeat the text and label of an earlier one"
            case FindingCode.EMPTY_TEXTS:
                which = f"one of {self._listed}" if self.named > 1 else self._listed
                return f"{counted} have nothing in {which}"

    @property
    def brief(self) -> str:
        """The fact in fewer words."""
        if self.code is FindingCode.LEAKED_ROWS:
            labels = ""
            if self.same_label is not None:
                labels = f", {self.same_label:,} with the same label"
            rows = f"{self.count:,} of {self.of:,} {self.where} rows"
            return f"{rows} ({share_text(self.share)}) are also in training{labels}"
        if self.code is FindingCode.CONTRADICTING_LABELS:
            return f"{self._texts} more than one label"
        if self.code is FindingCode.DUPLICATE_ROWS:
            rows = "row repeats" if self.count == 1 else "rows repeat"
            return f"{self.count:,} {self.where} {rows} an earlier one"
        return self.fact

    @property
    def text(self) -> str:
        """The fact and what it does to an answer, a clause without a full stop."""
        if self.code is FindingCode.FEW_UNITS and self.count < Policy().fewest_units:
            return f"{self.fact}: nothing can be certified"
        is_harmless = self.code is FindingCode.LEAKED_ROWS and self.same_label == 0
        if is_harmless or self.code not in _EFFECTS:
            return self.fact
        return f"{self.fact}: {_EFFECTS[self.code]}"

    @property
    def remedy(self) -> str:
        """What to do about it, in the words of a task file."""
        if self.code is FindingCode.DUPLICATE_ROWS and self.where != "training":
            return "drop them there; `drop_duplicates: true` does where these rows are held out"
        if self.code is FindingCode.LABEL_LOOKS_MISSING:
            labels = ", ".join(self.names)
            return f"`missing_labels: [{labels}]` leaves its rows out"
        if self.code is FindingCode.FEW_UNITS and self.groups is None:
            return "evaluate on more different texts"
        if self.code is FindingCode.CUT_TEXTS:
            return self._longer
        return _REMEDIES[self.code]

    @property
    def _longer(self) -> str:
        """What reads more of cut texts."""
        longest = self.longest or 0
        if self.most is None or longest <= self.most:
            return f"`--set max_length={longest}` reads them whole"
        if self.most > (self.max_length or 0):
            return f"`--set max_length={self.most}` reads the most that the model takes"
        return "the model takes no more: give the part that counts, or take another model"

    @property
    def _alike(self) -> str:
        """How alike leaked rows are to those in training, in brackets; "" where not known."""
        parts = []
        if self.exact is not None:
            parts.append(f"{self.exact:,} letter for letter")
        if self.same_label is not None:
            parts.append(f"{self.same_label:,} with the same label")
        if not parts:
            return ""
        listed = ", ".join(parts)
        return f" ({listed})"

    @property
    def _texts(self) -> str:
        """How many texts there are, and the verb that follows."""
        if self.texts == 1:
            return "1 text has"
        return f"{self.texts or 0:,} texts have"

    @property
    def _listed(self) -> str:
        """Some of the names, and how many more there are."""
        names = ", ".join(self.names)
        more = self.named - len(self.names)
        if more > 0:
            names += f" and {more:,} more"
        return names


# What a finding does to an answer.
_EFFECTS = {
    FindingCode.LEAKED_ROWS: "every measured quality may be too high",
    FindingCode.LEAKED_GROUPS: "every measured quality may be too high for new groups",
    FindingCode.FEW_UNITS: "an answer is only as sure as so many units make it",
    FindingCode.CUT_TEXTS: "an answer is about these parts of the texts alone",
    FindingCode.CONTRADICTING_LABELS: "no model can be right about all of them",
    FindingCode.CLASSES_NOT_EVALUATED: "the quality says nothing about them",
    FindingCode.CLASSES_NOT_TRAINED: "no model can learn them",
    FindingCode.LABELS_ALIKE: "one class may be counted as several",
    FindingCode.LABEL_LOOKS_MISSING: "rows without a label may be learnt as a class",
}
# What to do about it, in the words of a task file.
_REMEDIES = {
    FindingCode.LEAKED_ROWS: "`drop_leaked: true` drops these rows from training",
    FindingCode.LEAKED_GROUPS: (
        "keep a group's rows in one split, or leave `files.evaluation` (of a data set "
        "`evaluation`) out and set `evaluation_share`"
    ),
    FindingCode.FEW_UNITS: "evaluate on more groups, not on more rows of the same ones",
    FindingCode.CONTRADICTING_LABELS: (
        "correct them, or `drop_contradictions: true` drops such rows from training"
    ),
    FindingCode.CLASSES_NOT_EVALUATED: "add evaluation rows of them",
    FindingCode.CLASSES_NOT_TRAINED: "add training rows of them, or drop them from `classes`",
    FindingCode.LABELS_ALIKE: "`merge_labels: true` makes them one",
    FindingCode.ROWS_LOST: "complete these rows, or choose other columns",
    FindingCode.DUPLICATE_ROWS: "`drop_duplicates: true` keeps the first of each",
    FindingCode.EMPTY_TEXTS: "complete them, or leave that column out",
}


def finding_lines(findings: Sequence[RowFinding], is_published: bool = False) -> list[str]:
    """Write a line for each finding, lost rows first.

    is_published: the rows are what others compare on too, so that nothing is to be mended, and one
    line is enough; how much of a text is read is the search's own choice.
    """
    lost = []
    others = []
    published = []
    for finding in findings:
        line = f"! {finding.text}; {finding.remedy}"
        if is_published and finding.code is not FindingCode.CUT_TEXTS:
            published.append(finding.brief)
        elif finding.code is FindingCode.ROWS_LOST:
            lost.append(line)
        else:
            others.append(line)
    if published:
        facts = "; ".join(published)
        lost.append(f"! in the published rows, kept as they are: {facts}")
    return lost + others


def named(names: Sequence[str]) -> dict[str, Any]:
    """Return the fields `names` and `named` of a finding about these classes."""
    shown: list[str] = []
    for name in names[:MOST_NAMED]:
        short = shortened(name, _NAME_LENGTH)
        shown.append(f"'{short}'")
    return {"names": tuple(shown), "named": len(names)}


def share_text(share: float) -> str:
    """Write a share as `8.5 %`, below a tenth of a percent as `under 0.1 %`."""
    if 0 < share < 0.001:
        return "under 0.1 %"
    return f"{100 * share:.1f} %"


def _count(number: int, noun: str) -> str:
    """Return how many there are, as `1 group` or `2,490 groups`."""
    if number == 1:
        return f"1 {noun}"
    return f"{number:,} {noun}s"


def _has(count: int) -> str:
    """Return the verb for so many."""
    if count == 1:
        return "has"
    return "have"
