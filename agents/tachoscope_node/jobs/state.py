"""What is known of one job on this node and of its ranks: plain data, which is saved as it is."""

from __future__ import annotations

import math

import msgspec

from tachoscope.training.parallel_layout import DIMENSIONS
from tachoscope_core.jobs.hang_rule import Pace
from tachoscope_core.jobs.memory_outlook import MemoryOutlook
from tachoscope_core.metrics.training import (
    CHECKPOINT_BACKGROUND,
    CHECKPOINT_BLOCKING,
    RECOVERY_SECONDS,
    STEP_DATA_WAIT,
    STEP_SECONDS,
    STEP_SLOWDOWN,
    TRAINING_STATES,
)
from tachoscope_core.records.records import JobStarted
from tachoscope_core.storage.ledger_rows import Row
from tachoscope_node.jobs.integrity_counts import Integrity
from tachoscope_node.jobs.step_attribution import Clocks, PendingWait
from tachoscope_node.jobs.step_baseline import Regularity
from tachoscope_node.jobs.step_progress import Progress
from tachoscope_service.metrics.buckets import Buckets, empty_buckets

RECENT_STEPS = 32
MAX_LAYOUT = 1 << 16
"""Ranks of a job whose parallel dimensions are looked at: their groups are listed rank by rank."""


class AttemptEnding(msgspec.Struct):
    """What was heard of the end of a job's attempt.

    Attributes:
        open: an attempt began whose end is not counted yet.
        since: when it began, or finished its last step on the node; seconds of the host's monotonic clock.
        status, reason: the word of who watched it. told: it was told to end, so it did not fail by itself.
        failure: the type of the exception with which the first process failed, or `killed`. failed_attempt: its attempt.
    """

    open: bool = False
    since: float = 0.0
    status: str = ""
    reason: str = ""
    told: bool = False
    failure: str = ""
    failed_attempt: int = -1

    def begin(self, at: float) -> None:
        """Note that processes of the job, or who watches it, began."""
        if not self.open:
            self.open, self.since = True, at

    def process_failed(self, attempt: int, reason: str) -> None:
        """A process failed. The first failure of an attempt counts, since later ones may follow from it."""
        if attempt > self.failed_attempt:
            self.failed_attempt, self.failure = attempt, reason[:64]


class KnownHang(msgspec.Struct, frozen=True):
    """A hang on the node, by the word of who watches the job there: see `WorkerHung`. `attempt`: whose processes hang."""

    attempt: int
    since_time: float
    step: int
    failed_rank: int
    why: str


class Rows(msgspec.Struct):
    """A job's ledger rows on this node: see `ledger_windows`.

    Attributes:
        window: that is open. shipped: the last whose rows are in the store. closed: rows in the order of their windows.
        to_ship: this agent ships records of the job; if another process does, into a store of its own, rows are not shipped.
    """

    window: int = 0
    to_ship: bool = False
    shipped: int = -1
    closed: list[Row] = []


class Rank(msgspec.Struct):
    """One rank: times are seconds of the host's monotonic clock.

    Attributes:
        writer, directory: who writes its records, and where. ended: `left`, `failed` or `killed` once it did.
        gpu_uuid, pod_uid: as its record says. layout: so, too, where it makes the world.
        phase: where it was after its last step, by its last heartbeat; empty: not known. stack_locator: as its `JobStarted` says.
        seconds: by ledger state. dropped_before: records dropped by the rank's earlier processes.
        recent: wall and data wait of the last steps.
        began: when the process was started; None: not known. accounted: up to when its time is in `seconds`; None: nothing is.
        hung: seconds since its last step that count as hung already.
        reached: last step of the job that it did. done_before: the last one that an earlier attempt did.
        in_rows: tenths of seconds by state that are in ledger rows already, and `steps_in_rows`; seconds_at_row: of all states
            together when its last row was made. slowest: seconds of the longest step since then. memory: when it will be full.
    """

    rank: int
    writer: str
    directory: str
    attempt: int = 0
    pid: int = 0
    world_size: int = 1
    device: str = ""
    gpu_uuid: str = ""
    pod_uid: str = ""
    layout: dict[str, int] = {}
    ended: str = ""
    seconds: dict[str, float] = msgspec.field(default_factory=lambda: dict.fromkeys(TRAINING_STATES, 0.0))
    steps: int = 0
    step: int = 0
    step_seconds: float = 0.0
    last_record: float = 0.0
    last_end: float | None = None
    dropped: int = 0
    dropped_before: int = 0
    recent: list[tuple[float, float]] = []
    clocks: Clocks = msgspec.field(default_factory=Clocks)
    phase: str = ""
    stack_locator: str = ""
    began: float | None = None
    accounted: float | None = None
    hung: float = 0.0
    reached: int = 0
    done_before: int = 0
    in_rows: dict[str, int] = {}
    steps_in_rows: int = 0
    seconds_at_row: float = 0.0
    slowest: float = 0.0
    memory: MemoryOutlook = msgspec.field(default_factory=MemoryOutlook)

    def __post_init__(self) -> None:
        self.seconds = dict.fromkeys(TRAINING_STATES, 0.0) | self.seconds  # saved by a version that knew fewer states


class Job(msgspec.Struct):
    """One job's part on this node.

    Attributes:
        launched: when `tachoscope run` started the command. launcher: the writer of the `run` that lives.
        directory: where a launcher last wrote.
        released: when the last such `run` ended. held: this agent watches it, since no `run` does.
        idle_since: when the last of its processes ended.
        attempt: the highest. restarts: attempts that followed another here. progress: which steps of the job are done.
        failed_at, failed_attempt: when the first process failed, or hung, since a step was last done that is new; its attempt.
        excused_at: when a rank was last heard to save a checkpoint, to evaluate or to compile.
        shards_quarantined: data shards on its quarantine list; None: nothing is known of any shard.
        open_steps: steps that not all ranks of the node have finished. late: wall, and what the latest rank cost, of recent steps.
        step_slowdown, regularity: steps over the usual one, and what is usual. integrity: what checks of its numbers found, None:
            it is not checked. recompilations: of all its ranks. hangs: that were noticed on the node; hang: the last;
            hangs_looked_at: whose evidence was collected.
        pace: of its steps so far, by which its hang limit is set.
        ending: what was heard of the end of its attempt.
        began: when this agent started to count it, Unix seconds. events: number of its records that are not measurements.
        scheduler_job: id of the Slurm job that a process of it said it runs in; empty: none did.
    """

    name: str
    ranks: dict[int, Rank] = {}
    launched: float | None = None
    launcher: str = ""
    directory: str = ""
    idle_since: float | None = None
    step_seconds: Buckets = msgspec.field(default_factory=lambda: empty_buckets(STEP_SECONDS.buckets))
    step_data_wait: Buckets = msgspec.field(default_factory=lambda: empty_buckets(STEP_DATA_WAIT.buckets))
    checkpoint_blocking: Buckets = msgspec.field(default_factory=lambda: empty_buckets(CHECKPOINT_BLOCKING.buckets))
    checkpoint_background: Buckets = msgspec.field(default_factory=lambda: empty_buckets(CHECKPOINT_BACKGROUND.buckets))
    last_checkpoint: float | None = None
    worker_failures: int = 0
    shard_failures: dict[str, int] = {}
    shards_quarantined: int | None = None
    released: float | None = None
    held: bool = False
    attempt: int = -1
    restarts: int = 0
    recovery: Buckets = msgspec.field(default_factory=lambda: empty_buckets(RECOVERY_SECONDS.buckets))
    progress: Progress = msgspec.field(default_factory=Progress)
    failed_at: float | None = None
    failed_attempt: int = 0
    excused_at: float = 0.0
    open_steps: dict[int, dict[int, PendingWait]] = {}
    late: list[tuple[float, float]] = []
    step_slowdown: Buckets = msgspec.field(default_factory=lambda: empty_buckets(STEP_SLOWDOWN.buckets))
    regularity: Regularity = msgspec.field(default_factory=Regularity)
    integrity: Integrity | None = None
    recompilations: int = 0
    hangs: int = 0
    hang: KnownHang | None = None
    hangs_looked_at: int = 0
    pace: Pace = msgspec.field(default_factory=Pace)
    ending: AttemptEnding = msgspec.field(default_factory=AttemptEnding)
    began: int = 0
    events: int = 0
    rows: Rows = msgspec.field(default_factory=Rows)
    scheduler_job: str = ""

    @property
    def state_seconds(self) -> dict[str, float]:
        """Seconds by ledger state, of all its ranks that this agent counted."""
        return {state: sum(rank.seconds.get(state, 0.0) for rank in self.ranks.values()) for state in TRAINING_STATES}

    @property
    def hanging(self) -> KnownHang | None:
        """The hang that was noticed, as long as no rank finished a step since."""
        hang = self.hang
        is_over = hang is None or any(rank.attempt != hang.attempt or rank.step > hang.step for rank in self.running())
        return None if is_over else hang

    def running(self) -> list[Rank]:
        return [rank for rank in self.ranks.values() if not rank.ended]

    @property
    def last_end(self) -> float | None:
        """When the newest step of a rank that runs ended, by the monotonic clock; None: none did a step."""
        return max((rank.last_end for rank in self.running() if rank.last_end is not None), default=None)

    def recovered(self, seconds: float) -> None:
        """The job does new steps again, `seconds` after it failed."""
        self.recovery.observe(max(seconds, 0.0), RECOVERY_SECONDS.buckets)
        self.failed_at = None

    def has_all_ranks(self, parts: dict[int, PendingWait]) -> bool:
        """Return whether these are of all ranks of the job."""
        found = len(parts)
        # Asked with each part of each step: mostly the first rank decides.
        return not any(rank.world_size > found and (rank.rank in parts or not rank.ended) for rank in self.ranks.values())


def layout_of(record: JobStarted) -> dict[str, int]:
    """Return the sizes of the parallel dimensions, where these can make the world; else none."""
    sizes = record.layout.values()
    known = set(DIMENSIONS).issuperset(record.layout) and all(size > 0 for size in sizes)
    return record.layout if known and math.prod(sizes) == record.world_size <= MAX_LAYOUT else {}
