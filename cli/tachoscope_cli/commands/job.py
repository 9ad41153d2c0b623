"""`tachoscope job`: what runs of a job on this machine."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer
from rich.table import Table

from tachoscope_cli.common.options import TEXT, JsonOption
from tachoscope_cli.common.output import console, write_json
from tachoscope_core.errors import TachoscopeError
from tachoscope_core.exit_codes import ExitCode
from tachoscope_core.redaction import redact
from tachoscope_show.text.safe_text import safe

job_app = typer.Typer(no_args_is_help=True)


class TrainingProcess(msgspec.Struct, frozen=True, kw_only=True):
    """A process that trains.

    Attributes:
        rank, attempt: None: not known. step: the last that it finished. last_record_age_seconds: since it last recorded anything.
    """

    pid: int
    rank: int | None = None
    attempt: int | None = None
    step: int | None = None
    last_record_age_seconds: float | None = None


@job_app.command(
    "processes",
    epilog='Examples: `tachoscope job processes resnet`, `py-spy dump --pid "$(tachoscope job processes resnet --rank 3 --pid)"`',
)
def job_processes(
    job: Annotated[str, typer.Argument(help="Name of the job.")],
    rank: Annotated[int | None, typer.Option(min=0, help="Only the process of this rank.")] = None,
    pid: Annotated[bool, typer.Option("--pid", help="Print process ids only, one per line.")] = False,
    format_: JsonOption = TEXT,
) -> None:
    """List the processes of this machine that are ranks of a job, without their loader workers.

    Asks the node's agent, which knows them by their own records. Without one it looks for processes below `tachoscope run --job`
    in /proc: as root those of all users, else your own. In Kubernetes a process id is that within the pod.

    Exits with 1 if none runs.
    """
    found = [one for one in _by_agent(job) or _by_environment(job) if rank is None or one.rank == rank]
    if not found:
        what = f"no process of job {job!r}" if rank is None else f"no process of rank {rank} of job {job!r}"
        raise TachoscopeError(
            f"{what} runs on this machine",
            fix="look on the host that `tachoscope goodput JOB` names",
            exit_code=ExitCode.NOT_WELL,
        )
    if pid:
        typer.echo("\n".join(str(one.pid) for one in found))
    elif format_.value == "json":
        write_json(found)
    else:
        console().print(_table(found))


def _by_agent(job: str) -> list[TrainingProcess]:
    """Return the processes known to this machine's agent; empty without an answer."""
    from tachoscope_cli.sources.agent_pages import page
    from tachoscope_core.storage import spool

    agent = spool.live_agent(spool.default_root())
    if agent is None:
        return []
    try:
        rows: list[dict[str, Any]] = json.loads(page(agent, "/v1/ranks"))["ranks"]
    except (OSError, ValueError, KeyError):
        return []
    return [
        msgspec.convert(row, TrainingProcess)
        for row in rows
        if row["training_job"] == job and row["state"] == "running" and row["pid"] > 0
    ]


def _by_environment(job: str) -> list[TrainingProcess]:
    """Return the first process of each rank that `tachoscope run` started for a job; it started the others."""
    from tachoscope.process import identity

    ranks: dict[int, int] = {}
    others: list[int] = []
    for pid in sorted(int(path.name) for path in Path("/proc").iterdir() if path.name.isdecimal()):
        environ = _environment(pid)
        if environ.get(identity.JOB) != job or identity.RUN_DIR not in environ:  # `run` itself has no such directory
            continue
        place = identity.place(environ)
        if place is None:
            others.append(pid)
        else:
            ranks.setdefault(place.rank, pid)
    if ranks:
        return [TrainingProcess(pid=pid, rank=rank) for rank, pid in sorted(ranks.items())]
    return [TrainingProcess(pid=others[0], rank=0)] if others else []  # one process, and what it started


def _environment(pid: int) -> dict[str, str]:
    """Return the initial environment of a process; empty if it is another user's or has ended."""
    try:
        pairs = Path(f"/proc/{pid}/environ").read_bytes().decode(errors="replace").split("\0")
    except OSError:
        return {}
    return dict(pair.partition("=")[::2] for pair in pairs if "=" in pair)


def _table(found: list[TrainingProcess]) -> Table:
    table = Table(box=None, pad_edge=False)
    for name in ("rank", "pid", "attempt", "step", "last record"):
        table.add_column(name, justify="right")
    table.add_column("command")
    for one in found:
        age = "-" if one.last_record_age_seconds is None else f"{one.last_record_age_seconds:.1f} s ago"
        cells = ["-" if value is None else str(value) for value in (one.rank, one.pid, one.attempt, one.step)]
        table.add_row(*cells, age, _command(one.pid))
    return table


def _command(pid: int) -> str:
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
    except OSError:
        return ""
    return safe(redact(" ".join(words).strip()))[:80]
