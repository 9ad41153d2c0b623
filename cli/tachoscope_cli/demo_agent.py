"""A node agent for the length of the demo, where none is running: with a spool of its own, on a free port."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tachoscope_core import spool

_START_SECONDS = 15.0
_STOP_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class Demonstrated:
    """The agent that watches the demo."""

    agent: spool.LiveAgent

    def series(self, job: str) -> int:
        """Return how many series of the job it serves now, or 0 when it cannot be asked."""
        with contextlib.suppress(OSError), urllib.request.urlopen(f"{self.agent.url}/metrics", timeout=5) as answer:  # noqa: S310
            return sum(f'training_job="{job}"'.encode() in line for line in answer)
        return 0


@contextlib.contextmanager
def watching(store_url: str) -> Iterator[Demonstrated | None]:
    """Yield the agent that ships to this store: the one that is running, else one started for the block; None if it cannot be."""
    running = spool.live_agent(spool.default_root())
    if running is not None:
        yield Demonstrated(running) if running.store == store_url else None
        return
    parent = spool.default_root().parent
    place = str(parent) if parent.is_dir() and os.access(parent, os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="tachoscope-demo-", dir=place) as folder:
        root = Path(folder) / "spool"
        process = _start(Path(folder), root, store_url)
        try:
            agent = _wait_for(root, process)
            if agent is None:
                yield None
                return
            with _environment(spool.ROOT_VARIABLE, str(root)):
                yield Demonstrated(agent)
        finally:
            process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(_STOP_SECONDS)


def _start(folder: Path, root: Path, store_url: str) -> subprocess.Popen[bytes]:
    config = folder / "agent.yaml"  # JSON is YAML
    config.write_text(
        json.dumps({"spool": str(root), "store": store_url, "state": str(folder / "state"), "port": 0, "tick_seconds": 0.5})
    )
    with (folder / "agent.log").open("wb") as log:
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
