"""The watch of a fire drill: a real `tachoscope watch` of the drill's store, that looks every second at the last ten."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from tachoscope_cli.drill.agent import Agent
from tachoscope_cli.drill.processes import free_port, running, wait_until
from tachoscope_core.metrics.watch import WATCH_LAST_CYCLE
from tachoscope_core.net.http_client import get

EVERY_SECONDS, OVER_SECONDS = 1.0, 10.0
"""In place of a minute, and of two."""
_START_SECONDS = 60.0


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
        wait_until(ended_a_cycle, _START_SECONDS, "the watch has looked once", {"the watch": log}, process)
        yield target
