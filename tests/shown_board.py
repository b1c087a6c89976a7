"""A board on a made-up search in mid-run, for tests that look at a terminal.

`python -m tests.shown_board` runs until the second Ctrl-C.
"""

from __future__ import annotations

import itertools
import signal
import threading
import time
from types import FrameType, SimpleNamespace

from elsa_tune.searching.board import Board
from elsa_tune.searching.planning.known import KnownTrial
from elsa_tune.specs.adapt.freeze import FreezeDepth
from elsa_tune.specs.search import Extension, SearchSpec
from elsa_tune.specs.trial import Phase, TrialStatus
from tests.unit.search_examples import make_spec

DEPTHS = tuple(map(FreezeDepth.of, (0, 3, 4, 5, 6)))


def made_up(now: float) -> tuple[SearchSpec, list[KnownTrial]]:
    """Five depths of four trials each: eight done, one stopped, one running, ten waiting."""
    spec = make_spec(candidates=DEPTHS, explored=DEPTHS, extend=Extension())
    known = []
    for number, (rate, depth) in enumerate(itertools.product((2e-5, 5e-5), DEPTHS)):
        status, count = TrialStatus.COMPLETED, 2
        if number == 5:
            status, count = TrialStatus.STOPPED_EARLY, 1
        elif number == 9:
            status, count = TrialStatus.RUNNING, 0
        started = now - 540 + 60 * number
        known.append(
            KnownTrial(
                trial=spec.trial(Phase.EXPLORE, depth, rate, 0),
                status=status,
                qualities=(0.7, 0.815)[:count],
                started=started,
                reported=(started + 30, started + 60)[:count],
                ended=started + 60 if count else None,
            )
        )
    return spec, known


def main() -> None:
    """Show it; the first Ctrl-C is said, the second ends it."""
    spec, known = made_up(time.time())
    board = Board(spec, lambda: "3 of 6 layers")
    board.follow(SimpleNamespace(known=known))
    asked, ended = threading.Event(), threading.Event()

    def stop(number: int, frame: FrameType | None) -> None:
        board.stopping("Ctrl-C once more stops at once")
        (ended if asked.is_set() else asked).set()

    signal.signal(signal.SIGINT, stop)
    with board:
        board.phase("exploring: 10 trials over 5 depths, then outward from a best rate")
        board.say("note: a line that stays")
        ended.wait()


if __name__ == "__main__":
    main()
