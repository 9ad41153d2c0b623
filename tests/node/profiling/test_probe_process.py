"""A job under the probe is profiled without KINETO_USE_DAEMON: a real training of two ranks, and a real agent."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from helpers import REPOSITORY, environment
from processes import AgentProcess, wait_for

STEPS = 10


@pytest.mark.bar
def test_a_job_under_the_probe_needs_no_environment_and_its_steps_have_their_numbers(tmp_path: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="tk") as sockets:
        agent = AgentProcess(tmp_path, profiles={"sockets": [sockets], "automatic": False})
        agent.start()
        ours = environment(tmp_path, KINETO_IPC_SOCKET_DIR=sockets, KINETO_LOG_LEVEL="3")
        ours.pop("KINETO_USE_DAEMON", None)
        torchrun = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
        script = str(REPOSITORY / "tests" / "trainings" / "profiled_training.py")
        tachoscope = (sys.executable, "-m", "tachoscope_cli.main")
        command = (*tachoscope, "run", "--job", "mine", "--", sys.executable, *torchrun, script, "120")
        with (tmp_path / "run.log").open("wb") as log:
            run = subprocess.Popen(command, env=ours, stdout=log, stderr=log)
        try:
            wait_for(lambda: len(json.loads(agent.get("/v1/profiles"))["ranks"]) == 2, 90)
            ask = (*tachoscope, "profile", "--job", "mine", "--steps", str(STEPS))
            done = subprocess.run(ask, env=ours, capture_output=True, text=True, timeout=200, check=False)
            assert run.poll() is None, "the job goes on"
        finally:
            run.terminate()
            run.wait(60)
        assert agent.stop() == 0

        assert done.returncode == 0, done.stderr
        assert "input_workers, all ranks" in done.stdout
        steps = []
        for rank, file in enumerate(sorted((tmp_path / "store" / "jobs" / "mine" / "traces").glob("*/rank-*.json.gz"))):
            trace = json.loads(gzip.decompress(file.read_bytes()))
            assert trace["distributedInfo"]["rank"] == rank
            named = (event.get("name", "") for event in trace["traceEvents"])
            steps.append([int(name.partition("#")[2]) for name in named if name.startswith("ProfilerStep#")])
        assert len(steps) == 2
        assert all(len(numbers) == STEPS + 1 for numbers in steps)
        shared = set(steps[0]) & set(steps[1])
        assert len(shared) >= STEPS, "the same steps of the job on both ranks"
        assert min(shared) > STEPS, "numbers of the job, which had begun before"
