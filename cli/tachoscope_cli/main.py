"""The `tachoscope` command. Each command parses its options, calls one function and prints its result."""

from __future__ import annotations

import gc
import importlib.util
import os
import shutil
import sys
import time
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

import tachoscope
from tachoscope_cli.faults import FAULTS
from tachoscope_cli.show import console, show
from tachoscope_core import store as store_module
from tachoscope_core.errors import TachoscopeError

if TYPE_CHECKING:
    from tachoscope_analyzers import load

_FEW_COLLECTIONS = 100_000
"""Objects between two collections in a process that lives for seconds and makes few cycles: by default they take a tenth of it."""

FAIL_ON_EXIT_CODE = 3
# Newer typer brings its own copy of click and does not say where; older typer uses click's.
_UsageError: Any = next(cls for cls in typer.BadParameter.__mro__ if cls.__name__ == "ClickException")

app = typer.Typer(
    name="tachoscope",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    help="Where does the accelerator time go, is that within our objectives, and what do we do about it?",
    epilog="First minute: `tachoscope demo`",
)
store_app = typer.Typer(no_args_is_help=True, help="Look into the store of job records.")
app.add_typer(store_app, name="store")

Format = StrEnum("Format", ["text", "json", "html"])
Level = StrEnum("Level", ["critical", "warning"])
Fault = StrEnum("Fault", {name: name for name in FAULTS})  # type: ignore[misc]  # made from the table

StoreOption = Annotated[
    str | None,
    typer.Option(
        "--store",
        metavar="URL",
        help="Directory or s3:// URL. Default: $TACHOSCOPE_STORE, else the user's data directory.",
    ),
]


def _store_url(store: str | None) -> str:
    return store or store_module.default_url()


def _named_store(store: str | None) -> str | None:
    """Return the store that the user named; $TACHOSCOPE_STORE is as explicit as --store. Without either a live agent's is meant."""
    return store or os.environ.get("TACHOSCOPE_STORE")


def _needs_analysis() -> None:
    for module in ("pandas", "yaml"):
        if importlib.util.find_spec(module) is None:
            raise TachoscopeError(f"this command needs {module}", fix="pip install 'tachoscope[analyze]'")


@app.callback(invoke_without_command=True)
def _options(
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False,  # noqa: FBT002
    verbose: Annotated[bool, typer.Option("--verbose", help="Add the traceback to errors.")] = False,  # noqa: ARG001, FBT002
) -> None:
    if version:
        typer.echo(f"tachoscope {tachoscope.__version__}")
        raise typer.Exit


@app.command(epilog="Examples: `tachoscope demo`, `tachoscope demo --fault none`, `tachoscope demo --fault comm_exposed`")
def demo(
    fault: Annotated[
        Fault,
        typer.Option(metavar="FAULT", help=f"The fault to cause, by the class it should be reported as: {', '.join(FAULTS)}."),
    ] = Fault["input_straggler"],
    steps: Annotated[int, typer.Option(min=30, help="Steps to train.")] = 60,
    store: StoreOption = None,
    job: Annotated[str | None, typer.Option(help="Name of the job. Default: demo-FAULT.")] = None,
) -> None:
    """Train a small model in two processes with a real fault, and say where the time went.

    A real PyTorch DDP training on this machine, on CPU, under the probe; it takes under a minute and needs no GPU.
    """
    _needs_analysis()
    from tachoscope_analyzers.analyze import analyze as judge
    from tachoscope_analyzers.load import from_store
    from tachoscope_cli import demo as demo_module
    from tachoscope_core.store import Store

    out = console()
    out.print(f"fault: {fault.value} ({FAULTS[fault.value]})", soft_wrap=True)
    try:
        done = demo_module.train(fault.value, steps=steps, store_url=_named_store(store), job=job, console=out)
    except KeyboardInterrupt:  # of which typer would say nothing
        raise TachoscopeError("interrupted", exit_code=130) from None
    out.print(f"agent: {done.agent}", soft_wrap=True)
    out.print()
    url = done.outcome.store_url
    given = f" --store {url}" if store else ""
    then = [
        f"store: {url}",
        f"next:  {_own_name()} run{given} -- python train.py   (your own job, unchanged)",
        f"       {_own_name()} analyze {url}/jobs/{done.outcome.job} --format html --output report.html",
    ]
    show(judge(from_store(Store(url), done.outcome.job)), then=then)


@app.command(
    context_settings={"ignore_unknown_options": True},
    epilog="Examples: `tachoscope run -- python train.py --epochs 3`, "
    "`tachoscope run --job resnet -- torchrun --nproc-per-node 2 train.py`",
)
def run(
    command: Annotated[
        list[str] | None, typer.Argument(metavar="-- CMD...", help="The command that trains, as you would type it.")
    ] = None,
    job: Annotated[
        str | None,
        typer.Option(help="Name that all attempts and nodes of the job share. Default: the scheduler's id, else script and time."),
    ] = None,
    store: StoreOption = None,
) -> None:
    """Run any PyTorch command under the probe, with no code change.

    Exits with the command's exit code. The records are in the store afterwards, also when the command fails: in that of the
    node's agent, where one is live and no store is named.
    """
    from tachoscope_cli.run import run as run_command

    outcome = run_command(command or [], job=job, store_url=_named_store(store))
    if outcome.recorded and outcome.all_shipped:
        where = f" --store {outcome.store_url}" if outcome.store_url != store_module.default_url() else ""
        by = " (by the node's agent)" if outcome.by_agent else ""
        _notice(f"job {outcome.job} is in {outcome.store_url}{by}; next: tachoscope analyze{where} --job {outcome.job}")
    elif not outcome.recorded:
        _notice("no training step was seen: no process of the command computed gradients with torch or called tachoscope.step()")
    raise typer.Exit(outcome.exit_code)


@app.command(
    epilog="Examples: `tachoscope analyze`, `tachoscope analyze --job resnet --format html --output report.html`, "
    "`tachoscope analyze /dev/shm/tachoscope`, `tachoscope analyze report.json`, `tachoscope analyze trace.json.gz`, "
    "`tachoscope analyze traces/ --tables tables/`, `tachoscope analyze new.json.gz --baseline old.json.gz`"
)
def analyze(
    paths: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="PATH...",
            help="A store, a job's folder in it, spool directories or segments, a saved report; or "
            "profiler traces of one job: files, directories, patterns. Default: the store.",
        ),
    ] = None,
    job: Annotated[str | None, typer.Option(help="The job to judge. Default: the one written last.")] = None,
    store: StoreOption = None,
    format_: Annotated[
        Format,
        typer.Option("--format", help="text for people, json for programs (the report's schema), html for sharing."),
    ] = Format["text"],
    output: Annotated[Path | None, typer.Option(help="Write to this file instead of the terminal.")] = None,
    fail_on: Annotated[Level | None, typer.Option(help=f"Exit with {FAIL_ON_EXIT_CODE} on a finding this severe.")] = None,
    baseline: Annotated[
        list[str] | None,
        typer.Option(metavar="PATH", help="Traces to compare with: what became slower, by state, operator and kernel."),
    ] = None,
    tables: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Write all tables of the traces there, as Parquet and CSV.")
    ] = None,
    perfetto: Annotated[
        Path | None,
        typer.Option(metavar="OUT", help="Write the trace back for ui.perfetto.dev, with ledger, findings and critical path."),
    ] = None,
    executor: Annotated[
        str, typer.Option(metavar="local|dask://HOST:PORT", help="Where the ranks' traces are analysed.")
    ] = "local",
    replay: Annotated[  # noqa: FBT002
        bool,
        typer.Option(
            "--replay/--no-replay", help="Replay the dependencies of a trace to say what a fix would bring; takes longer."
        ),
    ] = True,
) -> None:
    """Say where the time of a job went, what the bottleneck is, and what to do about it."""
    _needs_analysis()
    gc.set_threshold(_FEW_COLLECTIONS)
    from tachoscope_cli import paths as path_module
    from tachoscope_core.report import worst_severity

    if store and paths:
        raise TachoscopeError("give either PATH or --store, not both")
    places = paths or [_store_url(store)]
    if not paths and "://" not in places[0] and not path_module.is_store(places[0]):
        raise TachoscopeError(f"store {places[0]} is empty", fix="run something first: tachoscope run -- python train.py")
    if _are_traces(places, baseline, tables, perfetto):
        from tachoscope_cli import traces

        options = traces.Options(job, executor, replay, tables, perfetto, tuple(baseline or ()))
        report = traces.analyze(places, options, Console(stderr=True))
    else:
        from tachoscope_analyzers.analyze import analyze as judge

        report = path_module.saved_report(places) or judge(path_module.records_of(places, job))
    show(report, format_.value, output)
    gc.freeze()  # the process ends now: walking all its objects once more would take a tenth of a second
    worst = worst_severity(report.findings)
    if fail_on is not None and (worst == "critical" or (worst == "warning" and fail_on.value == "warning")):
        raise typer.Exit(FAIL_ON_EXIT_CODE)


def _are_traces(places: list[str], *only_for_traces: object) -> bool:
    if "://" in places[0]:
        return False
    from tachoscope_cli.paths import are_traces

    if are_traces(places):
        return True
    if any(only_for_traces):
        raise TachoscopeError(f"{places[0]} is no profiler trace", fix="--baseline, --tables and --perfetto work on traces")
    return False


@app.command(
    epilog="Examples: `tachoscope agent`, `tachoscope agent --config agent.yaml --check`, "
    "`tachoscope agent --store s3://bucket/tachoscope --port 0`"
)
def agent(
    config: Annotated[
        Path | None, typer.Option(help="YAML file; every key has a default, see docs/agent.md. Default: none is read.")
    ] = None,
    store: StoreOption = None,
    spool: Annotated[
        str | None,
        typer.Option(metavar="DIRECTORY", help="Where jobs write. Default: $TACHOSCOPE_SPOOL, else /dev/shm/tachoscope."),
    ] = None,
    port: Annotated[int | None, typer.Option(help="Port of the metrics; 0: any free one. Default: 9465.")] = None,
    dcgm_names: Annotated[  # noqa: FBT002
        bool, typer.Option("--dcgm-names", help="Also expose GPU metrics under dcgm-exporter's names, for dashboards made for it.")
    ] = False,
    check: Annotated[bool, typer.Option("--check", help="Only check the configuration.")] = False,  # noqa: FBT002
) -> None:
    """Serve one node: ship what its jobs record, and give their metrics and the host's to Prometheus.

    Runs until Ctrl-C or SIGTERM and then ships what is left; SIGHUP reads the configuration again. `tachoscope run` finds it by
    itself. Exits with 1 if records stayed in the spool. What must outlive a restart is in /var/lib/tachoscope for root, else in
    ~/.local/state/tachoscope, unless the file says `state:`; spool and state directory serve one agent at a time.
    """
    from tachoscope_cli.agent import serve

    raise typer.Exit(serve(config, store=store, spool=spool, port=port, dcgm_names=dcgm_names, check=check))


@app.command(epilog="Example: `tachoscope doctor`")
def doctor(store: StoreOption = None) -> None:
    """Say what this machine can and cannot collect, and why. Exits with 1 if something needs mending."""
    from tachoscope_cli.doctor import examine

    checks = examine(_store_url(store))
    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    words = {"ok": Text("yes", style="green"), "no": Text("no", style="yellow"), "bad": Text("MEND", style="bold red")}
    for check in checks:
        table.add_row(words[check.state], check.name, check.detail)
    console().print(table)
    raise typer.Exit(int(any(check.state == "bad" for check in checks)))


@store_app.command("ls", epilog="Example: `tachoscope store ls --limit 5`")
def store_ls(
    store: StoreOption = None,
    limit: Annotated[int, typer.Option(min=1, help="List so many jobs, the newest first.")] = 20,
) -> None:
    """List the jobs of the store, the newest first: how they ended, ranks, steps, attempts."""
    from tachoscope_analyzers import load
    from tachoscope_core.store import Store

    opened = Store(_store_url(store))
    times = opened.job_times()
    if not times:
        raise TachoscopeError(f"store {opened.url} is empty", fix="run something first: tachoscope run -- python train.py")
    table = Table("job", "status", "ranks", "steps", "attempts", "last record", box=None, padding=(0, 2, 0, 0))
    for job in sorted(times, key=times.__getitem__, reverse=True)[:limit]:
        table.add_row(job, *_job_row(load.from_store(opened, job, ends_only=True), times[job]))
    console().print(table)
    if len(times) > limit:
        _notice(f"{len(times) - limit} more (--limit)")


def _job_row(job: load.JobRecords, written: float) -> list[str]:
    from tachoscope_analyzers import load

    now = time.time()
    state = load.status(job, now=now)
    reason = next((end.reason for end in reversed(job.ends) if end.reason and end.status == "failed"), "")
    ranks = {start.rank for start in job.starts if start.rank >= 0}
    attempts = {start.attempt for start in job.starts}
    return [
        f"{state} ({reason})" if reason and state == "failed" else state,
        str(len(ranks)),
        str(max((step.step for step in job.steps), default=0)),
        str(len(attempts)),
        f"{_age(now - written)} ago",
    ]


def _own_name() -> str:
    """Return how this command can be typed here: its path, where no shell would find its name."""
    path = Path(sys.executable).with_name("tachoscope")
    if shutil.which("tachoscope") or not path.is_file():
        return "tachoscope"
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else str(path)


def _age(seconds: float) -> str:
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds / size:.0f} {unit}"
    return f"{max(0.0, seconds):.0f} s"


def _notice(text: str) -> None:
    sys.stderr.write(f"tachoscope: {text}\n")


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line; errors are one line, and a traceback with --verbose."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    try:
        code = app(args=words, prog_name="tachoscope", standalone_mode=False)
        sys.exit(code if isinstance(code, int) else 0)
    except TachoscopeError as error:
        if "--verbose" in words:
            raise
        sys.stderr.write(f"tachoscope: {error}\n")
        sys.exit(error.exit_code)
    except typer.Abort:
        sys.exit(130)
    except _UsageError as error:
        error.show()
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        sys.stderr.write("tachoscope: interrupted\n")
        sys.exit(130)
    except BrokenPipeError:  # the reader of the pipe went away: nobody is left to tell
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(141)


if __name__ == "__main__":
    main()
