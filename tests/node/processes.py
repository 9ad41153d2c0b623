"""Real processes for the agent's tests: the agent itself, and what it talks to."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import random
import signal
import socket
import subprocess
import sys
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from tachoscope_core.storage import spool

if TYPE_CHECKING:  # benchmarks use this module, too
    import pytest

    from forked import Forked

BIN = Path(sys.executable).parent
START_SECONDS = 120.0


def _own_ports() -> Iterator[int]:
    """Yield ports for this process of the tests: connections get theirs from 32768 on, its other processes elsewhere.

    They begin above 10080, which browsers refuse.
    """
    first = 11_000 + 2_000 * (int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % 10)
    begin = random.SystemRandom().randrange(2_000)  # of two runs of the tests on one machine each begins at another
    for number in itertools.count(begin):
        yield first + number % 2_000


_PORTS = _own_ports()


def free_port() -> int:
    """Return a port that nobody uses, and that nobody takes before the server does that it is for."""
    for port in _PORTS:
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise AssertionError("unreachable: the ports are endless")


def wait_for(what: Callable[[], Any], seconds: float = START_SECONDS, pause: float = 0.05) -> Any:
    """Return the first true value, or fail with the last error; `pause`: between two looks, longer where they cost something."""
    deadline, error = time.monotonic() + seconds, "it stayed false"
    while time.monotonic() < deadline:
        try:
            if found := what():
                return found
        except (OSError, AssertionError, ValueError, KeyError, IndexError) as raised:
            error = f"{type(raised).__name__}: {raised}"
        time.sleep(pause)
    raise AssertionError(f"not within {seconds} s: {error}")


STARTED: list[AgentProcess] = []


class AgentProcess:
    """`tachoscope agent` as its own process, with spool, store and state in a folder.

    Args:
        forked: from a process that has imported what it needs, for tests that are about neither its start nor its memory.
    """

    def __init__(self, folder: Path, environ: dict[str, str] | None = None, *, forked: bool = False, **config: Any) -> None:
        places = {name: str(folder / name) for name in ("spool", "store", "state")}
        defaults: dict[str, Any] = {"node": "node-1", "port": 0, "tick_seconds": 0.1, "flush": {"seconds": 0.3}}
        self.config = folder / "agent.yaml"
        self.settings = places | defaults | config
        self.spool = Path(str(self.settings["spool"]))
        self.log = folder / "agent.log"
        self._environ = os.environ | (environ or {})
        self.write_config()
        self._forked = forked
        self.process: subprocess.Popen[bytes] | Forked | None = None
        STARTED.append(self)

    def write_config(self, **changes: Any) -> None:
        self.settings |= changes
        self.config.write_text(yaml.safe_dump(self.settings))

    def start(self, *, wait: bool = True) -> None:
        words = ["agent", "--config", str(self.config)]
        with self.log.open("ab") as log:
            if self._forked:
                from forked import Forked

                self.process = Forked(words, self._environ, stdout=log.fileno(), stderr=log.fileno())
            else:
                command = [sys.executable, "-m", "tachoscope_cli.main", *words]
                self.process = subprocess.Popen(command, stdout=log, stderr=log, env=self._environ)
        if wait:
            wait_for(self._lives)

    def _lives(self) -> bool:
        assert self.process is not None
        if self.process.poll() is not None:
            raise RuntimeError(f"the agent ended: {self.log.read_text()[-2000:]}")
        agent = spool.live_agent(self.spool)
        return agent is not None and agent.pid == self.process.pid

    @property
    def url(self) -> str:
        agent = spool.live_agent(self.spool)
        assert agent is not None
        return agent.url

    def get(self, path: str) -> str:
        with urllib.request.urlopen(f"{self.url}{path}", timeout=60) as answer:
            return str(answer.read().decode())

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def signal(self, number: signal.Signals) -> None:
        assert self.process is not None
        self.process.send_signal(number)

    def stop(self) -> int:
        """Stop in order; return the exit code."""
        assert self.process is not None
        self.process.terminate()
        return self.process.wait(timeout=60)


@contextlib.contextmanager
def agent_process(folder: Path, *, forked: bool = True, **settings: Any) -> Iterator[AgentProcess]:
    """Run an agent for the length of the block."""
    agent = AgentProcess(folder, forked=forked, **settings)
    agent.start()
    try:
        yield agent
    finally:
        if agent.process is not None and agent.process.poll() is None:
            agent.process.terminate()
            agent.process.wait(timeout=60)


def s3_environment(port: int) -> dict[str, str]:
    """Return the environment with which s3:// leads to the server on this port."""
    return {
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_DEFAULT_REGION": "us-east-1",
    }


@contextlib.contextmanager
def s3_server(port: int) -> Iterator[None]:
    """Run moto's S3 server with an empty bucket named `bucket`."""
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        create = urllib.request.Request(f"http://127.0.0.1:{port}/bucket", method="PUT")
        wait_for(lambda: urllib.request.urlopen(create).status == 200)
        yield
    finally:
        server.terminate()
        server.wait()


@contextlib.contextmanager
def store_of(kind: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Yield the URL of an empty store; of one on S3 while its server runs."""
    if kind == "directory":
        yield str(folder / "store")
        return
    port = free_port()
    for name, value in s3_environment(port).items():
        monkeypatch.setenv(name, value)
    with s3_server(port):
        yield "s3://bucket/tachoscope"


@contextlib.contextmanager
def prometheus(folder: Path, *scrape_configs: dict[str, Any]) -> Iterator[int]:
    """Run a real Prometheus that scrapes every second; yield the port of its API."""
    config, port = folder / "prometheus.yml", free_port()
    config.write_text(
        yaml.safe_dump({"global": {"scrape_interval": "1s", "scrape_timeout": "1s"}, "scrape_configs": scrape_configs})
    )
    places = [f"--config.file={config}", f"--storage.tsdb.path={folder}/tsdb", f"--web.listen-address=127.0.0.1:{port}"]
    server = subprocess.Popen(["prometheus", *places], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield port
    finally:
        server.kill()
        server.wait()


def ask_prometheus(port: int, what: str, **query: str) -> Any:
    """Return what Prometheus answers to `/api/v1/<what>`."""
    url = f"http://127.0.0.1:{port}/api/v1/{what}?{urllib.parse.urlencode(query)}"
    with urllib.request.urlopen(url, timeout=60) as answer:
        return json.load(answer)["data"]
