"""The part of a report that is about a job's whole life: its attempts, failures, checkpoints and cost. Times are Unix seconds."""

from __future__ import annotations

from typing import Literal

import msgspec

Ending = Literal["completed", "failed", "killed", "hung", "preempted", "interrupted", "running", "unknown"]
NOBODYS = ("preempted", "interrupted")
"""Endings that are no failure of a host: the machine was taken away, or the user stopped the command."""


class Span(msgspec.Struct, frozen=True, kw_only=True):
    """A stretch of an attempt, for its picture: what most of its ranks were at; `steps`: new steps in all their states."""

    state: str
    start: float
    end: float


class Attempt(msgspec.Struct, frozen=True, kw_only=True):
    """One start of the job's processes.

    Attributes:
        start, end: of the attempt's processes, the time before the next attempt excluded.
        first_step, last_step: numbers of the whole job, over its attempts; 0: it finished none. redone: steps of it done before.
        ended: how; reason: in words, naming rank and host where one is known. spans: its course, in order, for a picture.
    """

    attempt: int
    start: float
    end: float
    ranks: int
    hosts: list[str]
    first_step: int = 0
    last_step: int = 0
    redone: int = 0
    ended: Ending = "unknown"
    reason: str = ""
    spans: list[Span] = []


class Recovery(msgspec.Struct, frozen=True, kw_only=True):
    """From a failure to the first step that had not been done before; seconds of each part, None where not measured.

    Attributes:
        attempt: the one that failed. kind: how it `ended`. failed_at: when the first process was gone, or stuck.
        detect_seconds: until the last process of the attempt was gone: from then on all know.
        reschedule_seconds: until the next attempt's processes were started. rendezvous_seconds: spent in forming the group.
        initialise_seconds: the rest until its first step, restore excluded. restore_seconds: reading the checkpoint.
        redo_seconds: doing steps again. total_seconds: from `failed_at` to the end of the first new step; None: it never came.
        lost_steps: steps done again. checkpoint: what was restored; empty: it began again.
    """

    attempt: int
    kind: Ending
    rank: int | None = None
    host: str = ""
    failed_at: float
    detect_seconds: float | None = None
    reschedule_seconds: float | None = None
    rendezvous_seconds: float | None = None
    initialise_seconds: float | None = None
    restore_seconds: float | None = None
    redo_seconds: float | None = None
    total_seconds: float | None = None
    lost_steps: int = 0
    checkpoint: str = ""


class Notice(msgspec.Struct, frozen=True, kw_only=True):
    """A notice that the processes will be ended, and what came of it.

    Attributes:
        saved_seconds: from the notice until an emergency checkpoint was complete; None: none was.
        ended_seconds: until the processes were gone; None: they are not. in_time: the checkpoint was complete before that.
    """

    source: str
    host: str
    time: float
    deadline: float = 0.0
    saved_seconds: float | None = None
    ended_seconds: float | None = None
    in_time: bool | None = None


class Suspect(msgspec.Struct, frozen=True, kw_only=True):
    """A host or data shard that failed; `confidence` is that it fails more often than the others (0 to 1).

    Attributes:
        expected: failures it would have if all failed alike. quarantined: a shard that is on the quarantine list.
    """

    kind: Literal["host", "shard"]
    name: str
    failures: int
    expected: float
    confidence: float
    quarantined: bool = False
    action: str = ""


class CheckpointCosts(msgspec.Struct, frozen=True, kw_only=True):
    """What saving and restoring cost over the life. Seconds are of one save or restore, medians over the saves.

    Attributes:
        saves: checkpoints, all ranks of one counted once. interval_seconds: between two saves; None with fewer than two.
        bytes_per_second: of one save over blocking and background time together, all ranks; None: size not known.
        slowdown: the last quarter of the saves' seconds over the first quarter's; None with fewer than eight.
        last_reference, last_step: the newest. verified_reference, verified_step: the newest that was verified; empty, 0: none.
        faults: references that failed verification, with what is wrong.
    """

    saves: int
    asynchronous: bool = False
    interval_seconds: float | None = None
    blocking_seconds: float = 0.0
    background_seconds: float = 0.0
    bytes: int = 0
    bytes_per_second: float | None = None
    restore_seconds: float | None = None
    slowdown: float | None = None
    last_reference: str = ""
    last_step: int = 0
    verified_reference: str = ""
    verified_step: int = 0
    faults: dict[str, str] = {}


class Advice(msgspec.Struct, frozen=True, kw_only=True):
    """What the checkpoint interval costs, and what it should be.

    Attributes:
        what: the case in words, such as `now`, `asynchronous`, `24 h preemptible`, `storage half as fast`.
        interval_seconds: None: there is none yet. overhead: ratio of the time lost to saving, restoring and doing again.
        lost_at_failure_seconds: work that a failure costs on average. basis: formula and inputs, in words.
    """

    what: str
    interval_seconds: float | None
    overhead: float
    lost_at_failure_seconds: float
    basis: str


class Cost(msgspec.Struct, frozen=True, kw_only=True):
    """What the life cost. `unit` is what was counted: GPU-hours, or on CPU rank-hours.

    Attributes:
        hours: of allocated units, the queue excluded. by_state: the same by ledger state.
        price_per_hour: of one unit in `currency`; None: no price is known, and `money` is not either. source: of the price.
    """

    unit: Literal["GPU", "rank"]
    device: str
    hours: float
    by_state: dict[str, float]
    price_per_hour: float | None = None
    currency: str = ""
    money: float | None = None
    source: str = ""


class Life(msgspec.Struct, frozen=True, kw_only=True):
    """A job's whole life. The report's main ledger is its waterfall, in rank-seconds.

    Attributes:
        denominator: who says how long the ranks were allocated: `slurm`, `kubernetes`, `launcher`, `agent`, or `records` where
            nobody does, and what was before the first record and after the last is not known.
        ledger: whose seconds by state the waterfall has: those that the node agents counted while the job ran, as their metrics and
            the watch have them; or, where agents did not count all of its ranks and time, those that follow from its `records`.
        allocated_seconds: rank-seconds without the queue; goodput is productive time over these.
        queued_seconds: rank-seconds of waiting for the allocation; None: not measured. excluded_seconds: of planned maintenance,
            in no state. new_steps: steps done for the first time.
    """

    denominator: Literal["slurm", "kubernetes", "launcher", "agent", "records"]
    ledger: Literal["agents", "records"] = "records"
    allocated_seconds: float
    queued_seconds: float | None = None
    excluded_seconds: float = 0.0
    new_steps: int = 0
    attempts: list[Attempt]
    recoveries: list[Recovery] = []
    notices: list[Notice] = []
    suspects: list[Suspect] = []
    checkpoints: CheckpointCosts | None = None
    advice: list[Advice] = []
    cost: Cost | None = None
