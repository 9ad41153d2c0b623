"""What is known of nodes, what happens to them, and the rules of an administrator. All times are Unix seconds."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

State = Literal["healthy", "suspect", "quarantined", "draining", "testing", "returned"]
STATES: tuple[State, ...] = ("healthy", "suspect", "quarantined", "draining", "testing", "returned")
OUT: frozenset[State] = frozenset({"quarantined", "draining", "testing"})
"""A node in such a state gets no new jobs, where actions are on."""
Kind = Literal["host_lost", "hang", "killed", "xid", "preflight"]
Actions = Literal["off", "dry-run", "on"]
Verdict = Literal["fit", "unfit", "not judged"]

_WEIGHTS: dict[Kind, int] = {"host_lost": 1, "hang": 1, "killed": 1, "xid": 2, "preflight": 2}
"""What jobs say weighs less than what a node says of itself: two jobs have to agree."""


class Rules(msgspec.Struct, frozen=True, kw_only=True):
    """What an administrator allows, see `rules_file`.

    Attributes:
        actions: `off`: states are only kept. `dry-run`: actions are logged, not done.
        most_out: nodes out at once; most_out_percent: the same, in percent of the scheduler's nodes; the lower one counts.
        breaker_most: quarantines within `breaker_seconds`; one more opens the breaker.
        weights: of evidence, by kind. quarantine_at: the sum of weights from which on a node is taken out; `again_at`: the same
            for a node that returned less than `probation_seconds` ago.
        window_seconds: older evidence does not count.
        test_seconds: without a result for so long, a test counts as failed. test_again_seconds: from a failed test to the next.
        test_pod: PodSpec of a Job that runs `tachoscope nodes test` on a node of Kubernetes; empty: nodes start it themselves.
        every_seconds: between two looks.
    """

    scheduler: Literal["slurm", "kubernetes"]
    actions: Actions = "off"
    most_out: int | None = None
    most_out_percent: float | None = None
    breaker_most: int = 3
    breaker_seconds: float = 3600.0
    weights: dict[Kind, int] = msgspec.field(default_factory=lambda: dict(_WEIGHTS))
    quarantine_at: int = 2
    again_at: int = 1
    window_seconds: float = 86400.0
    probation_seconds: float = 86400.0
    test_seconds: float = 3600.0
    test_again_seconds: float = 3600.0
    test_pod: dict[str, Any] = {}
    every_seconds: float = 60.0

    def limit(self, nodes: int) -> int:
        """Return how many of so many nodes may be out at once."""
        limits = [] if self.most_out is None else [self.most_out]
        limits += [] if self.most_out_percent is None else [int(nodes * self.most_out_percent / 100)]
        return min(limits, default=0)


class Evidence(msgspec.Struct, frozen=True, tag="evidence"):
    """Something that a bad node explains. `id`: the same if it is reported again. `job`: evidence of one job counts once."""

    node: str
    id: str
    kind: Kind
    time: float
    detail: str = ""
    job: str = ""


class Booted(msgspec.Struct, frozen=True, tag="booted"):
    """A node began to run."""

    node: str
    time: float


class Seen(msgspec.Struct, frozen=True, tag="seen"):
    """A node as its scheduler reported it.

    Attributes:
        drained_by: `us`: by this life cycle; `others`; empty: it takes jobs, as far as nothing else prevents that.
        busy: jobs run on it, or that is not known.
    """

    node: str
    time: float
    drained_by: Literal["", "us", "others"] = ""
    busy: bool = False
    reason: str = ""


class Judged(msgspec.Struct, frozen=True, tag="judged"):
    """The end of a test. `test`: which was asked for."""

    node: str
    test: str
    time: float
    verdict: Verdict
    why: str = ""


class Cordon(msgspec.Struct, frozen=True, tag="cordon"):
    """A person wants a node out until `Return`."""

    node: str
    time: float
    by: str
    why: str = ""


class Return(msgspec.Struct, frozen=True, tag="return"):
    """A person wants a node in."""

    node: str
    time: float
    by: str


class CloseBreaker(msgspec.Struct, frozen=True, tag="close_breaker"):
    """A person has found out why so many nodes were suspect at once. Evidence from before counts no more."""

    time: float
    by: str


class Tick(msgspec.Struct, frozen=True, tag="tick"):
    """Time goes on. `nodes`: that the scheduler has; 0: not known, then none is taken out."""

    time: float
    nodes: int


Event = Evidence | Booted | Seen | Judged | Cordon | Return | CloseBreaker | Tick
Request = Cordon | Return | CloseBreaker


class Node(msgspec.Struct, frozen=True, omit_defaults=True):
    """A node.

    Attributes:
        why: the reason for its state. held: why it is not taken out though it should be; empty: it should not, or is.
        evidence: that counts, and while it is out, that came meanwhile.
        returned_at: evidence up to then counts no more. requested_at: of the last request of a person.
        seen: the newest report of the scheduler. confirmed: it was drained when the scheduler last reported it since it went out.
        test: id of the test that runs; next_test_at: not before. failed_tests: since it is out.
        cordoned_by: the person who keeps it out; empty: nobody.
    """

    node: str
    state: State = "healthy"
    since: float = 0.0
    why: str = ""
    held: str = ""
    evidence: tuple[Evidence, ...] = ()
    booted_at: float = 0.0
    returned_at: float = 0.0
    requested_at: float = 0.0
    seen: Seen | None = None
    confirmed: bool = False
    test: str = ""
    test_asked_at: float = 0.0
    next_test_at: float = 0.0
    failed_tests: int = 0
    cordoned_by: str = ""

    @property
    def out(self) -> bool:
        return self.state in OUT


class Fleet(msgspec.Struct, frozen=True, omit_defaults=True):
    """All nodes of which anything is known, by name.

    Attributes:
        time: of the last tick. evidence_after: evidence up to then does not count: from before the life cycle began, or the breaker
            was closed. nodes_known: that the scheduler has. quarantines: times of the last ones.
        breaker_opened_at: 0: it is closed. closed_at: when a person last closed it.
    """

    time: float
    evidence_after: float
    nodes: dict[str, Node] = {}
    nodes_known: int = 0
    quarantines: tuple[float, ...] = ()
    breaker_opened_at: float = 0.0
    closed_at: float = 0.0


class Transition(msgspec.Struct, frozen=True):
    """A node went from one state to another; of the breaker `node` is empty."""

    node: str
    time: float
    before: str
    after: str
    why: str
