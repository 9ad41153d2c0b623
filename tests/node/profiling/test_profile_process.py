"""A running job is profiled with no change to it: real trainings of two ranks, real agents, and the command that asks."""

from __future__ import annotations

import contextlib
import gzip
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from helpers import REPOSITORY
from network_namespaces import needs_namespaces, two_namespaces
from processes import AgentProcess, free_port, wait_for

SCRIPT = REPOSITORY / "tests" / "trainings" / "profiled_training.py"
STEPS = 10
OURS = ("PYTHONPATH", "TACHOSCOPE_", "TORCHELASTIC_", "SLURM_")


@contextlib.contextmanager
def training(ranks: Sequence[int], *prefix: str, **environ: str) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Run ranks of the training, with nothing of tachoscope in reach."""
    outside = {name: value for name, value in os.environ.items() if not name.startswith(OURS)}
    made = [
        subprocess.Popen(
            [*prefix, sys.executable, str(SCRIPT), "120"],
            env=outside | {"RANK": str(rank), "WORLD_SIZE": "2", "TORCHELASTIC_RUN_ID": "resnet", "KINETO_USE_DAEMON": "1",
                           "KINETO_LOG_LEVEL": "3", "OMP_NUM_THREADS": "1"} | environ,
        )
        for rank in ranks
    ]  # fmt: skip
    try:
        yield made
    finally:
        for one in made:
            one.kill()
            one.wait()


def profile(store: Path) -> subprocess.CompletedProcess[str]:
    command = [
        sys.executable,
        "-m",
        "tachoscope_cli.main",
        "profile",
        "--job",
        "resnet",
        "--steps",
        str(STEPS),
        "--store",
        str(store),
    ]
    return subprocess.run(command, capture_output=True, text=True, timeout=200, check=False)


def stored(store: Path) -> list[dict[str, Any]]:
    files = sorted((store / "jobs" / "resnet" / "traces").glob("*/rank-*.json.gz"))
    return [json.loads(gzip.decompress(file.read_bytes())) for file in files]


def start_seconds(trace: dict[str, Any]) -> float:
    """Return when the profiler began to record, in Unix seconds."""
    (span,) = [event for event in trace["traceEvents"] if event.get("cat") == "Trace"]
    return float((trace["baseTimeNanoseconds"] / 1e3 + span["ts"]) / 1e6)


def assert_profiled(done: subprocess.CompletedProcess[str], store: Path) -> None:
    assert done.returncode == 0, done.stderr
    assert "CRITICAL  input_workers" in done.stdout
    first, second = stored(store)
    assert [trace["distributedInfo"] for trace in (first, second)] == [{"rank": rank, "world_size": 2} for rank in (0, 1)]
    apart = abs(start_seconds(first) - start_seconds(second))
    assert apart < 0.05, f"{apart:.4f} s apart"
    for trace in (first, second):
        assert sum(event["name"].startswith("Optimizer.step#") for event in trace["traceEvents"] if "name" in event) > STEPS


@pytest.mark.bar
def test_both_ranks_are_recorded_at_one_time_and_the_report_names_the_fault(tmp_path: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="tk") as sockets:
        agent = AgentProcess(tmp_path, profiles={"sockets": [sockets], "automatic": False})
        agent.start()
        address = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
        with training([0, 1], KINETO_IPC_SOCKET_DIR=sockets, **address) as ranks:
            wait_for(lambda: len(json.loads(agent.get("/v1/profiles"))["ranks"]) == 2, 60)
            done = profile(tmp_path / "store")

            assert [rank.poll() for rank in ranks] == [None, None], "the job goes on"
        assert_profiled(done, tmp_path / "store")
        again = profile(tmp_path / "store")
        assert again.returncode == 2
        assert agent.stop() == 0
        assert [name for name in os.listdir(sockets) if name.startswith("tachoscope")] == []


@pytest.mark.bar
@needs_namespaces
def test_one_request_profiles_both_nodes_of_a_job(tmp_path: Path) -> None:
    with two_namespaces() as names, contextlib.ExitStack() as stack:
        agents = []
        for name in names:
            folder = tmp_path / name
            folder.mkdir()
            profiles = {"directory": str(folder / "traces"), "automatic": False}
            agent = AgentProcess(folder, node=name, store=str(tmp_path / "store"), profiles=profiles)
            command = [
                "ip",
                "netns",
                "exec",
                name,
                sys.executable,
                "-m",
                "tachoscope_cli.main",
                "agent",
                "--config",
                str(agent.config),
            ]
            with agent.log.open("ab") as log:
                agent.process = subprocess.Popen(command, stdout=log, stderr=log)
            agents.append(agent)
        for rank, name in enumerate(names):
            address = {"MASTER_ADDR": "10.99.7.1", "MASTER_PORT": "29531", "GLOO_SOCKET_IFNAME": "veth1"}
            stack.enter_context(training([rank], "ip", "netns", "exec", name, **address))
        for agent in agents:
            wait_for(lambda agent=agent: "job resnet can be profiled" in agent.log.read_text(), 60)

        assert_profiled(profile(tmp_path / "store"), tmp_path / "store")
