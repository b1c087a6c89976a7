"""What a comparison can certify, in words, before it trains."""

from elsa_tune.analysis.ways_power import Chance, WaysPower
from elsa_tune.words import points, target_text


def ways_power_text(power: WaysPower) -> str:
    """Return how far below the best a way may lie to be certified: one sentence."""
    share = target_text(power.target)
    design = f"with {power.rows:,} evaluation rows and {power.seeds} seeds a way"
    of_score = _chance_text(power.of_score, f"{share} of its score")
    of_gain = _chance_text(power.of_gain, f"{share} of its gain over guessing")
    return f"{design}, {of_score}; {of_gain} (an estimate)"


def _chance_text(chance: Chance, kept: str) -> str:
    """Return what one claim takes: a clause."""
    if chance.gap is not None:
        gap = points(chance.gap)
        distance = "is as good as" if gap == "0.0" else f"lies within {gap} points of"
        return f"a way that {distance} the best is probably certified to keep {kept}"
    cases = f"{100 * chance.share_of_equal:.0f} % of cases"
    text = f"a way as good as the best is certified to keep {kept} in only {cases}"
    if chance.rows_needed is not None:
        text += f" ({chance.rows_needed:,} rows would probably do)"
    return text
