"""What a search's board counts and says of its trials: a line a candidate, and those that run."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from elsa_tune.searching.planning.known import KnownTrial
from elsa_tune.searching.planning.plan import planned_trials
from elsa_tune.specs.adapt.candidate import Candidate
from elsa_tune.specs.search import SearchSpec
from elsa_tune.specs.trial import TrialStatus
from elsa_tune.words import duration

# Of the trials that run, how many are described.
SHOWN_RUNNING = 4

# What a trial is counted as; one that was interrupted waits.
_COUNTED_AS = {
    TrialStatus.COMPLETED: "done",
    TrialStatus.STOPPED_EARLY: "stopped",
    TrialStatus.FAILED: "failed",
    TrialStatus.DIVERGED: "failed",
    TrialStatus.RUNNING: "running",
}
COUNTED = (*dict.fromkeys(_COUNTED_AS.values()), "waiting")


@dataclass(frozen=True, slots=True)
class CandidateLine:
    """One row of the table."""

    candidate: Candidate  # whose trials it counts
    # Of its trials, both phases, by the words of COUNTED; together they are those planned so far.
    counts: Counter[str]
    # The completed trial with the best score (held out under `selection: holdout`).
    best: KnownTrial | None
    measured: float | None  # the mean quality of the completed measuring trials


def candidate_lines(spec: SearchSpec, trials: Sequence[KnownTrial]) -> list[CandidateLine]:
    """Return the rows, shallowest depth first."""
    return [_candidate_line(spec, trials, candidate) for candidate in spec.candidates]


def _candidate_line(
    spec: SearchSpec,
    trials: Sequence[KnownTrial],
    candidate: Candidate,
) -> CandidateLine:
    """Return a candidate's row."""
    counts: Counter[str] = Counter()
    completed = []
    measured = []
    for trial in trials:
        if trial.candidate != candidate:
            continue
        word = _COUNTED_AS.get(trial.status)
        if word is not None:
            counts[word] += 1
        if not trial.is_completed:
            continue
        completed.append(trial)
        if trial.measures:
            quality = trial.quality or 0.0
            measured.append(quality)
    planned = planned_trials(spec, trials, candidate)
    begun = counts.total()
    counts["waiting"] = max(0, planned - begun)
    best = max(completed, default=None, key=lambda trial: trial.score or 0.0)
    mean = None
    if measured:
        mean = sum(measured) / len(measured)
    return CandidateLine(
        candidate=candidate,
        counts=counts,
        best=best,
        measured=mean,
    )


def counts_of(
    lines: Iterable[CandidateLine],
    in_all: tuple[int, int] | None = None,
    running: str = "",
) -> tuple[str, str]:
    """Return `12/40`, how many trials have ended of those planned so far, and the same in words.

    These are `12/40 trials: 9 done, 2 stopped, 1 failed, 2 running, 26 waiting`.

    in_all: how few and how many there may be; where these differ it is `12 of 40 to 60`. running:
    how far those have come that run.
    """
    counts: Counter[str] = Counter()
    for line in lines:
        counts += line.counts
    planned = counts.total()
    fewest = planned
    most = planned
    if in_all is not None:
        fewest, most = in_all
    to_come = counts["running"] + counts["waiting"]
    number = planned - to_come
    ended = f"{number} of {fewest} to {most}"
    if fewest == most:
        ended = f"{number}/{planned}"
    parts = []
    for word in COUNTED:
        count = counts[word]
        if not count:
            continue
        part = f"{count} {word}"
        if word == "running" and running:
            part += f" ({running})"
        if word == "waiting" and fewest < planned:
            part = f"up to {part}"
        parts.append(part)
    listed = ", ".join(parts)
    return ended, f"{ended} trials: {listed}"


def running_text(spec: SearchSpec, trials: Sequence[KnownTrial], now: float) -> str:
    """Return each running trial's epoch, and for how long it is in it: `epoch 2/3 for 1 min 05 s`.

    now: seconds since the epoch. Of many trials the first few, the oldest first.
    """
    recipe = spec.recipe
    running = []
    for trial in trials:
        is_running = trial.status is TrialStatus.RUNNING
        if is_running and trial.started:
            running.append(trial)
    running.sort(key=lambda trial: trial.started)
    parts = []
    for trial in running[:SHOWN_RUNNING]:
        last_sign = trial.started
        if trial.reported:
            last_sign = trial.reported[-1]
        reports = len(trial.reported)
        done = reports // recipe.evaluations_per_epoch
        epoch = min(done + 1, recipe.epochs)
        since_last_sign = now - last_sign
        spent = duration(max(0.0, since_last_sign))
        parts.append(f"epoch {epoch}/{recipe.epochs} for {spent}")
    more = len(running) - len(parts)
    if more > 0:
        parts.append(f"and {more} more")
    return ", ".join(parts)
