"""What a space's `strategy_settings` hold: read by the strategy's own dataclass, and recorded."""

import dataclasses
from collections.abc import Mapping
from typing import Any, Final

from pydantic import ConfigDict, TypeAdapter, ValidationError

from elsa_tune.errors import SpaceError
from elsa_tune.specs.checked import problems

FIELD: Final = "strategy_settings"


def read_settings(strategy: str, settings_type: type[Any] | None, given: Mapping[str, Any]) -> Any:
    """Return the settings of a strategy, given by name; None of one that has none.

    settings_type: its dataclass. Raises SpaceError, in one sentence, for what that does not take.
    """
    if settings_type is None:
        if given:
            raise SpaceError(f"strategy {strategy} has no settings; leave {FIELD} out")
        return None
    try:
        read = _adapter(settings_type).validate_python({FIELD: given})
    except ValidationError as error:
        names = [field.name for field in dataclasses.fields(settings_type)]
        what = problems(error, {FIELD: names})
        raise SpaceError(f"strategy {strategy}: {what}") from error
    return read[FIELD]


def recorded_settings(settings: Any) -> dict[str, Any]:
    """Return settings as `search.json` has them: all, so that no later default changes a search."""
    if settings is None:
        return {}
    recorded = _adapter(type(settings)).dump_python({FIELD: settings}, mode="json")
    fields: dict[str, Any] = recorded[FIELD]
    return fields


def _adapter(settings_type: type[Any]) -> TypeAdapter[dict[str, Any]]:
    """Return what reads the settings under the name of their field, which errors then tell."""
    # Of a mapping, as pydantic takes no configuration beside a bare dataclass.
    return TypeAdapter(
        dict[str, settings_type],  # type: ignore[valid-type]  # known when it runs
        config=ConfigDict(extra="forbid", allow_inf_nan=False),
    )
