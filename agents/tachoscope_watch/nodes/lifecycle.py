"""The life cycle of a cluster's nodes as a part of the watch: in a thread, a look a minute.

A look reads the states from the store, takes what happened, keeps the new states, and only then acts. What the scheduler reports is
compared with the states each time, so that a watch which was killed between two steps, or another one, goes on with the rest.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec

from tachoscope_core.errors import TachoscopeError
from tachoscope_core.metrics import watch as names
from tachoscope_core.storage.node_status import NodeStatus
from tachoscope_core.storage.store import Store
from tachoscope_service.common.log import Log
from tachoscope_service.metrics.family import Family
from tachoscope_watch.nodes import evidence
from tachoscope_watch.nodes.actuator import Actuator
from tachoscope_watch.nodes.kubernetes import KubernetesNodes
from tachoscope_watch.nodes.machine import advance, unreachable
from tachoscope_watch.nodes.slurm import SlurmNodes
from tachoscope_watch.nodes.states import CloseBreaker, Event, Evidence, Fleet, Judged, Node, Request, Rules, Seen, Tick, Transition
from tachoscope_watch.nodes.stored import AuditLine, Lifecycle
from tachoscope_watch.view import JobView

ACTUATORS: Mapping[str, Callable[[Rules], Actuator]] = {
    "slurm": lambda _: SlurmNodes(),
    "kubernetes": lambda rules: KubernetesNodes(test_pod=rules.test_pod),
}
"""By the scheduler that the rules name."""
_MOST_SECONDS_OLD = 300.0
"""Older views of jobs are not evidence: the watch was suspended or overloaded."""
_MOST_TOLD = 10_000
KEPT_SECONDS = 300.0
"""The states are written again after so long, though nothing changed: who reads them sees that a watch looks at the nodes."""
NAME = "node-lifecycle"
"""The watches of a store share the life cycle under this name, in the same way as a job."""


class NodeLifecycle:
    """Keeps the states of all nodes, and acts on them where the rules allow it.

    Args:
        mine: whether the life cycle is this watch's now.

    Attributes:
        families: its metrics; none while it is another watch's. number: changes with them.
    """

    def __init__(
        self,
        store: Store,
        rules: Rules,
        actuator: Actuator,
        log: Log,
        *,
        watch: str = "",
        mine: Callable[[], bool] = lambda: True,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._store, self._rules, self._actuator, self._log, self._watch = store, rules, actuator, log, watch
        self._mine, self._clock = mine, clock
        self._kept = Lifecycle(store)
        self._preflights = evidence.Preflights(store)
        self._jobs: tuple[float, Sequence[JobView], Sequence[NodeStatus]] = (0.0, (), ())
        self._tests: set[tuple[str, str]] = set()
        self._told: set[tuple[object, ...]] = set()
        self._counts: Counter[tuple[str, str]] = Counter()
        self._last_seen = 0.0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="tachoscope-nodes", daemon=True)
        self.families: tuple[Family, ...] = ()
        self.number = 0

    def start(self) -> None:
        """Begin to look."""
        self._log.info(f"life cycle of {self._actuator.name} nodes: actions are {self._rules.actions}")
        self._thread.start()

    def close(self) -> None:
        """Look no more; an answer that is waited for is left."""
        self._stop.set()

    def take_jobs(self, now: float, views: Sequence[JobView], statuses: Sequence[NodeStatus]) -> None:
        """Take what the watch found of jobs, and what the agents report of nodes."""
        self._jobs = (now, views, statuses)

    def _run(self) -> None:
        while not self._stop.is_set():
            self.look()
            self._stop.wait(self._rules.every_seconds)

    def look(self) -> None:
        """Take what happened, and act; whatever is wrong, raise nothing."""
        try:
            if self._mine():
                self._look()
            else:
                self._show(())
        except TachoscopeError as error:
            self._log.warning("nodes' life cycle", f"nodes are not looked at: {error}")
        except Exception as error:  # what is read is foreign: the watch of the jobs goes on
            self._log.warning("nodes' life cycle", f"nodes are not looked at: {type(error).__name__}: {error}")

    def _look(self) -> None:
        now = self._clock()
        known = self._kept.fleet()
        fleet = known or Fleet(now, now)
        seen = self._seen(now, fleet)
        faults: list[str] = []
        requests = self._kept.requests(faults)
        happened = [*self._found(now, fleet, seen, faults), *self._results(fleet, faults)]
        happened += [_named(request, seen, now) for request in requests.values()]
        for fault in faults:
            self._log.warning("nodes' life cycle: left out", fault)
        of_interest = {name for name, one in seen.items() if one.drained_by == "us"} | fleet.nodes.keys()
        of_interest |= {event.node for event in happened if not isinstance(event, CloseBreaker | Tick)}
        reports = [one for name, one in seen.items() if name in of_interest]
        after, transitions = advance(fleet, self._rules, [*happened, *reports, Tick(max(self._clock(), fleet.time), len(seen))])
        if not self._mine():
            return
        self._kept.audit([self._line_of(one) for one in transitions])
        changed = msgspec.structs.replace(after, time=fleet.time) != fleet
        if known is None or changed or after.time - fleet.time > KEPT_SECONDS:
            self._kept.write_fleet(after)
        self._kept.remove(list(requests))
        for one in transitions:
            self._log.info(f"node {one.node}: {one.before} -> {one.after}: {one.why}" if one.node else f"{one.after}: {one.why}")
        self._act(after, seen)
        self._show(self._metrics(after))

    def _seen(self, now: float, fleet: Fleet) -> dict[str, Seen]:
        """Return what the scheduler reports; nothing where it does not answer, so that no node is taken out."""
        try:
            seen = self._actuator.nodes(now, {node.node for node in fleet.nodes.values() if node.out})
        except TachoscopeError as error:
            self._log.warning("nodes of the scheduler", f"{self._actuator.name} does not report its nodes: {error}")
            return {}
        self._last_seen = now
        return seen

    def _found(self, now: float, fleet: Fleet, seen: dict[str, Seen], faults: list[str]) -> list[Event]:
        """Return evidence with the scheduler's names of nodes, boots first."""
        since, views, statuses = self._jobs
        found: list[Event] = list(evidence.of_nodes(statuses))
        oldest = max(fleet.evidence_after, now - self._rules.window_seconds)
        found += self._preflights.unfit(oldest, faults)
        if now - since <= _MOST_SECONDS_OLD:
            found += evidence.of_views(views)
            found += evidence.of_submitted_jobs(self._store, [view.job for view in views], faults)
        renamed = evidence.node_names((event.node for event in found), seen)  # type: ignore[union-attr]
        found = [msgspec.structs.replace(event, node=renamed.get(event.node, event.node)) for event in found]  # type: ignore[union-attr]
        return sorted(found, key=lambda event: isinstance(event, Evidence))

    def _results(self, fleet: Fleet, faults: list[str]) -> list[Judged]:
        results = []
        for node in fleet.nodes.values():
            if node.state == "testing":
                try:
                    results.append(self._kept.test(node.node))
                except TachoscopeError as error:
                    faults.append(str(error))
        return [one for one in results if one is not None]

    # --- actions -----------------------------------------------------------------------------------------------------------------

    def _act(self, fleet: Fleet, seen: dict[str, Seen]) -> None:
        if self._rules.actions == "off":
            return
        for node in fleet.nodes.values():
            report = seen.get(node.node)
            if report is None:
                continue
            if node.out and not report.drained_by:
                self._do("drain", node, lambda node=node: self._actuator.drain(node.node, node.why))  # type: ignore[misc]
            elif node.state == "returned" and report.drained_by == "us":
                self._do("resume", node, lambda node=node: self._actuator.resume(node.node))  # type: ignore[misc]
            elif node.state == "testing" and self._actuator.starts_tests and (node.node, node.test) not in self._tests:
                self._do("test", node, lambda node=node: self._test(node))  # type: ignore[misc]
        self._tests &= {(node.node, node.test) for node in fleet.nodes.values()}

    def _test(self, node: Node) -> None:
        self._actuator.test(node.node, node.test, self._rules.test_seconds)
        self._tests.add((node.node, node.test))

    def _do(self, what: str, node: Node, action: Callable[[], None]) -> None:
        """Do an action that the scheduler's report still lacks, with a line before and after it in the audit log."""
        key = (what, node.node, node.since)
        if self._rules.actions == "dry-run":
            if self._is_new(key):
                self._note(what, node, "dry run")
            return
        if not self._mine():
            return
        if self._is_new(key):
            self._kept.audit([self._line(what, node, "begun")])
        try:
            action()
        except TachoscopeError as error:
            if self._is_new((*key, str(error))):
                self._note(what, node, "failed", str(error))
            else:
                self._counts[what, "failed"] += 1
            return
        self._note(what, node, "done")

    def _is_new(self, key: tuple[object, ...]) -> bool:
        if len(self._told) >= _MOST_TOLD:
            self._told.clear()
        new = key not in self._told
        self._told.add(key)
        return new

    def _note(self, what: str, node: Node, outcome: str, error: str = "") -> None:
        self._counts[what, outcome.replace(" ", "_")] += 1
        self._log.info(f"node {node.node}: {what}: {outcome}" + (f": {error}" if error else f" ({node.why})"))
        self._kept.audit([self._line(what, node, outcome, error)])

    def _line(self, what: str, node: Node, outcome: str, error: str = "") -> AuditLine:
        undo = {"drain": f"tachoscope nodes return {node.node}", "resume": f"tachoscope nodes cordon {node.node}"}.get(what, "")
        return AuditLine(
            time=self._clock(),
            node=node.node,
            what=what,
            why=node.why,
            outcome=outcome,
            error=error,
            undo=undo,
            actions=self._rules.actions,
            watch=self._watch,
        )

    def _line_of(self, one: Transition) -> AuditLine:
        return AuditLine(
            time=one.time,
            node=one.node,
            what="state",
            why=one.why,
            before=one.before,
            after=one.after,
            actions=self._rules.actions,
            watch=self._watch,
        )

    # --- metrics -----------------------------------------------------------------------------------------------------------------

    def _metrics(self, fleet: Fleet) -> tuple[Family, ...]:
        states = Counter(node.state for node in fleet.nodes.values())
        held = sum(bool(node.held) and not unreachable(fleet, node, self._rules) for node in fleet.nodes.values())
        actions = [(action, outcome) for action in names.NODE_ACTIONS for outcome in names.ACTION_OUTCOMES]
        return (
            Family(names.WATCH_NODES, [((state,), float(states[state])) for state in names.NODE_STATES]),  # type: ignore[index]
            Family(names.WATCH_NODES_HELD, [((), float(held))]),
            Family(names.WATCH_NODES_BREAKER, [((), float(bool(fleet.breaker_opened_at)))]),
            Family(names.WATCH_NODES_LAST_LOOK, [((), self._last_seen)] if self._last_seen else []),
            Family(names.WATCH_NODE_ACTIONS, [(key, float(self._counts[key])) for key in actions]),
        )

    def _show(self, families: Iterable[Family]) -> None:
        self.families = tuple(families)
        self.number += 1


def _named(request: Request, seen: dict[str, Seen], now: float) -> Request:
    """Return a person's request with the scheduler's name of the node; it was not made in the future, whatever that clock shows."""
    request = msgspec.structs.replace(request, time=min(request.time, now))
    if isinstance(request, CloseBreaker):
        return request
    return msgspec.structs.replace(request, node=evidence.node_names([request.node], seen).get(request.node, request.node))
