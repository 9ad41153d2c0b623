"""What reading eight GPUs costs the node agent, beside nvitop-exporter on the same driver library in the same seconds.

The driver is the tests' fake one with eight H100s. Five processes run side by side, each with a driver of its own, so that calls
are counted apart: the agent with `gpu.enabled: off`, the agent and nvitop-exporter with calls that cost nothing, and both with
calls that burn 50 µs of CPU time each. Each agent has eight ranks as in agent_overhead.py and reads the GPUs every second;
nvitop-exporter does so too, by its default. Every page is read every five seconds. CPU is what the kernel counted for the process,
memory its resident set at the end. What the calls themselves burn is their number times 50 µs.

    python benchmarks/gpu_overhead.py                        # five minutes
    python benchmarks/gpu_overhead.py --seconds 60 --write   # and write docs/develop/measurements.md
"""

from __future__ import annotations

import argparse
import contextlib
import os
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from agent_overhead import Scraper, cpu_seconds, loaded_agent, milliseconds, resident_mib
from sections import write_section

TESTS = Path(__file__).parent.parent / "tests"
sys.path[:0] = [str(TESTS / name) for name in ("generators", "servers", "support", "trainings", "node", "nvml")]

from fake_nvml import Driver  # noqa: E402
from processes import free_port, wait_for  # noqa: E402

COSTS_US = (0, 50)
SCRAPE_SECONDS = 5.0
SETTLED_SECONDS = 10.0
EXPORTER = Path(sys.executable).parent / "nvitop-exporter"


@dataclass
class Measured:
    """A process that reads the GPUs of its own driver; None: it reads none."""

    name: str
    pid: int
    url: str
    driver: Driver | None
    scraper: Scraper
    cpu_before: float = 0.0
    spent: float = 0.0
    calls: float = 0.0
    resident: float = 0.0

    def begin(self) -> None:
        self.cpu_before = cpu_seconds(self.pid)
        if self.driver is not None:
            self.driver.forget_calls()
        self.scraper.start()

    def end(self, seconds: float) -> None:
        self.spent = (cpu_seconds(self.pid) - self.cpu_before) / seconds * 100
        self.calls = sum(self.driver.calls().values()) / seconds if self.driver is not None else 0.0
        self.resident = resident_mib(self.pid)

    def row(self) -> str:
        series = sum(1 for line in page(self.url).splitlines() if line and not line.startswith("#"))
        took = milliseconds(self.scraper.stop())
        return f"| {self.name} | {series} | {self.calls:.0f} | {self.spent:.2f} | {self.resident:.1f} | {took} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=300.0, help="length of the run")
    parser.add_argument("--write", action="store_true", help="write the result into docs/develop/measurements.md")
    options = parser.parse_args()
    if not EXPORTER.exists():
        raise SystemExit(f"{EXPORTER} is not there: pip install nvitop-exporter")
    head = ["| what | series | driver calls a second | CPU, % of a core | resident MiB | scrape |", "|---|---|---|---|---|---|"]
    table = "\n".join([*head, *measure(options.seconds)])
    print(table)
    if options.write:
        write_section("gpu_overhead", table)


def measure(seconds: float) -> list[str]:
    """Measure all of them over the same seconds."""
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        everyone = [stack.enter_context(agent(folder / "off", "agent, GPUs off", None))]
        for cost in COSTS_US:
            everyone.append(stack.enter_context(agent(folder / f"agent-{cost}", f"agent, calls of {cost} µs", cost)))
            everyone.append(stack.enter_context(exporter(folder / f"nvitop-{cost}", f"nvitop-exporter, calls of {cost} µs", cost)))
        time.sleep(SETTLED_SECONDS)
        print(f"{len(everyone)} processes for {seconds:.0f} s", file=sys.stderr)
        began = time.monotonic()
        for measured in everyone:
            measured.begin()
        time.sleep(seconds)
        passed = time.monotonic() - began
        for measured in everyone:
            measured.end(passed)
        return [measured.row() for measured in everyone]


@contextlib.contextmanager
def agent(folder: Path, name: str, cost_us: int | None) -> Iterator[Measured]:
    """Run an agent with eight ranks, with GPUs or without."""
    driver = made(folder, cost_us) if cost_us is not None else None
    environment = driver.environment() if driver is not None else {}
    with loaded_agent(8, environment, gpu={"enabled": "on" if driver is not None else "off"}) as running:
        assert running.process is not None
        url = f"{running.url}/metrics"
        if driver is not None:
            wait_for(lambda: 'tachoscope_gpu_active_ratio{gpu="7"' in page(url))
        yield Measured(name, running.process.pid, url, driver, Scraper(url, SCRAPE_SECONDS, 0.7))


@contextlib.contextmanager
def exporter(folder: Path, name: str, cost_us: int) -> Iterator[Measured]:
    """Run nvitop-exporter."""
    driver, port = made(folder, cost_us), free_port()
    command = [str(EXPORTER), "--port", str(port), "--interval", "1.0"]
    environment = os.environ | driver.environment()
    process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    url = f"http://127.0.0.1:{port}/metrics"
    try:
        wait_for(lambda: driver.value(7, "uuid") in page(url))
        yield Measured(name, process.pid, url, driver, Scraper(url, SCRAPE_SECONDS, 2.9))
    finally:
        process.kill()
        process.wait()


def made(folder: Path, cost_us: int) -> Driver:
    folder.mkdir(parents=True)
    driver = Driver(folder)
    driver.set(call__cost_us=cost_us)
    return driver


def page(url: str) -> str:
    with urllib.request.urlopen(url, timeout=10) as answer:
        return str(answer.read().decode())


if __name__ == "__main__":
    main()
