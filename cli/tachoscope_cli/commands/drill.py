"""`tachoscope drill`: a fault is caused for real, and whether it reaches the right person with the right runbook is looked at."""

from __future__ import annotations

import contextlib
import signal
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import msgspec
import typer
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from tachoscope_cli.common import answers
from tachoscope_cli.common.options import TEXT, JsonOption, needs_analysis, print_notice
from tachoscope_cli.common.output import console, write_json
from tachoscope_core import extras
from tachoscope_core.errors import TachoscopeError
from tachoscope_core.exit_codes import ExitCode

if TYPE_CHECKING:
    from tachoscope_cli.drill.run import DrillOutcome
    from tachoscope_cli.drill.walk import RunbookStep, Verdict

FAULTS = {
    "input_workers": "a training waits for its data: a ticket of the objective on input",
    "hang": "the process of a training is stopped: a page",
    "unscraped_hang": "a training is stopped, and Prometheus does not scrape its node's agent: the watch pages",
    "straggler": "one of two ranks of a training computes for longer: a ticket, by the watch",
    "recompilation": "a training compiles the same code again in each step: a ticket",
    "failed_checkpoint": "no checkpoint of a training can be written any more: a page",
    "memory_leak": "memory of a training grows towards the limit of its control group: a ticket",
    "queue_saturation": "an inference server refuses requests: a page of the objective on availability",
    "agent_down": "a node's agent is killed: a ticket",
}
"""What can be drilled, in words. Here, so that `--help` does not load what the drills need."""


def drill(
    fault: Annotated[str | None, typer.Argument(metavar="CLASS", help=f"The fault to cause: {', '.join(FAULTS)}.")] = None,
    list_: Annotated[bool, typer.Option("--list", help="List the available drills, and exit.")] = False,
    walk: Annotated[
        bool, typer.Option("--walk", help="Also run the queries and commands of the alert's runbook, and check the answers.")
    ] = False,
    keep: Annotated[bool, typer.Option("--keep", help="Keep the folder with configurations and logs.")] = False,
    format_: JsonOption = TEXT,
) -> None:
    """Cause a real fault and check that the alert reaches its receiver, in time and with a runbook.

    A real Prometheus and Alertmanager run on this machine, on loopback only, with windows scaled down, an agent and a workload; in
    about a minute all of it is gone again. Nothing that runs already is touched. Exits with 1 if a check failed.

    With --walk it runs what the alert's runbook tells one to, during the fault and after it: queries, with their ranges scaled as
    the rules' are, and commands that only read or that end the drill's own processes. What needs more, such as kubectl, is named as
    not run.
    """
    as_json = format_.value == "json"
    if list_:
        _list(as_json=as_json)
        return
    if fault not in FAULTS:
        wrong = "no class given" if fault is None else f"unknown drill {fault!r}"
        raise TachoscopeError(wrong, fix=f"tachoscope drill {next(iter(FAULTS))}; available: {', '.join(FAULTS)}")
    needs_analysis()
    extras.require("agent")
    from tachoscope_cli.drill import run as drill_run

    out, alert = console(), drill_run.DRILLS[fault].alert
    with _folder(keep=keep) as folder, _ending_on_term(), _waiting_line(Console(stderr=True) if as_json else out) as say:
        held = drill_run.run_drill(drill_run.DRILLS[fault], folder, say, walk=walk)
    walked = not walk or (held.steps != [] and all(one.verdict != "WRONG" for one in held.steps))
    passed = all(one.passed for one in held.checks) and walked
    if as_json:
        write_json(_answer(fault, alert, held, passed=passed))
    else:
        _show(out, fault, alert, held, walk=walk)
    raise typer.Exit(ExitCode.from_success(passed))


def _list(*, as_json: bool) -> None:
    if as_json:
        write_json(answers.Drills(drills=[answers.Drill(class_=name, what=what) for name, what in FAULTS.items()]))
        return
    rows = [[Text(name), Text(what)] for name, what in FAULTS.items()]
    console().print(_table(["class", "what is broken, and what comes of it"], rows))


def _answer(fault: str, alert: str, held: DrillOutcome, *, passed: bool) -> answers.DrillResult:
    return answers.DrillResult(
        class_=fault,
        alert=alert,
        passed=passed,
        checks=[msgspec.convert(one, answers.DrillCheck, from_attributes=True) for one in held.checks],
        other_alerts=[answers.OtherAlert(alert=name, summary=said) for name, said in held.others.items()],
        steps=[msgspec.convert(one, answers.WalkedStep, from_attributes=True) for one in held.steps],
    )


def _show(out: Console, fault: str, alert: str, held: DrillOutcome, *, walk: bool) -> None:
    words = {True: Text("yes", style="green"), False: Text("NO", style="bold red")}
    out.print(f"drill {fault}: {alert}")
    rows = [[Text(one.what), words[one.passed], Text(one.found)] for one in held.checks]
    out.print(_table(["", "passed", "found"], rows))
    if held.others:
        out.print("other alerts on the same fault:")
        out.print(_table(["alert", "what it said"], [[Text(name), Text(said)] for name, said in held.others.items()]))
    if walk:
        _show_walk(out, alert, held.steps)


def _show_walk(out: Console, alert: str, steps: Sequence[RunbookStep]) -> None:
    styles: dict[Verdict, str] = {"right": "green", "WRONG": "bold red", "not judged": "yellow", "not run": "yellow"}
    cells = [
        [Text(one.when), Text(str(one.section)), Text(one.what), Text(one.verdict, style=styles[one.verdict]), Text(one.answer)]
        for one in steps
    ]
    counts = Counter(one.verdict for one in steps)
    told = ", ".join(f"{counts[verdict]} {verdict}" for verdict in styles)
    out.print(f"runbook {alert}: {told}")
    out.print(_table(["when", "section", "query or command", "", "answer"], cells))


def _table(titles: Sequence[str], rows: Sequence[Sequence[Text]]) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for title in titles:
        table.add_column(title, overflow="fold")
    for row in rows:
        table.add_row(*row)
    return table


@contextlib.contextmanager
def _folder(*, keep: bool) -> Iterator[Path]:
    if not keep:
        with tempfile.TemporaryDirectory(prefix="tachoscope-drill-", ignore_cleanup_errors=True) as folder:
            yield Path(folder)
        return
    kept = Path(tempfile.mkdtemp(prefix="tachoscope-drill-"))
    try:
        yield kept
    finally:
        print_notice(f"configurations and logs are in {kept}")


@contextlib.contextmanager
def _waiting_line(out: Console) -> Iterator[Callable[[str], None]]:
    """Yield a function that shows what is waited for: in one line on a terminal, else a line each."""
    if not out.is_terminal:
        yield lambda text: out.print(text, soft_wrap=True)
        return
    with Progress(SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn(), console=out, transient=True) as progress:
        task = progress.add_task("")
        yield lambda text: progress.update(task, description=text)


@contextlib.contextmanager
def _ending_on_term() -> Iterator[None]:
    """End on SIGTERM as on Ctrl-C, with all that was started."""

    def ended(*_: object) -> NoReturn:
        raise TachoscopeError("terminated", exit_code=ExitCode.TERMINATED)

    before = signal.signal(signal.SIGTERM, ended)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
