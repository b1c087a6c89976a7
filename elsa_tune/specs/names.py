"""Names out of a list that other packages may lengthen: an enumeration's open kin."""

import contextlib
import importlib
from collections.abc import Iterator
from typing import Any, ClassVar, Final, Self, TypeVar

from elsa_tune.extensions import load_extensions

# Pydantic's type of the error for a name that is not known.
UNKNOWN: Final = "unknown_name"

Name = TypeVar("Name", bound="OpenName")


class _Listed(type):
    """Lets a class of names be iterated over, as an enumeration is: in the order of adding."""

    def __iter__(cls: type[Name]) -> Iterator[Name]:  # type: ignore[misc]  # of its subclasses alone
        return iter(cls.known.values())


class OpenName(str, metaclass=_Listed):
    """A text that is one of the known names of its class; there is one object for each name."""

    known: ClassVar[dict[str, Any]] = {}
    # The module that loads whatever adds names and ships; it is imported for a name that is not
    # known yet. "" where the class's own file adds them all.
    shipped_by: ClassVar[str] = ""

    # The module that added it: a worker that is given the name imports that module.
    home: str

    def __init_subclass__(cls) -> None:
        cls.known = {}

    def __new__(cls, name: str) -> Self:
        """Return the known name. Raises ValueError for any other."""
        member = cls.known.get(name)
        if member is None:
            cls.load_shipped()
            member = cls.known.get(name)
        if member is None:
            load_extensions()
            member = cls.known.get(name)
        if member is None:
            raise ValueError(f"'{name}' is not a valid {cls.__name__}")
        return member  # type: ignore[no-any-return]  # of this class

    @classmethod
    def load_shipped(cls) -> None:
        """Make every name known that ships."""
        if cls.shipped_by:
            importlib.import_module(cls.shipped_by)

    @classmethod
    def add(cls, name: str, home: str) -> Self:
        """Add a name to the list, unless it is there, and return it. home: the caller's module."""
        if name not in cls.known:
            added = str.__new__(cls, name)
            added.home = home
            cls.known[name] = added
        return cls(name)

    @property
    def value(self) -> str:
        """The name as a plain text, as an enumeration's members have it."""
        return str.__str__(self)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} '{self.value}'>"

    def __reduce__(self) -> tuple[Any, ...]:
        return _restored, (type(self), self.value, self.home)

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: Any) -> Any:
        """Let pydantic read a name, and refuse others as it does for an enumeration."""
        # Only where pydantic is there: a trial does without it.
        from pydantic_core import PydanticCustomError, core_schema

        def read(value: object) -> OpenName:
            if isinstance(value, str):
                with contextlib.suppress(ValueError):
                    return cls(value)
            *all_but_last, last = [f"'{name}'" for name in cls.known]
            first = ", ".join(all_but_last)
            raise PydanticCustomError(
                UNKNOWN,
                "Input should be {expected}",
                {"expected": f"{first} or {last}"},
            )

        as_text = core_schema.plain_serializer_function_ser_schema(str.__str__)
        return core_schema.no_info_plain_validator_function(read, serialization=as_text)

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: Any, handler: Any) -> dict[str, Any]:
        """Describe a name as an enumeration's is described."""
        cls.load_shipped()
        return {"enum": [name.value for name in cls], "type": "string"}


def _restored(kind: type[Name], name: str, home: str) -> Name:
    """Return the name in a process that was given it, in which nobody may have added it yet."""
    if name not in kind.known:
        importlib.import_module(home)
    return kind(name)
