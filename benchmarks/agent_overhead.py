"""What the node agent costs, beside prometheus-node-exporter in the same run.

Eight processes write ten steps a second each, a heartbeat every five seconds and their memory once a minute; two scrapers read both
exporters every five seconds. CPU is what the kernel counted for the process over the run, memory its resident set at the end. Then
56 more ranks of one step every five seconds bring the page to about 1,500 series, and scrapes that each find a new tick are timed.

    python benchmarks/agent_overhead.py                       # five minutes, and two short ones
    python benchmarks/agent_overhead.py --seconds 60 --write  # and write docs/develop/measurements.md
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

from sections import write_section

TESTS = Path(__file__).parent.parent / "tests"
sys.path[:0] = [str(TESTS / name) for name in ("generators", "servers", "support", "trainings", "node")]

from processes import AgentProcess, free_port, s3_environment, s3_server, wait_for  # noqa: E402
from spool_writing import Process  # noqa: E402
from tachoscope_core.records import records  # noqa: E402

STEPS_PER_SECOND = 10
SCRAPE_SECONDS = 5.0
MEMORY = records.ProcessMemory(pid=1, anonymous_bytes=4 << 30)
SIGNALS = dict.fromkeys(("process_cpu_seconds", "read_bytes", "idle_core_seconds", "pressure_cpu_seconds", "major_faults"), 1.5)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=300.0, help="length of the main run")
    parser.add_argument("--write", action="store_true", help="write the result into docs/develop/measurements.md")
    parser.add_argument("--load", nargs=2, metavar=("DIRECTORY", "RANKS"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.load:
        load(Path(options.load[0]), int(options.load[1]))
        return
    rows = [*main_run(options.seconds), *variants(min(options.seconds, 60.0))]
    table = "\n".join(["| what | CPU, % of a core | resident MiB | scrape |", "|---|---|---|---|", *rows])
    print(table)
    if options.write:
        write_section("agent_overhead", table)


def load(directory: Path, ranks: int) -> None:
    """Write as `ranks` training processes do, until killed."""
    processes = [Process(directory, rank=rank, world_size=ranks) for rank in range(ranks)]
    for process in processes:
        process.start(pid=os.getpid())
    for tick in range(1 << 40):
        for process in processes if tick % (5 * STEPS_PER_SECOND) == 0 else processes[:8]:
            process.step(data_wait=0.01, host_to_device=0.001, forward=0.03, backward=0.05, optimizer=0.008, other=0.001)
            if tick % (5 * STEPS_PER_SECOND) == 0:
                where = {"forward": {"train.py:23 step": 40}, "data_wait": {"train.py:20 <module>": 10}}
                process.write(records.Heartbeat, step=process.step_number, window_seconds=5.0, signals=SIGNALS, where=where)
            if tick % (60 * STEPS_PER_SECOND) == 0:
                process.write(records.MemorySampled, step=process.step_number, process=MEMORY, total_bytes=64 << 30)
        time.sleep(1.0 / STEPS_PER_SECOND)


@contextlib.contextmanager
def running(*command: str) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def resident_mib(pid: int) -> float:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE") / 2**20


class Scraper(threading.Thread):
    """Reads a page on a fixed beat, as Prometheus does: gzip, one connection a scrape."""

    def __init__(self, url: str, every: float, offset: float) -> None:
        super().__init__(daemon=True)
        self.seconds: list[float] = []
        self.series = 0
        self._url, self._every, self._next = url, every, time.monotonic() + offset
        self._over = threading.Event()

    def run(self) -> None:
        accept = {"Accept-Encoding": "gzip", "Accept": "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5"}
        while not self._over.wait(max(self._next - time.monotonic(), 0.0)):
            self._next += self._every
            began = time.perf_counter()
            with urllib.request.urlopen(urllib.request.Request(self._url, headers=accept)) as answer:
                body = answer.read()
            self.seconds.append(time.perf_counter() - began)
            assert body

    def stop(self) -> list[float]:
        self._over.set()
        self.join()
        return self.seconds


def milliseconds(seconds: list[float]) -> str:
    ranked = sorted(seconds)
    p99 = ranked[min(int(0.99 * len(ranked)), len(ranked) - 1)]
    return f"p50 {statistics.median(ranked) * 1e3:.1f} ms, p99 {p99 * 1e3:.1f} ms of {len(ranked)}"


def series(agent: AgentProcess) -> int:
    return sum(1 for line in agent.get("/metrics").splitlines() if line and not line.startswith("#"))


@contextlib.contextmanager
def loaded_agent(ranks: int, environ: dict[str, str] | None = None, **settings: object) -> Iterator[AgentProcess]:
    with tempfile.TemporaryDirectory(dir="/dev/shm") as spool, tempfile.TemporaryDirectory() as folder:
        agent = AgentProcess(Path(folder), environ, spool=spool, **({"tick_seconds": 1.0, "flush": {}} | settings))
        agent.start()
        try:
            with running(sys.executable, __file__, "--load", f"{spool}/run", str(ranks)):
                wait_for(lambda: f'rank="{ranks - 1}"' in agent.get("/metrics"))
                time.sleep(5.0)  # past the first sample and flush
                yield agent
        finally:
            agent.kill()


def main_run(seconds: float) -> list[str]:
    """Measure the agent over so many seconds, and node exporter over the same where it is installed."""
    exporter, port = shutil.which("prometheus-node-exporter"), free_port()
    print(f"8 ranks for {seconds:.0f} s", file=sys.stderr)
    with loaded_agent(8) as agent, contextlib.ExitStack() as stack:
        assert agent.process is not None
        pids, urls = {"agent": agent.process.pid}, {"agent": f"{agent.url}/metrics"}
        if exporter is None:
            print("without node exporter: apt-get install prometheus-node-exporter", file=sys.stderr)
        else:
            other = stack.enter_context(running(exporter, f"--web.listen-address=127.0.0.1:{port}"))
            pids["node exporter"], urls["node exporter"] = other.pid, f"http://127.0.0.1:{port}/metrics"
        time.sleep(1.0)
        scrapers = {name: [Scraper(url, SCRAPE_SECONDS, offset) for offset in (0.7, 2.9)] for name, url in urls.items()}
        before, began = {name: cpu_seconds(pid) for name, pid in pids.items()}, time.monotonic()
        for pair in scrapers.values():
            for scraper in pair:
                scraper.start()
        time.sleep(seconds)
        spent = {name: (cpu_seconds(pid) - before[name]) / (time.monotonic() - began) * 100 for name, pid in pids.items()}
        took = {name: [second for scraper in pair for second in scraper.stop()] for name, pair in scrapers.items()}
        labels = {"agent": f"agent, 8 ranks, {series(agent)} series", "node exporter": "node exporter 1.5"}
        return [
            f"| {labels[name]} | {spent[name]:.2f} | {resident_mib(pid):.1f} | {milliseconds(took[name])} |"
            for name, pid in pids.items()
        ]


def variants(seconds: float) -> list[str]:
    """Measure many series, an object store, and the push."""
    rows = []
    print("64 ranks, timing scrapes", file=sys.stderr)
    with loaded_agent(64) as agent:
        found = series(agent)
        scraper = Scraper(f"{agent.url}/metrics", 1.013, 0.0)
        scraper.start()
        time.sleep(seconds)
        rows.append(f"| agent, 64 ranks, {found} series | | | {milliseconds(scraper.stop())} |")
    print("S3", file=sys.stderr)
    port = free_port()
    with s3_server(port), loaded_agent(8, s3_environment(port), store="s3://bucket/t", flush={"seconds": 20.0}) as agent:
        rows.append(_short("agent, 8 ranks, s3:// store, flushed every 20 s", agent, seconds))
    print("OTLP", file=sys.stderr)
    with loaded_agent(8, otlp={"endpoint": "http://127.0.0.1:9"}) as agent:
        rows.append(_short("agent, 8 ranks, OTLP to nobody every 15 s", agent, seconds))
    return rows


def _short(name: str, agent: AgentProcess, seconds: float) -> str:
    assert agent.process is not None
    before = cpu_seconds(agent.process.pid)
    time.sleep(seconds)
    spent = (cpu_seconds(agent.process.pid) - before) / seconds * 100
    return f"| {name} | {spent:.2f} | {resident_mib(agent.process.pid):.1f} | |"


if __name__ == "__main__":
    main()
