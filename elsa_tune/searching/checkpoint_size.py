"""How large the checkpoints of a search's trials become, for whoever is about to start it."""

from elsa_tune.specs.search import SearchSpec
from elsa_tune.words import candidates_text, duration

_MEGABYTE = 10**6
_GIGABYTE = 10**9


def checkpoint_text(spec: SearchSpec) -> str:
    """Return how large a checkpoint is at most and at least, and how often it is written."""
    from elsa_tune.training.checkpoints import AUTO_SECONDS

    if spec.checkpoint == "never":
        return "none: a trial that is cut short starts again"
    if spec.checkpoint == "auto":
        minutes = duration(AUTO_SECONDS)
        often = f"first after {minutes} of a trial, then for at most 1 % of its time"
    else:
        often = f"every {duration(spec.checkpoint)} of a trial"
    sizes = _sizes_text(spec)
    return f"{sizes}; {often}" if sizes else often


def _sizes_text(spec: SearchSpec) -> str:
    """Return what the least and the most frozen depth's take; "" where the search has none."""
    from elsa_tune.training.progress import predicted_bytes

    depths = [candidate for candidate in spec.candidates if candidate.is_depth]
    depths.sort(key=lambda candidate: candidate.rank)
    parts = []
    for candidate in dict.fromkeys(depths[:1] + depths[-1:]):
        size = size_text(predicted_bytes(spec.model, candidate))
        which = candidates_text([candidate], spec.layers)
        parts.append(f"up to {size} ({which})")
    return ", ".join(parts)


def size_text(size: int) -> str:
    """Write a number of bytes: `1.3 GB`, `24 MB`, `0.4 MB`."""
    if size >= _GIGABYTE:
        return f"{size / _GIGABYTE:.1f} GB"
    megabytes = size / _MEGABYTE
    if megabytes >= 10:
        return f"{megabytes:.0f} MB"
    return f"{megabytes:.1f} MB"
