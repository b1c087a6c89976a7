"""What a program gave to a public function, checked against its annotations."""

import functools
import inspect
import numbers
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import numpy as np

from elsa_tune.errors import ElsaTuneError, ExtensionError, UsageError, quoted
from elsa_tune.files import is_url
from elsa_tune.signals import completing_imports

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

    Ctrl-C waits until the function has imported what it imports. An error that is raised on purpose
    comes without the frames below this one: its sentence says all that a caller can use. leave:
    arguments that it checks itself.
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
            try:
                with completing_imports():
                    hints = hints_of(function)
                    bound = signature.bind(*args, **kwargs)
                    for name, value in bound.arguments.items():
                        if name not in unchecked:
                            _check(name, value, hints[name])
                    return function(*args, **kwargs)
            except ElsaTuneError as error:
                # The sentence says it all, except where an extension's own module broke.
                cause = error.__cause__ if isinstance(error, ExtensionError) else None
                raise error.with_traceback(None) from cause

        return run  # type: ignore[return-value]  # the same signature

    return decorated


def _check(name: str, value: Any, hint: Any) -> None:
    """Raise UsageError for an argument of another kind than its annotation says."""
    if _fits(value, hint):
        return
    what = _what(value)
    wanted = _wanted(hint)
    raise UsageError(f"`{name}` is {what}; give {wanted}")


def _fits(value: Any, hint: Any) -> bool:
    """Return whether a value is of the kind that an annotation says."""
    if hint is Any:
        return True
    origin = get_origin(hint)
    if origin is not None:
        parts = get_args(hint)
        return _fits_generic(value, origin, parts)
    if hint is int:
        return is_number(value) and isinstance(value, numbers.Integral)
    if hint is float:
        return is_number(value)
    return isinstance(value, hint)


def is_number(value: Any) -> bool:
    """Whether a value is a real number.

    True, which Python counts among them, is none, and neither is NumPy's span of time.
    """
    return isinstance(value, numbers.Real) and not isinstance(value, bool | np.timedelta64)


def _fits_generic(value: Any, origin: Any, parts: tuple[Any, ...]) -> bool:
    """Return whether a value is of a kind with parts, such as `Sequence[str]` or `int | None`."""
    if origin in (Union, UnionType):
        return any(_fits(value, part) for part in parts)
    if origin is Literal:
        is_text = isinstance(value, str)
        return is_text and value in parts
    if origin is tuple:
        return _fits_tuple(value, parts)
    if origin is Sequence:
        return _fits_sequence(value, parts[0])
    return isinstance(value, origin)


def _fits_sequence(value: Any, kind: Any) -> bool:
    """Return whether a value is a list of one kind of items, and no text."""
    if isinstance(value, str | bytes):
        return False
    if not isinstance(value, Sequence):
        return False
    return all(_fits(item, kind) for item in value)


def _fits_tuple(value: Any, parts: tuple[Any, ...]) -> bool:
    """Return whether a value is a tuple with one item of each kind."""
    if not isinstance(value, tuple):
        return False
    if len(value) != len(parts):
        return False
    pairs = zip(value, parts, strict=True)
    return all(_fits(item, part) for item, part in pairs)


def _wanted(hint: Any) -> str:
    """Write what an annotation allows: `a text, a path or True or False`."""
    *others, last = dict.fromkeys(_kinds(hint))
    if not others:
        return last
    first = ", ".join(others)
    return f"{first} or {last}"


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
            singular = kind.removeprefix("a ")
            plurals.append(f"{singular}s")
        items = " or ".join(plurals)
        return [f"a list of {items}"]
    if origin is tuple:
        return [f"a tuple of {len(parts)} values"]
    if origin is Mapping:
        return ["a mapping"]
    name = hint.__name__
    return [_WORDS.get(name, f"a {name}")]


def _what(value: Any) -> str:
    """Return a plain value as it is written, and the kind of any other."""
    if value is None or isinstance(value, str | int | float | bool):
        return quoted(value)
    kind = type(value).__name__
    article = "a"
    if kind[0].lower() in "aeiou":
        article = "an"
    return f"{article} {kind}"


def check_out_is_here(out: Path) -> None:
    """Raise UsageError for a URL as the place to write: it would become a folder `s3:` here."""
    if is_url(out):
        raise UsageError(
            f"`out` {out} is a URL; name a place on this machine, and copy from there what is "
            "written"
        )
