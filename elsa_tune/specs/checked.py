"""Input from outside, YAML or JSON: bounded where it is read, and its faults in one sentence."""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import yaml
from pydantic import ValidationError

from elsa_tune.errors import first_line, nearest, quoted

# Characters that a file may come to once its aliases are written out; nobody writes so many.
MOST_CHARACTERS = 1_000_000

# What a value must be: by pydantic's type of the error where it is a limit, else by the beginning
# of that type (`int_type`, `int_parsing`, `int_from_float`).
_LIMITS = {
    "greater_than_equal": "{:g} or more",
    "greater_than": "above {:g}",
    "less_than_equal": "{:g} or less",
    "less_than": "below {:g}",
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
    """The value of one YAML document; ValueError, in one line, where there is none."""
    try:
        reader = loader(text)
        node = reader.get_single_node()
        if node is None:
            return None
        _count(node, {})
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


def _count(node: yaml.Node, counted: dict[int, int]) -> int:
    """What a node comes to with its aliases written out. counted: by a node's id."""
    if id(node) not in counted:
        counted[id(node)] = MOST_CHARACTERS + 1  # met again below itself, it has no end
        children = node.value if isinstance(node, yaml.CollectionNode) else []
        if isinstance(node, yaml.MappingNode):
            children = [one for pair in node.value for one in pair]
        own = len(node.value) if isinstance(node, yaml.ScalarNode) else 0
        counted[id(node)] = 1 + own + sum(_count(child, counted) for child in children)
    if counted[id(node)] > MOST_CHARACTERS:
        raise ValueError(
            f"with its aliases written out it is longer than {MOST_CHARACTERS:,} characters"
        )
    return counted[id(node)]


def problems(
    error: Exception, known: Mapping[str, Iterable[str]] | None = None, inlined: str = ""
) -> str:
    """Everything that is wrong, in one sentence: each field, what came and what is allowed; an
    error that is not pydantic's says it itself.

    known: the names of the fields there are, by the field that holds them ("" for the outermost).
    inlined: a field that is written as its own fields, beside the others.
    """
    if not isinstance(error, ValidationError):
        return str(error)
    said: list[str] = []
    meant: list[str] = []
    for problem in error.errors(include_url=False):
        location = problem["loc"][problem["loc"][:1] == (inlined,) :]
        field, kind = _path(location), problem["type"]
        if kind == "missing":
            said.append(f"field '{field}' is missing")
        elif kind in ("extra_forbidden", "unexpected_keyword_argument"):
            holder = f"{_path(location[:-1])}.".removeprefix(".")
            names = sorted((known or {}).get(holder.removesuffix("."), ()))
            near = nearest(str(location[-1]), names)
            meant.append(f"{holder}{near}")
            there = f": known: {', '.join(names)}"
            hint = f": did you mean '{holder}{near}'?" if near else there
            if hint == there and any(one.endswith(there) for one in said):
                hint = ""  # once is enough
            said.append(f"unknown field '{holder}{location[-1]}'{hint}")
        elif kind in ("value_error", "json_invalid"):
            text = str(problem["ctx"]["error"])
            between = " " if text.startswith("must ") else ": "
            said.append(f"field '{field}'{between}{text}" if field else text)
        else:
            where = f"field '{field}'" if field else "it"
            said.append(f"{where} must be {_allowed(problem)}")
    lacking = [f"field '{field}' is missing" for field in meant]
    said = [one for one in dict.fromkeys(said) if one not in lacking]
    most = 10
    more = len(said) - most
    return "; ".join(said[:most]) + (f"; and {more} more" if more > 0 else "")


def _path(location: Sequence[int | str]) -> str:
    """A field as written, `asha.grace`: without positions and the names of a union's branches."""
    names = (part for part in location if isinstance(part, str))
    return ".".join(name for name in names if name.isidentifier() and name.islower())


def _allowed(problem: Mapping[str, Any]) -> str:
    """What a value may be, and what came."""
    kind, value, limits = problem["type"], problem["input"], problem.get("ctx", {})
    hint = ""
    if expected := re.findall(r"'([^']*)'", str(limits.get("expected", ""))):
        allowed = f"one of {', '.join(expected)}"
        near = nearest(value, expected) if isinstance(value, str) else None
        hint = f": did you mean '{near}'?" if near else ""
    elif kind in _LIMITS:
        allowed = _LIMITS[kind].format(*limits.values())
    else:
        allowed = _KINDS.get(kind.split("_")[0], "something else")
    return f"{allowed}, not {quoted(value)}{hint}"
