"""The machines of the recorded demo: two nodes on this one, each with an agent, a spool, a store and a fake driver of its own."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from demo_gpus import BUSY, SERVING, STARVED, Gpus
from helpers import REPOSITORY, environment
from processes import AgentProcess, free_port
from tachoscope_cli.drill.processes import running
from tachoscope_core.storage import spool

HANG_SECONDS = "6"
"""Far less than by default: a hang of the demo lasts seconds."""
_TRAINING = Path(__file__).with_name("demo_training.py")
_PORT = "class/infiniband/mlx5_0/ports/1"
_LANES = _PORT + "/counters/port_{}_data"
_RDMA = {
    "state": "4: ACTIVE",
    "rate": "400 Gb/sec (4X NDR)",
    "link_layer": "InfiniBand",
    **{f"counters/{name}": "0" for name in ("port_rcv_data", "port_xmit_data", "symbol_error", "link_downed", "port_rcv_errors")},
}
"""Files of a port, after the kernel's Documentation/ABI/stable/sysfs-class-infiniband."""


@dataclass
class Node:
    """A node.

    Attributes:
        gpus: what its driver tells. wanted: by GPU the job and rank that have it. pods: GPUs of pods, which serve.
        running: its jobs, each until it is ended.
    """

    name: str
    folder: Path
    gpus: Gpus
    agent: AgentProcess
    port: int
    wanted: Mapping[int, tuple[str, int]]
    pods: Mapping[int, str]
    running: dict[str, contextlib.ExitStack] = field(default_factory=dict)

    @property
    def faults(self) -> Path:
        """Return the folder in which files mean faults of its jobs."""
        return self.folder / "faults"

    def launch(self, job: str, ranks: int, *options: str) -> None:
        """Start a training under torchrun and `tachoscope run`; it is ended with `end`, if it does not end before."""
        ours = [sys.executable, "-m", "tachoscope_cli.main", "run", "--job", job, "--no-track", "--"]
        torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)]
        folder = self.folder / job
        (folder / "work").mkdir(parents=True, exist_ok=True)
        script = [str(_TRAINING), "--folder", str(folder), "--faults", str(self.faults / job), *options]
        more = {"TACHOSCOPE_HANG_SECONDS": HANG_SECONDS, "TACHOSCOPE_INTEGRITY_EVERY": "20"}
        stack = self.running[job] = contextlib.ExitStack()
        command = [*ours, *torchrun, "--max-restarts", "3", *script]
        stack.enter_context(running(command, self.folder / f"{job}.log", environment(self.folder, **more)))

    def serve(self, service: str, at: int, *options: str) -> None:
        """Start an inference server."""
        command = [sys.executable, str(REPOSITORY / "examples" / "serve.py"), "--service", service, "--port", str(at), *options]
        stack = self.running[service] = contextlib.ExitStack()
        stack.enter_context(running(command, self.folder / f"{service}.log", environment(self.folder)))

    def ask(self, name: str, at: int, *options: str) -> None:
        """Let clients ask a server, for as long as the options say."""
        command = [sys.executable, str(REPOSITORY / "examples" / "serving_load.py"), f"http://127.0.0.1:{at}", *options]
        stack = self.running[name] = contextlib.ExitStack()
        stack.enter_context(running(command, self.folder / f"{name}.log", environment(self.folder)))

    def end(self, name: str) -> None:
        """End what was started under a name."""
        self.running.pop(name).close()

    def pids(self) -> dict[tuple[str, int], int]:
        """Return the processes of ranks that live, by job and rank: what the first records of their spools say."""
        found: dict[tuple[str, int], tuple[float, int]] = {}
        for path in spool.segments(self.agent.spool):
            with contextlib.suppress(OSError, ValueError), path.open() as file:
                first = json.loads(file.readline())
                if first.get("kind") == "JobStarted" and first.get("rank", -1) >= 0 and _state(first["pid"]):
                    one = (first["job"], first["rank"])
                    found[one] = max(found.get(one, (0.0, 0)), (first["time"], first["pid"]))
        return {one: pid for one, (_, pid) in found.items()}

    def play(self, seconds: float) -> None:
        """Let its GPUs and its network do what its jobs would have them do."""
        pids = self.pids()
        doing = {gpu: (0, SERVING) for gpu, service in self.pods.items() if service in self.running}
        for gpu, (job, rank) in self.wanted.items():
            pid = pids.get((job, rank), 0)
            if pid and _state(pid) != "T":
                is_late = (self.faults / job / f"late-{rank}").exists()
                doing[gpu] = (pid, STARVED if is_late else BUSY)
        self.gpus.play(seconds, doing)
        for way in ("rcv", "xmit"):
            path = self.folder / "sys" / _LANES.format(way)
            lanes = int(path.read_text()) + round(seconds * 4.2e9 * sum(pid > 0 for pid, _ in doing.values()) / 4)
            _replace(path, f"{lanes}\n")


def node(folder: Path, name: str, gpus: int, seed: int, wanted: Mapping[int, tuple[str, int]], **more: Any) -> Node:
    """Make a node; its agent is not started. more: `pods`, and else what its agent's configuration has."""
    folder.mkdir()
    pods = more.pop("pods", {})
    driver = Gpus(folder / "driver", gpus, seed)
    at = free_port()
    settings = {
        "node": name,
        "port": at,
        "tick_seconds": 0.5,
        "sample_seconds": 0,
        "retention_seconds": 180,
        "sys": _sys(folder / "sys"),
        "checkpoints": {"verify_again_seconds": 60},
        **more,
    }
    settings["gpu"] = {"expected": gpus, **settings.get("gpu", {})}
    agent = AgentProcess(folder, {**driver.driver.environment(), "TACHOSCOPE_HANG_SECONDS": HANG_SECONDS}, **settings)
    return Node(name, folder, driver, agent, at, wanted, pods)


@contextlib.contextmanager
def living(nodes: list[Node]) -> Iterator[None]:
    """End all that nodes run at the end of the block."""
    try:
        for one in nodes:
            one.agent.start()
        yield
    finally:
        for one in nodes:
            for stack in one.running.values():
                stack.close()
            if one.agent.process is not None and one.agent.process.poll() is None:
                one.agent.stop()


def _state(pid: int) -> str:
    """Return the state of a process as the kernel says it in a letter; empty: it is gone."""
    with contextlib.suppress(OSError):
        letter = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
        return "" if letter in "ZX" else letter
    return ""


def _sys(root: Path) -> str:
    """Return a /sys that is this machine's, with an RDMA port that is not."""
    (root / "class").mkdir(parents=True)
    for path in Path("/sys").iterdir():
        if path.name != "class":
            (root / path.name).symlink_to(path)
    for path in Path("/sys/class").iterdir():
        if path.name != "infiniband":
            (root / "class" / path.name).symlink_to(path)
    for name, content in _RDMA.items():
        path = root / _PORT / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{content}\n")
    return str(root)


def _replace(path: Path, text: str) -> None:
    new = path.with_suffix(".new")
    new.write_text(text)
    os.replace(new, path)
