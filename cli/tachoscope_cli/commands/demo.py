"""`tachoscope demo`: the newcomer's first minute. A real training with a real fault, watched, and its report."""

from __future__ import annotations

import importlib.util
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from tachoscope_cli.demo import agent as demo_agent
from tachoscope_cli.demo.profile import Recorded, keep
from tachoscope_cli.launcher.run import RunOutcome, run
from tachoscope_core.errors import TachoscopeError
from tachoscope_core.storage import spool
from tachoscope_core.storage.store import Store

RANKS = 2
_LOG_TAIL_LINES = 15


@dataclass(frozen=True, slots=True)
class Demonstration:
    """The training's outcome, what the agent did, in a line, and what was profiled."""

    outcome: RunOutcome
    agent: str
    traces: Recorded | None = None


def train(
    fault: str, *, steps: int, store_url: str | None, job: str | None, console: Console, profile: bool = False
) -> Demonstration:
    """Run the training of `demo_training` under the probe and an agent, with progress on the console.

    Args:
        store_url: None for the live agent's, else the default one. profile: a few steps, for traces in the store.

    Raises:
        TachoscopeError: torch is not installed, or the training failed; the message ends with its last words.
        KeyboardInterrupt: the training was interrupted.
    """
    if importlib.util.find_spec("torch") is None:
        raise TachoscopeError(
            "the demo trains with PyTorch, which is not installed here", fix="pip install torch==2.13.0, or `make demo`"
        )
    name = job or f"demo-{fault}"
    with tempfile.TemporaryDirectory(prefix="tachoscope-demo-") as folder, demo_agent.watching(store_url) as watched:
        data, log = Path(folder), Path(folder) / "training.log"
        traces = data / "traces" if profile else None
        outcome = _run(_command(fault, steps, data, traces), steps, watched.store_url, name, log, console)
        if outcome.exit_code:
            tail = "\n".join(log.read_text(errors="replace").splitlines()[-_LOG_TAIL_LINES:])
            raise TachoscopeError(f"the demo's training ended with exit code {outcome.exit_code}; its last output:\n{tail}")
        says = watched.summary_line(name, outcome)
        recorded = keep(Store(outcome.store_url), outcome.job, traces, steps, console) if traces else None
        return Demonstration(outcome, says, recorded)


def _command(fault: str, steps: int, data: Path, traces: Path | None) -> list[str]:
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(RANKS)]
    module = ["-m", "tachoscope_cli.demo.demo_training", "--fault", fault, "--steps", str(steps), "--data", str(data)]
    return [*launcher, *module, *(["--traces", str(traces)] if traces else [])]


def _run(command: list[str], steps: int, store_url: str, job: str, log: Path, console: Console) -> RunOutcome:
    if not console.is_terminal:
        console.print(f"training: {RANKS} processes, {steps} steps")
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with (
        log.open("wb") as output,
        Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress,
    ):
        task = progress.add_task(f"training, {RANKS} processes", total=steps)
        most = 0

        def show(run_directory: Path) -> None:
            nonlocal most  # what the agent has shipped is in the spool no longer
            done = sum(path.read_bytes().count(b'"kind":"StepDone"') for path in spool.segments(run_directory))
            most = max(done // RANKS, most)
            progress.update(task, completed=most)

        return run(command, job=job, store_url=store_url, output=output.fileno(), while_running=show, ours=True)
