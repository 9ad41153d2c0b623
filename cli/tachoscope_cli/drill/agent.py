"""The node agent and the watch of a fire drill: processes with a spool and a store of their own."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tachoscope_cli.drill.processes import end, free_port, running, wait_until
from tachoscope_core.jobs.hang_rule import LEAST_SECONDS_VARIABLE
from tachoscope_core.metrics.watch import WATCH_LAST_CYCLE
from tachoscope_core.net.http_client import get
from tachoscope_core.storage import spool

TICK_SECONDS = 0.2
HANG_SECONDS = 3.0
"""Without a step, in place of half a minute."""
EVERY_SECONDS, OVER_SECONDS = 1.0, 10.0
"""Of the watch, in place of a minute, and of two."""
_START_SECONDS, _WATCH_START_SECONDS = 30.0, 60.0
_FOREIGN = ("TACHOSCOPE_", "TORCHELASTIC_", "SLURM_")


class Agent:
    """An agent whose spool, store and state lie in a folder. `target`: where it serves its metrics, `host:port`."""

    def __init__(self, folder: Path) -> None:
        self.folder, self._log = folder, folder / "agent.log"
        self.spool, self.store = folder / "spool", folder / "store"
        port = free_port()
        self.target = f"127.0.0.1:{port}"
        self._config = folder / "agent.yaml"  # JSON is YAML
        places = {"spool": str(self.spool), "store": str(self.store), "state": str(folder / "state")}
        settings = {
            "port": port,
            "tick_seconds": TICK_SECONDS,
            "sample_seconds": 0,
            "scrape_seconds": 1,
            "gpu": {"enabled": "off"},
            "flush": {"seconds": 1},
        }
        self._config.write_text(json.dumps({**places, **settings}))
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it, and wait until it serves.

        Raises:
            TachoscopeError: it does not; the message ends with its last words.
        """
        command = [sys.executable, "-m", "tachoscope_cli.main", "agent", "--config", str(self._config)]
        with self._log.open("ab") as log:
            process = subprocess.Popen(command, stdout=log, stderr=log, env=self.environment(), start_new_session=True)
        self._process = process
        wait_until(lambda: spool.live_agent(self.spool), _START_SECONDS, "the agent serves", {"the agent": self._log}, process)

    def kill(self) -> None:
        """End it as a crash does."""
        if self._process is not None:
            end(self._process, signal.SIGKILL)

    def stop(self) -> None:
        """End it in order."""
        if self._process is not None:
            end(self._process)

    def environment(self) -> dict[str, str]:
        """Return the environment of what it is to watch: nothing of another job of this machine is in it."""
        ours = {name: value for name, value in os.environ.items() if not name.startswith(_FOREIGN)}
        places = {"TACHOSCOPE_SPOOL": str(self.spool), "TACHOSCOPE_STORE": str(self.store)}
        return {**ours, **places, LEAST_SECONDS_VARIABLE: str(HANG_SECONDS), "OMP_NUM_THREADS": "1"}


@contextmanager
def agent(folder: Path) -> Iterator[Agent]:
    """Run an agent for the length of the block.

    Raises:
        TachoscopeError: it does not start.
    """
    one = Agent(folder)
    try:
        one.start()
        yield one
    finally:
        one.stop()


@contextmanager
def watch(agent: Agent) -> Iterator[str]:
    """Run a watch of an agent's store for the length of the block; yield where it serves its metrics, `host:port`.

    Raises:
        TachoscopeError: it does not start; the message ends with its last words.
    """
    port, log = free_port(), agent.folder / "watch.log"
    target = f"127.0.0.1:{port}"
    how = ["--every", f"{EVERY_SECONDS:g}", "--over", f"{OVER_SECONDS:g}", "--workers", "1", "--port", str(port)]
    command = [sys.executable, "-m", "tachoscope_cli.main", "watch", "--store", str(agent.store), *how]

    def ended_a_cycle() -> bool | None:
        page = get(f"http://{target}/metrics", seconds=10.0)
        return True if re.search(rf"^{WATCH_LAST_CYCLE.name} ".encode(), page, re.MULTILINE) else None

    with running(command, log, agent.environment()) as process:
        wait_until(ended_a_cycle, _WATCH_START_SECONDS, "the watch has looked once", {"the watch": log}, process)
        yield target
