"""The frame that all collectors run in: it times them, catches their errors and says how each one is.

Knows nothing of what they collect. A value is shown only while the collector's last run gave it: those of one that failed,
hangs or has nothing now are dropped, never shown as current.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from tachoscope_core.metrics.agent import COLLECTOR_DURATION, COLLECTOR_FAILING, COLLECTOR_STATUS, COLLECTOR_SUCCESS
from tachoscope_node.collectors.collector import Collector, NoDataError, NotSupportedError, PartialError
from tachoscope_node.collectors.workers import Workers
from tachoscope_service.metrics.family import Family, Point

STATUSES = ("ok", "no_data", "not_supported", "failed")
NOT_SUPPORTED_SECONDS = 600.0
"""How long after `not_supported` a collector is tried again: a driver may be loaded later."""


@dataclass(frozen=True, slots=True)
class _Outcome:
    status: str
    reason: str = ""
    families: Sequence[Family] = ()
    seconds: float | None = None


@dataclass(eq=False, slots=True)
class _Entry:
    """A collector with its last outcome. `answer` is written by the worker thread, all else by the one that calls tick.

    Attributes:
        failing_since: when the first of its failed runs was that no other has followed; None: the last did not fail.
    """

    collector: Collector
    due: float = float("-inf")
    running: bool = False
    answer: _Outcome | None = None
    outcome: _Outcome | None = None
    failing_since: float | None = None
    metrics: frozenset[str] = field(init=False)

    def __post_init__(self) -> None:
        self.metrics = frozenset(metric.name for metric in self.collector.metrics)

    def run(self) -> None:
        """Collect once; whatever happens becomes the answer."""
        start = time.perf_counter()
        status, reason = "ok", ""
        families: Sequence[Family] = ()
        try:
            families = self._declared(self.collector.collect())
        except NoDataError as error:
            status, reason, families = "no_data", str(error), error.families
        except PartialError as error:
            status, reason, families = "failed", str(error), error.families
        except NotSupportedError as error:
            status, reason = "not_supported", str(error)
        except BaseException as error:  # a driver's binding may raise anything; a thread that dies would never answer
            status, reason = "failed", f"{type(error).__name__}: {error}"
        self.answer = _Outcome(status, reason, families, time.perf_counter() - start)

    def _declared(self, families: list[Family]) -> list[Family]:
        if undeclared := {family.metric.name for family in families} - self.metrics:
            raise ValueError(f"returned metrics that it does not declare: {', '.join(sorted(undeclared))}")
        return families


class Frame:
    """Runs collectors when they are due, and holds what each last gave.

    Args:
        collectors: each with a name and metrics of its own. log: gets a sentence when a collector's outcome changes.
        deadline_seconds: how long one tick waits for all that are due, at most.
    """

    def __init__(self, collectors: Sequence[Collector], log: Callable[[str], None], *, deadline_seconds: float = 2.0) -> None:
        _check(collectors)
        self._entries = [_Entry(collector) for collector in collectors]
        self._log = log
        self._deadline = deadline_seconds
        self._workers = Workers()
        self._families = self._snapshot(0.0)

    def tick(self, now: float) -> None:
        """Run the collectors that are due at `now` (monotonic seconds), at most for the deadline.

        One that does not answer in time is failed and is not started again until its thread comes back. What it then answers is
        dropped, for no one knows when it was read; its next run counts.
        """
        for entry in self._entries:
            if entry.running and entry.answer is not None:
                entry.running = False
        due = [entry for entry in self._entries if entry.due <= now and not entry.running]
        if due:
            self._run(due, now)
        self._families = self._snapshot(now)  # also where nothing was due: for how long one has failed grows

    def families(self) -> list[Family]:
        """Return the results of the last runs, and the state of each collector. Thread-safe."""
        return list(self._families)

    def close(self) -> None:
        """End the worker thread. A collector that hangs does not hold the process up."""
        self._workers.close()

    def _run(self, due: Sequence[_Entry], now: float) -> None:
        for entry in due:
            entry.answer = None
        not_begun = self._workers.run([entry.run for entry in due], self._deadline)
        for entry in due:
            if entry.run not in not_begun:
                self._take_outcome(entry, now)

    def _take_outcome(self, entry: _Entry, now: float) -> None:
        outcome = entry.answer
        if outcome is None:
            entry.running = True
            outcome = _Outcome("failed", f"no answer within {self._deadline:g} s; it is not started again until it answers")
        interval = NOT_SUPPORTED_SECONDS if outcome.status == "not_supported" else entry.collector.interval_seconds
        following = entry.due + interval
        entry.due = following if following > now else now + interval
        if _log_text(outcome) != _log_text(entry.outcome):
            self._log(f"collector {entry.collector.name}: {outcome.status}{': ' if outcome.reason else ''}{outcome.reason}")
        entry.outcome = outcome
        if outcome.status != "failed":
            entry.failing_since = None
        elif entry.failing_since is None:
            entry.failing_since = now

    def _snapshot(self, now: float) -> list[Family]:
        success: list[Point] = []
        failing: list[Point] = []
        statuses: list[Point] = []
        durations: list[Point] = []
        families: list[Family] = []
        for entry in self._entries:
            name, outcome = entry.collector.name, entry.outcome
            statuses.extend(((name, status), float(outcome is not None and outcome.status == status)) for status in STATUSES)
            if outcome is None:
                continue
            success.append(((name,), float(outcome.status != "failed")))
            if entry.failing_since is not None:
                failing.append(((name,), now - entry.failing_since))
            if outcome.seconds is not None:
                durations.append(((name,), outcome.seconds))
            families.extend(outcome.families)
        return [
            *families,
            Family(COLLECTOR_SUCCESS, success),
            Family(COLLECTOR_FAILING, failing),
            Family(COLLECTOR_STATUS, statuses),
            Family(COLLECTOR_DURATION, durations),
        ]


def _log_text(outcome: _Outcome | None) -> str:
    """Return the outcome for the log; no data without a reason counts as success."""
    usual = outcome is None or (outcome.status == "no_data" and not outcome.reason)
    return "ok" if usual or outcome is None else outcome.status


def _check(collectors: Sequence[Collector]) -> None:
    """Raise for two collectors of one name or metric, whose series could not be told apart."""
    owners: dict[str, str] = {}
    names: set[str] = set()
    for collector in collectors:
        if collector.name in names:
            raise ValueError(f"two collectors are named {collector.name!r}")
        names.add(collector.name)
        for metric in collector.metrics:
            if owner := owners.get(metric.name):
                raise ValueError(f"{metric.name} is declared by the collectors {owner!r} and {collector.name!r}")
            owners[metric.name] = collector.name
