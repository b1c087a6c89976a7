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
    """Make a function raise UsageError for an argument of another kind than its annotation says.

    leave: arguments that it checks itself.
    """

    def decorated(function: Function) -> Function:
        signature = inspect.signature(function)
        unchecked = {"self", *leave}
        for parameter in signature.parameters.values():
            if parameter.kind is inspect.Parameter.VAR_KEYWORD:
                unchecked.add(parameter.name)
        hints_of = functools.cache(get_type_hints)  # what they name is imported by the first call

        @functools.wraps(function)
        def run(*args: Any, **kwargs: Any) -> Any:
            hints = hints_of(function)
            arguments = signature.bind(*args, **kwargs).arguments
            for name, value in arguments.items():
                if name not in unchecked and not _fits(value, hints[name]):
                    raise UsageError(f"`{name}` is {_what(value)}; give {_wanted(hints[name])}")
            return function(*args, **kwargs)

        return run  # type: ignore[return-value]  # the same signature

    return decorated


def _fits(value: Any, hint: Any) -> bool:
    """Return whether a value is of the kind that an annotation says."""
    if hint is Any:
        return True
    origin = get_origin(hint)
    if origin is not None:
        return _fits_generic(value, origin, get_args(hint))
    is_bool = isinstance(value, bool)  # which Python counts among the whole numbers
    if hint is int:
        return isinstance(value, numbers.Integral) and not is_bool
    if hint is float:
        return isinstance(value, numbers.Real) and not is_bool
    return isinstance(value, hint)


def _fits_generic(value: Any, origin: Any, parts: tuple[Any, ...]) -> bool:
    """Return whether a value is of a kind with parts, such as `Sequence[str]` or `int | None`."""
    if origin in (Union, UnionType):
        return any(_fits(value, part) for part in parts)
    if origin is Literal:
        return isinstance(value, str) and value in parts
    if origin is tuple:
        if not isinstance(value, tuple) or len(value) != len(parts):
            return False
        return all(_fits(item, part) for item, part in zip(value, parts, strict=True))
    if origin is Mapping:
        return isinstance(value, Mapping)
    if origin is Sequence:
        if not isinstance(value, Sequence) or isinstance(value, str | bytes):
            return False
        return all(_fits(item, parts[0]) for item in value)
    return isinstance(value, origin)


def _wanted(hint: Any) -> str:
    """Write what an annotation allows: `a text, a path or True or False`."""
    *others, last = dict.fromkeys(_kinds(hint))
    if not others:
        return last
    return f"{', '.join(others)} or {last}"


def _kinds(hint: Any) -> list[str]:
    """Return the kinds that an annotation allows, in words; None is passed over."""
    origin = get_origin(hint)
    parts = get_args(hint)
    if origin in (Union, UnionType):
        kinds: list[str] = []
        for part in parts:
            if part is not NoneType:
                kinds += _kinds(part)
        return kinds
    if origin is Literal:
        return [f"'{part}'" for part in parts]
    if origin is Sequence:
        plurals = []
        for kind in dict.fromkeys(_kinds(parts[0])):
            plurals.append(f"{kind.removeprefix('a ')}s")
        return [f"a list of {' or '.join(plurals)}"]
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
    article = "an" if kind[0].lower() in "aeiou" else "a"
    return f"{article} {kind}"
