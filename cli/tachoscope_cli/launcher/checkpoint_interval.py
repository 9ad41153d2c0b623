"""The interval of checkpoints that a supervised attempt should have, by what its own saves cost.

Two rules. After a few failures of the job the interval is the best one by the model of `checkpoint_policy`. Before, the rate of
failures is not known, and only a storage that became slower lengthens the interval, by the root of its slowdown, as the best one
grows. The second rule needs a clear case, since single saves scatter: the newest five are all 1.5 times slower than the slowest of
the first five. The way back needs two saves: at a longer interval five take long, and each failure undoes more meanwhile.
"""

from __future__ import annotations

import math
import shlex
import statistics
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping

import msgspec

from tachoscope import guard
from tachoscope_analyzers.checkpoint_policy.advisor import FEW
from tachoscope_analyzers.checkpoint_policy.cost_model import SaveCost, best_interval, lost_at_failure, useful_ratio
from tachoscope_analyzers.stats.duration_text import in_words
from tachoscope_core.errors import TachoscopeError
from tachoscope_core.jobs.checkpoint_plan import INTERVAL_VARIABLE, LEAST_FACTOR, MOST_FACTOR, CheckpointPlan
from tachoscope_core.jobs.submitted_jobs import Action, TrainingJobs
from tachoscope_core.records import records
from tachoscope_core.storage.store import Store

SAVES = 5
"""So many saves are compared. With medians of three, 9 of 200 attempts changed their interval as saves scattered threefold."""
USUAL_SAVES = 2
"""So many in a row that are not slow any more end a longer interval."""
SLOW_RATIO, USUAL_RATIO = 1.5, 1.0
"""From when on the storage is slow, and until when it is not any more."""
LEAST_SHARE = 0.01
"""Of the time: what saves cost less than this, or a change gains less, is left as it is."""
CHANGE_RATIO = 1.25
"""A wish that differs less from the one before is not made."""


class IntervalSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What an attempt knows beforehand.

    Attributes:
        plan: folder of the plan; empty: a dry run. attempt: of the supervisor. budget: actions that are left.
        usual_seconds: the slowest of the first saves of the job took; 0: not known. failures: of the job in `life_seconds`.
    """

    plan: str
    attempt: int
    budget: int
    usual_seconds: float = 0.0
    failures: int = 0
    life_seconds: float = 0.0


def from_environment(store: Store, job: str, environ: Mapping[str, str]) -> CheckpointInterval | None:
    """Return what follows the saves of a supervised attempt; None: it is not supervised, or no action was configured."""
    said = environ.get(INTERVAL_VARIABLE)
    if not said:
        return None
    try:
        settings = msgspec.json.decode(said, type=IntervalSettings)
    except msgspec.DecodeError as error:
        guard.print_line(f"the interval of checkpoints stays as it is: ${INTERVAL_VARIABLE} is not valid: {error}")
        return None
    return CheckpointInterval(settings, lambda action: _write(store, job, action))


def _write(store: Store, job: str, action: Action) -> None:
    def write() -> None:
        try:
            TrainingJobs(store).write_action(job, action)
        except (TachoscopeError, OSError) as error:
            guard.print_line(f"an action is not in the log of job {job}: {error}")

    # Not in the loop that watches the command: the store may be on the slow storage.
    threading.Thread(target=write, name="tachoscope-action").start()


class CheckpointInterval:
    """Wants another factor on the interval of one attempt when its saves say so; those of rank 0, so elsewhere it does nothing."""

    def __init__(self, settings: IntervalSettings, log: Callable[[Action], None]) -> None:
        self._settings = settings
        self._log = log
        self._usual = settings.usual_seconds
        self._newest: deque[records.CheckpointSaved] = deque(maxlen=SAVES)
        self._wanted_factor = self._factor = 1.0
        self._actions = 0

    def add_record(self, record: records.AnyRecord) -> None:
        """Take a record of any kind; saves of rank 0 count."""
        if not isinstance(record, records.CheckpointSaved) or record.rank != 0 or record.after_notice:
            return
        self._newest.append(record)
        judged = self._judged()
        if not judged:
            return
        blocking = statistics.median(one.blocking_seconds for one in judged)
        self._usual = self._usual or max(one.blocking_seconds for one in judged)
        # Between saves that were made at the present factor; it takes this many of them after each change.
        apart = (judged[-1].time - judged[0].time) / (len(judged) - 1)
        if apart <= 0 or blocking <= 0:
            return
        factor, why = self._wanted(blocking, apart / self._factor)
        if len(judged) < SAVES and factor >= self._wanted_factor:
            return  # two saves are too few for a longer interval
        if (
            max(factor / self._wanted_factor, self._wanted_factor / factor) >= CHANGE_RATIO
            and self._actions <= self._settings.budget
        ):
            self._want(factor, why)

    def _judged(self) -> list[records.CheckpointSaved]:
        """Return the saves that are compared: the newest five, or two that end a longer interval; none: wait for more."""
        saves, last = list(self._newest), list(self._newest)[-USUAL_SAVES:]
        if (
            self._wanted_factor > 1.0
            and len(last) == USUAL_SAVES
            and all(one.blocking_seconds <= USUAL_RATIO * self._usual for one in last)
        ):
            return last
        return saves if len(saves) == SAVES else []

    def _wanted(self, blocking: float, interval: float) -> tuple[float, str]:
        """Return the factor on the job's own interval, in seconds, and why."""
        failures, life = self._settings.failures, self._settings.life_seconds
        if failures >= FEW and life > 0:
            return self._best(SaveCost(blocking), interval, life / failures)
        slowdown = blocking / self._usual
        least = min(one.blocking_seconds for one in self._newest) / self._usual
        if slowdown <= USUAL_RATIO or blocking < LEAST_SHARE * interval:
            return 1.0, f"a save takes {in_words(blocking)} again"
        if least < SLOW_RATIO:
            return self._wanted_factor, ""
        factor = min(math.sqrt(slowdown), MOST_FACTOR)
        risk = in_words((factor - 1) * interval / 2)
        return (
            factor,
            f"the storage is {slowdown:.1f} times slower, a save takes {in_words(blocking)}; a failure undoes {risk} more",
        )

    def _best(self, saving: SaveCost, interval: float, between: float) -> tuple[float, str]:
        best = min(max(best_interval(saving, between), LEAST_FACTOR * interval), MOST_FACTOR * interval)
        gain = useful_ratio(saving, best, between) - useful_ratio(saving, interval, between)
        if gain < LEAST_SHARE:
            return 1.0, "the job's own interval is good enough"
        lost = in_words(lost_at_failure(saving, best, between))
        why = f"a save takes {in_words(saving.blocking)}, a failure comes every {in_words(between)}; it undoes {lost} then"
        return best / interval, why

    def _want(self, factor: float, why: str) -> None:
        self._actions += 1
        self._wanted_factor = factor
        self._newest.clear()
        not_done = self._apply(factor)
        if not not_done:
            self._factor = factor
        text = f"checkpoint interval {factor:.2f} times the job's own{f' ({not_done})' if not_done else ''}: {why}"
        guard.print_line(text)
        self._log(
            Action(
                key=f"{self._settings.attempt:03}-checkpoint_interval-{self._actions:03}",
                time=time.time(),
                attempt=self._settings.attempt,
                what="checkpoint_interval",
                applied=not not_done,
                text=text,
                undo="" if not_done else f"rm {shlex.quote(self._settings.plan)}/wish",
            )
        )

    def _apply(self, factor: float) -> str:
        """Want a factor of the ranks; return why that was not done, or nothing."""
        if not self._settings.plan:
            return "dry run"
        if self._actions > self._settings.budget:
            return "not done: the budget is used up"
        plan = CheckpointPlan(self._settings.plan)
        try:
            if not plan.is_asked():
                return "not done: the job does not call tachoscope.checkpoint_due"
            plan.wish(factor)
        except OSError as error:
            return f"not done: {error}"
        return ""
