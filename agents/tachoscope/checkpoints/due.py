"""Whether a checkpoint is due at a step: every so many steps of the job's own, unless the attempt has a plan that changes that."""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable

from tachoscope import arguments, guard
from tachoscope.preemption.poll import NoticePoll
from tachoscope.process import identity
from tachoscope_core.jobs.checkpoint_plan import NOTICE_FACTOR, VARIABLE, CheckpointPlan, Decision

LOOK_SECONDS = 1.0
"""Between two decisions, and a second more for each hundred ranks, which all read each of them."""
MOST_DECISIONS = 1024
"""Kept in the folder: a rank that is further behind than these does not agree any more."""


class CheckpointDue:
    """Answers the training loop of this process. All ranks that ask at the same steps get the same answers."""

    def __init__(self, notices: NoticePoll, clock: Callable[[], float] = time.monotonic) -> None:
        self._notices = notices
        self._clock = clock
        self._every = 0
        self._next_step = -1
        self._last_step = 0
        self._interval = 1
        self._announced = self._saved_for_end = False
        self._plan: CheckpointPlan | None = None
        self._decided: deque[int] = deque()
        self._before = (0, 0.0)

    def ask(self, step: int, every: int) -> bool:
        """Return whether to save at a step of the job. every: the job's own interval in steps."""
        if type(step) is int and step < self._next_step and every == self._every:
            return False
        step = arguments.as_integer(step, "checkpoint_due(step)", default=-1)
        if step < 0:
            return False
        if self._next_step < 0 or every != self._every:
            self._begin(step, every)
            if step < self._next_step:
                return False
        return self._decide(step)

    def _begin(self, step: int, every: int) -> None:
        """Begin at the first step that is asked for, at which all ranks begin."""
        self._every = self._interval = every
        self._last_step = max(step - 1, 0) // every * every
        folder = os.environ.get(VARIABLE, "")
        self._plan = CheckpointPlan(folder) if folder else None
        self._next_step = self._last_step + self._interval if self._plan is None else step
        self._before = (step, self._clock())

    def _decide(self, step: int) -> bool:
        if self._plan is None:
            return self._follow(Decision(step >= self._last_step + self._interval, 0, self._interval), step)
        try:
            proposed = self._proposed(self._plan, step)
            found = self._plan.decide(step, proposed)
            self._remember(self._plan, step, made=found is proposed)
        except OSError as error:
            guard.print_line(f"the interval of checkpoints stays as it is: the plan is not readable: {error}")
            self._plan = None
            return self._decide(step)
        return self._follow(found, step)

    def _proposed(self, plan: CheckpointPlan, step: int) -> Decision:
        """Return what this rank would decide, which counts if it is the first one here."""
        if self._notices.ask_for_job():
            plan.announce_end("notice")
        self._announced = plan.end_announced()
        interval = max(round(self._every * (NOTICE_FACTOR if self._announced else plan.factor())), 1)
        due = step >= self._last_step + interval or (self._announced and not self._saved_for_end)
        last = step if due else self._last_step
        return Decision(due, min(step + self._look_steps(step), last + interval), interval)

    def _look_steps(self, step: int) -> int:
        """Return in how many steps to decide again."""
        before, at = self._before
        now = self._clock()
        self._before = (step, now)
        seconds = (now - at) / max(step - before, 1)
        place = identity.place(os.environ)
        wanted = LOOK_SECONDS + (place.world_size / 100 if place else 0.0)
        return max(int(wanted / seconds), 1) if step > before and seconds > 0 else 1

    def _follow(self, decision: Decision, step: int) -> bool:
        self._interval = decision.interval_steps
        if decision.due:
            self._last_step = step
            self._saved_for_end = self._announced
        self._next_step = max(decision.next_step, step + 1) if self._plan is not None else self._last_step + self._interval
        return decision.due

    def _remember(self, plan: CheckpointPlan, step: int, *, made: bool) -> None:
        self._decided.append(step)
        if len(self._decided) > MOST_DECISIONS:
            oldest = self._decided.popleft()
            if made:
                plan.forget(oldest)
