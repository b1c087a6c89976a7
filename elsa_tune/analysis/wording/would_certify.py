"""What would probably certify a way that was only measured, in words."""

from elsa_tune.analysis.answer import WouldCertify
from elsa_tune.analysis.comparing.ways import WayComparison
from elsa_tune.analysis.wording.ways import name_of

_PROBABLY = "probably (four times out of five, if ways score and spread as measured)"
_NO_NUMBER = "no number of seeds or evaluation rows that can be advised would"


def would_certify_text(comparison: WayComparison) -> str:
    """Return what a new search would take, a sentence that begins with a blank; "" for none."""
    way = comparison.recommended
    if way is None or comparison.would_certify is None:
        return ""
    name = name_of(comparison.curve, way.candidate)
    need = _need(comparison, comparison.would_certify)
    score_need = ""
    # Where the two are one claim, or the score is certified, nothing is to be said of it.
    if comparison.claims_corrected and comparison.score_would_certify is not None:
        score_need = _need(comparison, comparison.score_would_certify)
    if not need and not score_need:
        return f" As measured, {_NO_NUMBER} certify {name}."
    certify = f" A new search would {_PROBABLY} certify {name}"
    if not need:
        return (
            f"{certify} to keep it of the score itself with {score_need}; of the gain over "
            f"guessing, {_NO_NUMBER} do."
        )
    text = f"{certify} with {need}"
    if score_need:
        text += f"; of the score itself with {score_need}"
    return f"{text}."


def gain_need_text(comparison: WayComparison) -> str:
    """Return what would certify the gain where the score is certified, a clause; "" for nothing."""
    if comparison.would_certify is None:
        return ""
    need = _need(comparison, comparison.would_certify)
    if not need:
        return ""
    return f", which a new search would probably certify with {need}"


def _need(comparison: WayComparison, needed: WouldCertify) -> str:
    knows_rows = comparison.curve.uncertainty.examples is not None
    return need_text(needed, "a way", knows_rows=knows_rows)


def need_text(needed: WouldCertify, of_each: str, *, knows_rows: bool) -> str:
    """Return `7 seeds a way, or 1,100 evaluation rows`; "" where nothing would do.

    of_each: `a way`, `at each depth`. knows_rows: whether the number of rows is known.
    """
    if needed.together is not None:
        both = needed.together
        return f"{both.seeds} seeds {of_each} and {both.evaluation_rows:,} evaluation rows"
    seeds = "" if needed.seeds is None else f"{needed.seeds} seeds {of_each}"
    rows = ""
    if needed.evaluation_rows is not None:
        rows = f"{needed.evaluation_rows:,} evaluation rows"
    if seeds and rows:
        return f"{seeds}, or {rows}"
    if seeds and knows_rows:
        return f"{seeds} (more rows alone would not do)"
    if rows:
        return f"{rows} (more seeds alone would not do)"
    return seeds
