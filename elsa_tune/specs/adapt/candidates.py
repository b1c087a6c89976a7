"""The methods of adaptation that a search can compare, and how their candidates are read."""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated, Any

from elsa_tune.errors import ExtensionError, SpaceError, UnknownMethodError, quoted
from elsa_tune.extensions import load_extensions
from elsa_tune.specs.adapt.bitfit import BitFit
from elsa_tune.specs.adapt.candidate import Candidate
from elsa_tune.specs.adapt.freeze import EMBEDDINGS, FULL_MODEL, FreezeDepth, default_depths
from elsa_tune.specs.adapt.lora import Lora
from elsa_tune.specs.adapt.named_way import KEY_PREFIX, NamedWay

# What every candidate is compared with.
REFERENCE: Candidate = FULL_MODEL

# The fields by which JSON and CSV tell a depth; another method's candidate has none of them.
DEPTH_FIELDS = ("frozen_layers", "embeddings_frozen")

# What tables call the full model, and the head alone: in lower case, with blanks for `-` and `_`.
_FULL_MODEL_NAMES = frozenset(
    {
        "full",
        "full model",
        "full fine tuning",
        "full finetuning",
        "full fine tune",
        "full finetune",
        "full ft",
        "fine tuning",
        "finetuning",
        "fine tune",
        "finetune",
        "fft",
        "ft",
    }
)
_HEAD_NAMES = frozenset({"head", "head only", "only head", "head alone"})

# What users can type among others, with commas, and read back in lower case.
_NAME = re.compile(r"[a-z0-9_+.-]+")
# What stands in the names of trials and files.
_KEY = re.compile(r"[A-Za-z0-9_-]+")

# The methods that ship.
_SHIPPED: tuple[type[Candidate], ...] = (FreezeDepth, Lora, BitFit)
# All that are registered, by their names.
_METHODS: dict[str, type[Candidate]] = {method.method: method for method in _SHIPPED}
# Names and labels that two packages want, with the modules of both: which one came first is chance.
_CONTESTED: dict[str, tuple[str, str]] = {}


def register(method: type[Candidate]) -> type[Candidate]:
    """Let searches compare candidates of this method. A file that is loaded again replaces its own.

    Raises ValueError where its name or its label is a method's that is there: else what a label
    means would depend on what a process has loaded.
    """
    _check_name(method)
    _check_labels(method)
    _METHODS[method.method] = method
    return method


def _check_name(method: type[Candidate]) -> None:
    for other in _METHODS.values():
        taken = {other.method, *other.names()} & {method.method, *method.names()}
        # Its own file may be loaded again.
        is_itself = _place_of(other) == _place_of(method)
        if taken and not is_itself:
            _contest(min(taken), other, method)
            raise ValueError(
                f"the name '{min(taken)}' is that of the method '{other.method}' in "
                f"{other.__module__}; give yours another name"
            )


def _place_of(method: type[Candidate]) -> tuple[str, str]:
    """Return where a class is defined."""
    return method.__module__, method.__qualname__


def _check_labels(method: type[Candidate]) -> None:
    """Raise ValueError for a method that reads another's label, or whose label another reads."""
    own = _label_of(method)
    for name in (own, *method.names()):
        if not _NAME.fullmatch(name) or name.isdecimal():
            raise ValueError(
                f"the method '{method.method}' has the name or label {quoted(name)}; write small "
                "letters, digits, `_`, `-`, `+` and `.`, and no number alone"
            )
    if not _reads(method, own):
        raise ValueError(
            f"the method '{method.method}' does not read the label '{own}'; set its `example` to "
            "a label that it reads"
        )
    for other in _METHODS.values():
        if other.method == method.method:
            continue
        for label in (own, _label_of(other)):
            if _reads(method, label) and _reads(other, label):
                _contest(label, other, method)
                raise ValueError(
                    f"the methods '{other.method}' and '{method.method}' both read the label "
                    f"'{label}'; let yours read other labels"
                )


def _contest(name: str, one: type[Candidate], other: type[Candidate]) -> None:
    """Remember that two packages want a name; what ships has its own whoever else wants it."""
    if one not in _SHIPPED:
        _CONTESTED[name] = (one.__module__, other.__module__)


def _check_uncontested(name: str) -> None:
    if name in _CONTESTED:
        one, other = _CONTESTED[name]
        raise SpaceError(
            f"'{name}' is the name of two ways, which the modules {one} and {other} bring; "
            "uninstall the package of one of them"
        )


def _label_of(method: type[Candidate]) -> str:
    """Return a label of the method's, as messages show it."""
    return method.example or method.method


def _reads(method: type[Candidate], label: str) -> bool:
    """Return whether a label is the method's own, also as one that is wrong."""
    try:
        return method.read(label) is not None
    except SpaceError:
        return True


def method_names() -> list[str]:
    """Return what a space's `methods` may name, as far as the methods are loaded."""
    names: list[str] = []
    for method in _METHODS.values():
        names.extend(method.names())
    return names


def method_of_name(name: str) -> type[Candidate] | None:
    """Return the method that a space's `methods` name so, None where there is none."""
    for method in _methods():
        if name in method.names():
            _check_uncontested(name)
            return method
    return None


def method_packages() -> list[str]:
    """Return what the methods that are registered take beside elsa-tune, as pip calls it."""
    packages: set[str] = set()
    for method in _METHODS.values():
        packages.update(method.packages)
    return sorted(packages)


def _methods() -> Iterator[type[Candidate]]:
    """Yield the methods: those that ship, then those of extensions, whatever is loaded."""
    yield from reversed(_SHIPPED)
    known = [method for method in _METHODS.values() if method not in _SHIPPED]
    yield from known
    broken: ExtensionError | None = None
    try:
        load_extensions()
    except ExtensionError as error:  # the others are there all the same
        broken = error
    for method in _METHODS.values():
        if method not in _SHIPPED and method not in known:
            yield method
    if broken is not None:
        raise broken


def check_told_apart(candidates: Iterable[Candidate]) -> None:
    """Raise SpaceError for ways that records could not tell apart, or not give back.

    A method of another package may make such keys and labels.
    """
    by_key: dict[str, Candidate] = {}
    for candidate in candidates:
        key = candidate.key
        other = by_key.setdefault(key, candidate)
        if other != candidate:
            raise SpaceError(
                f"the ways '{other.label}' and '{candidate.label}' have one key, {quoted(key)}, so "
                "that their trials would be taken for the same; mend the package of one of them"
            )
        if not _KEY.fullmatch(key):
            raise SpaceError(
                f"the way '{candidate.label}' has the key {quoted(key)}; a key has letters, "
                "digits, `-` and `_` alone: mend the package that brings it"
            )
        if _read(candidate.label.strip().lower()) != candidate:
            raise SpaceError(
                f"the way {quoted(candidate.label)} is not what its label is read as, so that no "
                "table of it could be read; mend the package that brings it"
            )


def default_candidates(layers: int) -> tuple[Candidate, ...]:
    """Return what a search of a model with so many layers compares unless told otherwise."""
    return default_depths(layers)


def read_candidate(given: int | str, *, field: str = "frozen_layers") -> Candidate:
    """Return the candidate that YAML, the command line or a table names. Raises SpaceError.

    field: where it stands, as an error calls it.
    """
    text = str(given).strip().lower()
    candidate = _read(text)
    if candidate is not None:
        return candidate
    examples = [f"'{EMBEDDINGS}'"]
    for name, method in _METHODS.items():
        if name == FreezeDepth.method:
            continue
        examples.append(f"'{_label_of(method)}'")
    allowed = ", ".join(examples)
    shown = quoted(str(given))
    raise SpaceError(f"{field} is {shown}; it must be a whole number or {allowed}")


def _read(label: str) -> Candidate | None:
    """Return the candidate of a label, None where no method knows it. Raises SpaceError."""
    for method in _methods():
        candidate = method.read(label)
        if candidate is not None:
            _check_uncontested(label)
            return candidate
    return None


def read_way(text: str, layers: int | None) -> Candidate:
    """Return the way that a table names in its column `method`; any text names one.

    The full model and the head alone are known by their usual names, the head only where the
    model's number of layers is known. Any other text stays what it is: somebody's `lora` need not
    be LoRA as elsa-tune trains it, of which rank and where. Raises SpaceError for a number that is
    no depth.
    """
    usual = usual_way(text, layers)
    if usual is not None:
        return usual
    depth = FreezeDepth.read(text)
    if depth is not None:
        return depth
    return NamedWay(text)


def usual_way(text: str, layers: int | None) -> Candidate | None:
    """Return the full model or the head alone where a text is one of their usual names, else None.

    layers: of the model, without which nothing is called the head alone.
    """
    name = method_name(text)
    if name in _FULL_MODEL_NAMES:
        return REFERENCE
    if name in _HEAD_NAMES and layers is not None:
        return FreezeDepth(layers, True)
    return None


def method_name(text: str) -> str:
    """Return a method's name as spellings of it have in common: `full fine tuning`."""
    words = re.split(r"[\s_-]+", text.strip().lower())
    return " ".join(words)


def recorded_candidate(values: Candidate | Mapping[str, Any]) -> Candidate:
    """Return the candidate that search.json, a journal or MLflow describes.

    Raises SpaceError for a record of no candidate: UnknownMethodError where no method knows it.
    """
    if isinstance(values, Candidate):
        return values
    if isinstance(values, Mapping):
        for method in _methods():
            candidate = method.of_record(values)
            if candidate is not None:
                return candidate
        named = NamedWay.of_record(values)
        if named is not None:
            return named
    raise UnknownMethodError(
        f"the record {quoted(values)} names no candidate that this elsa-tune knows; install or "
        "import the package that brings its method, or use the version that recorded it"
    )


class _AsRecord:
    """Lets pydantic read and write a candidate of any method as its record."""

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Any:
        # Only where pydantic is there: a trial does without it.
        from pydantic_core import core_schema

        def record_of(candidate: Candidate) -> dict[str, Any]:
            return candidate.record()

        return core_schema.no_info_plain_validator_function(
            recorded_candidate,
            serialization=core_schema.plain_serializer_function_ser_schema(record_of),
        )


# A candidate as the field of a value that is recorded.
RecordedCandidate = Annotated[Candidate, _AsRecord()]


def candidate_fields(candidate: Candidate) -> dict[str, Any]:
    """Return what JSON and CSV tell of a candidate.

    A depth has DEPTH_FIELDS, and nothing else. For a candidate of another method these are null,
    and `candidate` (its key) and `label` name it.
    """
    recorded = candidate.record()
    fields: dict[str, Any] = {}
    for name in DEPTH_FIELDS:
        fields[name] = recorded.get(name)
    if not candidate.is_depth:
        fields["candidate"] = candidate.key
        fields["label"] = candidate.label
    return fields


def told_candidate(fields: Mapping[str, Any]) -> Candidate:
    """Return the candidate of which JSON tells `candidate_fields`. Raises SpaceError."""
    label = fields.get("label")
    if label is None:
        return recorded_candidate(fields)
    key = str(fields.get("candidate"))
    if key.startswith(KEY_PREFIX):
        return NamedWay(label)
    return read_candidate(label)
