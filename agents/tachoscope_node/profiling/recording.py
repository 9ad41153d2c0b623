"""One profile on one node, from the request to the traces in the store.

All ranks record at one time, which the agent of rank 0 chooses so far ahead that each process has asked by then. Where nothing
tells how long a step takes, a first short pass does, and a second one is long enough.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from pathlib import Path

from tachoscope_core.errors import TachoscopeError
from tachoscope_core.net.kineto_protocol import configuration
from tachoscope_core.storage import profile_requests
from tachoscope_core.storage.profile_requests import HostState, Pass, Plan, RankState, Request
from tachoscope_node.profiling import folders
from tachoscope_node.profiling.clients import ClientProcess, began
from tachoscope_node.profiling.parts import RankRecording, RecordingPlace
from tachoscope_node.profiling.trace_text import step_ends

LATEST_SECONDS = 6.5
"""So long before its start a process may still be told: kineto warms up for 5 s, and turns down what begins earlier."""
FIRST_LOOK_SECONDS = 2.0
MOST_PASSES = 3
COLLECT_SECONDS = 90.0
"""After the last moment that is recorded: traces of a gigabyte take a while to write."""
PLAN_SECONDS = 60.0
_SPARE_STEPS, _SPARE_RATIO, _LEAST_SECONDS = 2, 1.25, 0.5


class Recording:
    """The ranks of a job on this node while they are profiled. `order` may be called by any thread, the rest by one.

    Attributes:
        finished: nothing is left to do. plan: None while the agent of rank 0 has not decided.
    """

    def __init__(self, request: Request, ranks: Mapping[int, ClientProcess], place: RecordingPlace, *, now: float) -> None:
        self.request = request
        self.place = place
        self.parts = {rank: RankRecording(who) for rank, who in sorted(ranks.items())}
        self.plan: Plan | None = None
        self.finished = False
        self.leads = 0 in ranks
        self._began = now
        self._passes = 0
        self._told: tuple[RankState, ...] | None = None
        self._lock = threading.Lock()
        self._keeper: threading.Thread | None = None

    # --- what a process is told -------------------------------------------------------------------------------------------

    def order(self, who: ClientProcess, now: float) -> str:
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
                file, steps = str(seen / folders.FILE), self.request.steps
                text = configuration(start=due.start, seconds=due.seconds, file=file, trace_id=self.request.id, steps=steps)
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
            part.discard()
            name = f"tachoscope-{self.request.id}-{self._passes}-{rank}"
            try:
                folder = part.folder_of(self.place, name)
            except TachoscopeError as error:
                part.fail(str(error))
                continue
            with self._lock:
                part.folder, part.state, part.reason, part.ends = folder, "waiting", "", []

    def _collect(self, now: float, due: Pass) -> None:
        for part in self.parts.values():
            with self._lock:
                if part.state == "waiting" and now > due.start - LATEST_SECONDS:
                    part.fail("its process did not request the recording in time")
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
        for part in self.parts.values():
            if part.state == "recorded":
                part.keep(self.request, self.place)

    def _tell(self, now: float) -> None:
        ranks = tuple(part.rank_state() for part in self.parts.values())
        if ranks != self._told:
            profile_requests.write_host(self.place.store, self.request, HostState(host=self.place.node, updated=now, ranks=ranks))
            self._told = ranks

    def close(self) -> None:
        if self._keeper is not None:
            self._keeper.join(5.0)
        for part in self.parts.values():
            part.discard()
