"""How numbers and depths are written: qualities as fractions come out x 100, one decimal."""

from collections.abc import Callable, Collection, Container, Iterable, Sequence

from elsa_tune.specs.adapt.candidate import Candidate
from elsa_tune.specs.border import Border
from elsa_tune.specs.task import Metric

# Beside a learning rate that lies at the border of what was tried, and what that means.
BORDER_ARROWS = {None: "", Border.HIGH: "↑", Border.LOW: "↓"}
BORDER_WORDS = {Border.HIGH: "higher rates may be better", Border.LOW: "lower rates may be better"}
# Beside the row of a table that is recommended.
CHOSEN_MARK = "▶"
CHOSEN = "recommended"

# A smaller difference of qualities does not show with one decimal.
VISIBLE = 5e-4

_ORDINALS = (
    "first",
    "second",
    "third",
    "fourth",
    "fifth",
    "sixth",
    "seventh",
    "eighth",
    "ninth",
    "tenth",
)


def points(quality: float | None) -> str:
    """Return a quality as a table prints it: .908 is `90.8`; `-` where there is none."""
    if quality is None:
        return "-"
    return f"{100 * quality:z.1f}"


def percent(share: float | None) -> str:
    """Return a share: .946 is `94.6 %`; `-` where there is none."""
    if share is None:
        return "-"
    return f"{points(share)} %"


def confidence_text(confidence: float) -> str:
    """Return `95 %`, `97.5 %`."""
    return percent(confidence).replace(".0 %", " %")


def percent_beside(share: float | None, target: float) -> str:
    """Return a share as `percent` does, with more decimals where it only rounds to the target.

    .8998 is `89.98 %` beside a target of .9.
    """
    if share is None:
        return percent(share)
    target_in_percent = round(100 * target, 6)
    for decimals in range(1, 6):
        text = f"{100 * share:z.{decimals}f}"
        if share < target and float(text) < target_in_percent:
            return f"{text} %"
    return percent(share)


def spread(quality: float | None, std: float | None) -> str:
    """Return `90.8 ± 0.3`, or the mean alone."""
    mean = points(quality)
    if std is None:
        return mean
    return f"{mean} ± {points(std)}"


def interval(low: float | None, high: float | None) -> str:
    """Return `89.9..91.2`; `-` where there is none."""
    if low is None or high is None:
        return "-"
    return f"{points(low)}..{points(high)}"


def number_text(number: float | None, form: str = "{}", none: str = "") -> str:
    """Return a number in this form, as `{:,} examples`; `none` where there is none."""
    if number is None:
        return none
    return form.format(number)


def rate_text(learning_rate: float | None) -> str:
    """Return `1e-4`, `3.1623e-5`: up to five significant digits; or `not named`."""
    if learning_rate is None:
        return "not named"
    text = f"{learning_rate:.4e}"
    digits, _, exponent = text.partition("e")
    digits = digits.rstrip("0").rstrip(".")
    return f"{digits}e{int(exponent)}"


def metric_text(metric: str | None) -> str:
    """Return the metric in words; `quality` where it is not named."""
    if metric is None:
        return "quality"
    known_metric = Metric.named(metric)
    if known_metric is None:
        return metric.replace("_", " ")
    return known_metric.words


def target_text(target: float) -> str:
    """Return `90 %`, or with as many decimals as it has."""
    return f"{100 * target:.6g} %"


def duration(seconds: float) -> str:
    """Return `48 s`, `3 min 20 s`, `2 h 05 min`."""
    whole_seconds = round(seconds)
    if whole_seconds < 60:
        return f"{whole_seconds} s"
    minutes, seconds_left = divmod(whole_seconds, 60)
    if minutes < 60:
        return f"{minutes} min {seconds_left:02d} s"
    hours, minutes_left = divmod(minutes, 60)
    return f"{hours} h {minutes_left:02d} min"


def rough_range(low: float, high: float) -> str:
    """Return times as they are estimated: `20 s`, `12 to 40 min`, `50 min to 3.5 h`."""
    low_number, low_unit = _rough(low)
    high_number, high_unit = _rough(high)
    highest = f"{high_number} {high_unit}"
    if low_unit != high_unit:
        return f"{low_number} {low_unit} to {highest}"
    if low_number != high_number:
        return f"{low_number} to {highest}"
    return highest


def _rough(seconds: float) -> tuple[str, str]:
    """Return a number and its unit, in steps of five seconds, of minutes, or with two digits."""
    if seconds < 90:
        steps = max(1, round(seconds / 5))
        return str(5 * steps), "s"
    minutes = seconds / 60
    if minutes < 90:
        return str(round(minutes)), "min"
    hours = seconds / 3600
    if hours < 10:
        return f"{hours:.2g}", "h"
    return f"{hours:.0f}", "h"


def ordinal(number: int) -> str:
    """Write `third` for 3, and `12th` beyond ten; 1 or more."""
    if number <= len(_ORDINALS):
        return _ORDINALS[number - 1]
    ending = "th"
    if number % 100 not in (11, 12, 13):
        ending = {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{ending}"


def kind_text(candidates: Collection[Candidate], count: int | None = None) -> str:
    """Write `depth`, or `way` where not all candidates are depths; with a count `7 ways`."""
    kind = "depth" if all(candidate.is_depth for candidate in candidates) else "way"
    if count is None:
        return kind
    return f"{count:,} {kind}" if count == 1 else f"{count:,} {kind}s"


def layers_text(count: int) -> str:
    """Return `1 layer`, `3 layers`."""
    if count == 1:
        return "1 layer"
    return f"{count} layers"


def seeds_text(count: int) -> str:
    """Return `1 seed`, `3 seeds`."""
    if count == 1:
        return "1 seed"
    return f"{count} seeds"


def trials_text(count: int, kind: str = "") -> str:
    """Return `1 trial`, `3 trials`; with a kind `3 exploring trials`."""
    noun = f"{kind} trial" if kind else "trial"
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def of_layers(fine_tuned: int, layers: int) -> str:
    """Return `2 of 6 layers`."""
    return f"{fine_tuned} of {layers_text(layers)}"


def last_layers(fine_tuned: int) -> str:
    """Write `the last 3 layers`, `the last layer`, or `the head alone`."""
    if fine_tuned == 0:
        return "the head alone"
    if fine_tuned == 1:
        return "the last layer"
    return f"the last {fine_tuned} layers"


def last_of_layers(fine_tuned: int, layers: int) -> str:
    """Write `the last 2 of 6 layers`, `all 6 layers`, or `the head alone`."""
    if fine_tuned == layers:
        return f"all {layers_text(layers)}"
    if fine_tuned == 0:
        return last_layers(0)
    if fine_tuned == 1:
        return f"the last layer of {layers}"
    return f"the last {of_layers(fine_tuned, layers)}"


def number_of(candidate: Candidate, layers: int) -> int | None:
    """Return how many last layers a depth fine-tunes.

    None where another method adapts the model, and where a depth is only drawn beside the curve.
    """
    if not candidate.is_tested or not candidate.is_depth:
        return None
    return candidate.fine_tuned_layers(layers)


def number_or_name(candidate: Candidate, layers: int, text: Callable[[int], str] = str) -> str:
    """Return `2`, the number of fine-tuned layers, or `the biases alone`.

    text: how the number is written.
    """
    number = number_of(candidate, layers)
    if number is None:
        return candidate.name(layers)
    return text(number)


def count_text(candidate: Candidate, layers: int) -> str:
    """Return `2 layers`, `1 layer`, or `the biases alone`."""
    return number_or_name(candidate, layers, layers_text)


def part_text(candidate: Candidate, layers: int) -> str:
    """Return `2 of 6 layers`, or `the biases alone`."""
    return number_or_name(candidate, layers, lambda number: of_layers(number, layers))


def is_part_plural(candidate: Candidate, layers: int) -> bool:
    """Whether `part_text` takes its verb in the plural: `2 of 6 layers keep ...`."""
    number = number_of(candidate, layers)
    if number is None:
        return candidate.is_plural(layers)
    return number != 1


def last_text(candidate: Candidate, layers: int) -> str:
    """Write `the last 2 layers`, `the head alone`, or `the biases alone`."""
    return number_or_name(candidate, layers, last_layers)


def last_of_text(candidate: Candidate, layers: int) -> str:
    """Write `the last 2 of 6 layers`, `all 6 layers`, or `the biases alone`."""
    return number_or_name(candidate, layers, lambda number: last_of_layers(number, layers))


def depth_cells(candidate: Candidate, layers: int) -> tuple[str, str]:
    """Return a table's cells of frozen and of fine-tuned layers: `9` and `3`, `-` and `biases`."""
    number = candidate.fine_tuned_layers(layers)
    if number is None:
        return "-", candidate.label
    return candidate.short, str(number)


def frozen_text(candidate: Candidate, layers: int) -> str:
    """Write `4 frozen layers, 2 fine-tuned`, `the full model` or `the head alone`, else the label.

    For whoever reads a depth's label, which counts frozen layers, beside sentences that count
    fine-tuned ones.
    """
    fine_tuned = number_of(candidate, layers)
    if candidate.is_reference or fine_tuned == 0:
        return candidate.name(layers)
    if fine_tuned is None:
        return candidate.label
    frozen = layers - fine_tuned
    noun = "layer" if frozen == 1 else "layers"
    return f"{frozen} frozen {noun}, {fine_tuned} fine-tuned"


def either_text(candidates: Iterable[Candidate], layers: int) -> str:
    """Return `2, 3 or 6 layers`, `2 layers or the biases alone`."""
    numbers = []
    names = []
    for candidate in candidates:
        number = number_of(candidate, layers)
        if number is None:
            names.append(candidate.name(layers))
        else:
            numbers.append(str(number))
    if numbers:
        listed_numbers = listed(numbers, last="or")
        noun = "layer" if numbers == ["1"] else "layers"
        names.insert(0, f"{listed_numbers} {noun}")
    return listed(names, last="or")


def candidates_text(candidates: Iterable[Candidate], layers: int) -> str:
    """Return what is fine-tuned at these depths of a model with so many layers.

    `the full model`, `embeddings-only`, `the last 2 layers`, or `the last 3 and 2 layers and the
    head alone`.
    """
    names = []
    numbers = []
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
        listed_numbers = listed(map(str, numbers))
        names.append(f"the last {listed_numbers} layers")
    if has_head_alone:
        names.append(last_layers(0))
    return listed(names)


def capitalized(text: str) -> str:
    """Return the text with its first letter as a sentence begins with it."""
    first = text[:1].upper()
    return first + text[1:]


def border_legend(borders: Collection[Border | None]) -> list[str]:
    """Return what the arrows mean of these borders: `↑ higher rates may be better`."""
    legend = []
    for border, meaning in BORDER_WORDS.items():
        if border in borders:
            legend.append(f"{BORDER_ARROWS[border]} {meaning}")
    return legend


def listed(names: Iterable[str], last: str = "and") -> str:
    """Write `a`, `a and b`, `a, b and c`."""
    items = list(names)
    if len(items) < 2:
        return "".join(items)
    *others, last_item = items
    joined = ", ".join(others)
    return f"{joined} {last} {last_item}"


def aligned(rows: Sequence[Sequence[str]], right: Container[int] = ()) -> str:
    """Return a table's lines, two spaces between columns; those in `right` stand to the right."""
    widths = []
    for cells in zip(*rows, strict=True):
        lengths = [len(cell) for cell in cells]
        widths.append(max(lengths))
    lines = []
    for row in rows:
        padded = []
        for column, cell in enumerate(row):
            width = widths[column]
            if column in right:
                padded.append(cell.rjust(width))
            else:
                padded.append(cell.ljust(width))
        line = "  ".join(padded)
        lines.append(line.rstrip())
    return "\n".join(lines)
