"""Real DDP jobs that come to a standstill, shipped by a real agent: a real watch names the rank."""

import contextlib
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest

from helpers import BIN, environment
from processes import AgentProcess, wait_for
from tachoscope_analyzers.hang_evidence.groups import groups_of
from tachoscope_analyzers.hang_evidence.report import odd_group
from tachoscope_core.storage.hang_bundles import last_hang
from tachoscope_core.storage.store import Store
from test_watch import get, watching

SCRIPT = Path(__file__).with_name("hanging_ddp.py")


@contextmanager
def training(folder: Path, *how: str, script: Path = SCRIPT, hang_seconds: float = 6.0, ranks: int = 2) -> Iterator[None]:
    """Run an agent and a job, of which rank 1 will stand still."""
    around = environment(folder, TACHOSCOPE_HANG_SECONDS=str(hang_seconds))
    agent = AgentProcess(folder, around, forked=True, tick_seconds=1.0, flush={"seconds": 1})
    agent.start()
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks), str(script), *how]
    job = subprocess.Popen(
        [BIN / "tachoscope", "run", "--job", "stuck", "--", *launch],
        env=around,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        yield
    finally:
        for process in [*psutil.Process(job.pid).children(recursive=True), job]:  # workers have sessions of their own
            with contextlib.suppress(psutil.NoSuchProcess):  # it went with the one before
                process.kill()
        job.wait()
        agent.kill()


@pytest.mark.parametrize(
    ("how", "ranks"),
    [
        ("skip", 2),
        pytest.param("stop", 2, marks=pytest.mark.bar),
        pytest.param("lock", 2, marks=pytest.mark.bar),
        pytest.param("larger", 3, marks=pytest.mark.bar),
        pytest.param("smaller", 3, marks=pytest.mark.bar),
        pytest.param("omit", 3, marks=pytest.mark.bar),
    ],
)
def test_a_rank_that_stands_still_is_named_while_the_job_hangs(tmp_path: Path, how: str, ranks: int) -> None:
    with training(tmp_path, how, ranks=ranks), watching(tmp_path / "store", hang_seconds="6") as (_, url):
        deadline = time.monotonic() + 120
        told: dict[str, Any] = {}
        while time.monotonic() < deadline and not (told.get("state") == "hung" and told["worst"]["ranks"] == [1]):
            time.sleep(0.5)  # at the first look it may not be known yet where the ranks are
            listed = {line["job"]: line for line in json.loads(get(f"{url}/v1/jobs"))["jobs"]}
            told = listed.get("stuck", {})

        assert told.get("state") == "hung", told
        assert (told["worst"]["class"], told["worst"]["ranks"]) == ("hang", [1])
        bundles = wait_for(lambda: list(last_hang(Store(str(tmp_path / "store")), "stuck").bundles.values()), seconds=60)
        odd = odd_group(groups_of(bundles))

        assert odd is not None and odd.ranks == [1], "the agent collected where each process stands"
