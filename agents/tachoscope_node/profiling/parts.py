"""What one rank does while its job is profiled: its folder, its trace, and the way of that into the store."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path

from tachoscope_core.errors import TachoscopeError
from tachoscope_core.storage import traces as stored_traces
from tachoscope_core.storage.profile_requests import RankState, Request, State
from tachoscope_core.storage.store import Store
from tachoscope_node.profiling import folders
from tachoscope_node.profiling.clients import ClientProcess
from tachoscope_node.profiling.trace_text import write_tagged


@dataclass(frozen=True, slots=True)
class RecordingPlace:
    """Where a recording takes place.

    Attributes:
        directory: for traces of processes that ask at the abstract socket. own: the agent's alone.
        lead_seconds: from a plan to its start. most_seconds: that are recorded. trace_bytes: that a trace may have.
    """

    store: Store
    node: str
    proc: Path
    directory: Path
    own: Path
    lead_seconds: float
    most_seconds: float
    trace_bytes: int


@dataclass(slots=True)
class RankRecording:
    """What one rank does. `descriptor`: of its whole trace. `ends`: when its optimizer had stepped in it, in seconds."""

    who: ClientProcess
    state: State = "waiting"
    reason: str = ""
    folder: Path | None = None
    descriptor: int | None = None
    ends: list[float] = field(default_factory=list)
    stored: stored_traces.StoredTrace | None = None

    @property
    def steps(self) -> int:
        """Whole steps that its trace holds at least; 0: none can be told apart."""
        return max(len(self.ends) - 1, 0)

    def fail(self, reason: str) -> None:
        self.state, self.reason = "failed", reason

    def folder_of(self, place: RecordingPlace, name: str) -> Path:
        """Make a folder for the rank's next trace.

        Raises:
            TachoscopeError: it cannot be made, or there is no room for a trace.
        """
        if self.who.directory is None:
            folders.make_root(place.directory)
        root = self.who.directory or place.directory
        if reason := folders.room(root):
            raise TachoscopeError(reason)
        return folders.make(root, name, self.who.uid)

    def keep(self, request: Request, place: RecordingPlace) -> None:
        """Put the trace into the store, with what it does not tell itself."""
        assert self.descriptor is not None, "it was recorded"
        name = f"rank-{self.who.rank:04d}.json.gz"
        copy = place.own / f"{request.id}-{name}"
        about = {
            "job": request.job,
            "request": request.id,
            "asked_by": request.asked_by,
            "reason": request.reason,
            "host": place.node,
            "pid": self.who.pid,
            "whole_steps": self.steps,
        }
        try:
            place.own.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_tagged(
                self.descriptor,
                copy,
                rank=self.who.rank,
                world_size=self.who.world_size,
                about=about,
                most_bytes=place.trace_bytes,
            )
            self.stored = stored_traces.write(place.store, request.job, request.id, copy, name=name)
            self.state = "stored"
        except (TachoscopeError, OSError) as error:
            self.fail(f"its trace could not be put into the store: {error}")
        finally:
            copy.unlink(missing_ok=True)

    def rank_state(self) -> RankState:
        return RankState(
            rank=self.who.rank,
            world_size=self.who.world_size,
            state=self.state,
            reason=self.reason,
            steps=self.steps,
            file=self.stored.file if self.stored else "",
            bytes=self.stored.bytes if self.stored else 0,
        )

    def discard(self) -> None:
        """Close the file and remove its folder; a second call does nothing."""
        if self.descriptor is not None:
            os.close(self.descriptor)
            self.descriptor = None
        if self.folder is not None:
            folders.remove(self.folder)
            self.folder = None
