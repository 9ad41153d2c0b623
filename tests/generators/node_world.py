"""A cluster of bad and healthy nodes whose events arrive late, twice and in any order, at watches that are killed."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import msgspec

from tachoscope_watch.nodes.machine import CLOCK_SECONDS, advance
from tachoscope_watch.nodes.states import (
    OUT,
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
    Tick,
    Transition,
)

MINUTE, HOUR, DAY = 60.0, 3600.0, 86400.0
RULES = Rules(scheduler="slurm", actions="on", most_out=3, breaker_most=4, breaker_seconds=2 * HOUR)
KINDS = ("host_lost", "hang", "killed", "xid", "preflight")


@dataclass
class RealNode:
    """A node as it is. `cordoned`: a person wants it out."""

    bad: bool = False
    drained: bool = False
    busy: bool = True
    cordoned: bool = False


@dataclass
class World:
    """The truth, and what the model allows. `late`: events on their way, with the time at which they arrive."""

    seed: int
    now: float = 1e9
    nodes: dict[str, RealNode] = field(default_factory=dict)
    late: list[tuple[float, Event]] = field(default_factory=list)
    delivered: list[Event] = field(default_factory=list)
    returned: dict[str, float] = field(default_factory=dict)
    taken: list[float] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    closed_at: float = 0.0
    drains: int = 0
    opened: int = 0

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)
        self.nodes = {f"node{number}": RealNode() for number in range(12)}
        self.fleet = Fleet(self.now, self.now)
        self.began = self.now

    def run(self, minutes: int = 300) -> World:
        """Let things happen, then let nothing more happen until all is settled."""
        for _ in range(minutes):
            self.now += MINUTE
            self._happen()
            self._look()
        for node in self.nodes.values():
            node.busy = False
        for _ in range(80):  # all late events come; tests are repeated each hour
            self.now += 0.5 * HOUR
            self._look()
            if self.fleet.breaker_opened_at:
                self._send(CloseBreaker(self.now, "me"))
        self._check_end()
        return self

    def _happen(self) -> None:
        rand = self.random
        name = rand.choice(list(self.nodes))
        node = self.nodes[name]
        node.busy = rand.random() < 0.7
        what = rand.random()
        if what < 0.02:
            node.bad = not node.bad
        elif what < 0.1:
            self._report(name, rand.choice(KINDS) if node.bad else "hang")
        elif what < 0.11:  # a storm: one cause, many nodes
            for other in self.nodes:
                self._report(other, "host_lost")
                self._report(other, "hang")
        elif what < 0.13:
            self._send(Booted(name, self.now), late=True)
        elif what < 0.14:
            node.cordoned = True
            self._send(Cordon(name, self.now, "me"))
        elif what < 0.18:
            node.cordoned = False
            self._send(Return(name, self.now, "me"))
        elif what < 0.19:
            self._send(CloseBreaker(self.now, "me"))
        elif what < 0.2 and (known := self.fleet.nodes.get(name)) is not None and known.confirmed:
            node.drained = False  # somebody resumes it with the scheduler's own tools
            node.cordoned = False

    def _report(self, name: str, kind: str) -> None:
        job = self.random.choice(["", f"job{self.random.randrange(20)}"]) if kind not in {"xid", "preflight"} else ""
        time = self.now - self.random.choice([0.0, 30.0, 3 * HOUR, 30 * HOUR])
        self._send(Evidence(name, f"{kind} {self.random.randrange(10**6)}", kind, time, job=job), late=True)  # type: ignore[arg-type]

    def _send(self, event: Event, *, late: bool = False) -> None:
        copies = self.random.choice([1, 1, 2, 3])
        for _ in range(copies):
            delay = self.random.choice([0.0, 0.0, 5 * MINUTE, 2 * HOUR, 12 * HOUR]) if late else 0.0
            self.late.append((self.now + delay, event))

    def _look(self) -> None:
        events = [event for time, event in self.late if time <= self.now]
        self.late = [(time, event) for time, event in self.late if time > self.now]
        self.random.shuffle(events)
        events += self._results()
        seen = [self._seen(name) for name in self.nodes]
        after, transitions = advance(self.fleet, RULES, [*events, *seen, Tick(self.now + 1.0, len(self.nodes))])
        if self.random.random() < 0.1:
            return self._again(events)  # the watch is killed before it keeps anything: the next one takes the same again
        self.delivered += events
        before, self.fleet = self.fleet, msgspec.json.decode(msgspec.json.encode(after), type=Fleet)
        if self.fleet != after:
            self.wrong.append("what is read is not what was kept")
        self._check(before, after, transitions)
        if self.random.random() < 0.1:
            return None  # killed before it acts
        for node in after.nodes.values():
            real = self.nodes[node.node]
            if node.out and not real.drained:
                real.drained = True
                self.drains += 1
            elif node.state == "returned" and real.drained:
                real.drained = False
        return None

    def _again(self, events: list[Event]) -> None:
        self.late += [(self.now, event) for event in events if not isinstance(event, Judged)]

    def _seen(self, name: str) -> Seen:
        node = self.nodes[name]
        return Seen(name, self.now, "us" if node.drained else "", node.busy, "tachoscope: x" if node.drained else "")

    def _results(self) -> list[Event]:
        """Return results of tests: the one that is asked for, mostly, and sometimes one of long ago."""
        found: list[Event] = []
        for node in self.fleet.nodes.values():
            if node.state == "testing" and self.random.random() < 0.5:
                verdict = "unfit" if self.nodes[node.node].bad else self.random.choice(["fit", "fit", "not judged"])
                found.append(Judged(node.node, node.test, self.now, verdict))  # type: ignore[arg-type]
            elif self.random.random() < 0.1:
                found.append(Judged(node.node, "1.000", self.now, "fit"))
        return found

    # --- the model ---------------------------------------------------------------------------------------------------------------

    def _check(self, before: Fleet, after: Fleet, transitions: tuple[Transition, ...]) -> None:
        admitted = []
        for one in transitions:
            went_in = one.after == "returned" or (one.after == "healthy" and one.before in OUT)
            if not one.node:
                self.closed_at = after.evidence_after if one.after == "breaker closed" else self.closed_at
                self.opened += one.after == "breaker open"
            elif went_in or (one.after == "healthy" and one.why.startswith("by ")):
                self.returned[one.node] = self.now
            elif one.after == "quarantined" and one.before not in OUT and not one.why.startswith(("cordoned", "it was found")):
                admitted.append(one.node)
        out = [node for node in after.nodes.values() if node.out]
        if admitted and len(out) > RULES.limit(len(self.nodes)):
            self.wrong.append(f"{len(out)} nodes are out")
        if admitted and before.breaker_opened_at and after.breaker_opened_at:
            self.wrong.append("a node was taken out while the breaker was open")
        self.taken += [self.now] * len(admitted)
        if sum(self.closed_at < time and self.now - time < RULES.breaker_seconds for time in self.taken) > RULES.breaker_most:
            self.wrong.append("more nodes than the breaker allows")
        for name in admitted:
            self._check_evidence(name, after.nodes[name])

    def _check_evidence(self, name: str, node: Node) -> None:
        """Count what happened to a node since its return and boot, from all that was delivered."""
        boots = [one.time for one in self.delivered if isinstance(one, Booted) and one.node == name]
        since = max(self.began, self.closed_at, self.returned.get(name, 0.0), self.now - DAY)
        counting = {
            one.job or one.id: RULES.weights[one.kind]
            for one in self.delivered
            if isinstance(one, Evidence) and one.node == name and since < one.time <= self.now + CLOCK_SECONDS
            if one.time >= max(boots, default=0.0)
        }
        least = RULES.again_at if name in self.returned and self.now - self.returned[name] <= DAY + 60 else RULES.quarantine_at
        if sum(counting.values()) < least:
            self.wrong.append(f"{name} was taken out for {counting}: {node.why}")

    def _check_end(self) -> None:
        for name, real in self.nodes.items():
            node = self.fleet.nodes.get(name, Node(name))
            if not real.bad and not real.cordoned and (node.out or real.drained):
                self.wrong.append(f"healthy {name} stays out: {node}")
            if real.cordoned and not node.out:
                self.wrong.append(f"cordoned {name} is in")
