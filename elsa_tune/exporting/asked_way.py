"""The measured way that a user names: by its label, as tables print it, or by its method."""

from collections.abc import Sequence

from elsa_tune.errors import SpaceError, UsageError, quoted, shortlist
from elsa_tune.specs.adapt.candidate import Candidate
from elsa_tune.specs.adapt.candidates import method_name, read_candidate, usual_way
from elsa_tune.words import frozen_text


def asked_way(text: str, measured: Sequence[Candidate], layers: int) -> Candidate:
    """Return the measured way that a text names. A number counts frozen layers, as labels do.

    measured: the ways to choose from, of a model with so many layers. Raises UsageError for what
    names none of them, or several.
    """
    asked = text.strip()
    candidate = _of_label(asked)
    if candidate is not None and candidate in measured:
        return candidate
    matching = [one for one in measured if _is_called(asked, one, layers)]
    if len(matching) == 1:
        return matching[0]
    if matching:
        raise UsageError(
            f"`way` is {quoted(text)}, which names several ways; name one: "
            f"{ways_text(matching, layers)}"
        )
    raise UsageError(
        f"`way` is {_shown(text, candidate, layers)}, which was not measured, so that its learning "
        f"rate is not known; measured: {ways_text(measured, layers)}"
    )


def _of_label(text: str) -> Candidate | None:
    """Return the way of a label, None where it is none."""
    try:
        return read_candidate(text)
    except SpaceError:
        return None


def _is_called(asked: str, candidate: Candidate, layers: int) -> bool:
    """Whether a text is a usual name of a way, its name in tables, or that of its method."""
    if usual_way(asked, layers) == candidate:
        return True
    in_tables = method_name(candidate.name(layers))
    names = [in_tables, in_tables.removeprefix("the ")]
    names += map(method_name, candidate.method_names(layers))
    return method_name(asked) in names


def _shown(text: str, candidate: Candidate | None, layers: int) -> str:
    """Return what was typed, and what it means where that is a depth of the model."""
    if candidate is None:
        return quoted(text)
    return _with_meaning(candidate, layers)


def _with_meaning(candidate: Candidate, layers: int) -> str:
    """Return a label, of a depth of the model with what it counts."""
    label = candidate.label
    is_depth_of_model = label.isdecimal() and int(label) <= layers
    if not is_depth_of_model:
        return label
    return f"{label} ({frozen_text(candidate, layers)})"


def ways_text(candidates: Sequence[Candidate], layers: int) -> str:
    """Return what may be typed: `0 (the full model), 4 (4 frozen layers, 2 fine-tuned), bitfit`."""
    return shortlist(_with_meaning(candidate, layers) for candidate in candidates)
