"""A real vLLM on this machine: its CPU build with a tiny model of random weights, set up by the script beside the test data."""

from __future__ import annotations

import asyncio
import contextlib
import json
import multiprocessing
import os
import random
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from helpers import REPOSITORY
from tachoscope_cli.inputs.live_server import analyze
from tachoscope_cli.inputs.serving_options import ServingOptions
from tachoscope_core.report.report import Report
from tachoscope_core.servers import metrics_page

sys.path.insert(0, str(REPOSITORY / "examples"))
import serving_load
from serving_load import quantile as quantile

DATA = Path(os.environ.get("TACHOSCOPE_TEST_DATA", REPOSITORY.parent / "shared" / "data"))
SCRIPT = DATA.parent / "tools" / "vllm_cpu.sh"
AZURE = DATA / "serving" / "AzureLLMInferenceTrace_conv.csv"
SCALE = 0.1
"""Of the trace's lengths: about 115 tokens of prompt and 21 of output, of which two cores serve some 60 requests a second."""
_START_SECONDS = 240


@dataclass
class Server:
    """A running server; `flags` are vLLM's, beside those of the script."""

    port: int
    flags: Sequence[str]
    log: Path
    process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [SCRIPT, "serve", str(self.port), *self.flags], stdout=log, stderr=log, start_new_session=True
            )

    def wait(self) -> None:
        deadline = time.monotonic() + _START_SECONDS
        while time.monotonic() < deadline:
            assert self.process is not None and self.process.poll() is None, self.log.read_text()[-3000:]
            with contextlib.suppress(OSError), urllib.request.urlopen(f"{self.url}/health", timeout=2):
                return
            time.sleep(0.5)
        raise AssertionError(f"vLLM did not start:\n{self.log.read_text()[-3000:]}")

    def stop(self, how: int = signal.SIGTERM) -> None:
        if self.process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, how)
            try:
                self.process.wait(30)
            except subprocess.TimeoutExpired:
                os.killpg(self.process.pid, signal.SIGKILL)
                self.process.wait(30)


def installed() -> None:
    """Install vLLM where it is not; takes minutes and some 4 GB in the user's cache."""
    home = Path(os.environ.get("VLLM_CPU_HOME", Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "vllm-cpu"))
    if not (home / "tiny-llama" / "config.json").exists():
        subprocess.run([SCRIPT, "install"], check=True, timeout=1800)


@contextlib.contextmanager
def serving(folder: Path, *flags: str) -> Iterator[Server]:
    """Run a server, warmed up by a few requests."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    server = Server(port, flags, folder / f"vllm-{port}.log")
    server.start()
    try:
        server.wait()
        drive(server.url, [(0.3 * index, (900, 30)) for index in range(4)])
        yield server
    finally:
        server.stop()


Plan = list[tuple[float, serving_load.Length]]


def azure(rate: float, seconds: float, *, burstiness: float = 1.0, seed: int) -> Plan:
    """Return arrivals with the lengths of the Azure trace, scaled to this machine."""
    randomly = random.Random(seed)
    drawn = serving_load.lengths(AZURE, SCALE, 1000)
    return [(due, randomly.choice(drawn)) for due in serving_load.arrivals(rate, seconds, burstiness, randomly)]


def fixed(
    rate: float, seconds: float, length: serving_load.Length, *, long_prompt: int = 0, long_share: float = 0.0, seed: int
) -> Plan:
    """Return Poisson arrivals of one length, some of them with a long prompt."""
    randomly = random.Random(seed)
    plan = []
    for due in serving_load.arrivals(rate, seconds, 1.0, randomly):
        plan.append((due, (long_prompt, length[1]) if randomly.random() < long_share else length))
    return plan


def drive(url: str, plan: Plan, written: Path | None = None) -> list[serving_load.Answer]:
    answers = asyncio.run(serving_load.drive(url, "tiny", plan, grace=120.0))
    if written is not None:
        written.write_text("".join(json.dumps(vars(answer)) + "\n" for answer in answers))
    return answers


def watched(
    server: Server, plan: Plan, seconds: float, folder: Path, *, to_the_end: bool = False, every: str = "0.5s"
) -> tuple[Report, list[serving_load.Answer]]:
    """Return the report on a server under load, and what its clients saw if all of them are waited for.

    `analyze` looks for so many seconds. The clients are a process of their own: what they see must not wait for what this one does.
    """
    written, ready = folder / "answers.jsonl", [(due + 2.0, length) for due, length in plan]  # once the process is there
    load = multiprocessing.get_context("spawn").Process(target=drive, args=(server.url, ready, written))
    load.start()
    try:
        report = judged(server, seconds, folder / "seen.serving.gz", every)
        if not to_the_end:
            return report, []
        load.join()
        return report, [serving_load.Answer(**json.loads(line)) for line in written.read_text().splitlines()]
    finally:
        load.kill()
        load.join()
        time.sleep(3.0)  # the server drops the requests whose clients left


def judged(server: Server, seconds: float, save: Path, every: str = "0.5s") -> Report:
    from rich.console import Console

    return analyze(ServingOptions(server.url, f"{seconds:g}s", every, save=save), Console(file=open(os.devnull, "w"), stderr=False))


def bounds_of(server: Server) -> dict[str, tuple[float, ...]]:
    """Return the bounds of the server's histograms by latency."""
    page = urllib.request.urlopen(f"{server.url}/metrics", timeout=5).read().decode()
    histograms = metrics_page.read(page, time.time()).engines[0].histograms
    return {name: histograms[f"{name}_seconds"].bounds for name in ("first_token", "inter_token", "output_token", "queue")}
