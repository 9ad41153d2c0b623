"""`tachoscope run`: start any command with the probe switched on in every process of it that imports torch."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

import tachoscope
from tachoscope import guard
from tachoscope.failures.hooks import RANK_PROCESS
from tachoscope.process import identity
from tachoscope.spool.ship import remove_if_empty, ship, ship_left_behind
from tachoscope_cli.launcher import attempt_number as attempts
from tachoscope_cli.launcher import live_attempts as beside
from tachoscope_cli.launcher import noted_saves
from tachoscope_cli.launcher.shard_quarantine import Quarantining
from tachoscope_cli.launcher.signals import end_family, wait
from tachoscope_cli.launcher.supervision import Follower, Supervision
from tachoscope_cli.sources.agent_pages import why_behind
from tachoscope_core.errors import TachoscopeError
from tachoscope_core.exit_codes import ExitCode
from tachoscope_core.jobs.checkpoint_plan import INTERVAL_VARIABLE
from tachoscope_core.owner import of_this_process
from tachoscope_core.records import records
from tachoscope_core.redaction import redact
from tachoscope_core.report.failures import Failure
from tachoscope_core.storage import spool
from tachoscope_core.storage.compacted import all_segments, last_attempt
from tachoscope_core.storage.store import Store, default_url
from tachoscope_node.hang_evidence.collector import EvidenceCollector
from tachoscope_show.report import failure_words
from tachoscope_show.text.safe_text import safe

if TYPE_CHECKING:
    from tachoscope_cli.launcher.checkpoint_interval import CheckpointInterval

BOOTSTRAP = Path(tachoscope.__file__).parent / "bootstrap"
_NODE_OPTIONS = ("--nnodes", "--num_machines", "--num-machines", "--num_nodes", "--num-nodes")
_NAME_OPTIONS = ("--rdzv-id", "--rdzv_id")
AGENT_SHIPS_SECONDS = 30.0
"""How long a run that ended waits for the agent to ship what it wrote; a live agent takes a second or two."""
GRACE_SECONDS = 25.0
"""Kubernetes kills 30 s after its SIGTERM, unless told otherwise."""
LEFT_BEHIND_SECONDS = 5.0
"""How long the end of a run waits until what earlier runs left behind is shipped."""
SILENT_SECONDS = 3.0
"""After this it says that it waits, and why."""
_MOST_REASON = 300


@dataclass(frozen=True, slots=True)
class RunOutcome:
    """How a watched command ended: its exit code as a shell gives it, its job, and what is in the store.

    Attributes:
        store_url: where its records went. by_agent: the node's agent ships them, not this process.
        recorded: a process of the command recorded something, beside the launcher.
        all_shipped: nothing stayed in the spool.
        several: the job has other attempts than the first of this run: restarts, or earlier runs of the name.
        tracker_runs: runs of experiment trackers that the command had open, as its lineage tells.
        services: names under which its processes served requests, as far as this process saw their records.
        notes: lines on how its training failed, and on what bounds its records, each with the way out; none of services.
        failure: the first failure of its last attempt; None: it did not fail, or that is not known.
    """

    exit_code: int
    job: str
    store_url: str
    by_agent: bool
    recorded: bool
    all_shipped: bool
    several: bool = False
    tracker_runs: Mapping[str, str] = field(default_factory=dict)
    services: Sequence[str] = ()
    notes: Sequence[str] = ()
    failure: Failure | None = None


def check_command(command: Sequence[str]) -> None:
    """Raise TachoscopeError, with a shell's exit code, for a command that cannot be started."""
    if not command:
        raise TachoscopeError("no command given", fix="tachoscope run -- python train.py")
    program = command[0]
    if shutil.which(program):
        return
    if Path(program).is_file():
        raise TachoscopeError(
            f"no permission to execute {program!r}",
            fix=f"chmod +x {program}, or run it with python",
            exit_code=ExitCode.NOT_EXECUTABLE,
        )
    raise TachoscopeError(
        f"command not found after '--': {program!r}",
        fix="check the spelling, and that it is installed",
        exit_code=ExitCode.NO_SUCH_COMMAND,
    )


def _option(command: Sequence[str], names: Sequence[str]) -> str | None:
    for index, word in enumerate(command):
        name, equals, value = word.partition("=")
        if name in names:
            return value if equals else (command[index + 1] if index + 1 < len(command) else None)
    return None


def _is_of_several_nodes(command: Sequence[str], environ: Mapping[str, str]) -> bool:
    nodes = (_option(command, _NODE_OPTIONS) or "1").split(":")[-1]
    return identity.spans_nodes(environ) or (nodes.isdigit() and int(nodes) > 1)


def _joins(command: Sequence[str], environ: Mapping[str, str]) -> bool:
    """Return whether the run may be one node of several, also by an operator of Kubernetes."""
    nodes = environ.get("PET_NNODES", "1").split(":")[-1]
    by_operator = bool(environ.get("JOB_COMPLETION_INDEX")) or (nodes.isdigit() and int(nodes) > 1)
    return by_operator or _is_of_several_nodes(command, environ)


def job_name(command: Sequence[str], environ: Mapping[str, str], name: str | None) -> tuple[str, bool]:
    """Return the job's name, and whether it is only a default that holds on this node.

    Raises:
        TachoscopeError: the command starts a part of a job of several nodes and nothing names it, or the name is not usable.
    """
    given = name or environ.get(identity.JOB) or identity.scheduler_job(environ) or _option(command, _NAME_OPTIONS)
    if given:
        return records.check_job_name(given), False
    if _is_of_several_nodes(command, environ):
        raise TachoscopeError("a job of more than one node needs a name", fix=identity.MULTI_NODE_FIX)
    script = next((Path(word).stem for word in command[1:] if word.endswith(".py")), None)
    if script is None and "-m" in command[:-1]:
        script = command[len(command) - 1 - list(reversed(command)).index("-m") + 1].rsplit(".", 1)[-1]
    stem = "".join(letter if letter.isalnum() else "-" for letter in script or Path(command[0]).stem).strip("-")
    return f"{stem or 'job'}-{time.strftime('%Y%m%d-%H%M%S')}", True


def run(
    command: Sequence[str],
    *,
    job: str | None,
    store_url: str | None,
    output: int | None = None,
    while_running: Callable[[Path], None] | None = None,
    ours: bool = False,
    grace_seconds: float = GRACE_SECONDS,
    end_hung_seconds: float = 0.0,
) -> RunOutcome:
    """Run a command under the probe, then put its records into the store, or see to it that the node's agent did.

    A store or spool that cannot be used is one line on stderr and does not keep the command from running.

    Args:
        store_url: None for the store of the agent that watches the spool, else the default one. With an agent that ships to another
            store, its metrics are the agent's, and its records are shipped to this one.
        output: file descriptor for the command's stdout and stderr; default: this process's.
        while_running: called about three times a second with the run's spool directory.
        ours: the command is not a user's: an interrupt ends it at once.
        grace_seconds: how long a command that asks for notices has to end by itself after a SIGTERM, before it gets one.
        end_hung_seconds: a command that has hung for this long after its hang was noticed is ended; 0: it never is.

    Raises:
        TachoscopeError: the command cannot be started, or a job of several nodes has no name.
        KeyboardInterrupt: the command was `ours`, and was interrupted.
    """
    check_command(command)
    name, is_default = job_name(command, os.environ, job)
    root = spool.default_root()
    agent = spool.live_agent(root)
    url = store_url or (agent.store if agent else default_url())
    store = Store(url)
    by_agent = agent is not None and agent.store == url
    joins = _joins(command, os.environ)
    attempt = _attempt(store, name, joins=joins)
    run_directory = root / f"run-{uuid.uuid4()}"
    with _made(run_directory, ships=not by_agent):
        quarantining = Quarantining(root, name)
        quarantining.fetch(store)
        attempt = _after_those_alive(attempt, root, name, joins=joins)  # last: another may start this moment
        evidence = None if by_agent else EvidenceCollector(store, socket.gethostname(), log=guard.print_line)
        watching = Supervision(
            run_directory, name, attempt, None if agent else quarantining.watch, evidence, _followers(store, name)
        )
        watching.started(command)
        environ = _environment(run_directory, name, attempt, is_default=is_default)
        process = _started(command, environ, watching, output=output, ours=ours)
        left_behind = _BackgroundWork(lambda: ship_left_behind(root, store) if agent is None else None)

        kept = _ExitCodeKept()
        poll = _poller(watching, process, kept, end_hung_seconds, lambda: while_running and while_running(run_directory))
        code = wait(process, poll, on_term=lambda: watching.noticed(grace_seconds), on_interrupt=watching.interrupted, ours=ours)
        interrupted = ours and code == ExitCode.INTERRUPTED
        recorded, services = False, list[str]()
        with kept:
            watching.command_ended(code)
            recorded = any(spool.writer_and_number(path)[0] != watching.writer for path in spool.segments(run_directory))
            services = _services(run_directory)
        with kept:
            if not by_agent:
                _ship(run_directory, store)
                quarantining.store(store)
                left_behind.wait()
            elif not interrupted:
                _wait_for_agent(run_directory, store)
                recorded = recorded or _stored_any(store, name, attempt, watching.writer)
    if interrupted:
        raise KeyboardInterrupt
    outcome = RunOutcome(
        code,
        name,
        url,
        by_agent,
        recorded,
        all_shipped=not run_directory.exists(),
        several=attempt > 0,
        tracker_runs=watching.tracker_runs,
        services=services,
    )
    with kept:
        return _judged(outcome, store, attempt, watching)
    return outcome


def _poller(
    watching: Supervision,
    process: subprocess.Popen[bytes],
    kept: _ExitCodeKept,
    end_hung_seconds: float,
    while_running: Callable[[], object],
) -> Callable[[], None]:
    """Return what is done some times a second while the command runs."""

    def poll() -> None:
        with kept:
            watching.poll()
        if 0 < end_hung_seconds <= watching.hung_seconds:
            watching.wait_for_evidence()
            guard.print_line(f"the command has hung for {watching.hung_seconds:.0f} s since that was noticed, and is ended")
            end_family(process)
        while_running()

    return poll


def _judged(outcome: RunOutcome, store: Store, attempt: int, watching: Supervision) -> RunOutcome:
    """Return the outcome with what the records in the store say. attempt: the first of the run."""
    failure, notes = None, list[str]()
    if outcome.exit_code and not outcome.services:
        failure = _first_failure(store, outcome.job, attempt, all_shipped=outcome.all_shipped)
    if not outcome.services:
        notes = [*(failure_words.lines(failure) if failure else []), *watching.lines(root_known=failure is not None)]
    return replace(outcome, several=outcome.several or _restarted(store, outcome.job), notes=notes, failure=failure)


class _ExitCodeKept:
    """A context for what is done beside a command: what fails in it is a line, said once, and the exit code is the command's."""

    def __init__(self) -> None:
        self._told: set[str] = set()

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> bool:
        if not isinstance(error, Exception):
            return False
        line = f"not recorded, a fault of tachoscope: {_reason_of(error)}"
        if line not in self._told:
            self._told.add(line)
            guard.print_line(line)
        return True


def _reason_of(error: Exception) -> str:
    reason = str(error) if isinstance(error, TachoscopeError) else f"{type(error).__name__}: {error}"
    return safe(redact(reason))[:_MOST_REASON]


def _started(
    command: Sequence[str], environ: Mapping[str, str], watching: Supervision, *, output: int | None, ours: bool
) -> subprocess.Popen[bytes]:
    try:
        return subprocess.Popen(list(command), env=environ, stdout=output, stderr=output, start_new_session=ours)
    except OSError as error:
        watching.command_ended(ExitCode.NOT_EXECUTABLE)
        raise TachoscopeError(f"could not start {command[0]!r}: {error.strerror}", exit_code=ExitCode.NOT_EXECUTABLE) from None


class _BackgroundWork:
    """Work done while the command runs, which never delays its start or this process's end."""

    def __init__(self, work: Callable[[], object]) -> None:
        self._thread = threading.Thread(target=self._run, args=(work,), name="tachoscope-left-behind", daemon=True)
        self._thread.start()

    @staticmethod
    def _run(work: Callable[[], object]) -> None:
        with contextlib.suppress(OSError, TachoscopeError):
            work()

    def wait(self) -> None:
        """Wait briefly; unfinished work is done by the next run."""
        self._thread.join(LEFT_BEHIND_SECONDS)


def _services(run_directory: Path) -> list[str]:
    """Return the services whose processes record in the spool, by the first record of each writer."""
    found = set()
    for path in spool.segments(run_directory):
        with contextlib.suppress(OSError, ValueError), path.open("rb") as file:
            first = records.decode(file.readline(records.MAX_LINE_BYTES))
            if isinstance(first, records.ServiceStarted):
                found.add(first.job)
    return sorted(found)


def _attempt(store: Store, job: str, *, joins: bool) -> int:
    try:
        owner = store.owner(job)
        if owner not in {None, of_this_process()}:
            guard.print_line(
                f"job {job!r} in store {store.url} belongs to {owner}: the records of this run stay in the spool"
                " (choose another name with --job)"
            )
        return attempts.number(store, job, host=socket.gethostname(), joins=joins, now=time.time())
    except TachoscopeError as error:
        guard.print_line(f"{error}; the records will stay in the spool")
        return 0


def _followers(store: Store, job: str) -> list[Follower]:
    """Return what follows the records of a supervised attempt; nothing of others."""
    found = (noted_saves.from_environment(store, job, socket.gethostname(), os.environ), _checkpoint_interval(store, job))
    return [one for one in found if one is not None]


def _checkpoint_interval(store: Store, job: str) -> CheckpointInterval | None:
    """Return what follows the saves of a supervised attempt. Only that needs what judges, which a training machine may lack."""
    if not os.environ.get(INTERVAL_VARIABLE):
        return None
    try:
        from tachoscope_cli.launcher import checkpoint_interval
    except ImportError as error:
        guard.print_line(f"the interval of checkpoints stays as it is: {error.name} is missing (pip install 'tachoscope[analyze]')")
        return None
    return checkpoint_interval.from_environment(store, job, os.environ)


def _after_those_alive(attempt: int, root: Path, job: str, *, joins: bool) -> int:
    """Warn if other attempts of the job are alive, and return the number after theirs, which the store may not have yet."""
    now = time.time()
    found = beside.others(beside.alive(root, job, os.environ), os.environ, host=socket.gethostname(), joins=joins, now=now)
    if found:
        guard.print_line(beside.warning(job, found, now=now))
    return max([attempt, *(one.attempt + 1 for one in found)])


def _restarted(store: Store, job: str) -> bool:
    try:
        return last_attempt(store, job) > 0
    except TachoscopeError:
        return False


def _first_failure(store: Store, job: str, attempt: int, *, all_shipped: bool) -> Failure | None:
    """Return the first failure of the last attempt of a run; None: it is not known. attempt: the first of the run."""
    if not all_shipped:  # what is in the store may be of an earlier run
        guard.print_line("why the command failed is not known: not all of its records are in the store")
        return None
    try:
        from tachoscope_analyzers.failures.report import failures_in_store  # a command that ends well never needs it

        found = failures_in_store(store, job)
    except Exception as error:  # records are foreign input, and the exit code is the command's whatever lies in the store
        guard.print_line(f"why the command failed is not known, its records cannot be judged: {_reason_of(error)}")
        return None
    return next((one for one in reversed(found) if one.attempt >= attempt), None)


def _stored_any(store: Store, job: str, attempt: int, launcher: str) -> bool:
    """Return whether the store has records of this attempt or its restarts besides the launcher's."""
    try:
        return any(segment.attempt >= attempt and segment.writer != launcher for segment in all_segments(store, job))
    except TachoscopeError:
        return True  # not known: then nothing is said about it


def _environment(run_directory: Path, job: str, attempt: int, *, is_default: bool) -> dict[str, str]:
    environ = dict(os.environ)
    environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(BOOTSTRAP), environ.get("PYTHONPATH", "")]))
    environ[identity.RUN_DIR] = str(run_directory)
    environ[identity.JOB] = job
    environ[identity.ATTEMPT] = str(attempt)
    if is_default:
        environ[identity.JOB_IS_DEFAULT] = "1"
    environ.pop(RANK_PROCESS, None)
    return environ


@contextlib.contextmanager
def _made(run_directory: Path, *, ships: bool) -> Iterator[None]:
    """Create the run's spool directory and, if this process ships it, hold its lock."""
    lock: int | None = None
    try:
        spool.make_directory(run_directory)
        if ships:
            lock = spool.try_lock(run_directory / spool.SHIPPER_LOCK)
    except OSError as error:
        guard.print_line(
            f"spool {run_directory.parent} is not writable: {error.strerror}; the command runs, and what the"
            " probe cannot write is counted (set $TACHOSCOPE_SPOOL)"
        )
    try:
        yield
    finally:
        if lock is not None:
            os.close(lock)


def _wait_for_agent(run_directory: Path, store: Store) -> None:
    """Wait until the agent has shipped everything; if it died, ship the rest."""
    began, told = time.monotonic(), False
    while run_directory.exists():
        agent = spool.live_agent(run_directory.parent)
        if agent is None:
            _ship(run_directory, store)
            return
        waited = time.monotonic() - began
        if waited > AGENT_SHIPS_SECONDS:
            tries = f"they lie in {run_directory}, and it goes on trying"
            guard.print_line(f"the agent has not shipped all records yet; {tries}{_reason(agent)}")
            return
        if waited > SILENT_SECONDS and not told:
            told = True
            wait_for = f"waiting up to {AGENT_SHIPS_SECONDS:.0f} s for the agent to ship the records"
            guard.print_line(f"{wait_for}{_reason(agent)}")
        time.sleep(0.1)


def _reason(agent: spool.LiveAgent) -> str:
    reason = why_behind(agent)
    return f": {reason}" if reason else ""


def _ship(run_directory: Path, store: Store) -> None:
    """Ship the run's records; its lock is this process's own, or that of an agent that died."""
    try:
        ship(run_directory, store)
        remove_if_empty(run_directory)
    except (TachoscopeError, OSError) as error:
        if run_directory.is_dir():
            guard.print_line(f"the records stay in {run_directory}: {error}")
