"""When the ranks of an attempt save a checkpoint, agreed in a folder that all of them see.

The first rank to reach a step of decision makes a symbolic link named after the step; its target is the decision. Only one rank can
make it, also on NFS, and the others read that one. So ranks that look at different moments get the same answer, and none waits for
another. Links are never followed.

`wish` is the factor on the interval that is wanted; `notice` exists once the attempt is to be preempted.
"""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass

VARIABLE = "TACHOSCOPE_CHECKPOINT_PLAN"
"""Environment variable with the folder; unset: nobody changes the interval of the job."""
INTERVAL_VARIABLE = "TACHOSCOPE_CHECKPOINT_INTERVAL"
"""Environment variable by which an attempt tells `tachoscope run` to change the interval, and what it has to know for that."""
NOTICE_FACTOR = 0.25
"""Of the interval, once a preemption was announced."""
LEAST_FACTOR, MOST_FACTOR = 0.25, 4.0
"""A wish beyond these is cut: a wrong one costs no more than four times the interval."""
_WISH, _NOTICE, _DECISION = "wish", "notice", "step-{}"


@dataclass(frozen=True, slots=True)
class Decision:
    """What holds from a step on: whether to save at it, the next step of decision, and steps between saves."""

    due: bool
    next_step: int
    interval_steps: int


class CheckpointPlan:
    """The plan in a folder. Methods raise OSError if it cannot be read or written, but for what is not there."""

    def __init__(self, folder: str) -> None:
        self._folder = folder

    def decide(self, step: int, proposed: Decision) -> Decision:
        """Return what holds from a step on: what was proposed, unless another rank was earlier."""
        path = self._path(_DECISION.format(step))
        try:
            os.symlink(f"{int(proposed.due)} {proposed.next_step} {proposed.interval_steps}", path)
        except FileExistsError:
            return _parsed(os.readlink(path))
        return proposed

    def forget(self, step: int) -> None:
        """Remove an old decision."""
        with contextlib.suppress(OSError):
            os.unlink(self._path(_DECISION.format(step)))

    def factor(self) -> float:
        """Return the wanted factor on the interval; 1: nobody wants another."""
        try:
            return min(max(float(os.readlink(self._path(_WISH))), LEAST_FACTOR), MOST_FACTOR)
        except (FileNotFoundError, ValueError):
            return 1.0

    def wish(self, factor: float) -> None:
        """Want a factor on the interval from now on, in place of the one before."""
        temporary = self._path(f".{_WISH}-{os.getpid()}")
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)  # of one that was killed here
        os.symlink(f"{factor:.3f}", temporary)
        os.replace(temporary, self._path(_WISH))

    def is_asked(self) -> bool:
        """Return whether a rank decides by the plan: else a wish has no effect."""
        with os.scandir(self._folder) as entries:
            return any(entry.name.startswith(_DECISION.format("")) for entry in entries)

    def announce_end(self, source: str) -> None:
        """Say that the attempt is to be preempted, on the word of `source`, such as `SIGUSR1`."""
        with contextlib.suppress(FileExistsError):
            os.symlink(source, self._path(_NOTICE))

    def end_announced(self) -> bool:
        """Return whether the attempt is to be preempted."""
        return os.path.lexists(self._path(_NOTICE))

    def _path(self, name: str) -> str:
        return f"{self._folder}/{name}"


def _parsed(text: str) -> Decision:
    try:
        due, next_step, interval_steps = map(int, text.split())
    except ValueError:
        raise OSError(f"{text[:40]!r} is not a decision") from None
    return Decision(bool(due), next_step, max(interval_steps, 1))
