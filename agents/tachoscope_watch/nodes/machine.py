"""The state machine of nodes. It decides from events alone: no clock, no input or output; the same events give the same states.

Evidence counts once, and only if it happened after the node's last return, after its last boot, after the life cycle began, and
within the window. An event that comes late, again, or with a time in the future changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Self

import msgspec

from tachoscope_watch.nodes.states import (
    Booted,
    CloseBreaker,
    Cordon,
    Event,
    Evidence,
    Fleet,
    Judged,
    Node,
    Return,
    Rules,
    Seen,
    State,
    Tick,
    Transition,
)

CLOCK_SECONDS = 60.0
"""A node's clock may be ahead by so much; evidence further in the future waits until it is not."""
MOST_EVIDENCE = 32
"""Of a node; what comes beyond is not kept: the node is out by then, or its weights are 0."""
MOST_NODES = 20_000
SEEN_SECONDS = 300.0
"""A scheduler that did not report a node for so long does not know it, or does not answer."""


def advance(fleet: Fleet, rules: Rules, events: Iterable[Event]) -> tuple[Fleet, tuple[Transition, ...]]:
    """Return the fleet after some events, in their order, and what changed. All of them came before the newest tick among them."""
    events = tuple(events)
    now = max((event.time for event in events if isinstance(event, Tick)), default=fleet.time)
    machine = _Machine(msgspec.structs.replace(fleet, time=max(fleet.time, now)), rules)
    for event in events:
        machine.take(event)
    return machine.fleet(), tuple(machine.transitions)


def score(node: Node, rules: Rules) -> int:
    """Return the sum of weights of a node's evidence; that of one job counts once, with the heaviest."""
    heaviest: dict[str, int] = {}
    for one in node.evidence:
        key = one.job or one.id
        heaviest[key] = max(heaviest.get(key, 0), rules.weights.get(one.kind, 0))
    return sum(heaviest.values())


def refusal(fleet: Fleet, node: Node, rules: Rules, event: Evidence) -> str:
    """Return why evidence does not count; empty: it does."""
    reasons = {
        "it lies in the future": event.time > fleet.time + CLOCK_SECONDS,
        "it is older than the life cycle, or than the breaker's closing": event.time <= fleet.evidence_after,
        "it is older than the node's return": event.time <= node.returned_at,
        "it is older than the node's boot": event.time < node.booted_at,
        "it is older than the window": event.time <= fleet.time - rules.window_seconds,
        "it is known": any(one.id == event.id for one in node.evidence),
        "the node has too much": len(node.evidence) >= MOST_EVIDENCE,
        "its kind has no weight": not rules.weights.get(event.kind, 0),
    }
    return next((reason for reason, holds in reasons.items() if holds), "")


def unreachable(fleet: Fleet, node: Node, rules: Rules) -> str:
    """Return why nothing can be done with a node, whatever limits allow; empty: something can."""
    if node.seen is None or fleet.time - node.seen.time > SEEN_SECONDS:
        return f"{rules.scheduler} does not report such a node"
    return f"it is drained already: {node.seen.reason}" if node.seen.drained_by else ""


class _Machine:
    """The fleet while events are taken."""

    def __init__(self, fleet: Fleet, rules: Rules) -> None:
        self._fleet, self._rules = fleet, rules
        self._nodes = dict(fleet.nodes)
        self.transitions: list[Transition] = []

    def fleet(self) -> Fleet:
        return msgspec.structs.replace(self._fleet, nodes=self._nodes)

    def take(self, event: Event) -> Self:
        if isinstance(event, Tick):
            self._tick(event)
        elif isinstance(event, CloseBreaker):
            self._close(event)
        elif event.node in self._nodes or len(self._nodes) < MOST_NODES:
            node = self._nodes.get(event.node, Node(event.node))
            self._of_node(node, event)
        return self

    def _of_node(self, node: Node, event: Evidence | Booted | Seen | Judged | Cordon | Return) -> None:
        if isinstance(event, Evidence):
            if not refusal(self._fleet, node, self._rules, event):
                self._put(node, evidence=(*node.evidence, event))
        elif isinstance(event, Booted):
            self._boot(node, event)
        elif isinstance(event, Seen):
            if node.seen is None or event.time > node.seen.time:
                self._see(self._put(node, seen=event), event)
        elif isinstance(event, Judged):
            if node.state == "testing" and node.test == event.test:
                self._tested(node, event)
        elif event.time > node.requested_at:
            node = self._put(node, requested_at=event.time)
            if isinstance(event, Cordon):
                self._cordon(node, event)
            else:
                self._return(node, f"by {event.by}")

    def _put(self, node: Node, **changes: Any) -> Node:
        self._nodes[node.node] = changed = msgspec.structs.replace(node, **changes)
        return changed

    def _go(self, node: Node, state: State, why: str, **changes: Any) -> Node:
        """Move a node to a state. `since` is the machine's time, so that events of other clocks cannot lie after it."""
        self.transitions.append(Transition(node.node, self._fleet.time, node.state, state, why))
        return self._put(node, state=state, since=self._fleet.time, why=why, held="", **changes)

    def _boot(self, node: Node, event: Booted) -> None:
        if not node.booted_at < event.time <= self._fleet.time + CLOCK_SECONDS:
            return
        # A boot ends what was wrong before, unless the node is out already: then its test says so.
        kept = node.evidence if node.out else tuple(one for one in node.evidence if one.time >= event.time)
        self._put(node, booted_at=event.time, evidence=kept)

    def _see(self, node: Node, seen: Seen) -> None:
        if seen.time <= node.since:
            return  # it was asked before the node went to this state
        if node.out:
            if seen.drained_by:
                self._put(node, confirmed=True)
            elif node.confirmed:
                self._return(node, "another user returned it to service in the scheduler")
        elif seen.drained_by == "us" and node.state != "returned":
            self._go(node, "quarantined", f"it was found drained: {seen.reason}", confirmed=True)

    def _cordon(self, node: Node, event: Cordon) -> None:
        why = f"{event.why or 'cordoned'} (by {event.by})"
        if node.state == "quarantined":
            self._put(node, cordoned_by=event.by, why=why, test="")
        else:
            self._go(node, "quarantined", why, cordoned_by=event.by, confirmed=node.out and node.confirmed, test="")

    def _return(self, node: Node, why: str) -> None:
        state: State = "returned" if node.out or node.state == "returned" else "healthy"
        fresh = {"evidence": (), "cordoned_by": "", "confirmed": False, "test": "", "failed_tests": 0, "next_test_at": 0.0}
        self._go(node, state, why, returned_at=max(self._fleet.time, node.requested_at), **fresh)

    def _tested(self, node: Node, event: Judged) -> None:
        meanwhile = [one for one in node.evidence if one.time >= node.test_asked_at]
        if event.verdict == "fit" and not meanwhile:
            self._return(node, "it passed its test")
        elif event.verdict == "fit":
            self._test_failed(node, f"it passed its test, but meanwhile: {_words(meanwhile[0])}")
        else:
            self._test_failed(node, f"its test: {event.verdict}" + (f": {event.why}" if event.why else ""))

    def _test_failed(self, node: Node, why: str) -> None:
        next_test_at = self._fleet.time + self._rules.test_again_seconds
        self._go(node, "quarantined", why, test="", failed_tests=node.failed_tests + 1, next_test_at=next_test_at)

    def _close(self, event: CloseBreaker) -> None:
        if event.time <= self._fleet.closed_at or not self._fleet.breaker_opened_at:
            return
        now = self._fleet.time
        self.transitions.append(Transition("", now, "breaker open", "breaker closed", f"by {event.by}"))
        self._fleet = msgspec.structs.replace(
            self._fleet, breaker_opened_at=0.0, quarantines=(), closed_at=event.time, evidence_after=max(now, event.time)
        )
        for node in [node for node in self._nodes.values() if not node.out and node.evidence]:
            self._put(node, evidence=())

    # --- time goes on ------------------------------------------------------------------------------------------------------------

    def _tick(self, tick: Tick) -> None:
        if tick.time < self._fleet.time:
            return  # from a watch that was suspended; another watch has continued
        quarantines = tuple(time for time in self._fleet.quarantines if time > tick.time - self._rules.breaker_seconds)
        self._fleet = msgspec.structs.replace(self._fleet, time=tick.time, nodes_known=tick.nodes, quarantines=quarantines)
        for node in list(self._nodes.values()):
            if node.out:
                self._go_on(node)
            else:
                self._settle(node)
        due = self._due()
        self._check_breaker(due)
        for node in sorted(due, key=lambda node: (-score(node, self._rules), node.evidence[0].time, node.node)):
            self._admit(node)
        self._forget()

    def _go_on(self, node: Node) -> None:
        """Drain a node that is out, test it, and test it again."""
        now = self._fleet.time
        if node.state == "testing" and now - node.test_asked_at > self._rules.test_seconds:
            self._test_failed(node, f"its test gave no result within {self._rules.test_seconds:g} s")
            return
        if not node.confirmed and self._rules.actions != "on" and not node.cordoned_by and not self._counting(node):
            self._go(node, "healthy", "no action was taken, and nothing counts against it any more", evidence=())
            return
        if node.state == "testing" or not node.confirmed or node.seen is None or now - node.seen.time > SEEN_SECONDS:
            return
        if node.seen.busy:
            if node.state == "quarantined":
                self._go(node, "draining", node.why)
        elif not node.cordoned_by and node.next_test_at <= now:
            self._go(node, "testing", node.why, test=f"{now:.3f}", test_asked_at=now)
        elif node.state == "draining":
            self._go(node, "quarantined", node.why)

    def _settle(self, node: Node) -> None:
        """Let evidence and probation of a node in service expire."""
        now = self._fleet.time
        kept = self._counting(node)
        node = self._put(node, evidence=kept, held=node.held if kept else "")
        if node.state == "returned":
            over = now - node.since > self._rules.probation_seconds
            if over and (node.seen is None or not node.seen.drained_by):
                self._go(node, "suspect" if kept else "healthy", _words(kept[-1]) if kept else "its probation is over")
        elif kept and node.state == "healthy":
            self._go(node, "suspect", _words(kept[-1]))
        elif not kept and node.state == "suspect":
            self._go(node, "healthy", "nothing counts against it any more")

    def _counting(self, node: Node) -> tuple[Evidence, ...]:
        return tuple(one for one in node.evidence if one.time > self._fleet.time - self._rules.window_seconds)

    def _due(self) -> list[Node]:
        """Return the nodes in service with enough evidence."""
        rules = self._rules
        at = {"suspect": rules.quarantine_at, "returned": rules.again_at}
        return [node for node in self._nodes.values() if node.state in at and score(node, rules) >= at[node.state]]

    def _admit(self, node: Node) -> None:
        """Quarantine a node if limits allow, else note which does not."""
        held = self._held(node)
        if held:
            self._put(node, held=held)
            return
        now = self._fleet.time
        self._fleet = msgspec.structs.replace(self._fleet, quarantines=(*self._fleet.quarantines, now))
        changes: dict[str, Any] = {"confirmed": False, "test": "", "next_test_at": 0.0, "failed_tests": 0}
        self._go(node, "quarantined", "; ".join(dict.fromkeys(_words(one) for one in node.evidence[-3:])), **changes)

    def _held(self, node: Node) -> str:
        fleet, rules = self._fleet, self._rules
        if why := unreachable(fleet, node, rules):
            return why
        if fleet.breaker_opened_at:
            return "the breaker is open"
        limit, out = rules.limit(fleet.nodes_known), sum(one.out for one in self._nodes.values())
        if out >= limit:
            return f"{out} of {fleet.nodes_known} nodes are out; at most {limit} may be"
        if len(fleet.quarantines) >= rules.breaker_most:
            return f"{rules.breaker_most} nodes were taken out within {rules.breaker_seconds:g} s"
        return ""

    def _check_breaker(self, due: Sequence[Node]) -> None:
        """Open the breaker before any of too many nodes is taken out: what they have in common is not the nodes' fault."""
        fleet, rules = self._fleet, self._rules
        since = fleet.time - rules.breaker_seconds
        fresh = [
            node.node for node in due if not unreachable(fleet, node, rules) and max(one.time for one in node.evidence) > since
        ]
        count = len(fresh) + len(fleet.quarantines)
        if fresh and count > rules.breaker_most and not fleet.breaker_opened_at:
            why = f"{count} nodes within {rules.breaker_seconds:g} s, at most {rules.breaker_most}: {', '.join(sorted(fresh)[:10])}"
            self.transitions.append(Transition("", fleet.time, "breaker closed", "breaker open", why))
            self._fleet = msgspec.structs.replace(fleet, breaker_opened_at=fleet.time)

    def _forget(self) -> None:
        """Forget nodes of which nothing is left that an event could be compared with."""
        oldest = self._fleet.time - self._rules.window_seconds - CLOCK_SECONDS
        for name, node in list(self._nodes.items()):
            last = max(node.since, node.returned_at, node.requested_at, node.booted_at)
            if node.state == "healthy" and not node.evidence and last < oldest:
                del self._nodes[name]


def _words(evidence: Evidence) -> str:
    what = {"host_lost": "lost", "hang": "hung", "killed": "killed a process", "xid": "Xid", "preflight": "unfit in a preflight"}
    job = f" of job {evidence.job}" if evidence.job else ""
    return f"{what[evidence.kind]}{job}" + (f": {evidence.detail}" if evidence.detail else "")
