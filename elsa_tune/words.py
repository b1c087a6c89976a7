"""How numbers and depths are written: qualities as fractions come out x 100, one decimal."""

from collections.abc import Container, Iterable, Sequence

from elsa_tune.specs.adaptation import Candidate
from elsa_tune.specs.border import Border
from elsa_tune.specs.task import Metric

# Beside a learning rate that lies at the border of what was tried, and what that means.
BORDER_ARROWS = {None: "", Border.HIGH: "↑", Border.LOW: "↓"}
BORDER_WORDS = {Border.HIGH: "higher rates may be better", Border.LOW: "lower rates may be better"}


def points(quality: float | None) -> str:
    """Return a quality as a table prints it: .908 is `90.8`; `-` where there is none."""
    return "-" if quality is None else f"{100 * quality:z.1f}"


def percent(share: float | None) -> str:
    """Return a share: .946 is `94.6 %`; `-` where there is none."""
    return "-" if share is None else f"{points(share)} %"


def spread(quality: float | None, std: float | None) -> str:
    """Return `90.8 ± 0.3`, or the mean alone."""
    return points(quality) if std is None else f"{points(quality)} ± {points(std)}"


def interval(low: float | None, high: float | None) -> str:
    """Return `89.9..91.2`; `-` where there is none."""
    return "-" if low is None or high is None else f"{points(low)}..{points(high)}"


def number_text(number: float | None, form: str = "{}", none: str = "") -> str:
    """Return a number in this form, as `{:,} examples`; `none` where there is none."""
    return none if number is None else form.format(number)


def rate_text(learning_rate: float | None) -> str:
    """Return `1e-4`, `3.1623e-5`: up to five significant digits; or `not named`."""
    if learning_rate is None:
        return "not named"
    digits, _, exponent = f"{learning_rate:.4e}".partition("e")
    return f"{digits.rstrip('0').rstrip('.')}e{int(exponent)}"


def metric_text(metric: str | None) -> str:
    """Return the metric in words; `quality` where it is not named."""
    if metric is None:
        return "quality"
    known = Metric.named(metric)
    return metric.replace("_", " ") if known is None else known.words


def target_text(target: float) -> str:
    """Return `90 %`, or with as many decimals as it has."""
    return f"{100 * target:.6g} %"


def duration(seconds: float) -> str:
    """Return `48 s`, `3 min 20 s`, `2 h 05 min`."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"


def rough_range(low: float, high: float) -> str:
    """Return times as they are estimated: `20 s`, `12 to 40 min`, `50 min to 3.5 h`."""
    texts = [_rough(low), _rough(high)]
    if texts[0] == texts[1]:
        return texts[0]
    units = [text.split()[1] for text in texts]
    first = texts[0].split()[0] if units[0] == units[1] else texts[0]
    return f"{first} to {texts[1]}"


def _rough(seconds: float) -> str:
    if seconds < 90:
        return f"{max(5, 5 * round(seconds / 5))} s"
    if seconds < 90 * 60:
        return f"{round(seconds / 60)} min"
    return f"{seconds / 3600:.2g} h" if seconds < 36_000 else f"{seconds / 3600:.0f} h"


def layers_text(count: int) -> str:
    """Return `1 layer`, `3 layers`."""
    return f"{count} layer" if count == 1 else f"{count} layers"


def trials_text(count: int) -> str:
    """Return `1 trial`, `3 trials`."""
    return f"{count} trial" if count == 1 else f"{count:,} trials"


def of_layers(fine_tuned: int, layers: int) -> str:
    """Return `2 of 6 layers`."""
    return f"{fine_tuned} of {layers_text(layers)}"


def last_layers(fine_tuned: int) -> str:
    """Write `the last 3 layers`, `the last layer`, or `the head alone`."""
    if fine_tuned == 0:
        return "the head alone"
    return "the last layer" if fine_tuned == 1 else f"the last {fine_tuned} layers"


def last_of_layers(fine_tuned: int, layers: int) -> str:
    """Write `the last 2 of 6 layers`, `all 6 layers`, or `the head alone`."""
    if fine_tuned == layers:
        return f"all {layers_text(layers)}"
    if fine_tuned < 2:
        return last_layers(fine_tuned) + (f" of {layers}" if fine_tuned else "")
    return f"the last {of_layers(fine_tuned, layers)}"


def number_of(candidate: Candidate, layers: int) -> int | None:
    """Return how many last layers a depth fine-tunes, None where it is not told by that number.

    It is not where another method adapts the model, nor where a depth is only drawn.
    """
    return candidate.fine_tuned_layers(layers) if candidate.is_tested else None


def number_or_name(candidate: Candidate, layers: int) -> str:
    """Return `2`, the number of fine-tuned layers, or `the biases alone`."""
    number = number_of(candidate, layers)
    return candidate.name(layers) if number is None else str(number)


def count_text(candidate: Candidate, layers: int) -> str:
    """Return `2 layers`, `1 layer`, or `the biases alone`."""
    number = number_of(candidate, layers)
    return candidate.name(layers) if number is None else layers_text(number)


def part_text(candidate: Candidate, layers: int) -> str:
    """Return `2 of 6 layers`, or `the biases alone`."""
    number = number_of(candidate, layers)
    return candidate.name(layers) if number is None else of_layers(number, layers)


def is_part_plural(candidate: Candidate, layers: int) -> bool:
    """Whether `part_text` takes its verb in the plural: `2 of 6 layers keep ...`."""
    number = number_of(candidate, layers)
    return candidate.is_plural(layers) if number is None else number != 1


def last_text(candidate: Candidate, layers: int) -> str:
    """Write `the last 2 layers`, `the head alone`, or `the biases alone`."""
    number = number_of(candidate, layers)
    return candidate.name(layers) if number is None else last_layers(number)


def last_of_text(candidate: Candidate, layers: int) -> str:
    """Write `the last 2 of 6 layers`, `all 6 layers`, or `the biases alone`."""
    number = number_of(candidate, layers)
    return candidate.name(layers) if number is None else last_of_layers(number, layers)


def depth_cells(candidate: Candidate, layers: int) -> tuple[str, str]:
    """Return a table's cells of frozen and of fine-tuned layers: `9` and `3`, `-` and `biases`."""
    number = candidate.fine_tuned_layers(layers)
    if number is None:
        return "-", candidate.label
    return candidate.short, str(number)


def either_text(candidates: Iterable[Candidate], layers: int) -> str:
    """Return `2, 3 or 6 layers`, `2 layers or the biases alone`."""
    numbers: list[str] = []
    names: list[str] = []
    for candidate in candidates:
        number = number_of(candidate, layers)
        if number is None:
            names.append(candidate.name(layers))
        else:
            numbers.append(str(number))
    if numbers:
        names.insert(0, f"{listed(numbers, last='or')} layers")
    return listed(names, last="or")


def candidates_text(candidates: Iterable[Candidate], layers: int) -> str:
    """Return what is fine-tuned at these depths of a model with so many layers.

    `the full model`, `embeddings-only`, `the last 2 layers`, or `the last 3 and 2 layers and the
    head alone`.
    """
    names: list[str] = []
    numbers: list[int] = []
    has_head_alone = False
    for candidate in candidates:
        number = number_of(candidate, layers)
        if candidate.is_reference or number is None:
            names.append(candidate.name(layers))
        elif number == 0:
            has_head_alone = True
        else:
            numbers.append(number)
    if len(numbers) == 1:
        names.append(last_layers(numbers[0]))
    elif numbers:
        names.append(f"the last {listed(map(str, numbers))} layers")
    if has_head_alone:
        names.append(last_layers(0))
    return listed(names)


def capitalized(text: str) -> str:
    """Return the text with its first letter as a sentence begins with it."""
    return text[:1].upper() + text[1:]


def listed(names: Iterable[str], last: str = "and") -> str:
    """Write `a`, `a and b`, `a, b and c`."""
    items = list(names)
    if len(items) < 2:
        return "".join(items)
    return f"{', '.join(items[:-1])} {last} {items[-1]}"


def aligned(rows: Sequence[Sequence[str]], right: Container[int] = ()) -> str:
    """Return a table's lines, two spaces between columns; those in `right` stand to the right."""
    columns = []
    for place, cells in enumerate(zip(*rows, strict=True)):
        width = max(map(len, cells))
        justified = str.rjust if place in right else str.ljust
        columns.append([justified(cell, width) for cell in cells])
    return "\n".join("  ".join(row).rstrip() for row in zip(*columns, strict=True))
