"""`tachoscope submit`, `status`, `cancel` and `supervise`: training jobs that come back after a failure."""

from __future__ import annotations

import getpass
import hashlib
import json
import os
import subprocess
import sys
import time
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer
from rich.table import Table

from tachoscope_cli.common.options import TEXT, JsonOption, StoreOption, print_notice, store_url
from tachoscope_cli.common.output import console
from tachoscope_cli.training_jobs.engine import Engine
from tachoscope_cli.training_jobs.supervisor import Supervisor, directory_of, held
from tachoscope_core.errors import TachoscopeError
from tachoscope_core.exit_codes import ExitCode
from tachoscope_core.jobs.submitted_jobs import Cancellation, SubmittedJob, TrainingJobs, TrainingJobStatus
from tachoscope_core.jobs.training_job import ENGINES, TrainingJob, read_training_job
from tachoscope_core.storage.store import Store, absolute_url
from tachoscope_show.text.safe_text import safe
from tachoscope_show.text.units import duration

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
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only check the specification, and print it.")] = False,
) -> None:
    """Submit a training job. It continues from its newest valid checkpoint until it is done, or fails twice at the same.

    Exits with 0 once it is submitted; with --wait, once it is completed, else with 1.
    """
    job = read_training_job(path, engine=engine)
    if dry_run:
        sys.stdout.write(f"{json.dumps(msgspec.to_builtins(job), indent=2)}\n")
        return
    opened = Store(absolute_url(store_url(store)))
    submitted = SubmittedJob(job=job, key=key or hashlib.sha256(job.digest.encode()).hexdigest()[:16], submitted_at=time.time())
    there = TrainingJobs(opened).submit(submitted)
    where = "" if store is None else f" --store {opened.url}"
    if wait:
        raise typer.Exit(_supervise(opened, job))
    directory = directory_of(opened)
    with (directory / f"{job.name}.supervisor.log").open("ab") as log:
        words = [sys.executable, "-m", "tachoscope_cli.main", "supervise", job.name, "--store", opened.url]
        subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)
    done = "is submitted" if there.submitted_at == submitted.submitted_at else "was submitted before"
    print_notice(f"training job {job.name} {done}; next: tachoscope status {job.name}{where}")
    print_notice(f"its supervisor's log: {log.name}")


def supervise(name: Annotated[str, _NAME], store: StoreOption = None) -> None:
    """Supervise a training job that was submitted, until it ends: where its supervisor ended, with its machine or by a kill.

    Nothing is started twice. Exits with 0 once the job is completed, else with 1.
    """
    opened = Store(absolute_url(store_url(store)))
    raise typer.Exit(_supervise(opened, TrainingJobs(opened).status(name).submitted.job))


def _supervise(store: Store, job: TrainingJob) -> ExitCode:
    directory = directory_of(store)
    deadline = time.monotonic() + HELD_SECONDS
    while True:
        with held(directory, job.name) as lock:
            if lock is not None:
                status = Supervisor(store, job.name, _engine(job, directory), directory, lock, _log).run()
                return ExitCode.from_success(status.state == "completed")
        if time.monotonic() > deadline:
            raise TachoscopeError(
                f"training job {job.name!r} has a supervisor on this machine", fix=f"tachoscope status {job.name}"
            )
        time.sleep(0.5)


def _engine(job: TrainingJob, directory: Path) -> Engine:
    if job.engine == "slurm":
        from tachoscope_cli.training_jobs.slurm import SlurmEngine

        return SlurmEngine()
    from tachoscope_cli.training_jobs.local import LocalEngine

    return LocalEngine(directory)


def _log(text: str) -> None:
    sys.stderr.write(f"{datetime.now().astimezone():%Y-%m-%d %H:%M:%S} {safe(text)}\n")
    sys.stderr.flush()


def status(
    name: Annotated[str | None, typer.Argument(metavar="NAME", help="The training job. Default: all.")] = None,
    store: StoreOption = None,
    format_: JsonOption = TEXT,
) -> None:
    """Show training jobs that were submitted: their states, and each attempt with what followed from its end."""
    jobs = TrainingJobs(Store(absolute_url(store_url(store))))
    found = [jobs.status(one) for one in ([name] if name else jobs.names())]
    if format_.value == "json":
        documents = [_document(one) for one in found]
        sys.stdout.write(f"{json.dumps(documents[0] if name else documents, indent=2)}\n")
        return
    if not found:
        print_notice("no training job was submitted to this store; next: tachoscope submit training_job.yaml")
    for one in found:
        _print(one)


def _document(status: TrainingJobStatus) -> dict[str, Any]:
    document: dict[str, Any] = msgspec.to_builtins(status)
    return {"name": status.submitted.job.name, "state": status.state} | document


def _print(status: TrainingJobStatus) -> None:
    job = status.submitted.job
    out = console()
    out.print(f"{job.name}: {status.state} ({job.engine}, {job.nodes} node{'' if job.nodes == 1 else 's'})", highlight=False)
    table = Table(box=None, padding=(0, 2, 0, 2))
    for header in ("attempt", "id", "began", "lasted", "step", "what followed"):
        table.add_column(header, overflow="fold")
    for one in status.attempts:
        began = one.end.started_at if one.end else one.intended_at
        lasted = duration((one.ended_at or time.time()) - began)
        followed = f"{one.decision}: {one.reason}" if one.decision else "runs"
        when = f"{datetime.fromtimestamp(began).astimezone():%Y-%m-%d %H:%M:%S}"
        table.add_row(str(one.number), one.engine_id, when, lasted, str(one.highest_step or ""), safe(followed))
    out.print(table)
    if status.attempts and status.attempts[-1].log:
        out.print(f"  output of the last: {safe(status.attempts[-1].log)}", highlight=False, soft_wrap=True)


def cancel(name: Annotated[str, _NAME], store: StoreOption = None) -> None:
    """Cancel a training job: its attempt is ended, and none follows."""
    jobs = TrainingJobs(Store(absolute_url(store_url(store))))
    state = jobs.status(name).state
    if state in {"completed", "failed", "cancelled"}:
        raise TachoscopeError(f"training job {name!r} has ended: {state}", fix=f"tachoscope status {name}")
    jobs.cancel(name, Cancellation(asked_at=time.time(), asked_by=f"{getpass.getuser()} on {os.uname().nodename}"))
    print_notice(f"{name} is cancelled as soon as its supervisor sees it; next: tachoscope status {name}")
