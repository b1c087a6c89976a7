"""How far a long piece of work is, said on stderr now and then."""

import time

from elsa_tune.searching.output import Say
from elsa_tune.words import duration

EVERY = 10.0  # seconds between two lines; whoever waits less than that needs none


class ProgressLine:
    """Says where the work is, at most once in EVERY seconds."""

    def __init__(self, say: Say) -> None:
        self._say = say
        self._began = time.monotonic()
        self._said = self._began

    @property
    def seconds(self) -> float:
        """The seconds since the work began."""
        return time.monotonic() - self._began

    def at(self, where: str, share: float | None) -> None:
        """Say where the work is, in words, unless that was said just before.

        share: of all the work, above 0 and up to 1; None if nobody knows.
        """
        now = time.monotonic()
        if now - self._said < EVERY:
            return
        self._said = now
        if share is not None:
            where += f", {share:.0%}{self._left(share)}"
        self._say(where)

    def _left(self, share: float) -> str:
        if share <= 0:
            return ""
        seconds = self.seconds * (1 - share) / share
        if seconds < 1:
            return ""
        return f", about {duration(seconds)} left"
