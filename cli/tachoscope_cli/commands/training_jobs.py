"""`tachoscope submit`, `status`, `cancel` and `supervise`: training jobs that come back after a failure."""

from __future__ import annotations

import getpass
import os
import shutil
import sys
import time
from datetime import datetime
from pathlib import Path
from typing import Annotated

import msgspec
import typer
from rich.table import Table

from tachoscope_cli.common.answers import TrainingJobShown, TrainingJobsShown
from tachoscope_cli.common.options import TEXT, JsonOption, StoreOption, print_notice, store_url
from tachoscope_cli.common.output import console, write_json
from tachoscope_cli.training_jobs.engines import engine_of
from tachoscope_cli.training_jobs.lock import directory_of, held, supervisor_of
from tachoscope_cli.training_jobs.supervise_all import SuperviseAll, log_of, start_supervisor
from tachoscope_core.errors import TachoscopeError
from tachoscope_core.exit_codes import ExitCode
from tachoscope_core.jobs import submission
from tachoscope_core.jobs.submitted_jobs import ENDED, Attempt, TrainingJobs, TrainingJobStatus
from tachoscope_core.jobs.training_job import ENGINES, TrainingJob
from tachoscope_core.jobs.training_job_view import view_of
from tachoscope_core.storage.store import Store, absolute_url
from tachoscope_show.text.safe_text import safe
from tachoscope_show.text.units import counted, duration

_NAME = typer.Argument(metavar="NAME", help="The training job.")
HELD_SECONDS = 60.0
"""How long a supervisor waits for what the one before left in progress."""


def submit(
    path: Annotated[Path, typer.Argument(metavar="FILE", help="The specification, see docs/guides/training-jobs.md.")],
    store: StoreOption = None,
    engine: Annotated[str | None, typer.Option(help=f"In place of the file's: {' or '.join(ENGINES)}.")] = None,
    key: Annotated[
        str | None, typer.Option(help="Submitting again with the same key is the same job. Default: made from the specification.")
    ] = None,
    wait: Annotated[
        bool, typer.Option("--wait/--no-wait", help="Supervise here until the job ends, not in the background.")
    ] = False,
    again: Annotated[
        bool, typer.Option("--again", help="Let a job of this name that failed or was cancelled go on, as the file is now.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only check the specification.")] = False,
    render: Annotated[bool, typer.Option("--render", help="Only print what the engine would get for the first attempt.")] = False,
) -> None:
    """Submit a training job. It continues from its newest valid checkpoint until it is done, or fails twice at the same.

    Exits with 0 once it is submitted; with --wait, once it is completed, else with 1.
    """
    from tachoscope_core.jobs.training_job_file import read_training_job

    job = read_training_job(path, engine=engine)
    submission.check_data(job)
    submission.check_code(job)
    opened = Store(absolute_url(store_url(store)))
    if dry_run:
        submission.check_store(job, opened)
        _say_interval(opened, job)
        print_notice(f"{path} is valid: training job {job.name}, engine {job.engine}, {counted(job.nodes, 'node')}")
        return
    if render:
        sys.stdout.write(_rendered(job, opened, key))
        return
    _check_programs(job)
    is_known = not again and TrainingJobs(opened).submitted(job.name) is not None
    state = submission.submit(opened, job, key=key, again=again).state
    if not is_known:
        _say_interval(opened, job)
    if wait:
        raise typer.Exit(_supervise(opened, job))
    where = "" if store is None else f" --store {opened.url}"
    if state == "completed":
        print_notice(f"training job {job.name} completed before: nothing was started; to train once more, give it another name")
        return
    directory = directory_of(opened)
    if supervisor_of(directory, job.name) is None:
        _start_supervisor(opened, directory, job.name)
    how = f"was submitted before and is {state}: nothing new was started" if is_known else "is submitted"
    print_notice(f"training job {job.name} {how}; next: tachoscope status {job.name}{where}")


def _say_interval(store: Store, job: TrainingJob) -> None:
    if job.checkpoint_seconds:
        from tachoscope_cli.training_jobs.checkpoint_advice import advice

        print_notice(advice(store, job))


def _rendered(job: TrainingJob, store: Store, key: str | None) -> str:
    from tachoscope_cli.training_jobs.supervisor import request_of

    submission.check_store(job, store)
    submitted, directory = submission.submission(job, key), directory_of(store)
    request = request_of(store, submitted, Attempt(number=0, intended_at=time.time()), directory, lock=-1)
    return engine_of(job, directory).rendered(request)


def _check_programs(job: TrainingJob) -> None:
    """Refuse what could never begin, as far as this machine knows."""
    if job.engine == "slurm" and shutil.which("sbatch") is None:
        raise TachoscopeError("sbatch is not installed on this machine", fix="submit from a host of the Slurm cluster")
    program = job.command[0]
    there = shutil.which(program, path=job.environment.get("PATH")) or (Path(job.working_directory) / program).is_file()
    if job.engine == "local" and not there:
        raise TachoscopeError(f"the program {program!r} of {job.name} is not in $PATH", fix="check its spelling, or give its path")
    for name, path in job.secrets.items() if job.engine == "local" else ():
        if not os.access(path, os.R_OK):
            raise TachoscopeError(f"the file of the secret {name} cannot be read: {path}", fix="write it, or name another file")


def _start_supervisor(store: Store, directory: Path, name: str) -> None:
    _, path = start_supervisor(store, directory, name)
    print_notice(f"its supervisor starts in the background and logs to {path}")


def supervise(
    name: Annotated[
        str | None,
        typer.Argument(metavar="NAME", help="The training job. Default: all of the store, also later ones, until Ctrl-C."),
    ] = None,
    store: StoreOption = None,
) -> None:
    """Supervise a training job until it ends: where its supervisor ended, or where it was submitted over the watch's API.

    Nothing is started twice on one machine. With NAME, exits with 0 once the job is completed, else with 1.
    """
    opened = Store(absolute_url(store_url(store)))
    if name is None:
        SuperviseAll(opened, directory_of(opened), _log).run()
        return
    raise typer.Exit(_supervise(opened, TrainingJobs(opened).status(name).submitted.job))


def _supervise(store: Store, job: TrainingJob) -> ExitCode:
    from tachoscope_cli.training_jobs.supervisor import Supervisor

    directory = directory_of(store)
    deadline = time.monotonic() + HELD_SECONDS
    while True:
        with held(directory, job.name) as lock:
            if lock is not None:
                status = Supervisor(store, job.name, engine_of(job, directory), directory, lock, _log).run()
                return ExitCode.from_success(status.state == "completed")
        pid = supervisor_of(directory, job.name)
        if pid is not None or time.monotonic() > deadline:
            who = f"process {pid}" if pid is not None else "a process that it started"
            raise TachoscopeError(
                f"training job {job.name!r} has a supervisor on this machine: {who}", fix=f"tachoscope status {job.name}"
            )
        time.sleep(0.5)


def _log(text: str) -> None:
    sys.stderr.write(f"{datetime.now().astimezone():%Y-%m-%d %H:%M:%S} {safe(text)}\n")
    sys.stderr.flush()


def status(
    name: Annotated[str | None, typer.Argument(metavar="NAME", help="The training job. Default: all.")] = None,
    store: StoreOption = None,
    format_: JsonOption = TEXT,
) -> None:
    """Show training jobs that were submitted: their states, and each attempt with what followed from its end."""
    opened = Store(absolute_url(store_url(store)))
    jobs = TrainingJobs(opened)
    found = [jobs.status(one) for one in ([name] if name else jobs.names())]
    if format_.value == "json":
        steps = [_last_step(one, opened) if name else None for one in found]  # of all jobs it would read too much
        write_json(TrainingJobsShown(training_jobs=[_shown(one, opened, step) for one, step in zip(found, steps, strict=True)]))
        return
    if not found:
        print_notice("no training job was submitted to this store; next: tachoscope submit training_job.yaml")
    elif name is None:
        _print_all(found)
    else:
        _print(found[0], opened)


def _shown(status: TrainingJobStatus, store: Store, last_step: int | None) -> TrainingJobShown:
    view = view_of(status, last_step)
    here = supervisor_of(directory_of(store), view.name) is not None
    return TrainingJobShown(**msgspec.structs.asdict(view), has_supervisor_here=here)


def _last_step(status: TrainingJobStatus, store: Store) -> int | None:
    """Return the last step of a job whose attempt runs, by the records that have arrived; None: none has, or none can be read."""
    if status.state != "running":
        return None
    try:
        from tachoscope_cli.training_jobs.supervisor import what_happened

        return what_happened(store, status.submitted.job.name, status.attempts[-1])[1] or None
    except (ImportError, TachoscopeError):
        return None


def _print_all(found: list[TrainingJobStatus]) -> None:
    table = Table(box=None, padding=(0, 2, 0, 0))
    for header in ("training job", "state", "engine", "attempts", "why"):
        table.add_column(header, overflow="fold")
    for one in found:
        why = next((attempt.reason for attempt in reversed(one.attempts) if attempt.reason and one.state != "running"), "")
        table.add_row(one.submitted.job.name, one.state, one.submitted.job.engine, str(len(one.attempts)), safe(why))
    console().print(table)


def _print(status: TrainingJobStatus, store: Store) -> None:
    job = status.submitted.job
    out = console()
    out.print(f"{job.name}: {status.state} ({job.engine}, {counted(job.nodes, 'node')})", highlight=False)
    table = Table(box=None, padding=(0, 2, 0, 2))
    for header in ("attempt", "id", "began", "lasted", "last step", "what followed"):
        table.add_column(header, overflow="fold")
    last_step = _last_step(status, store)
    for one in status.attempts:
        noted = one.begin or one.end
        began = noted.started_at if noted is not None else one.intended_at
        lasted = duration((one.ended_at or time.time()) - began)
        followed = f"{one.decision}: {one.reason}" if one.decision else "it runs" if one.engine_id else "it is not submitted yet"
        when = f"{datetime.fromtimestamp(began).astimezone():%Y-%m-%d %H:%M:%S}"
        table.add_row(
            str(one.number),
            one.engine_id,
            when,
            lasted,
            str((one.highest_step if one.ended_at else last_step) or ""),
            safe(followed),
        )
    out.print(table)
    for action in status.actions:
        when = f"{datetime.fromtimestamp(action.time).astimezone():%Y-%m-%d %H:%M:%S}"
        out.print(f"  {when} {safe(action.text)}", highlight=False, markup=False, soft_wrap=True)
        if action.undo:
            out.print(f"    undo: {safe(action.undo)}", highlight=False, markup=False, soft_wrap=True)
    for line in _hints(status, store):
        out.print(f"  {safe(line)}", highlight=False, soft_wrap=True)


def _hints(status: TrainingJobStatus, store: Store) -> list[str]:
    name = status.submitted.job.name
    last = status.attempts[-1] if status.attempts else None
    found = [f"output of the last attempt: {last.log}"] if last is not None and last.log else []
    log = log_of(directory_of(store), name)
    if status.state not in ENDED and log.is_file():
        found.append(f"log of its supervisor: {log}")
    if any(one.failure is not None for one in status.attempts):
        found.append(f"more: tachoscope goodput {name}")
    if status.needs_review:
        found.append("review: data shards were left out of the training, see above")
    if status.cancellation is not None and status.state not in ENDED:
        found.append(f"cancellation was asked for by {status.cancellation.asked_by}")
    if status.state not in ENDED and supervisor_of(directory_of(store), name) is None:
        found.append(f"it has no supervisor on this machine: tachoscope supervise {name}, unless it has one where it was submitted")
    return found


def cancel(name: Annotated[str, _NAME], store: StoreOption = None) -> None:
    """Cancel a training job: its attempt is ended, and none follows."""
    opened = Store(absolute_url(store_url(store)))
    job = submission.cancel(opened, name, f"{getpass.getuser()} on {os.uname().nodename}").submitted.job
    print_notice(f"the supervisor of {name} ends it; next: tachoscope status {name}")
    directory = directory_of(opened)
    if supervisor_of(directory, name) is not None:
        return
    if job.engine == "local":  # nothing else can end its processes
        _start_supervisor(opened, directory, name)
    else:
        print_notice(f"it has no supervisor on this machine: tachoscope supervise {name}, unless it has one where it was submitted")
