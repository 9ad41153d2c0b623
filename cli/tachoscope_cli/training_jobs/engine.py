"""What a supervisor needs of whatever starts the processes of a job."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

from tachoscope_core.errors import TachoscopeError
from tachoscope_core.jobs.training_job import TrainingJob

State = Literal["queued", "running", "ended"]


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptRequest:
    """One attempt of a job.

    Attributes:
        label: by which the engine finds it again: of no other attempt. command: the process of the attempt, on one node.
        excluded_hosts: on which it may not run. log: file for its output, where the engine writes files of this machine.
        lock: descriptor that no second supervisor can lock while a process that submits has it.
    """

    job: TrainingJob
    number: int
    label: str
    command: Sequence[str]
    excluded_hosts: Sequence[str]
    log: Path
    lock: int


@dataclass(frozen=True, slots=True)
class EngineState:
    """What an engine says of an attempt.

    Attributes:
        reason: why it waits or ended, in the engine's words. lost_hosts: that failed under it.
        by_engine: the engine ended it for a reason of its own: a lost node, preemption, a time limit.
    """

    state: State
    reason: str = ""
    lost_hosts: tuple[str, ...] = ()
    by_engine: bool = False
    cancelled: bool = False


class TooFewHostsError(TachoscopeError):
    """Without the excluded hosts, the engine has too few for the job."""


class Engine(Protocol):
    """Starts attempts. All methods raise TachoscopeError where the engine does not answer: nothing is known then."""

    def find(self, label: str) -> str | None:
        """Return the engine's id of the attempt that was submitted with a label; None: none was."""

    def rendered(self, request: AttemptRequest) -> str:
        """Return what `submit` gives the engine, as a person reads it; nothing is asked of the engine."""

    def submit(self, request: AttemptRequest) -> str:
        """Submit an attempt, and return the engine's id of it. Raises TooFewHostsError."""

    def state(self, engine_id: str) -> EngineState:
        """Return the state of an attempt."""

    def hosts(self, engine_id: str) -> Mapping[str, str]:
        """Return all hosts of an attempt that runs, by the name that its processes give; the value is how the engine excludes it.

        Empty: they are not known yet.
        """

    def output(self, engine_id: str, log: Path) -> str:
        """Return where the output of an attempt is: the file, or the command that shows it."""

    def cancel(self, engine_id: str) -> None:
        """End an attempt, or take it out of the queue; one that has ended stays as it is."""
