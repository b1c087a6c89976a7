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
                is_settings = signature.parameters[name].kind is inspect.Parameter.VAR_KEYWORD
                if name in leave or name == "self" or is_settings:
                    continue
                if not _fits(value, hints[name]):
                    raise UsageError(f"`{name}` is {_what(value)}; give {_wanted(hints[name])}")
            return function(*args, **kwargs)

        return run  # type: ignore[return-value]  # the same signature

    return decorated


def _fits(value: Any, hint: Any) -> bool:
    """Return whether a value is of the kind that an annotation says."""
    if hint is Any:
        return True
    if get_origin(hint) is not None:
        return _fits_generic(value, get_origin(hint), get_args(hint))
    if hint is int:
        return isinstance(value, numbers.Integral) and not isinstance(value, bool)
    if hint is float:
        return isinstance(value, numbers.Real) and not isinstance(value, bool)
    return isinstance(value, hint)


def _fits_generic(value: Any, origin: Any, parts: tuple[Any, ...]) -> bool:
    """Return whether a value is of a kind with parts, such as `Sequence[str]` or `int | None`."""
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
        return is_list and all(_fits(item, parts[0]) for item in value)
    return isinstance(value, origin)


def _wanted(hint: Any) -> str:
    """Write what an annotation allows: `a text, a path or True or False`."""
    *others, last = dict.fromkeys(_kinds(hint))
    return f"{', '.join(others)} or {last}" if others else last


def _kinds(hint: Any) -> list[str]:
    """Return the kinds that an annotation allows, in words; None is passed over."""
    origin = get_origin(hint)
    parts = get_args(hint)
    if origin in (Union, UnionType):
        words: list[str] = []
        for part in parts:
            if part is not NoneType:
                words += _kinds(part)
        return words
    if origin is Literal:
        return [f"'{part}'" for part in parts]
    if origin is Sequence:
        inner = [f"{word.removeprefix('a ')}s" for word in dict.fromkeys(_kinds(parts[0]))]
        return [f"a list of {' or '.join(inner)}"]
    if origin is tuple:
        return [f"a tuple of {len(parts)} values"]
    if origin is Mapping:
        return ["a mapping"]
    return [_WORDS.get(hint.__name__, f"a {hint.__name__}")]


def _what(value: Any) -> str:
    """Return a plain value as it is written, and the kind of any other."""
    if value is None or isinstance(value, str | int | float | bool):
        return quoted(value)
    kind = type(value).__name__
    return f"{'an' if kind[0].lower() in 'aeiou' else 'a'} {kind}"
