"""Input from outside, YAML or JSON: bounded where it is read, and its faults in one sentence."""

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from elsa_tune.errors import first_line, nearest, quoted, shortened

# Characters of a file, and of what it comes to once its aliases are written out; nobody writes so
# many.
MOST_CHARACTERS = 250_000
# Digits of a number; the largest float has 309.
MOST_DIGITS = 100
# Of what is wrong, so much is put into words; the rest is counted.
LOOKED_AT = 50
MOST_SAID = 10  # of them in a sentence
_NUMBERS = ("tag:yaml.org,2002:int", "tag:yaml.org,2002:float")
_TEXT = "tag:yaml.org,2002:str"
_DATE = "tag:yaml.org,2002:timestamp"

# Pydantic's types of the error that a field is not known.
_OF_UNKNOWN_FIELDS = ("extra_forbidden", "unexpected_keyword_argument")

# What a value must be: by pydantic's type of the error where it is a limit, else by the beginning
# of that type (`int_type`, `int_parsing`, `int_from_float`).
_LIMITS = {
    "greater_than_equal": "{:,.12g} or more",
    "greater_than": "above {:,.12g}",
    "less_than_equal": "{:,.12g} or less",
    "less_than": "below {:,.12g}",
    "string_too_short": "a text of {} or more characters",
    "too_short": "a list of {1} or more",
    "too_long": "a list of {1} or fewer",
}
_KINDS = {
    "int": "a whole number",
    "float": "a number",
    "finite": "a finite number",
    "bool": "true or false",
    "string": "a text",
    **dict.fromkeys(("list", "tuple"), "a list"),
    **dict.fromkeys(("dict", "model", "dataclass"), "a table of `field: value`"),
    "invalid": "named by a text",
}

# How pydantic calls the branches of a union of plain values.
_BRANCHES = {"int", "float", "str", "bool"}


def read_yaml(text: str, loader: type[yaml.SafeLoader | yaml.BaseLoader]) -> Any:
    """Return the value of one YAML document. Raises ValueError, in one line, where there is none.

    A date is the text it is, and so are numbers in base 60 (`1:30`) or of too many digits.
    """
    if len(text) > MOST_CHARACTERS:
        raise ValueError(f"it is longer than {MOST_CHARACTERS:,} characters")
    try:
        reader = loader(text)
        node = reader.get_single_node()
        if node is None:
            return None
        _check(node, {})
        return reader.construct_document(node)
    except yaml.MarkedYAMLError as error:
        what = str(error.problem or error.context)
        mark = error.problem_mark
        if mark is not None:
            what = f"line {mark.line + 1}: {what}"
        raise ValueError(what) from error
    except yaml.YAMLError as error:
        raise ValueError(first_line(error)) from error
    except (IndexError, KeyError, AttributeError) as error:  # PyYAML's, of `!!int ""` and the like
        raise ValueError("a value is not what its tag says") from error
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error


def read_yaml_file(file: Path, loader: type[yaml.SafeLoader | yaml.BaseLoader]) -> Any:
    """Return the value of a file, of which no more is read than may be used.

    OSError where it cannot be opened, ValueError as in `read_yaml`.
    """
    with file.open(encoding="utf-8-sig") as opened:
        text = opened.read(MOST_CHARACTERS + 1)
        return read_yaml(text, loader)


def _check(node: yaml.Node, sizes: dict[int, int]) -> int:
    """Return the size of a node with its aliases written out. sizes: by the nodes' ids.

    Raises ValueError for too much, and for a field that is written twice: YAML takes the last.
    """
    if id(node) not in sizes:
        sizes[id(node)] = MOST_CHARACTERS + 1  # met again below itself, it has no end
        sizes[id(node)] = _checked_size(node, sizes)
    size = sizes[id(node)]
    if size > MOST_CHARACTERS:
        raise ValueError(
            f"with its aliases written out it is longer than {MOST_CHARACTERS:,} characters"
        )
    return size


def _checked_size(node: yaml.Node, sizes: dict[int, int]) -> int:
    """Return the size of a node that is met for the first time."""
    size = 1
    if isinstance(node, yaml.ScalarNode):
        _keep_as_text(node)
        size += len(node.value)
    elif isinstance(node, yaml.MappingNode):
        _check_keys(node)
        for key, value in node.value:
            size += _check(key, sizes)
            size += _check(value, sizes)
    elif isinstance(node, yaml.SequenceNode):
        for item in node.value:
            size += _check(item, sizes)
    return size


def _keep_as_text(node: yaml.ScalarNode) -> None:
    """Let a date, and a number in base 60 or of too many digits, be the text that it is."""
    is_text = node.tag == _DATE
    if node.tag in _NUMBERS:
        is_in_base_60 = ":" in node.value
        is_too_long = len(node.value) > MOST_DIGITS
        is_text = is_in_base_60 or is_too_long
    if is_text:
        node.tag = _TEXT


def _check_keys(node: yaml.MappingNode) -> None:
    """Raise ValueError for a field without a name, and for one that is written twice."""
    seen: set[str] = set()
    for key, _ in node.value:
        if not isinstance(key, yaml.ScalarNode):
            continue
        name = key.value
        line = key.start_mark.line + 1
        if not name.strip():
            raise ValueError(f"line {line}: a field has no name")
        if name in seen:
            shown = shortened(name)
            raise ValueError(f"line {line}: field '{shown}' is written twice")
        seen.add(name)


def problems(
    error: Exception,
    fields: Mapping[str, Iterable[str]] | None = None,
    inlined: str = "",
) -> str:
    """Write everything that is wrong in one sentence: each field, what came and what is allowed.

    An error that is not pydantic's says it itself. fields: the names of the fields there are, by
    the field that holds them ("" for the outermost). inlined: a field that is written as its own
    fields, beside the others.
    """
    if not isinstance(error, ValidationError):
        return str(error)
    texts: list[str] = []
    # That a field is missing need not be said where a misspelt one probably stands for it.
    meant: list[str] = []
    details = error.errors(include_url=False)
    for problem in details[:LOOKED_AT]:
        location = problem["loc"]
        if location[:1] == (inlined,):
            location = location[1:]
        if problem["type"] in _OF_UNKNOWN_FIELDS:
            text, near = _unknown_field(location, fields or {}, texts)
            meant.append(f"field '{near}' is missing")
        else:
            field = _path(location)
            text = _problem(field, problem)
        in_one = _in_one(texts[-1], text) if texts else None
        if in_one is not None:
            texts[-1] = in_one
        else:
            texts.append(text)
    different = [text for text in dict.fromkeys(texts) if text not in meant]
    parts = different[:MOST_SAID]
    too_many = len(different) - len(parts)
    not_looked_at = max(0, len(details) - LOOKED_AT)
    unsaid = too_many + not_looked_at
    if unsaid:
        parts.append(f"and {unsaid:,} more")
    return "; ".join(parts)


def _problem(field: str, problem: Mapping[str, Any]) -> str:
    """Write what is wrong with a known field; "" names the file itself."""
    kind = problem["type"]
    if kind == "missing":
        return f"field '{field}' is missing"
    if kind in ("value_error", "json_invalid"):
        context = problem["ctx"]
        text = str(context["error"])
        if not field:
            return text
        between = ": "
        if text.startswith("must "):
            between = " "
        return f"field '{field}'{between}{text}"
    where = "it"
    if field:
        where = f"field '{field}'"
    allowed = _allowed(problem)
    return f"{where} must be {allowed}"


def _in_one(text: str, other: str) -> str | None:
    """Return two texts in one; None where they tell of different things.

    What fits no branch of a union is a problem of each branch, and what two fields repeat is one
    of each.
    """
    subject, colon, said = text.partition(": ")
    other_subject, _, other_said = other.partition(": ")
    if colon and said == other_said and subject != other_subject:
        return f"{subject} and {other_subject}: {said}"
    return _either(text, other)


def _either(text: str, other: str) -> str | None:
    """Return what two texts allow a field, in one; None where they tell of different values."""
    subject, must, allowed = text.partition(" must be ")
    other_subject, _, other_allowed = other.partition(" must be ")
    allowed, comma, came = allowed.partition(", not ")
    other_allowed, _, other_came = other_allowed.partition(", not ")
    if not comma or (subject, came) != (other_subject, other_came):
        return None
    if allowed == other_allowed:
        return text
    return f"{subject}{must}{allowed} or {other_allowed}{comma}{came}"


def _unknown_field(
    location: Sequence[int | str],
    fields: Mapping[str, Iterable[str]],
    texts: Sequence[str],
) -> tuple[str, str]:
    """Write that a field is unknown, and return the one that was probably meant.

    texts: what was written before; a list of the known fields is written once.
    """
    holder = _path(location[:-1])
    unknown = str(location[-1])
    prefix = ""
    if holder:
        prefix = f"{holder}."
    names = sorted(fields.get(holder, ()))
    near = nearest(unknown, names)
    if near:
        hint = f": did you mean '{prefix}{near}'?"
    else:
        known = ", ".join(names)
        hint = f": known: {known}"
        was_written = any(text.endswith(hint) for text in texts)
        if was_written:
            hint = ""
    text = f"unknown field '{prefix}{unknown}'{hint}"
    return text, f"{prefix}{near}"


def _path(location: Sequence[int | str]) -> str:
    """Write a field as YAML has it, `asha.grace`, without positions and a union's branches."""
    names: list[str] = []
    for part in location:
        if not isinstance(part, str) or part in _BRANCHES:
            continue
        if part.isidentifier() and part.islower():
            names.append(part)
    return ".".join(names)


def _allowed(problem: Mapping[str, Any]) -> str:
    """Write what a value may be, and what came."""
    kind = problem["type"]
    value = problem["input"]
    limits = problem.get("ctx", {})
    hint = ""
    expected = str(limits.get("expected", ""))
    choices = re.findall(r"'([^']*)'", expected)
    if choices:
        listed = ", ".join(choices)
        allowed = f"one of {listed}"
        near = None
        if isinstance(value, str):
            near = nearest(value, choices)
        if near:
            hint = f": did you mean '{near}'?"
    elif kind in _LIMITS:
        limit = _LIMITS[kind]
        allowed = limit.format(*limits.values())
    else:
        beginning = kind.split("_")[0]
        allowed = _KINDS.get(beginning, "something else")
    came = quoted(value)
    return f"{allowed}, not {came}{hint}"
