"""What a comparison can certify, in words, before it trains."""

from elsa_tune.analysis.comparing.ways_power import Chance, WaysPower
from elsa_tune.words import points, target_text


def ways_power_text(power: WaysPower) -> str:
    """Return how far below the best a way may lie to be certified: one sentence."""
    share = target_text(power.target)
    noun = "units" if power.are_units else "rows"
    design = f"with {power.rows:,} evaluation {noun} and {power.seeds} seeds a way"
    of_score = _chance_text(power.of_score, f"{share} of its score", noun)
    of_gain = _chance_text(power.of_gain, f"{share} of its gain over guessing", noun)
    return f"{design}, {of_score}; {of_gain} (an estimate)"


def not_estimated_text(metric: str) -> str:
    """Return why nothing is estimated before a search in this metric: one sentence."""
    return (
        f"what this comparison can certify is not estimated in {metric}, only in accuracy; if it "
        "certifies nothing, its answer says what would"
    )


def _chance_text(chance: Chance, kept: str, noun: str) -> str:
    """Return what one claim takes: a clause."""
    if chance.gap is not None:
        gap = points(chance.gap)
        distance = "is as good as" if gap == "0.0" else f"lies within {gap} points of"
        return f"a way that {distance} the best is probably certified to keep {kept}"
    cases = f"{100 * chance.share_of_equal:.0f} % of cases"
    text = f"a way as good as the best is certified to keep {kept} in only {cases}"
    if chance.rows_needed is not None:
        text += f" ({chance.rows_needed:,} {noun} would probably do)"
    return text
