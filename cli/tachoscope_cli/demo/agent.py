"""The agent that watches the demo: the node's, or one for the length of the demo, with a spool of its own, on a free port."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tachoscope_cli.launcher.run import RunOutcome
from tachoscope_cli.sources.agent_pages import page
from tachoscope_core.storage import spool
from tachoscope_core.storage.store import absolute_url, default_url

_START_SECONDS = 15.0
_STOP_SECONDS = 30.0
_LOG = "agent.log"


@dataclass(frozen=True, slots=True)
class DemoAgent:
    """Who watches the demo: an agent, or none and the reason; `store_url` is where the records go, shipped by it or not."""

    store_url: str
    agent: spool.LiveAgent | None
    problem: str = ""

    def summary_line(self, job: str, outcome: RunOutcome) -> str:
        """Return what the agent did for the job, in a line."""
        if self.agent is None:
            return f"took no part: {self.problem}"
        if not outcome.by_agent:
            shipped = f"ships to {self.agent.store}, so the demo shipped its records itself"
        else:
            shipped = "shipped all records" if outcome.all_shipped else "has not shipped all records yet"
        try:
            return f"{shipped}, and served {self._series(job)} series of the job to Prometheus"
        except OSError as error:
            return f"{shipped}; its metrics at {self.agent.url} could not be read from here: {error}"

    def _series(self, job: str) -> int:
        assert self.agent is not None
        return sum(f'training_job="{job}"' in line for line in page(self.agent, "/metrics").split("\n"))


@contextlib.contextmanager
def watching(store_url: str | None) -> Iterator[DemoAgent]:
    """Yield who watches: the node's agent if one is live, as for `run`, else one started for the block.

    Args:
        store_url: None for the store of the live agent, else the default one.
    """
    running = spool.live_agent(spool.default_root())
    url = absolute_url(store_url or (running.store if running else default_url()))
    if running is not None:
        yield DemoAgent(url, running)
        return
    parent = spool.default_root().parent
    place = str(parent) if parent.is_dir() and os.access(parent, os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="tachoscope-demo-", dir=place) as folder:
        root = Path(folder) / "spool"
        process = _start(Path(folder), root, url)
        try:
            agent = _wait_for(root, process)
            if agent is None:
                yield DemoAgent(url, None, _why(Path(folder)))
                return
            with _environment(spool.ROOT_VARIABLE, str(root)):
                yield DemoAgent(url, agent)
        finally:
            process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(_STOP_SECONDS)


def _why(folder: Path) -> str:
    """Return the agent's last output, the reason why it did not start."""
    said = (folder / _LOG).read_text(errors="replace").split("\n")
    return next((line for line in reversed(said) if line), f"it did not start within {_START_SECONDS:.0f} s")


def _start(folder: Path, root: Path, store_url: str) -> subprocess.Popen[bytes]:
    config = folder / "agent.yaml"  # JSON is YAML
    config.write_text(
        json.dumps({"spool": str(root), "store": store_url, "state": str(folder / "state"), "port": 0, "tick_seconds": 0.5})
    )
    with (folder / _LOG).open("wb") as log:
        command = [sys.executable, "-m", "tachoscope_cli.main", "agent", "--config", str(config)]
        return subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)  # Ctrl-C is for the demo to handle


def _wait_for(root: Path, process: subprocess.Popen[bytes]) -> spool.LiveAgent | None:
    deadline = time.monotonic() + _START_SECONDS
    while process.poll() is None and time.monotonic() < deadline:
        agent = spool.live_agent(root)
        if agent is not None:
            return agent
        time.sleep(0.05)
    return None


@contextlib.contextmanager
def _environment(name: str, value: str) -> Iterator[None]:
    before = os.environ.get(name)
    os.environ[name] = value
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before
