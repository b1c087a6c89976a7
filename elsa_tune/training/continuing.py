"""A trial that was cut short continues where its last checkpoint was written."""

from dataclasses import dataclass
from functools import partial

from elsa_tune.errors import LeavingError, RunError
from elsa_tune.training import machine
from elsa_tune.training.checkpoints import LEAVING, TrialCheckpoint
from elsa_tune.training.progress import DamagedError, RunningTrial, Saved, TrialOrigin, read_file


@dataclass(frozen=True, slots=True, kw_only=True)
class Continuing:
    """A running trial beside its checkpoint; neither a damaged nor a full disk ends the trial."""

    running: RunningTrial  # the trial
    origin: TrialOrigin  # what its numbers follow from
    checkpoint: TrialCheckpoint  # where it is written
    steps: int  # planned ones

    def take_up(self) -> None:
        """Continue at the checkpoint, if there is one that fits; else begin at the first step.

        What reading it takes is no part of the trial's peak memory. Raises RunError where there is
        no memory for it.
        """
        running = self.running
        peak = running.memory.mib()
        is_there = machine.within_memory(self._read)
        if is_there is None:
            raise RunError(
                f"{self.checkpoint.key}: out of memory while its checkpoint was read; use a "
                "machine with more memory"
            )
        if is_there:
            machine.release()
            running.memory.begin()
            running.progress.peak_mib = max(running.progress.peak_mib, peak)

    def _read(self) -> bool:
        """Take the checkpoint over, if there is one that fits; return whether there is any."""
        try:
            content = self.checkpoint.load()
            if content is None:
                return False
            self._restore(read_file(content))
        except (OSError, DamagedError) as error:
            self._note(f"its checkpoint cannot be read ({_why(error)}), so it started again")
        return True

    def _restore(self, saved: Saved) -> None:
        """Take over a checkpoint, unless the trial would become a mixture of two kinds."""
        difference = self.origin.difference(saved.origin)
        if difference is not None:
            self._note(f"its checkpoint does not fit ({difference}), so it started again")
            return
        self.running.restore(saved)
        step = self.running.progress.step
        note = f"continued from a checkpoint at step {step} of {self.steps}"
        there = saved.origin.machine
        here = self.origin.machine
        if there != here:
            note += (
                f", written on another machine ({there}; here {here}): its losses may differ in "
                "the last digits from those of one machine"
            )
        self._note(note)

    @property
    def is_due(self) -> bool:
        """Whether it is time to write the checkpoint."""
        return self.checkpoint.is_due

    def save(self) -> None:
        """Write the checkpoint; without room for it the trial trains on.

        Raises LeavingError where the node will end: the trial continues on another one.
        """
        write = partial(self.running.write, self.origin)
        try:
            self.checkpoint.save(write)
        except OSError as error:
            self._note(f"its checkpoint cannot be written ({_why(error)}); it trains on without")
        if self.checkpoint.is_leaving():
            raise LeavingError(LEAVING)

    def _note(self, text: str) -> None:
        """Tell whoever reads the results, once."""
        notes = self.running.progress.notes
        note = f"{self.checkpoint.key}: {text}"
        if note not in notes:
            notes.append(note)


def _why(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error)
