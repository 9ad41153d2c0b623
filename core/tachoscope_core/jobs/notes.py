"""What is unusual about a job and bounds what its records show, each in one line with the way out.

`tachoscope run` says these lines when its command ends, reports hold them as quality notes: both take them from here.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence, Set
from dataclasses import dataclass, field

from tachoscope_core.jobs.shared_ranks import RankClaim, SharedRank, shared_ranks
from tachoscope_core.python_flags import keeps_probe_out
from tachoscope_core.records import records
from tachoscope_core.report.report import QualityNote
from tachoscope_core.storage.spool import FOREIGN_PYTHON, FRAMEWORKS, PYTHON

HUNG = "the job hung"
"""How the note on an attempt that ended in a hang begins."""
SAY_STEPS = "call tachoscope.step() at the end of each step (docs/concepts/steps.md)"
_NOTHING = f"no process of it computed gradients with torch or called tachoscope.step(): {SAY_STEPS}"


@dataclass(slots=True)
class RankProcess:
    """A process that is a rank, as far as its records tell.

    Attributes:
        last: Unix seconds of its last record. steps: the last that it finished. threads: that train beside the watched one.
        gradient_steps: steps that ended without an optimizer. phases: that it was in, in the steps that were looked at.
    """

    start: records.JobStarted
    last: float
    steps: int = 0
    threads: int = 0
    gradient_steps: int = 0
    phases: set[str] = field(default_factory=set)
    ended: records.JobEnded | None = None

    def add_steps(self, last: float, newest: int, phases: Set[str]) -> None:
        """Take steps: when the last of them ended in Unix seconds, their highest number, and the phases in them."""
        self.last, self.steps = max(self.last, last), max(self.steps, newest)
        self.phases |= phases

    def add_beats(self, last: float, newest: int, threads: int, gradient_steps: int) -> None:
        """Take heartbeats: when the last of them was sent in Unix seconds, and the highest that they say of the rest."""
        self.last, self.steps = max(self.last, last), max(self.steps, newest)
        self.threads, self.gradient_steps = max(self.threads, threads), max(self.gradient_steps, gradient_steps)


class Facts:
    """Collects what the notes are made of from the records of a job, in any order but that of each writer."""

    def __init__(self, rows: Iterable[records.Record] = ()) -> None:
        self.processes: dict[str, RankProcess] = {}
        self.failures: list[records.WorkerFailed] = []
        self.launcher: records.JobEnded | None = None
        self.command = ""
        for row in rows:
            self.add_record(row)

    def add_record(self, row: records.Record) -> None:
        """Take the next record."""
        if isinstance(row, records.WorkerFailed):
            self.failures.append(row)
        elif row.rank < 0:
            self._of_launcher(row)
        elif isinstance(row, records.JobStarted):
            self.processes.setdefault(row.writer, RankProcess(row, row.time))
        elif row.writer in self.processes:
            self._more(self.processes[row.writer], row)

    def add_steps(self, writer: str, *, last: float, newest: int, phases: Set[str]) -> None:
        """Take steps of a process, after its start: see `RankProcess.add_steps`."""
        if writer in self.processes:
            self.processes[writer].add_steps(last, newest, phases)

    def add_beats(self, writer: str, *, last: float, newest: int, threads: int, gradient_steps: int) -> None:
        """Take heartbeats of a process, after its start: see `RankProcess.add_beats`."""
        if writer in self.processes:
            self.processes[writer].add_beats(last, newest, threads, gradient_steps)

    def _of_launcher(self, row: records.Record) -> None:
        if isinstance(row, records.JobStarted):
            self.command = row.lineage.get("launch_command", self.command)
        elif isinstance(row, records.JobEnded):
            self.launcher = row

    @staticmethod
    def _more(seen: RankProcess, row: records.Record) -> None:
        seen.last = max(seen.last, row.time)
        match row:
            case records.StepDone():
                seen.add_steps(row.time, row.step, row.phase_seconds.keys() | row.device_seconds.keys())
            case records.Heartbeat():
                threads, gradient_steps = (
                    int(row.signals.get(name, 0)) for name in (records.OTHER_THREADS, records.GRADIENT_STEPS)
                )
                seen.add_beats(row.time, row.step, threads, gradient_steps)
            case records.JobEnded():
                seen.steps = max(seen.steps, row.steps)
                seen.ended = row

    def of_attempt(self, attempt: int | None = None) -> list[RankProcess]:
        """Return the processes of an attempt; default: of the newest that has any."""
        newest = max((seen.start.attempt for seen in self.processes.values()), default=0)
        wanted = newest if attempt is None else attempt
        return [seen for seen in self.processes.values() if seen.start.attempt == wanted]

    def claims(self) -> list[RankClaim]:
        """Return who says which rank it is."""
        return [RankClaim(seen.start, seen.start.time, seen.last) for seen in self.processes.values()]


def data_notes(found: Sequence[RankProcess], shared: Sequence[SharedRank]) -> list[QualityNote]:
    """Return what is unusual about an attempt with steps, given its processes and the ranks that several of them claim."""
    return [*same_rank(shared), *training_threads(found), *without_optimizer(found), *computing_unmeasured(found)]


def same_rank(shared: Sequence[SharedRank]) -> list[QualityNote]:
    """Note ranks that several processes claim at the same time."""
    return [
        QualityNote(
            what=f"{len(one.ranks)} processes say that they are rank {one.rank}",
            severity="limited",
            means=f"they are analyzed as ranks {_listed(one.ranks)}, but for those with less than half the steps of the "
            "others; give each its own $RANK and $WORLD_SIZE, as torchrun does, to say which is which",
        )
        for one in shared
    ]


def training_threads(found: Sequence[RankProcess]) -> list[QualityNote]:
    """Note processes in which several threads compute gradients."""
    several = [seen for seen in found if seen.threads]
    if not several:
        return []
    most = max(seen.threads for seen in several) + 1
    where = "in the process" if len(found) == 1 else f"in {len(several)} of {len(found)} processes"
    return [
        QualityNote(
            what=f"{most} threads compute gradients {where}",
            severity="limited",
            means="only the first of them is watched, and the report is on its steps; start a process for each "
            f"(torchrun --nproc-per-node {most}) to watch all",
        )
    ]


def without_optimizer(found: Sequence[RankProcess]) -> list[QualityNote]:
    """Note steps that no optimizer ended."""
    if not any(2 * seen.gradient_steps > seen.steps for seen in found):
        return []  # few: those before the job said its steps, or an optimizer stepped
    return [
        QualityNote(
            what="no optimizer of torch.optim stepped, so each computation of gradients after a new batch counts as a step",
            severity="limited",
            means=f"to count them otherwise, as with gradient accumulation, {SAY_STEPS}",
        )
    ]


def computing_unmeasured(found: Sequence[RankProcess]) -> list[QualityNote]:
    """Note steps of which nobody says how long they computed: torch computes nothing in them, and the job marks nothing."""
    phases: set[str] = set().union(*(seen.phases for seen in found))
    if not any(seen.steps for seen in found) or not phases or phases & records.COMPUTING_PHASES:
        return []
    marked = phases - {"other", "gc"}
    return [
        QualityNote(
            what="no gradients were computed with torch, so "
            + ("the computing of a step is not measured" if marked else "only the total time of a step is measured"),
            severity="limited" if marked else "bad",
            means="put `with tachoscope.phase('forward'):` around what computes, and `with tachoscope.phase('data_wait'):` around "
            "what fetches input (docs/concepts/steps.md)",
        )
    ]


def crash(rank: int, step: int, reason: str, command: str) -> str:
    """Return who failed first, and how.

    Args:
        step: the last that it finished. reason: the type of the exception, or `killed`; empty: not known.
        command: how the command ended, such as `exit code 1` or `killed by SIGKILL`; empty: not known.
    """
    when = f"in step {step + 1}" if step else "before its first step ended"
    by_signal = command.startswith("killed")
    if reason.startswith("killed"):
        how, command = f"was {command if by_signal else reason}", "" if by_signal else command
    else:
        how = f"failed with {reason}" if reason else "failed"
    ended = f"; the command {'was' if by_signal else 'ended with'} {command}" if command else ""
    return f"rank {rank} {how} {when}{ended}"


def first_failure(facts: Facts) -> str:
    """Return what `tachoscope run` says of a command that failed after its processes began to train; empty: none of them failed."""
    writers = {seen.start.writer: seen for seen in facts.of_attempt()}
    failed = [row for row in facts.failures if row.failed_writer in writers]
    if not failed or facts.launcher is None or facts.launcher.status != "failed":
        return ""
    first = min(failed, key=lambda row: row.gone_time)
    given = {writer: rank for one in shared_ranks(facts.claims()) for writer, rank in one.writers.items()}
    return crash(
        given.get(first.failed_writer, first.failed_rank),
        max(first.step, writers[first.failed_writer].steps),
        first.reason,
        facts.launcher.reason,
    )


def why_no_steps(facts: Facts) -> str:
    """Return why a job has no step, and the way out."""
    found, end = facts.of_attempt(), facts.launcher
    command = f"the command ended with {end.reason}" if end is not None and end.status == "failed" else ""
    if not found:
        return (f"{command} before a step; " if command else "") + why_unrecorded(end, facts.command)
    failed = first_failure(facts) or next((_own_word(seen) for seen in found if seen.ended and seen.ended.status == "failed"), "")
    if failed or command:
        return failed or f"{command} before its first step ended"
    who = "its process" if len(found) == 1 else f"its {len(found)} processes"
    return f"{who} computed gradients, but no optimizer of torch.optim stepped: {SAY_STEPS}"


def why_unrecorded(end: records.JobEnded | None, command: str) -> str:
    """Return why no process of a command recorded anything, and the way out.

    Args:
        end: what its launcher said at its end. command: the command line, as far as it is known.
    """
    if end is None or end.loaded is None:
        return _NOTHING
    flag = "" if end.loaded else keeps_probe_out(command)
    return _kept_out(flag) if flag else _why_nothing_recorded(end.loaded)


def _kept_out(flag: str) -> str:
    if flag == "-S":  # then tachoscope cannot be imported either
        return "the command ran Python with -S, which skips sitecustomize, so the probe was not loaded: leave -S out"
    return (
        f"the command ran Python with {flag}, which ignores $PYTHONPATH, so the probe was not loaded: leave {flag} out, or put "
        "`with tachoscope.watch():` around the training"
    )


def _own_word(seen: RankProcess) -> str:
    return crash(seen.start.rank, seen.steps, seen.ended.reason if seen.ended else "", "")


def _why_nothing_recorded(loaded: Collection[str]) -> str:
    other = [name for name in FRAMEWORKS[1:] if name in loaded]
    if "torch" in loaded:
        return (
            "its processes imported torch, and none called backward() or tachoscope.step(): a training that computes gradients "
            f"otherwise (torch.autograd.grad, torch.func) must {SAY_STEPS}"
        )
    if other:
        return f"it trains with {' and '.join(other)}, of which only what the job says is measured: {SAY_STEPS}"
    if FOREIGN_PYTHON in loaded:
        return "its Python cannot import tachoscope: install it in that environment (pip install tachoscope)"
    if PYTHON in loaded:
        return f"no process of it imported torch or called tachoscope.step(): {SAY_STEPS}"
    return (
        "no Python under the probe was started: a container, ssh or `conda run` hides $PYTHONPATH, and so do -I, -E and -S of "
        "Python; put `tachoscope run` inside of it, leave the flag out, or put `with tachoscope.watch():` around the training"
    )


def _listed(numbers: Sequence[int]) -> str:
    if len(numbers) > 8:
        return f"{numbers[0]}, {numbers[1]} to {numbers[-1]}"
    return f"{', '.join(map(str, numbers[:-1]))} and {numbers[-1]}"


def texts(found: Iterable[QualityNote]) -> list[str]:
    """Return a line `what: means` a note."""
    return [f"{note.what}: {note.means}" for note in found]
