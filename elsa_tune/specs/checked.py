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
        mark = error.problem_mark
        where = f"line {mark.line + 1}: " if mark else ""
        raise ValueError(f"{where}{error.problem or error.context}") from error
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
        return read_yaml(opened.read(MOST_CHARACTERS + 1), loader)


def _check(node: yaml.Node, sizes: dict[int, int]) -> int:
    """Return the size of a node with its aliases written out. sizes: by the nodes' ids.

    Raises ValueError for too much, and for a field that is written twice: YAML takes the last.
    """
    if id(node) not in sizes:
        sizes[id(node)] = MOST_CHARACTERS + 1  # met again below itself, it has no end
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
        sizes[id(node)] = size
    if sizes[id(node)] > MOST_CHARACTERS:
        raise ValueError(
            f"with its aliases written out it is longer than {MOST_CHARACTERS:,} characters"
        )
    return sizes[id(node)]


def _keep_as_text(node: yaml.ScalarNode) -> None:
    """Let a date, and a number in base 60 or of too many digits, be the text that it is."""
    is_odd_number = False
    if node.tag in _NUMBERS:
        is_odd_number = ":" in node.value or len(node.value) > MOST_DIGITS
    if node.tag == _DATE or is_odd_number:
        node.tag = _TEXT


def _check_keys(node: yaml.MappingNode) -> None:
    seen: set[str] = set()
    for key, _ in node.value:
        if not isinstance(key, yaml.ScalarNode):
            continue
        name = key.value
        where = f"line {key.start_mark.line + 1}"
        if not name.strip():
            raise ValueError(f"{where}: a field has no name")
        if name in seen:
            raise ValueError(f"{where}: field '{shortened(name)}' is written twice")
        seen.add(name)


def problems(
    error: Exception, fields: Mapping[str, Iterable[str]] | None = None, inlined: str = ""
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
        if problem["type"] in ("extra_forbidden", "unexpected_keyword_argument"):
            text, near = _unknown_field(location, fields or {}, texts)
            texts.append(text)
            meant.append(f"field '{near}' is missing")
        else:
            texts.append(_problem(_path(location), problem))
    different = [text for text in dict.fromkeys(texts) if text not in meant]
    too_many = max(0, len(different) - MOST_SAID)
    not_looked_at = max(0, len(details) - LOOKED_AT)
    parts = different[:MOST_SAID]
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
        text = str(problem["ctx"]["error"])
        if not field:
            return text
        between = " " if text.startswith("must ") else ": "
        return f"field '{field}'{between}{text}"
    where = f"field '{field}'" if field else "it"
    return f"{where} must be {_allowed(problem)}"


def _unknown_field(
    location: Sequence[int | str], fields: Mapping[str, Iterable[str]], texts: Sequence[str]
) -> tuple[str, str]:
    """Write that a field is unknown, and return the one that was probably meant.

    texts: what was written before; a list of the known fields is written once.
    """
    holder = _path(location[:-1])
    unknown = str(location[-1])
    prefix = f"{holder}." if holder else ""
    names = sorted(fields.get(holder, ()))
    near = nearest(unknown, names)
    if near:
        hint = f": did you mean '{prefix}{near}'?"
    else:
        hint = f": known: {', '.join(names)}"
        if any(text.endswith(hint) for text in texts):
            hint = ""
    return f"unknown field '{prefix}{unknown}'{hint}", f"{prefix}{near}"


def _path(location: Sequence[int | str]) -> str:
    """Write a field as YAML has it, `asha.grace`, without positions and a union's branches."""
    names: list[str] = []
    for part in location:
        if isinstance(part, str) and part.isidentifier() and part.islower():
            names.append(part)
    return ".".join(names)


def _allowed(problem: Mapping[str, Any]) -> str:
    """Write what a value may be, and what came."""
    kind = problem["type"]
    value = problem["input"]
    limits = problem.get("ctx", {})
    hint = ""
    choices = re.findall(r"'([^']*)'", str(limits.get("expected", "")))
    if choices:
        allowed = f"one of {', '.join(choices)}"
        near = nearest(value, choices) if isinstance(value, str) else None
        if near:
            hint = f": did you mean '{near}'?"
    elif kind in _LIMITS:
        allowed = _LIMITS[kind].format(*limits.values())
    else:
        beginning = kind.split("_")[0]
        allowed = _KINDS.get(beginning, "something else")
    return f"{allowed}, not {quoted(value)}{hint}"
