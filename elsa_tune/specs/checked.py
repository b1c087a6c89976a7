"""Input from outside, YAML or JSON: bounded where it is read, and its faults in one sentence.

It must not know what any file is for.
"""

from __future__ import annotations

from typing import Any

import yaml
from pydantic import ValidationError

from elsa_tune.errors import quoted

# Characters that a file may come to once its aliases are written out; nobody writes so many.
MOST_CHARACTERS = 1_000_000


def read_yaml(text: str, loader: type[yaml.SafeLoader | yaml.BaseLoader]) -> Any:
    """The value of one YAML document; ValueError, in one line, where there is none."""
    try:
        reader = loader(text)
        try:
            node = reader.get_single_node()
            if node is None:
                return None
            _count(node, {})
            return reader.construct_document(node)
        finally:
            reader.dispose()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        where = f"line {mark.line + 1}: " if mark else ""
        raise ValueError(f"{where}{error.problem or error.context}") from error
    except yaml.YAMLError as error:
        raise ValueError(str(error).splitlines()[0]) from error
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


def first_problem(error: ValidationError) -> str:
    """`field 'x' is ...; what is wrong with it`, and how many more there are."""
    first, *more = error.errors(include_url=False)
    field = ".".join(str(part) for part in first["loc"])
    further = f" (and {len(more)} more such errors)" if more else ""
    if first["type"] == "missing":
        return f"field '{field}' is missing{further}"
    came = f"field '{field}' is {quoted(first['input'])}; " if field else ""
    return f"{came}{first['msg']}{further}"
