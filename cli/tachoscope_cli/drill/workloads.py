"""What a fire drill breaks and fixes: a training, an inference server under load, and the node agent itself."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import re
import resource
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from tachoscope_cli.drill import memory_group
from tachoscope_cli.drill.agent import Agent
from tachoscope_cli.drill.processes import free_port, running, wait_until
from tachoscope_core.errors import TachoscopeError
from tachoscope_core.metrics.checkpoints import VERIFIED_TIMESTAMP
from tachoscope_core.metrics.metric import Metric
from tachoscope_core.metrics.training import STEPS
from tachoscope_core.net import http_client
from tachoscope_core.net.http_client import HttpError, get

CLIENTS, PAUSE_SECONDS = 20, 1.0
LATE_SECONDS = 0.5
"""So much that it is most of a step on a slow machine too."""
SAVE_SECONDS, MOST_FILE_BYTES = 8.0, 4 << 20
"""Between two checkpoints: taking the checksums of one and reading it back take about as long on a slow machine. And what is less
than one of them, and more than a segment of the spool becomes."""
LEAK_ROOM_BYTES, LEAK_SECONDS = 360 << 20, 60.0
"""Of a control group, and after how many seconds a leak has filled that: it is reported when half of it is full."""
_MANY_STEPS = 1_000_000
_ENOUGH_STEPS = 20
_TRAINS_SECONDS = 90.0


@dataclass(frozen=True, slots=True)
class DrillFault:
    """A fault that can be caused and ended, any number of times. `known`: variables of its runbook that one knows beforehand."""

    cause: Callable[[], None]
    end: Callable[[], None]
    known: Mapping[str, str] = field(default_factory=dict)


@contextmanager
def training(folder: Path, agent: Agent) -> Iterator[DrillFault]:
    """Run the demo's training under the probe, in one process; the fault: its input comes late, as `input_workers` has it.

    Raises:
        TachoscopeError: torch is not installed.
    """
    late = folder / "late"
    with _training(folder, agent, "input_workers", "--slow-seconds", str(LATE_SECONDS), "--fault-while", str(late)):
        yield _while_file(late)


@contextmanager
def hanging(folder: Path, agent: Agent) -> Iterator[DrillFault]:
    """Run the same training with nothing wrong; the fault: its process is stopped, and its end: it goes on.

    Raises:
        TachoscopeError: torch is not installed, or the training does not train.
    """
    with _training(folder, agent, "none") as process:
        _wait_for_steps(folder, agent, process)
        trainer = _trainer(process)
        yield DrillFault(lambda: os.kill(trainer, signal.SIGSTOP), lambda: os.kill(trainer, signal.SIGCONT))


@contextmanager
def straggling(folder: Path, agent: Agent) -> Iterator[DrillFault]:
    """Run the same training in two processes; the fault: rank 1 computes longer in each step, and rank 0 waits for it.

    Raises:
        TachoscopeError: torch is not installed, or the training does not train.
    """
    late = folder / "late"
    options = ("--slow-seconds", str(LATE_SECONDS), "--fault-while", str(late))
    with _training(folder, agent, "compute_straggler", *options, ranks=2) as process:
        _wait_for_steps(folder, agent, process)
        yield _while_file(late)


@contextmanager
def recompiling(folder: Path, agent: Agent) -> Iterator[DrillFault]:
    """Run the same training with compiled code; the fault: its input has another length in each step.

    Raises:
        TachoscopeError: torch is not installed, or the training does not train.
    """
    lengths = folder / "lengths"
    with _training(folder, agent, "recompilation", "--fault-while", str(lengths)) as process:
        _wait_for_steps(folder, agent, process)
        yield _while_file(lengths)


@contextmanager
def saving(folder: Path, agent: Agent) -> Iterator[DrillFault]:
    """Run the same training, which saves now and then; the fault: no file of its process may become as large as a checkpoint is.

    The kernel refuses the write halfway, as on a full file system, and leaves the rest of this machine alone. It begins right after
    a checkpoint, so that it is known how old the last one is.

    Raises:
        TachoscopeError: torch is not installed, or no checkpoint is saved and read back.
    """
    with _training(folder, agent, "none", "--save-seconds", str(SAVE_SECONDS)) as process:
        log = {"the training": folder / "workload.log"}
        wait_until(lambda: _value(agent, VERIFIED_TIMESTAMP), _TRAINS_SECONDS, "a checkpoint is read back", log, process)
        trainer = _trainer(process)
        usual = resource.prlimit(trainer, resource.RLIMIT_FSIZE)

        def fill_up() -> None:
            known = _newest(folder)
            wait_until(lambda: _newest(folder) != known or None, _TRAINS_SECONDS, "the next checkpoint is saved", log, process)
            resource.prlimit(trainer, resource.RLIMIT_FSIZE, (MOST_FILE_BYTES, usual[1]))

        yield DrillFault(fill_up, lambda: _free(trainer, usual))


@contextmanager
def leaking(folder: Path, agent: Agent) -> Iterator[DrillFault]:
    """Run the same training in a control group; the fault: it keeps more and more memory, and its end: it frees it.

    The limit is set when the fault begins: how much a training takes differs between machines, and what it took when it started is
    no growth towards this limit.

    Raises:
        TachoscopeError: torch is not installed, no control group can be made, or the training does not train.
    """
    leaks, rate = folder / "leaks", f"{LEAK_ROOM_BYTES / LEAK_SECONDS:.0f}"
    options = ("--leak-bytes-per-second", rate, "--fault-while", str(leaks))
    with memory_group.created() as group, _training(folder, agent, "none", *options) as process:
        memory_group.join(group, process.pid)
        _wait_for_steps(folder, agent, process)

        def cause() -> None:
            memory_group.leave_room(group, LEAK_ROOM_BYTES)
            leaks.touch()

        yield DrillFault(cause, lambda: leaks.unlink(missing_ok=True))


def _newest(folder: Path) -> str:
    return max((path.name for path in (folder / "data").glob("checkpoint-*.pt")), default="")


def _free(trainer: int, usual: tuple[int, int]) -> None:
    resource.prlimit(trainer, resource.RLIMIT_FSIZE, usual)


def _trainer(process: subprocess.Popen[bytes]) -> int:
    """Return the process that trains, which `tachoscope run` began."""
    (trainer,) = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    return int(trainer)


@contextmanager
def _training(folder: Path, agent: Agent, fault: str, *options: str, ranks: int = 1) -> Iterator[subprocess.Popen[bytes]]:
    if importlib.util.find_spec("torch") is None:
        raise TachoscopeError("this drill trains with PyTorch, which is not installed here", fix="pip install torch==2.13.0")
    data = folder / "data"
    data.mkdir()
    script = [
        "-m",
        "tachoscope_cli.demo.demo_training",
        "--fault",
        fault,
        *options,
        "--data",
        str(data),
        "--steps",
        str(_MANY_STEPS),
    ]
    if ranks > 1:
        script = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks), *script]
    watched = ["-m", "tachoscope_cli.main", "run", "--job", "drill", "--store", str(agent.store), "--no-track", "--"]
    alone = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    if ranks > 1:
        alone = {}
    command = [sys.executable, *watched, sys.executable, *script]
    with running(command, folder / "workload.log", {**agent.environment(), **alone}) as process:
        yield process


def _wait_for_steps(folder: Path, agent: Agent, process: subprocess.Popen[bytes]) -> None:
    """Wait until the agent has seen enough steps to know how long one takes."""

    def trains() -> bool | None:
        steps = _value(agent, STEPS)
        return True if steps is not None and steps >= _ENOUGH_STEPS else None

    wait_until(trains, _TRAINS_SECONDS, "the training does steps", {"the training": folder / "workload.log"}, process)


def _value(agent: Agent, metric: Metric) -> float | None:
    """Return the sum of a metric of the drill's job; None: the agent has no such series."""
    page = get(f"http://{agent.target}/metrics", seconds=10.0)
    values = re.findall(rf'^{metric.name}\{{[^}}]*training_job="drill"[^}}]*\}} (\S+)'.encode(), page, re.MULTILINE)
    return sum(map(float, values)) if values else None


@contextmanager
def serving(folder: Path, agent: Agent) -> Iterator[DrillFault]:
    """Run a server under the probe, and clients of it; the fault: it is slow, so that it refuses most of them."""
    slow, port = folder / "slow", free_port()
    command = [sys.executable, "-m", "tachoscope_cli.drill.inference_server", "--port", str(port), "--slow-while", str(slow)]
    gateway = f"http://127.0.0.1:{port}"
    with running(command, folder / "workload.log", agent.environment()), _asking(f"{gateway}/v1/completions"):
        yield replace(_while_file(slow), known={"gateway": gateway})


@contextmanager
def no_workload(folder: Path, agent: Agent) -> Iterator[DrillFault]:  # noqa: ARG001 - as the others
    """Run nothing; the fault: the agent is killed, and its end: it is started again."""
    yield DrillFault(agent.kill, agent.start)


def _while_file(path: Path) -> DrillFault:
    return DrillFault(path.touch, lambda: path.unlink(missing_ok=True))


@contextmanager
def _asking(url: str) -> Iterator[None]:
    """Have clients ask all the time, each once in a while, whether they are answered or refused."""
    stop = threading.Event()

    def ask(number: int) -> None:
        stop.wait(PAUSE_SECONDS * number / CLIENTS)
        while not stop.is_set():
            with contextlib.suppress(HttpError):
                http_client.request(url, seconds=30.0, most_bytes=1 << 20, body=b"a prompt")
            stop.wait(PAUSE_SECONDS)

    clients = [threading.Thread(target=ask, args=(number,), daemon=True) for number in range(CLIENTS)]
    for client in clients:
        client.start()
    try:
        yield
    finally:
        stop.set()
