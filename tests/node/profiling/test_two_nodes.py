"""A job of two nodes, each with its agent: one request records all of its ranks, and a watch shows both hosts."""

from __future__ import annotations

import contextlib
import gzip
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from helpers import BIN, REPOSITORY, environment
from network_namespaces import ADDRESSES, CABLE, needs_namespaces, on_node, two_namespaces
from processes import AgentProcess, wait_for
from tachoscope_core.storage.store import Store
from test_watch import get, watching

SCRIPT = REPOSITORY / "tests" / "trainings" / "profiled_training.py"
JOB = "resnet"
STEPS = 5


def end(process: subprocess.Popen[bytes]) -> None:
    """Kill a process and all that it started: workers have sessions of their own."""
    with contextlib.suppress(psutil.NoSuchProcess):
        for one in psutil.Process(process.pid).children(recursive=True):
            with contextlib.suppress(psutil.NoSuchProcess):
                one.kill()
    process.kill()
    process.wait()


def agent_of(folder: Path, name: str) -> AgentProcess:
    """Run the agent of a node, which ships into the store of both."""
    (folder / name).mkdir()
    profiles = {"directory": str(folder / name / "traces"), "automatic": False}
    agent = AgentProcess(folder / name, node=name, store=str(folder / "store"), profiles=profiles, flush={"seconds": 5.0})
    with agent.log.open("ab") as log:
        words = on_node(name, sys.executable, "-m", "tachoscope_cli.main", "agent", "--config", str(agent.config))
        agent.process = subprocess.Popen(words, stdout=log, stderr=log)
    return agent


@contextlib.contextmanager
def training(folder: Path, names: tuple[str, str]) -> Iterator[None]:
    """Run a job with torchrun, two ranks on each node, each node's under `tachoscope run`.

    The second node begins when the store has something of the first: it is of the same attempt all the same.
    """
    shape = ("--nnodes", "2", "--nproc-per-node", "2", "--master-addr", ADDRESSES[0], "--master-port", "29537")
    kineto = {"KINETO_USE_DAEMON": "1", "KINETO_LOG_LEVEL": "3", "GLOO_SOCKET_IFNAME": CABLE}
    nodes = []
    try:
        for number, name in enumerate(names):
            launch = [sys.executable, "-m", "torch.distributed.run", *shape, "--node-rank", str(number), str(SCRIPT), "240"]
            words = on_node(name, str(BIN / "tachoscope"), "run", "--job", JOB, "--", *launch)
            around = environment(folder, TACHOSCOPE_SPOOL=str(folder / name / "spool"), **kineto)
            with (folder / name / "job.log").open("wb") as log:
                nodes.append(subprocess.Popen(words, env=around, stdout=log, stderr=log))
            wait_for(lambda: any(Store(str(folder / "store")).segments(JOB)), 60)
        yield
    finally:
        for node in nodes:
            end(node)


def ranks_by_host(url: str) -> dict[str, list[int]]:
    """Return the ranks of the job on each host, of those that finished a step, as the watch shows them."""
    workers = json.loads(get(f"{url}/v1/jobs/{JOB}"))["workers"]
    return {host: [one["rank"] for one in workers if one["host"] == host and one["step"]] for host in {w["host"] for w in workers}}


def stored(store: Path) -> list[dict[str, Any]]:
    files = sorted((store / "jobs" / JOB / "traces").glob("*/rank-*.json.gz"))
    return [json.loads(gzip.decompress(file.read_bytes())) for file in files]


@pytest.mark.bar
@needs_namespaces
def test_one_request_records_all_ranks_of_both_nodes_and_the_watch_shows_both_hosts(tmp_path: Path) -> None:
    store = tmp_path / "store"
    with two_namespaces() as names, contextlib.ExitStack() as stack:
        agents = [agent_of(tmp_path, name) for name in names]
        for agent in agents:
            wait_for(agent._lives, 60)
        stack.enter_context(training(tmp_path, names))
        _, url = stack.enter_context(watching(store))
        both = {names[0]: [0, 1], names[1]: [2, 3]}
        wait_for(lambda: ranks_by_host(url) == both, 120)
        for agent in agents:
            wait_for(lambda agent=agent: f"job {JOB} can be profiled" in agent.log.read_text(), 60)
        words = [str(BIN / "tachoscope"), "profile", "--job", JOB, "--steps", str(STEPS), "--store", str(store)]
        asked = subprocess.run(words, env=dict(os.environ), capture_output=True, text=True, timeout=200, check=False)

        assert asked.returncode == 0, asked.stderr
        traces = stored(store)
        assert [trace["distributedInfo"] for trace in traces] == [{"rank": rank, "world_size": 4} for rank in range(4)]
        assert [trace["tachoscope"]["host"] for trace in traces] == [names[0], names[0], names[1], names[1]]
        assert ranks_by_host(url) == both, "the job goes on, and is seen"
        (line,) = [line for line in json.loads(get(f"{url}/v1/jobs"))["jobs"] if line["job"] == JOB]
        assert (line["state"], line["hosts"]) == ("running", list(names))
