"""The `tachoscope` command. Each command parses its options, calls one function and prints its result.

A shell that completes a word imports this module: what a command works with is imported by the command.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer
import typer.core

from tachoscope_cli.common.former_options import current_words
from tachoscope_cli.common.options import TEXT, JsonOption, StoreOption, named_store, needs_analysis, print_notice, store_url
from tachoscope_cli.demo.faults import FAULTS
from tachoscope_cli.later import Commands, Group
from tachoscope_core.errors import TachoscopeError
from tachoscope_core.exit_codes import ExitCode

# Newer typer brings its own copy of click and does not say where; older typer uses click's.
_UsageError: Any = next(cls for cls in typer.BadParameter.__mro__ if cls.__name__ == "ClickException")


COMMANDS = Commands()


class _Group(Group):
    """The commands; an interrupt is told as errors are, while typer would only give its exit code."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.commands: Any = COMMANDS

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ARG002
        """Return their names; typer's own goes through the commands themselves."""
        return list(self.commands)

    def titles(self, ctx: Any) -> Iterator[tuple[str, str, str]]:  # noqa: ARG002
        """Yield what the list shows of each; the one above goes through the commands themselves."""
        return COMMANDS.titles()

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        return super().resolve_command(ctx, args if ctx.resilient_parsing else current_words(args))

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            raise TachoscopeError("interrupted", exit_code=ExitCode.INTERRUPTED) from None


app = typer.Typer(
    name="tachoscope",
    cls=_Group,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    help="Where does the accelerator time go, is that within our objectives, and what do we do about it?",
    epilog="First minute: `tachoscope demo`. Exit codes, and output for programs: docs/reference/programs.md",
)
START = "Begin here"
RECORD = "Record a job, and a node"
LOOK = "See where the time goes"
KEEP = "Look into the store, and verify what was saved"
JOBS = "Submit a job that comes back"
OBJECTIVES = "Objectives, alerts, runbooks and boards"
"""What people want to do: `tachoscope --help` groups the commands by it, in the order in which they are added."""

Fault = StrEnum("Fault", {name: name for name in FAULTS})  # type: ignore[misc]  # made from the table


@app.callback(invoke_without_command=True)
def _options(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False,
    verbose: Annotated[bool, typer.Option("--verbose", help="Add the traceback to errors.")] = False,  # noqa: ARG001
) -> None:
    if version:
        import tachoscope

        typer.echo(f"tachoscope {tachoscope.__version__}")
        raise typer.Exit
    if context.invoked_subcommand is None:  # --verbose alone
        typer.echo(context.get_help())
        raise typer.Exit(ExitCode.NOT_DONE)


@COMMANDS.command(
    rich_help_panel=START,
    epilog="Examples: `tachoscope demo`, `tachoscope demo --fault none`, `tachoscope demo --fault comm_exposed`, "
    "`tachoscope demo --profile`",
)
def demo(
    fault: Annotated[
        Fault,
        typer.Option(metavar="FAULT", help=f"Fault to cause, by its bottleneck class: {', '.join(FAULTS)}."),
    ] = Fault["input_straggler"],
    steps: Annotated[int, typer.Option(min=30, help="Steps to train.")] = 60,
    store: StoreOption = None,
    job: Annotated[str | None, typer.Option(help="Name of the job. Default: demo-FAULT.")] = None,
    profile: Annotated[
        bool, typer.Option("--profile", help="Also record three steps with torch's profiler, and put the traces into the store.")
    ] = False,
) -> None:
    """Train a small model in two processes with a real fault, and show where the time went.

    A real PyTorch DDP training on this machine, on CPU, under the probe; it takes under a minute and needs no GPU.
    """
    needs_analysis()
    import urllib.parse

    from tachoscope_analyzers.job.report import analyze as judge
    from tachoscope_analyzers.records.load import from_store
    from tachoscope_cli.commands import demo as demo_module
    from tachoscope_cli.common.output import console, show
    from tachoscope_core.storage.store import Store

    out = console()
    out.print(f"fault: {fault.value} ({FAULTS[fault.value]})", soft_wrap=True)
    done = demo_module.train(fault.value, steps=steps, store_url=named_store(store), job=job, console=out, profile=profile)
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
    if done.traces is not None:
        page = urllib.parse.urlencode({"job": done.outcome.job, "trace": done.traces.recording})
        out.print(f"traces: {len(done.traces.traces)} ranks, {done.traces.verdict}", soft_wrap=True)
        out.print(f"next:  {_own_name()} explore{given}   (http://127.0.0.1:8501/trace?{page})", soft_wrap=True)


@COMMANDS.command(rich_help_panel=START, epilog="Examples: `tachoscope doctor`, `tachoscope doctor --format json`")
def doctor(store: StoreOption = None, format_: JsonOption = TEXT) -> None:
    """Show what this machine can and cannot collect, and why. Exits with 1 if something needs fixing."""
    from tachoscope_cli.commands import doctor as doctor_module
    from tachoscope_cli.common.output import console, write_json

    found = doctor_module.examine(store_url(store))
    if format_.value == "json":
        write_json(found)
    else:
        console().print(doctor_module.rendered(found))
    raise typer.Exit(ExitCode.from_success(not found.bad_checks))


@COMMANDS.command(
    rich_help_panel=RECORD,
    context_settings={"ignore_unknown_options": True},
    epilog="Examples: `tachoscope run -- python train.py --epochs 3`, "
    "`tachoscope run --job resnet -- torchrun --nproc-per-node 2 train.py`",
)
def run(
    command: Annotated[list[str] | None, typer.Argument(metavar="-- CMD...", help="The training command.")] = None,
    job: Annotated[
        str | None,
        typer.Option(help="Name that all attempts and nodes of the job share. Default: the scheduler's id, else script and time."),
    ] = None,
    store: StoreOption = None,
    grace: Annotated[
        float,
        typer.Option(
            metavar="SECONDS",
            min=0.0,
            help="Time after a SIGTERM for a command that calls tachoscope.preempted() to exit by itself.",
        ),
    ] = 25.0,
    track: Annotated[
        bool,
        typer.Option(
            "--track/--no-track", help="Log goodput and findings to the MLflow or Weights & Biases run that the command has open."
        ),
    ] = True,
    end_hung: Annotated[
        str | None,
        typer.Option(
            metavar="DURATION",
            help="End a command that has hung for this long after its hang was noticed, such as 2m: for whatever starts it again. "
            "Its evidence is stored first. Default: never.",
        ),
    ] = None,
    stop_code: Annotated[
        int | None,
        typer.Option(
            metavar="CODE",
            min=1,
            max=255,
            help="Exit code in place of the command's if it failed at the same root as the attempt before, with no new step since: "
            "whatever starts the job again should not. Default: the command's.",
        ),
    ] = None,
) -> None:
    """Run any PyTorch command under the probe, with no code change.

    Exits with the command's exit code, or that of --stop-code. The records are in the store afterwards, also when the command
    fails: in that of the node's agent, where one is live and no store is named.
    """
    from tachoscope_cli.launcher.run import run as run_command
    from tachoscope_core.storage.store import default_url
    from tachoscope_show.text.units import seconds_of

    hung_seconds = seconds_of(end_hung) if end_hung is not None else 0.0
    outcome = run_command(command or [], job=job, store_url=named_store(store), grace_seconds=grace, end_hung_seconds=hung_seconds)
    if outcome.recorded and outcome.all_shipped:
        where = f" --store {outcome.store_url}" if outcome.store_url != default_url() else ""
        by = " (by the node's agent)" if outcome.by_agent else ""
        without_step = outcome.failure is not None and outcome.failure.step is None
        judge = f"goodput {outcome.job}{where}" if outcome.several or without_step else f"analyze{where} --job {outcome.job}"
        for service in outcome.services:
            print_notice(f"service {service} is in {outcome.store_url}{by}; next: tachoscope analyze{where} --job {service}")
        if not outcome.services:
            print_notice(f"job {outcome.job} is in {outcome.store_url}{by}; next: tachoscope {judge}")
        if track and outcome.tracker_runs:
            from tachoscope_cli.launcher import experiment_trackers as tracking

            for line in tracking.log(outcome.store_url, outcome.job, outcome.tracker_runs):
                print_notice(line)
    for note in outcome.notes:
        print_notice(note)
    stops = outcome.failure is not None and outcome.failure.policy == "stop"
    raise typer.Exit(stop_code if stops and stop_code is not None else outcome.exit_code)


@COMMANDS.command(
    rich_help_panel=RECORD,
    epilog="Examples: `tachoscope agent`, `tachoscope agent --config agent.yaml --check`, "
    "`tachoscope agent --store s3://bucket/tachoscope --port 0`",
)
def agent(
    config: Annotated[
        Path | None, typer.Option(help="YAML configuration file, see docs/agent/agent.md. All keys have defaults.")
    ] = None,
    store: StoreOption = None,
    spool: Annotated[
        str | None,
        typer.Option(metavar="DIRECTORY", help="Where jobs write. Default: $TACHOSCOPE_SPOOL, else /dev/shm/tachoscope."),
    ] = None,
    port: Annotated[int | None, typer.Option(help="Port to listen on; 0: any free port. Default: 9465.")] = None,
    dcgm_names: Annotated[
        bool, typer.Option("--dcgm-names", help="Also expose GPU metrics under dcgm-exporter's names, for dashboards made for it.")
    ] = False,
    check: Annotated[bool, typer.Option("--check", help="Only check the configuration.")] = False,
) -> None:
    """Serve one node: ship what its jobs record, and give their metrics and the host's to Prometheus.

    Runs until Ctrl-C or SIGTERM and then ships what is left; SIGHUP reads the configuration again. `tachoscope run` finds it by
    itself. Exits with 1 if records stayed in the spool. What must outlive a restart is in /var/lib/tachoscope for root, else in
    ~/.local/state/tachoscope, unless the file says `state:`; spool and state directory serve one agent at a time.
    """
    from tachoscope_cli.commands.agent import serve

    raise typer.Exit(serve(config, store=store, spool=spool, port=port, dcgm_names=dcgm_names, check=check))


@COMMANDS.command(
    rich_help_panel=RECORD,
    epilog="Examples: `tachoscope profile --job resnet`, `tachoscope profile --job resnet --steps 20 --store s3://bucket/tachoscope`",
)
def profile(
    job: Annotated[str, typer.Option(help="Name of the running job, as in the agent's log and on its page /v1/profiles.")],
    steps: Annotated[int, typer.Option(min=1, max=10_000, help="Whole steps per trace.")] = 5,
    store: StoreOption = None,
    wait: Annotated[bool, typer.Option("--wait/--no-wait", help="Wait for the traces and analyze them.")] = True,
) -> None:
    """Record a profiler trace of all ranks of a running job at once, and analyze it. The job is not restarted.

    The job runs under the probe, or has KINETO_USE_DAEMON=1 in its environment and nothing else; its nodes need a running agent.
    The ranks begin at one time, 16 s ahead (30 s with an object store); where nothing tells how long a step takes, a first short
    look does.
    """
    from tachoscope_cli.commands.profile import profile as ask

    ask(job, steps, store=store, wait=wait)


COMMANDS.add(
    "preflight",
    "tachoscope_cli.commands.preflight:preflight",
    "Test this node, or several together, before a job: is it as fast as the others?",
    rich_help_panel=RECORD,
    epilog="Examples: `tachoscope preflight --storage /scratch`, `tachoscope preflight --least matmul_flops_per_second=6e14`, "
    "`srun --ntasks-per-node 1 tachoscope preflight --interface ib0`",
)
COMMANDS.add(
    "analyze",
    "tachoscope_cli.commands.analyze:analyze",
    "Show where the time of a job went, what the bottleneck is, and what to do about it.",
    rich_help_panel=LOOK,
    epilog="Examples: `tachoscope analyze`, `tachoscope analyze --job resnet --format html --output report.html`, "
    "`tachoscope analyze /dev/shm/tachoscope`, `tachoscope analyze report.json`, "
    "`tachoscope analyze --job new --baseline-job old --fail-on regression`",
)
COMMANDS.add(
    "goodput",
    "tachoscope_cli.commands.goodput:goodput",
    "Show where the allocated time of a job went over its whole life: failures, recoveries, checkpoints, hangs, lost work.",
    rich_help_panel=LOOK,
    epilog="Examples: `tachoscope goodput resnet`, `tachoscope goodput resnet --scheduler slurm:4711 --prices prices.yaml`, "
    "`tachoscope goodput resnet --format html --output life.html`",
)
COMMANDS.add(
    "efficiency",
    "tachoscope_cli.store.efficiency:efficiency",
    "Show how users, or accounts, used the accelerators that Slurm gave them: productive, lost by cause, not recorded.",
    rich_help_panel=LOOK,
    epilog="Examples: `tachoscope efficiency`, `tachoscope efficiency --by account --since 24h`, "
    "`tachoscope efficiency --only alice | mail -s 'your accelerators, last week' alice`",
)
COMMANDS.add(
    "trace",
    "tachoscope_cli.commands.trace:trace",
    "Show where the time of profiler traces went, of one rank or of all, and what to do about it.",
    rich_help_panel=LOOK,
    epilog="Examples: `tachoscope trace trace.json.gz`, `tachoscope trace traces/ --tables tables/`, "
    "`tachoscope trace new.json.gz --baseline old.json.gz`, `tachoscope trace trace.json.gz --perfetto out.json.gz`",
)
COMMANDS.add(
    "serving",
    "tachoscope_cli.commands.serving:serving",
    "Show where the requests of an inference server wait, and what to do about it.",
    rich_help_panel=LOOK,
    epilog="Examples: `tachoscope serving http://127.0.0.1:8000/metrics --for 60s --save chat.serving.gz`, "
    "`tachoscope serving chat.serving.gz`, `tachoscope serving 'job=\"vllm\"' --prometheus http://127.0.0.1:9090`",
)
COMMANDS.add(
    "hang",
    "tachoscope_cli.commands.hang:hang",
    "Show why a job hangs: where its processes stand, and which rank the others wait for.",
    rich_help_panel=LOOK,
    epilog="Examples: `tachoscope hang /tmp/nccl_trace/`, `tachoscope hang dumps/ --format json`",
)
COMMANDS.add(
    "compare",
    "tachoscope_cli.commands.compare:compare",
    "Show what became slower from one run to another, by state, and whether the whole step became slower.",
    rich_help_panel=LOOK,
    epilog="Examples: `tachoscope compare new old`, `tachoscope compare new.json last-week.json --fail-on regression`, "
    "`tachoscope compare new.json.gz old.json.gz`",
)
COMMANDS.add(
    "explore",
    "tachoscope_cli.commands.explore:explore",
    "Serve the explorer: jobs and their bottlenecks, profiler traces down to the kernel, comparisons, objectives.",
    rich_help_panel=LOOK,
    epilog="Examples: `tachoscope explore`, "
    "`tachoscope explore --store s3://bucket/tachoscope --prometheus http://127.0.0.1:9090`, `tachoscope explore traces/`, "
    "`tachoscope explore --proxy-header X-Forwarded-User --allow-host explorer.example.com`",
)
COMMANDS.add(
    "capacity",
    "tachoscope_cli.commands.capacity:capacity",
    "Show at which request rate a server no longer meets its objectives, and what would change that.",
    rich_help_panel=LOOK,
    epilog="Examples: `tachoscope capacity chat.serving.gz`, `tachoscope capacity chat.serving.gz --objective ttft_p95=0.5 "
    "--objective itl_p95=0.05 --forecast-rate 200`, `tachoscope capacity chat.serving.gz --format html --output capacity.html`",
)
COMMANDS.add(
    "watch",
    "tachoscope_cli.commands.watch:watch",
    "Watch all live jobs: a report of each every minute, metrics for alerts, and the whole job over all its nodes.",
    rich_help_panel=LOOK,
    epilog="Examples: `tachoscope watch`, `tachoscope watch --store s3://bucket/tachoscope --host 0.0.0.0 --web-config web.yaml`, "
    "`tachoscope watch --once`",
)


_TRAINING_JOBS = "tachoscope_cli.commands.training_jobs"
COMMANDS.add(
    "submit",
    f"{_TRAINING_JOBS}:submit",
    "Submit a training job. It continues from its newest valid checkpoint until it is done, or fails twice at the same.",
    rich_help_panel=JOBS,
    epilog="Examples: `tachoscope submit training_job.yaml`, "
    "`tachoscope submit training_job.yaml --engine slurm --key nightly-42`, `tachoscope submit training_job.yaml --dry-run`",
)
COMMANDS.add(
    "status",
    f"{_TRAINING_JOBS}:status",
    "Show training jobs that were submitted: their states, and each attempt with what followed from its end.",
    rich_help_panel=JOBS,
    epilog="Examples: `tachoscope status`, `tachoscope status llama-7b`, `tachoscope status llama-7b --format json`",
)
COMMANDS.add(
    "cancel",
    f"{_TRAINING_JOBS}:cancel",
    "Cancel a training job: its attempt is ended, and none follows.",
    rich_help_panel=JOBS,
    epilog="Example: `tachoscope cancel llama-7b`",
)
COMMANDS.add(
    "supervise",
    f"{_TRAINING_JOBS}:supervise",
    "Supervise a training job until it ends: where its supervisor ended, or where it was submitted over the watch's API.",
    rich_help_panel=JOBS,
    epilog="Example: `tachoscope supervise llama-7b`",
)


@COMMANDS.command(
    rich_help_panel=KEEP,
    epilog="Examples: `tachoscope verify`, `tachoscope verify --job resnet`, `tachoscope verify checkpoints/step-100`, "
    '`python train.py --resume "$(tachoscope verify --job resnet --last)"`',
)
def verify(
    checkpoints: Annotated[
        list[str] | None, typer.Argument(metavar="CHECKPOINT...", help="Files or folders. Default: all of the job.")
    ] = None,
    job: Annotated[
        str | None, typer.Option(help="The job that saved them. Default: the one written last; with paths, any.")
    ] = None,
    store: StoreOption = None,
    last: Annotated[
        bool, typer.Option("--last", help="Print only the path of the newest valid checkpoint; exit with 1 if there is none.")
    ] = False,
    owner: Annotated[
        int | None,
        typer.Option(metavar="UID", help="With --last: trust jobs and files of this user like your own."),
    ] = None,
) -> None:
    """Read checkpoints back and compare them with the checksums that were taken when they were saved.

    Those are in the store. Without them, records in a file of `torch.save` are compared with their CRC-32. Nothing is unpickled.
    Exits with 0 if all are sound, 3 if one is corrupt, else 1 if one could not be verified.
    """
    from tachoscope_cli.commands.verify import verify_checkpoints

    raise typer.Exit(verify_checkpoints(checkpoints or (), job=job, store=store, last=last, owner=owner))


COMMANDS.add(
    "runbook",
    "tachoscope_cli.commands.runbook:runbook",
    "Print the runbook of an alert, with its labels filled in, or of a class of bottleneck.",
    rich_help_panel=OBJECTIVES,
    epilog="Examples: `tachoscope runbook TrainingNoProgress training_job=resnet`, `tachoscope runbook input_workers`",
)
COMMANDS.add(
    "drill",
    "tachoscope_cli.commands.drill:drill",
    "Cause a real fault and check that the alert reaches its receiver, in time and with a runbook.",
    rich_help_panel=OBJECTIVES,
    epilog="Examples: `tachoscope drill --list`, `tachoscope drill queue_saturation`, `tachoscope drill hang --walk`, "
    "`tachoscope drill agent_down --format json`",
)
COMMANDS.add(
    "nodes",
    "tachoscope_cli.commands.nodes:nodes_app",
    "Show and override which nodes are suspect, out, tested and returned.",
    rich_help_panel=JOBS,
)
COMMANDS.add("job", "tachoscope_cli.commands.job:job_app", "Processes of a job on this machine.", rich_help_panel=LOOK)
COMMANDS.add(
    "store", "tachoscope_cli.commands.store:store_app", "List and maintain the store of job records.", rich_help_panel=KEEP
)
COMMANDS.add(
    "slo",
    "tachoscope_cli.slo.commands:slo_app",
    "Objectives and their alerts: check them, build their rules, report their budgets.",
    rich_help_panel=OBJECTIVES,
)
COMMANDS.add(
    "dashboards",
    "tachoscope_cli.commands.dashboards:dashboards_app",
    "Grafana boards: build them, check them, push them to a Grafana.",
    rich_help_panel=OBJECTIVES,
)


def _own_name() -> str:
    """Return how to type this command here: its path if the shell does not find it."""
    path = Path(sys.executable).with_name("tachoscope")
    if shutil.which("tachoscope") or not path.is_file():
        return "tachoscope"
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else str(path)


def call(words: Sequence[str], application: typer.Typer = app, name: str = "tachoscope") -> int:
    """Run the command line; return its exit code. What is wrong with the words themselves is said on stderr.

    Raises:
        TachoscopeError: the command failed, or was interrupted.
    """
    try:
        code = application(args=list(words), prog_name=name, standalone_mode=False)
    except _UsageError as error:
        if type(error).__name__ == "NoArgsIsHelpError":  # in a module that moves from version to version
            typer.echo(error.format_message())
        else:
            error.show()
        return int(error.exit_code)
    return code if isinstance(code, int) else 0
