"""One profile on one node, from the request to the traces in the store.

All ranks record at one time, which the agent of rank 0 chooses so far ahead that each process has asked by then. Where nothing tells
how long a step takes, a first short pass does, and a second one is long enough.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tachoscope_core import profile_requests, stored_traces
from tachoscope_core.errors import TachoscopeError
from tachoscope_core.profile_requests import HostState, Pass, Plan, RankState, Request, State
from tachoscope_core.store import Store
from tachoscope_node.profiling import folders
from tachoscope_node.profiling.clients import Who, began
from tachoscope_node.profiling.trace_text import step_ends, write_tagged
from tachoscope_node.profiling.wire import configuration

LATEST_SECONDS = 6.5
"""So long before its start a process may still be told: kineto warms up for 5 s, and turns down what begins earlier."""
FIRST_LOOK_SECONDS = 2.0
MOST_PASSES = 3
COLLECT_SECONDS = 90.0
"""After the last moment that is recorded: traces of a gigabyte take a while to write."""
PLAN_SECONDS = 60.0
_SPARE_STEPS, _SPARE_RATIO, _LEAST_SECONDS = 2, 1.25, 0.5


@dataclass(frozen=True, slots=True)
class Place:
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
class Part:
    """What one rank does. `descriptor`: of its whole trace. `ends`: when its optimizer had stepped in it, in seconds."""

    who: Who
    state: State = "waiting"
    reason: str = ""
    folder: Path | None = None
    descriptor: int | None = None
    ends: list[float] = field(default_factory=list)
    stored: stored_traces.StoredTrace | None = None

    def fail(self, reason: str) -> None:
        """Give up, and say why."""
        self.state, self.reason = "failed", reason

    def let_go(self) -> None:
        """Close and remove what was written."""
        if self.descriptor is not None:
            os.close(self.descriptor)
            self.descriptor = None
        if self.folder is not None:
            folders.remove(self.folder)
            self.folder = None


class Recording:
    """The ranks of a job on this node while they are profiled. `order` may be called by any thread, the rest by one.

    Attributes:
        finished: nothing is left to do. plan: None while the agent of rank 0 has not decided.
    """

    def __init__(self, request: Request, ranks: Mapping[int, Who], place: Place, *, now: float) -> None:
        self.request = request
        self.place = place
        self.parts = {rank: Part(who) for rank, who in sorted(ranks.items())}
        self.plan: Plan | None = None
        self.finished = False
        self.leads = 0 in ranks
        self._began = now
        self._passes = 0
        self._told: tuple[RankState, ...] | None = None
        self._lock = threading.Lock()
        self._keeper: threading.Thread | None = None

    # --- what a process is told -------------------------------------------------------------------------------------------

    def order(self, who: Who, now: float) -> str:
        """Return the configuration for a process that asks and has nothing else to record; empty: none."""
        with self._lock:
            part = self.parts.get(who.rank)
            due = self.plan.passes[-1] if self.plan is not None and self.plan.passes else None
            if part is None or part.folder is None or due is None or part.who != who or part.state != "waiting":
                return ""
            if now > due.start - LATEST_SECONDS:
                return ""
            seen = Path(who.seen_as) / part.folder.name if who.directory is not None else part.folder
            try:
                text = configuration(
                    start=due.start, seconds=due.seconds, file=str(seen / folders.FILE), trace_id=self.request.id
                )
            except ValueError as error:
                part.fail(str(error))
                return ""
            part.state = "told"
            return text

    # --- decisions of the agent of rank 0 ---------------------------------------------------------------------------------

    def refuse(self, reason: str) -> None:
        """Say that nothing is recorded.

        Raises:
            TachoscopeError: the store cannot be written.
        """
        profile_requests.write_plan(self.place.store, self.request, Plan(refused=reason, final=True))
        self.finished = True

    def begin(self, step_seconds: float, now: float) -> None:
        """Plan the first pass; `step_seconds` 0: not known.

        Raises:
            TachoscopeError: the store cannot be written.
        """
        seconds = self._needed(step_seconds) if step_seconds > 0.0 else FIRST_LOOK_SECONDS
        self._decide(Plan(passes=(self._pass(seconds, now),), step_seconds=step_seconds))

    def _needed(self, step_seconds: float) -> float:
        return max((self.request.steps + _SPARE_STEPS) * step_seconds * _SPARE_RATIO, _LEAST_SECONDS)

    def _pass(self, seconds: float, now: float) -> Pass:
        return Pass(round(now + self.place.lead_seconds, 3), round(min(seconds, self.place.most_seconds), 3))

    def _decide(self, plan: Plan) -> None:
        profile_requests.write_plan(self.place.store, self.request, plan)
        self.plan = plan

    def _go_on(self, now: float) -> None:
        """Decide after a pass whether it was long enough."""
        plan = self.plan
        assert plan is not None
        recorded = [part.ends for part in self.parts.values() if part.state == "recorded"]
        fewest = min(map(len, recorded), default=0)
        step = max(((ends[-1] - ends[0]) / (len(ends) - 1) for ends in recorded if len(ends) > 1), default=0.0)
        last = plan.passes[-1].seconds
        enough = fewest > self.request.steps or not recorded
        if enough or len(plan.passes) >= MOST_PASSES or last >= self.place.most_seconds:
            self._decide(Plan(passes=plan.passes, final=True, step_seconds=step or plan.step_seconds))
            return
        seconds = max(self._needed(step), last * _SPARE_RATIO) if step else last * 10.0
        self._decide(Plan(passes=(*plan.passes, self._pass(seconds, now)), step_seconds=step))

    # --- each second ------------------------------------------------------------------------------------------------------

    def step(self, now: float) -> None:
        """Go on.

        Raises:
            TachoscopeError: the store cannot be read or written; it is tried again at the next call.
        """
        if not self.leads and (self.plan is None or not self.plan.final):
            self.plan = profile_requests.read_plan(self.place.store, self.request.job, self.request.id) or self.plan
        if self.plan is None:
            if now > self._began + PLAN_SECONDS:
                self._give_up("the agent of rank 0 said nothing")
            return
        if self.plan.refused or not self.plan.passes:
            self.finished = True
            return
        if self._passes < len(self.plan.passes) and not self._keeping():
            self._passes = len(self.plan.passes)
            self._begin_pass()
        self._collect(now, self.plan.passes[-1])
        settled = all(part.state in {"recorded", "stored", "failed"} for part in self.parts.values())
        if settled and not self.plan.final:
            self._tell(now)
            if self.leads:
                self._go_on(now)
            elif now > self.plan.passes[-1].start + self.plan.passes[-1].seconds + COLLECT_SECONDS + PLAN_SECONDS:
                self._give_up("the agent of rank 0 said nothing more")
        elif settled:
            self._keep(now)
        self._tell(now)

    def _give_up(self, reason: str) -> None:
        with self._lock:
            for part in self.parts.values():
                part.fail(reason)
        self.finished = True
        self._tell(self._began)
        self.close()

    def _begin_pass(self) -> None:
        for rank, part in self.parts.items():
            part.let_go()
            name = f"tachoscope-{self.request.id}-{self._passes}-{rank}"
            state: State = "waiting"
            try:
                if part.who.directory is None:
                    folders.make_root(self.place.directory)
                root = part.who.directory or self.place.directory
                if reason := folders.room(root):
                    raise TachoscopeError(reason)
                folder = folders.make(root, name, part.who.uid)
            except TachoscopeError as error:
                part.fail(str(error))
                continue
            with self._lock:
                part.folder, part.state, part.reason, part.ends = folder, state, "", []

    def _collect(self, now: float, due: Pass) -> None:
        for part in self.parts.values():
            with self._lock:
                if part.state == "waiting" and now > due.start - LATEST_SECONDS:
                    part.fail("its process did not ask in time what to record")
            if part.state != "told" or part.folder is None or now < due.start + due.seconds:
                continue
            try:
                part.descriptor = folders.whole_trace(part.folder, part.who.uid, most_bytes=self.place.trace_bytes)
                if part.descriptor is not None:
                    part.ends = step_ends(part.descriptor, most_bytes=self.place.trace_bytes)
                    part.state = "recorded"
                elif began(self.place.proc, part.who.pid) != part.who.began:
                    part.fail("its process ended before it had written its trace")
                elif now > due.start + due.seconds + COLLECT_SECONDS:
                    part.fail(f"no whole trace in {part.folder} after {COLLECT_SECONDS:g} s: can its process see that folder?")
            except (TachoscopeError, OSError) as error:
                part.fail(str(error))

    # --- into the store ---------------------------------------------------------------------------------------------------

    def _keeping(self) -> bool:
        return self._keeper is not None and self._keeper.is_alive()

    def _keep(self, now: float) -> None:
        """Put the traces into the store, in a thread: other jobs' ranks do not wait for it."""
        if self._keeping():
            return
        if any(part.state == "recorded" for part in self.parts.values()):
            self._keeper = threading.Thread(target=self._keep_all, name="tachoscope-profiles-store", daemon=True)
            self._keeper.start()
            return
        self._tell(now)
        self.finished = True
        self.close()

    def _keep_all(self) -> None:
        for rank, part in self.parts.items():
            if part.state != "recorded" or part.descriptor is None:
                continue
            name = f"rank-{rank:04d}.json.gz"
            copy = self.place.own / f"{self.request.id}-{name}"
            about = {
                "job": self.request.job,
                "request": self.request.id,
                "asked_by": self.request.asked_by,
                "reason": self.request.reason,
                "host": self.place.node,
                "pid": part.who.pid,
                "whole_steps": max(len(part.ends) - 1, 0),
            }
            try:
                self.place.own.mkdir(mode=0o700, parents=True, exist_ok=True)
                write_tagged(
                    part.descriptor,
                    copy,
                    rank=rank,
                    world_size=part.who.world_size,
                    about=about,
                    most_bytes=self.place.trace_bytes,
                )
                part.stored = stored_traces.write(self.place.store, self.request.job, self.request.id, copy, name=name)
                part.state = "stored"
            except (TachoscopeError, OSError) as error:
                part.fail(f"its trace could not be put into the store: {error}")
            finally:
                copy.unlink(missing_ok=True)

    def _tell(self, now: float) -> None:
        ranks = tuple(
            RankState(
                rank=rank,
                world_size=part.who.world_size,
                state=part.state,
                reason=part.reason,
                steps=max(len(part.ends) - 1, 0),
                file=part.stored.file if part.stored else "",
                bytes=part.stored.bytes if part.stored else 0,
            )
            for rank, part in self.parts.items()
        )
        if ranks != self._told:
            profile_requests.write_host(self.place.store, self.request, HostState(host=self.place.node, updated=now, ranks=ranks))
            self._told = ranks

    def close(self) -> None:
        """Let go of all files and folders."""
        if self._keeper is not None:
            self._keeper.join(5.0)
        for part in self.parts.values():
            part.let_go()


