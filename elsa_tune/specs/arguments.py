"""What a program gave to a public function, checked against its annotations."""

import functools
import inspect
import numbers
from collections.abc import Callable, Mapping, Sequence
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from elsa_tune.errors import UsageError, quoted

Function = TypeVar("Function", bound=Callable[..., Any])

_WORDS = {
    "str": "a text",
    "int": "a whole number",
    "float": "a number",
    "bool": "True or False",
    "Path": "a path",
}


def checked(*leave: str) -> Callable[[Function], Function]:
    """Make a function raise UsageError, in one sentence, for an argument of another kind than its
    annotation says. leave: arguments that it checks itself.
    """

    def decorated(function: Function) -> Function:
        signature = inspect.signature(function)
        hints_of = functools.cache(get_type_hints)  # what they name is imported by the first call

        @functools.wraps(function)
        def run(*args: Any, **kwargs: Any) -> Any:
            hints = hints_of(function)
            given = signature.bind(*args, **kwargs).arguments
            for name, value in given.items():
                parameter = signature.parameters[name]
                if name in leave or name == "self" or parameter.kind is parameter.VAR_KEYWORD:
                    continue
                if not _fits(value, hints[name]):
                    *others, last = dict.fromkeys(_kinds(hints[name]))
                    kinds = f"{', '.join(others)} or {last}" if others else last
                    raise UsageError(f"`{name}` is {_what(value)}; give {kinds}")
            return function(*args, **kwargs)

        return run  # type: ignore[return-value]  # the same signature

    return decorated


def _fits(value: Any, hint: Any) -> bool:
    origin, parts = get_origin(hint), get_args(hint)
    if hint is Any:
        return True
    if origin in (Union, UnionType):
        return any(_fits(value, part) for part in parts)
    if origin is Literal:
        return isinstance(value, str) and value in parts
    if origin is tuple:
        is_as_long = isinstance(value, tuple) and len(value) == len(parts)
        return is_as_long and all(map(_fits, value, parts))
    if origin is Mapping:
        return isinstance(value, Mapping)
    if origin is Sequence:
        is_list = isinstance(value, Sequence) and not isinstance(value, str | bytes)
        return is_list and all(_fits(one, parts[0]) for one in value)
    if hint is int:
        return isinstance(value, numbers.Integral) and not isinstance(value, bool)
    if hint is float:
        return isinstance(value, numbers.Real) and not isinstance(value, bool)
    return isinstance(value, hint)


def _kinds(hint: Any) -> list[str]:
    """In words, what an annotation allows; None only where nothing else is."""
    origin, parts = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        return [word for part in parts if part is not NoneType for word in _kinds(part)]
    if origin is Literal:
        return [f"'{part}'" for part in parts]
    if origin is Sequence:
        inner = [word.removeprefix("a ") for word in dict.fromkeys(_kinds(parts[0]))]
        return [f"a list of {' or '.join(f'{word}s' for word in inner)}"]
    if origin is tuple:
        return [f"a tuple of {len(parts)} values"]
    if origin is Mapping:
        return ["a mapping"]
    return [_WORDS.get(hint.__name__, f"a {hint.__name__}")]


def _what(value: Any) -> str:
    """A plain value as it is written, of any other its kind."""
    if value is None or isinstance(value, str | int | float | bool):
        return quoted(value)
    kind = type(value).__name__
    return f"{'an' if kind[0].lower() in 'aeiou' else 'a'} {kind}"
