"""What commands answer with `--format json`: one record each, whose keys docs/reference/programs.md lists from here.

Within a `schema` keys are only added. One that is renamed, is left out or means something else makes it the next.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from tachoscope_core.jobs.training_job_view import TrainingJobView
from tachoscope_core.report.efficiency import Efficiency
from tachoscope_core.report.preflight import PreflightReport

Severity = Literal["error", "note"]


class Document(msgspec.Struct, frozen=True, kw_only=True):
    """One answer."""

    schema: Annotated[int, Meta(description="1.")] = 1


class Check(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that `doctor` looks at."""

    name: Annotated[str, Meta(description="What was checked.")]
    state: Annotated[
        Literal["ok", "no", "bad"], Meta(description="`no`: a limit of what can be collected; `bad`: something to fix.")
    ]
    detail: Annotated[str, Meta(description="What was found, and the fix.")]


class Examined(Document, frozen=True, kw_only=True):
    """`tachoscope doctor`."""

    bad_checks: Annotated[int, Meta(description="How many checks are `bad`; the exit code is 1 if any.")]
    checks: list[Check]


class ListedJob(msgspec.Struct, frozen=True, kw_only=True):
    """A job of the store. What is null is not known, or a job of this kind has none."""

    job: Annotated[str, Meta(description="Its name.")]
    kind: Annotated[
        Literal["training", "service"] | None, Meta(description="Null: its records could not be read, see `fault`.")
    ] = None
    status: Annotated[str | None, Meta(description="`running`, `completed`, `failed`, or `unknown` where no end was recorded.")] = (
        None
    )
    reason: Annotated[str | None, Meta(description="Why it failed, as far as it was recorded.")] = None
    ranks: Annotated[int | None, Meta(description="Ranks that began.")] = None
    last_step: Annotated[int | None, Meta(description="The highest number of a step; 0: none yet.")] = None
    attempts: Annotated[int | None, Meta(description="Attempts that began: the first, and restarts.")] = None
    requests: Annotated[int | None, Meta(description="Requests that a service answered.")] = None
    requests_are_estimated: Annotated[
        bool | None, Meta(description="Not all records were read, and `requests` follows from the share of those that were.")
    ] = None
    last_record_unix_seconds: Annotated[
        float | None, Meta(description="When its last record was written; null: there is none.")
    ] = None
    fault: Annotated[str | None, Meta(description="Why its records could not be read.")] = None
    held: Annotated[str | None, Meta(description="Reason given for keeping it from `store prune`; null: it is not held.")] = None


class StoreListing(Document, frozen=True, kw_only=True):
    """`tachoscope store ls`."""

    store: Annotated[str, Meta(description="URL or directory of the store, without secrets.")]
    left_out_jobs: Annotated[int, Meta(description="Older jobs that `--limit` left out.")]
    jobs: list[ListedJob]


class SloProblem(msgspec.Struct, frozen=True, kw_only=True):
    """A problem of an objective or alert."""

    path: Annotated[str, Meta(description="The file.")]
    line: Annotated[int | None, Meta(description="Its line; null: the file cannot be read, and `what` names the place.")] = None
    severity: Annotated[Severity, Meta(description="Fix an `error`; a `note` may stay.")]
    what: Annotated[str, Meta(description="What is wrong.")]
    fix: Annotated[str, Meta(description="The fix; empty: `what` names it.")] = ""


class SloChecked(Document, frozen=True, kw_only=True):
    """`tachoscope slo check`."""

    objectives: Annotated[int, Meta(description="Objectives that were checked.")]
    other_alerts: Annotated[int, Meta(description="Alerts without an objective that were checked.")]
    errors: Annotated[int, Meta(description="The exit code is 1 if any.")]
    notes: Annotated[int, Meta(description="Problems that may stay.")]
    problems: list[SloProblem]


class BoardProblem(msgspec.Struct, frozen=True, kw_only=True):
    """What `dashboards check` reports of a board."""

    board: Annotated[str, Meta(description="The board, or the file that cannot be read.")]
    where: Annotated[str, Meta(description="The panel, variable or mark; empty: the board itself.")] = ""
    rule: Annotated[str | None, Meta(description="The rule that it breaks; null: the file cannot be read.")] = None
    severity: Annotated[Severity, Meta(description="Fix an `error`; a `note` may stay.")]
    what: Annotated[str, Meta(description="What is wrong.")]
    fix: Annotated[str, Meta(description="The fix; empty: `what` names it.")] = ""


class BoardsChecked(Document, frozen=True, kw_only=True):
    """`tachoscope dashboards check`."""

    boards: Annotated[int, Meta(description="Boards that were checked.")]
    expressions: Annotated[int, Meta(description="Expressions in them.")]
    errors: Annotated[int, Meta(description="The exit code is 1 if any.")]
    notes: Annotated[int, Meta(description="Problems that may stay.")]
    problems: list[BoardProblem]


class DrillCheck(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that a drill looks at."""

    what: Annotated[str, Meta(description="What was checked.")]
    passed: Annotated[bool, Meta(description="Whether the check passed.")]
    found: Annotated[str, Meta(description="What was found, in words.")]
    measured_seconds: Annotated[float | None, Meta(description="Of a time: the measured one; null: it is none, or never came.")] = (
        None
    )
    earliest_seconds: Annotated[float | None, Meta(description="Of a time: the least that was computed.")] = None
    latest_seconds: Annotated[float | None, Meta(description="Of a time: the most that was computed.")] = None


class OtherAlert(msgspec.Struct, frozen=True, kw_only=True):
    """An alert that came, too, as other rules see the same fault."""

    alert: Annotated[str, Meta(description="Its name.")]
    summary: Annotated[str, Meta(description="What it said.")]


class WalkedStep(msgspec.Struct, frozen=True, kw_only=True):
    """A query or command of the runbook; only with `--walk`."""

    when: Annotated[str, Meta(description="During the fault, after it, or at the end.")]
    section: Annotated[int, Meta(description="Number of its section on the page.")]
    what: Annotated[str, Meta(description="The query or command.")]
    verdict: Annotated[
        Literal["right", "WRONG", "not judged", "not run"], Meta(description="The exit code is 1 if one is `WRONG`.")
    ]
    answer: Annotated[str, Meta(description="What it answered, or why it was not run.")]


class DrillResult(Document, frozen=True, kw_only=True):
    """`tachoscope drill`."""

    class_: Annotated[str, Meta(description="What was broken.")] = msgspec.field(name="class")
    alert: Annotated[str, Meta(description="The alert that has to come.")]
    passed: Annotated[bool, Meta(description="No check failed; the exit code is 1 otherwise.")]
    checks: list[DrillCheck]
    other_alerts: list[OtherAlert]
    steps: list[WalkedStep]


class Drill(msgspec.Struct, frozen=True, kw_only=True):
    """Something that can be drilled."""

    class_: Annotated[str, Meta(description="What to call `tachoscope drill` with.")] = msgspec.field(name="class")
    what: Annotated[str, Meta(description="What is broken, and what comes of it.")]


class Drills(Document, frozen=True, kw_only=True):
    """`tachoscope drill --list`."""

    drills: list[Drill]


class CompactedJob(msgspec.Struct, frozen=True, kw_only=True):
    """A job of which records were compacted."""

    job: Annotated[str, Meta(description="Its name.")]
    segments: Annotated[int, Meta(description="Objects of JSON lines that were replaced.")]
    sets: Annotated[int, Meta(description="Sets of Parquet that replace them.")]
    json_bytes: Annotated[int, Meta(description="Of the JSON lines, not compressed.")]
    stored_bytes: Annotated[int, Meta(description="Of all objects of the sets.")]


class Compaction(Document, frozen=True, kw_only=True):
    """`tachoscope store compact`."""

    store: Annotated[str, Meta(description="URL or directory of the store, without secrets.")]
    jobs: list[CompactedJob]


class RemovedThing(msgspec.Struct, frozen=True, kw_only=True):
    """What was removed, or would be."""

    what: Annotated[str, Meta(description="`records`, `metrics`, `traces` or `nodes`.")]
    name: Annotated[str, Meta(description="Of the job, day, recording (`JOB/RECORDING`) or node.")]
    last_written_unix_seconds: Annotated[float, Meta(description="When something of it was last written.")]
    bytes: Annotated[int, Meta(description="Of its objects.")]
    objects: Annotated[int, Meta(description="How many objects it was.")]


class Pruning(Document, frozen=True, kw_only=True):
    """`tachoscope store prune`."""

    store: Annotated[str, Meta(description="URL or directory of the store, without secrets.")]
    dry_run: Annotated[bool, Meta(description="Nothing was removed.")]
    removed: list[RemovedThing]


class TrainingJobShown(TrainingJobView, frozen=True, kw_only=True):
    """A training job of `tachoscope status`."""

    has_supervisor_here: Annotated[bool, Meta(description="A process of this machine supervises it.")]


class TrainingJobsShown(Document, frozen=True, kw_only=True):
    """`tachoscope status`."""

    training_jobs: Annotated[list[TrainingJobShown], Meta(description="By name; with NAME that one.")]


class Efficiencies(Document, frozen=True, kw_only=True):
    """`tachoscope efficiency`."""

    by: Annotated[Literal["user", "account"], Meta(description="Whom the hours are counted for.")]
    since: Annotated[float, Meta(description="Begin of the period, Unix seconds.")]
    until: Annotated[float, Meta(description="Its end.")]
    efficiencies: Annotated[list[Efficiency], Meta(description="Who held most first.")]


class NodeEvidence(msgspec.Struct, frozen=True, kw_only=True):
    """Something that a bad node explains."""

    kind: Annotated[str, Meta(description="`host_lost`, `hang`, `killed`, `xid` or `preflight`.")]
    time: Annotated[float, Meta(description="Unix seconds.")]
    job: Annotated[str, Meta(description="The job; empty: none.")]
    detail: Annotated[str, Meta(description="More of it, in words.")]


class NodeShown(msgspec.Struct, frozen=True, kw_only=True):
    """A node."""

    node: Annotated[str, Meta(description="Its name in the scheduler.")]
    state: Annotated[str, Meta(description="`healthy`, `suspect`, `quarantined`, `draining`, `testing` or `returned`.")]
    since: Annotated[float | None, Meta(description="Unix seconds; null: nothing happened to it.")]
    why: Annotated[str, Meta(description="The reason for its state.")]
    held: Annotated[str, Meta(description="Why it is not taken out though it should be; empty: it should not, or is.")]
    evidence: list[NodeEvidence]
    cordoned_by: Annotated[str, Meta(description="The person who keeps it out; empty: nobody.")]
    test_asked_at: Annotated[float | None, Meta(description="Unix seconds; null: no test is asked for.")]
    failed_tests: Annotated[int, Meta(description="Since it is out.")]


class NodeAudit(msgspec.Struct, frozen=True, kw_only=True):
    """A decision or an action."""

    time: Annotated[float, Meta(description="Unix seconds.")]
    node: Annotated[str, Meta(description="Empty: of the breaker.")]
    what: Annotated[str, Meta(description="`state`, `drain`, `test` or `resume`.")]
    before: Annotated[str, Meta(description="The state before.")]
    after: Annotated[str, Meta(description="The state after.")]
    outcome: Annotated[str, Meta(description="Of an action: `begun`, `done`, `failed` or `dry run`.")]
    why: Annotated[str, Meta(description="The reason, or why it failed.")]
    undo: Annotated[str, Meta(description="The command that undoes it.")]


class NodesShown(Document, frozen=True, kw_only=True):
    """`tachoscope nodes ls`, `explain` and `audit`."""

    looked_at: Annotated[float, Meta(description="Unix seconds of the watch's last look that is kept.")]
    breaker_opened_at: Annotated[float | None, Meta(description="Unix seconds; null: it is closed.")]
    nodes: Annotated[list[NodeShown], Meta(description="By name; with NODE that one.")]
    audit: Annotated[list[NodeAudit], Meta(description="In order of time.")]


ANSWERS: Mapping[str, type[msgspec.Struct]] = {
    "doctor": Examined,
    "preflight": PreflightReport,
    "status": TrainingJobsShown,
    "efficiency": Efficiencies,
    "nodes ls": NodesShown,
    "nodes explain": NodesShown,
    "nodes audit": NodesShown,
    "store ls": StoreListing,
    "store compact": Compaction,
    "store prune": Pruning,
    "slo check": SloChecked,
    "dashboards check": BoardsChecked,
    "drill": DrillResult,
    "drill --list": Drills,
}
"""By command; the records of other commands are where docs/reference/programs.md says."""
