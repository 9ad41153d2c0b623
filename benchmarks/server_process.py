"""A server on this machine as its own process: what it answers over HTTP, and the processor time and memory that it takes."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import urllib.parse
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parent.parent / "tests" / "node"))

from processes import free_port as free_port
from processes import wait_for as wait_for

ANSWER_SECONDS = 120.0


class ServerProcess:
    """Starts a server and waits until it is ready.

    Args:
        log: the file that takes what it prints. ready: the path that answers 200 when it is ready.
        environ: what its environment has besides. folder: that it works in.
    """

    def __init__(
        self, command: Sequence[str], port: int, log: Path, *, ready: str, environ: Mapping[str, str], folder: Path | None = None
    ) -> None:
        self.port, self.log, self.name = port, log, command[0]
        with log.open("wb") as output:
            self.process = subprocess.Popen(command, stdout=output, stderr=output, env={**os.environ, **environ}, cwd=folder)
        wait_for(lambda: self._answers(ready))

    def _answers(self, ready: str) -> bool:
        if self.process.poll() is not None:
            raise SystemExit(f"{self.name} ended: {self.log.read_text()[-2000:]}")
        return self.get(ready) is not None

    def end(self) -> None:
        self.process.kill()
        self.process.wait()

    def get(self, path: str) -> bytes:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=ANSWER_SECONDS) as answer:
            content: bytes = answer.read()
        return content

    def post(self, path: str) -> bytes:
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", method="POST")
        with urllib.request.urlopen(request, timeout=ANSWER_SECONDS) as answer:
            content: bytes = answer.read()
        return content

    def ask(self, path: str, **query: str) -> Any:
        """Return the data of an answer of Prometheus's API."""
        return json.loads(self.answer(path, **query))["data"]

    def answer(self, path: str, **query: str) -> bytes:
        return self.get(f"/api/v1/{path}?{urllib.parse.urlencode(query)}")

    def value(self, query: str) -> float:
        """Return the value of the first series of an instant query; 0 where there is none."""
        found = self.ask("query", query=query)["result"]
        return float(found[0]["value"][1]) if found else 0.0

    def metric(self, name: str) -> float:
        """Return the sum of the series of a name on the server's own page; 0 where there is none."""
        found = re.findall(rf"^{name}(?:{{[^}}]*}})? (\S+)$", self.get("/metrics").decode(), flags=re.MULTILINE)
        return sum(map(float, found))

    def cpu_seconds(self) -> float:
        user, system = Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(")", 1)[1].split()[11:13]
        return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")

    def resident_mib(self) -> float:
        return int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE") / 2**20
