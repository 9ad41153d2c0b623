"""The report: what an analysis found. One JSON document; every reader renders it and computes nothing itself."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Literal

import msgspec

from tachoscope_core.errors import TachoscopeError
from tachoscope_core.report.comparison import Comparison
from tachoscope_core.report.failures import Failure
from tachoscope_core.report.job_life import Life
from tachoscope_core.report.memory import MemoryReport
from tachoscope_core.report.serving import Serving
from tachoscope_core.report.stack_groups import StackGroup
from tachoscope_core.report.trend import Trend

SCHEMA = 1
LEDGER_TOLERANCE = 0.01
"""States of a ledger sum to its wall time within this share: asserted whenever one is made."""

Severity = Literal["critical", "warning", "info"]
SEVERITY_ORDER: Mapping[str, int] = {"critical": 0, "warning": 1, "info": 2}
"""The gravest first."""


class Window(msgspec.Struct, frozen=True, kw_only=True):
    """What the report is about: Unix seconds, and the number of steps judged."""

    start: float
    end: float
    steps: int


class Source(msgspec.Struct, frozen=True, kw_only=True):
    """Where the facts came from, and what of it could not be read."""

    path: str
    records: int = 0
    unit: Literal["records", "events", "looks", "operations", "processes"] = "records"
    """Records of the probe, events of a profiler trace, looks at a server's metrics, operations of a flight recorder, or processes
    that were looked at while their job hung."""
    duplicates: int = 0
    cut_lines: int = 0
    garbage_lines: int = 0
    unknown_kinds: int = 0
    implausible: int = 0
    """Steps whose numbers cannot be true, such as phases that do not sum to their time."""
    broken_objects: int = 0
    """Objects of the store that could not be read at all."""
    dropped: int = 0
    """Records that the job's processes say they could not write."""


class StepSeconds(msgspec.Struct, frozen=True, kw_only=True):
    """Distribution of the step time in seconds; a step of several ranks lasts as long as its slowest."""

    mean: float
    p50: float
    p95: float
    p99: float


class LedgerError(TachoscopeError, ValueError):
    """A ledger whose states do not sum to its wall time: the records contradict each other."""


class Ledger(msgspec.Struct, frozen=True, kw_only=True):
    """Unit-seconds by state, over all ranks, requests or engines, or over the one in `rank`.

    Raises:
        LedgerError: the states do not sum to `wall_seconds` within `LEDGER_TOLERANCE`.
    """

    unit: Literal["rank", "request", "engine"]
    wall_seconds: float
    states: dict[str, float]
    rank: int | None = None

    def __post_init__(self) -> None:
        if abs(sum(self.states.values()) - self.wall_seconds) > LEDGER_TOLERANCE * self.wall_seconds + 1e-6:
            raise LedgerError(
                f"the records contradict each other: ledger states sum to {sum(self.states.values()):.6f} s, "
                f"the wall time is {self.wall_seconds:.6f} s"
            )


class Evidence(msgspec.Struct, frozen=True, kw_only=True):
    """A measured value, the threshold it was compared with, and where it was measured."""

    signal: str
    value: float
    threshold: float | None = None
    comparison: Literal[">=", "<=", ">", "<", ""] = ""
    unit: str = ""
    source: str = ""
    window: str = ""


class RunnerUp(msgspec.Struct, frozen=True, kw_only=True):
    """The next best explanation, and by how much of the step (a ratio) it fell behind."""

    class_: str = msgspec.field(name="class")
    margin: float


class AdvisedSettings(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What the action of a finding sets, for programs. The action says the same in words, with the reasons.

    Attributes:
        settings: value by name. `num_workers`, `persistent_workers`: of the `DataLoader`, on each rank. `OMP_NUM_THREADS`: the
            environment variable. `accumulated_batches`: of which one exchange of gradients is made.
            `checkpoint_interval_seconds`: from one save to the next, for a failure a day.
        expected_step_seconds: for the work of one step as it is now, if this alone is changed; None: not known, so nothing is
            promised.
    """

    settings: dict[str, bool | int | float]
    expected_step_seconds: float | None = None


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """A bottleneck, with its cost per step and the evidence for its cause.

    Attributes:
        seconds_per_step: step time lost to it. share: the same as a ratio of the mean step; share_ci: its 95 % interval.
        ranks: culprits, or `all`. confidence: 0 to 1.
        speedup_if_fixed: step time over step time without this loss, or with what is advised where that leaves a part of it; None
            where it cannot be determined.
        advice: what to set, where the action is a setting; absent from the document elsewhere.
        where: the line of user code at which it was seen most often, `file:line function`; empty: not seen.
        cause: which of the things that the class covers it is, as `sentences.SENTENCES` lists them; empty: the class says it.
        every_steps: the period of a loss that comes every so many steps. condition: it comes from what the machine does besides
            the job. A condition is never critical and stands after what the job can change.
        small: it is certain, and too small for a warning. It is information, stands after all others, and makes no job unhealthy.
    """

    class_: str = msgspec.field(name="class")
    severity: Severity
    seconds_per_step: float
    share: float
    share_ci: tuple[float, float]
    ranks: list[int] | Literal["all"]
    confidence: float
    runner_up: RunnerUp | None
    evidence: list[Evidence]
    speedup_if_fixed: float | None
    action: str
    runbook: str
    advice: AdvisedSettings | msgspec.UnsetType = msgspec.UNSET
    where: str = ""
    cause: str = ""
    every_steps: int | None = None
    condition: bool = False
    small: bool = False


def speedup_text(finding: Finding) -> str:
    """Return what fixing it would bring, in words."""
    if finding.speedup_if_fixed is None:
        return "cannot be determined"
    return f"{finding.speedup_if_fixed:.2f}x as fast"


class NotMeasured(msgspec.Struct, frozen=True, kw_only=True):
    """A class that could be neither found nor ruled out, and the signal that is missing."""

    class_: str = msgspec.field(name="class")
    missing: str


STEPS_BEFORE = "the report is on the steps before"
"""How the note of a failure begins what it means."""


class QualityNote(msgspec.Struct, frozen=True, kw_only=True):
    """Something about the data that bounds what can be concluded from them.

    Attributes:
        what: the fact, with its figure. bad: nothing should be concluded; limited: some things cannot be.
        means: what can and what cannot be concluded.
    """

    what: str
    severity: Literal["bad", "limited", "note"]
    means: str


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """A difference from the baseline, in seconds per step of one rank.

    Attributes:
        matched: how the two sides were found to be the same thing: `exact`, or by a rule for things that were renamed.
        names, baseline_names: how many names the rule took for one thing; the longest-running of them stands in `name`.
    """

    kind: Literal["step", "state", "operator", "kernel"]
    name: str
    baseline_name: str
    matched: str
    baseline_seconds: float
    seconds: float
    baseline_count: float = 0.0
    count: float = 0.0
    baseline_names: int = 1
    names: int = 1


class IntervalFinding(msgspec.Struct, frozen=True, kw_only=True):
    """A finding in an interval of a long job; see `Finding`."""

    class_: str = msgspec.field(name="class")
    severity: Severity
    seconds_per_step: float
    share: float
    ranks: list[int] | Literal["all"]


class JudgedInterval(msgspec.Struct, frozen=True, kw_only=True):
    """Part of a long job, judged when its records were compacted: up to an hour, or adjacent hours with the same main finding.

    Attributes:
        start, end: Unix seconds. attempt: of the steps. steps: number of steps that all ranks recorded. step_seconds: their mean.
        compute_share: of the time of these steps; None: not measured. findings: warnings and worse, the largest loss first.
    """

    start: float
    end: float
    attempt: int
    steps: int
    step_seconds: float
    compute_share: float | None
    findings: list[IntervalFinding]


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """One analysis. The main ledger stands first; findings are ordered by loss, largest first, those of small losses last."""

    schema: int = SCHEMA
    job: str
    window: Window
    ranks: int
    sources: list[Source]
    step_seconds: StepSeconds
    ledgers: list[Ledger]
    goodput: float | None
    findings: list[Finding]
    not_measured: list[NotMeasured]
    quality: list[QualityNote] = []
    baseline: str = ""
    changes: list[Change] = []
    """Against `baseline`: the step, then states, operators and kernels, the largest differences of each first."""
    lineage: dict[str, str] = {}
    """What the run was made of: code, image, data, hyper-parameters, checkpoints; secrets redacted."""
    review: list[str] = []
    """Why a person should look at this job before it is trusted."""
    failures: list[Failure] = []
    """Why attempts failed, the root of each, in order of time; of one attempt, that attempt's."""
    life: Life | None = None
    serving: Serving | None = None
    """Of a server of requests: then steps are requests, and ranks are engines."""
    course: Trend | None = None
    """How the run went, from its step records."""
    memory: MemoryReport | None = None
    """What the ranks held by time, and an end out of memory."""
    earlier: list[JudgedInterval] = []
    """Intervals of a long job before the window, in order of time."""
    stacks: list[StackGroup] = []
    """Where the processes of a job that hangs stand, the odd ones first."""
    comparison: Comparison | None = None
    """Against the step records of another run; against a profiler trace: `baseline` and `changes`."""


class _Schema(msgspec.Struct):
    schema: int


def dump(report: Report) -> bytes:
    """Return the report as indented JSON."""
    return msgspec.json.format(msgspec.json.encode(report), indent=2) + b"\n"


def load(path: Path) -> Report:
    """Read a report.

    Raises:
        TachoscopeError: the file is not a report, or one of a newer schema.
    """
    return parse(path.read_bytes(), str(path))


def parse(data: bytes, where: str) -> Report:
    """Return the report that a document is; `where` it lies is for errors.

    Raises:
        TachoscopeError: it is not a report, or one of a newer schema.
    """
    try:
        schema = msgspec.json.decode(data, type=_Schema).schema
    except msgspec.DecodeError as error:
        raise TachoscopeError(f"{where} is not a tachoscope report: {error}") from None
    if schema > SCHEMA:
        raise TachoscopeError(
            f"{where} is a report of schema {schema}, newer than the schema {SCHEMA} that this version reads",
            fix="pip install --upgrade tachoscope",
        )
    try:
        return msgspec.json.decode(data, type=Report)
    except (msgspec.DecodeError, ValueError) as error:
        raise TachoscopeError(f"{where} is not a valid report: {error}") from None


def worst_severity(findings: list[Finding]) -> Severity | None:
    """Return the highest severity among the findings, or None where there are none."""
    return min((finding.severity for finding in findings), key=SEVERITY_ORDER.__getitem__, default=None)


def gravest(findings: Iterable[Finding]) -> Finding | None:
    """Return the worst finding: of the highest severity, what the job can change before conditions, the largest loss; of small
    losses none is.
    """
    large = (one for one in findings if not one.small)
    return min(large, key=lambda one: (SEVERITY_ORDER[one.severity], one.condition, -one.share), default=None)
