"""A real DDP job, agent and watch over a real S3 server, with the defaults of agent and chart: records come 5 minutes late."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from helpers import BIN, environment
from processes import agent_process, free_port, s3_environment, s3_server, wait_for
from test_watch import get, watching

STORE = "s3://bucket/tachoscope"
SECONDS_WELL = 330.0
"""So long the job is looked at before it hangs: longer than until its first records are shipped."""
TRAINING = """
import time, torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
dist.init_process_group("gloo")
model = DistributedDataParallel(torch.nn.Linear(8, 8))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
while True:
    time.sleep(0.2)
    model(torch.randn(4, 8)).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
"""


@contextlib.contextmanager
def training(folder: Path) -> Iterator[psutil.Process]:
    """Run the job; yield its launcher."""
    (folder / "train.py").write_text(TRAINING)
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", str(folder / "train.py")]
    command = [BIN / "tachoscope", "run", "--job", "far", "--", *launch]
    with (folder / "job.log").open("w") as log:
        job = subprocess.Popen(command, env=environment(folder, TACHOSCOPE_STORE=STORE), stdout=log, stderr=log)
    try:
        yield psutil.Process(job.pid)
    finally:
        for process in [*psutil.Process(job.pid).children(recursive=True), job]:  # workers have sessions of their own
            with contextlib.suppress(psutil.NoSuchProcess):  # it went with the one before
                process.kill()
        job.wait()


def told(url: str) -> tuple[Any, bool]:
    """Return the job as the watch lists it, None if it does not, and whether its metrics say that it hangs."""
    hangs = b'tachoscope_bottleneck_ratio{class="hang",training_job="far"} 1' in get(f"{url}/metrics")
    return next((line for line in json.loads(get(f"{url}/v1/jobs"))["jobs"] if line["job"] == "far"), None), hangs


def rank_processes(launcher: psutil.Process) -> dict[int, psutil.Process]:
    found = [process for process in launcher.children(recursive=True) if process.environ().get("RANK")]
    return {int(process.environ()["RANK"]): process for process in found}


@pytest.mark.bar
@pytest.mark.alone
@pytest.mark.timeout(3600)
def test_a_job_is_there_at_every_look_and_a_stopped_rank_is_a_hang_until_it_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    port = free_port()
    for name, value in s3_environment(port).items():
        monkeypatch.setenv(name, value)
    with (
        s3_server(port),
        agent_process(tmp_path, store=STORE, flush={}, tick_seconds=1.0) as agent,
        training(tmp_path) as launcher,
        watching(tmp_path / "unused", "--store", STORE, "--every", "60") as (_, url),
    ):
        wait_for(lambda: told(url)[0], 120)
        end = time.monotonic() + float(os.environ.get("SECONDS_WELL", SECONDS_WELL))
        while time.monotonic() < end:
            line, hangs = told(url)
            assert line is not None and line["state"] == "running" and not hangs, line
            time.sleep(1)
        assert told(url)[0]["goodput"] is not None, "by now it is judged from its records"

        rank = rank_processes(launcher)[1]
        rank.send_signal(signal.SIGSTOP)
        stopped = time.monotonic()
        wait_for(lambda: told(url)[0]["state"] == "hung" and told(url)[1], 150)
        after = time.monotonic() - stopped
        for _ in range(200):
            line, hangs = told(url)
            assert line["state"] == "hung" and hangs and line["worst"]["ranks"] == [1], line
            time.sleep(1)
        agent.kill()  # what was known stays known
        agent.start()
        for _ in range(60):
            assert told(url)[0]["state"] == "hung"
            time.sleep(1)
        rank.send_signal(signal.SIGCONT)
        wait_for(lambda: told(url)[0]["state"] == "running" and not told(url)[1], 150)
    print(f"told after {after:.0f} s")
    assert after < 30 + 30 + 15 + 15  # the least of a hang, an object of the node, a glance, and a cycle in between
