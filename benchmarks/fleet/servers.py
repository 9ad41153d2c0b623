"""The servers of the gate: the simulator of the agents, a real Prometheus with all rules, and a real VictoriaMetrics behind it."""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path
from typing import Any

import yaml
from benchmarks.fleet.expressions import rule_files
from benchmarks.server_process import ServerProcess, free_port

ROOT = Path(__file__).parents[2]
CORES = 2
AGENTS, WATCH = "tachoscope", "tachoscope-watch"


def simulator(folder: Path, nodes: int, scrape_seconds: float, cycles: int) -> ServerProcess:
    """Start the agents' pages of a fleet that is quiet after so many cycles."""
    port = free_port()
    command = [
        *(sys.executable, "-m", "benchmarks.fleet.simulator", f"--nodes={nodes}", f"--port={port}"),
        *(f"--scrape-seconds={scrape_seconds}", f"--timeout={timeout(scrape_seconds)}"),
        f"--cycles={cycles}",
    ]
    return ServerProcess(command, port, folder / "simulator.log", ready="/targets", environ={}, folder=ROOT)


def timeout(scrape_seconds: float) -> float:
    """Return after how many seconds a scrape is given up: as in the chart."""
    return min(10.0, scrape_seconds)


def victoria_metrics(folder: Path) -> ServerProcess | None:
    """Start VictoriaMetrics; None where it is not installed.

    By default it answers nothing of the last 30 s, as samples may still be on their way; here all have come before it is asked.
    """
    if shutil.which("victoria-metrics") is None:
        return None
    port = free_port()
    command = [
        *("victoria-metrics", f"-storageDataPath={folder}/victoria-metrics", f"-httpListenAddr=127.0.0.1:{port}"),
        *("-search.latencyOffset=0s", "-retentionPeriod=1"),
    ]
    environ = {"GOMAXPROCS": str(CORES)}
    return ServerProcess(command, port, folder / "victoria-metrics.log", ready="/health", environ=environ)


def prometheus(
    folder: Path, agents: ServerProcess, store: ServerProcess | None, *, scrape_seconds: float, rule_seconds: float
) -> ServerProcess:
    """Start a Prometheus that scrapes the agents and evaluates all rules, each group every `rule_seconds`."""
    port = free_port()
    (folder / "rules").mkdir()
    for path in rule_files():
        every = re.sub(r"interval: \w+$", f"interval: {rule_seconds:g}s", path.read_text(), flags=re.MULTILINE)
        (folder / "rules" / path.name).write_text(every)
    (folder / "prometheus.yml").write_text(yaml.safe_dump(_config(folder, port, agents, store, scrape_seconds)))
    command = [
        *("prometheus", f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/tsdb"),
        *(f"--web.listen-address=127.0.0.1:{port}", "--web.enable-admin-api"),
    ]
    environ = {"GOMAXPROCS": str(CORES)}
    return ServerProcess(command, port, folder / "prometheus.log", ready="/-/ready", environ=environ)


def _config(folder: Path, port: int, agents: ServerProcess, store: ServerProcess | None, scrape_seconds: float) -> dict[str, Any]:
    every = f"{scrape_seconds:g}s"
    discovery = {"url": f"http://127.0.0.1:{agents.port}/targets", "refresh_interval": every}
    watch = {"targets": [f"127.0.0.1:{agents.port}"], "labels": {"instance": "watch:9466"}}
    return {
        "global": {"scrape_interval": every, "scrape_timeout": f"{timeout(scrape_seconds):g}s"},
        "rule_files": [f"{folder}/rules/*.yaml"],
        "scrape_configs": [
            {"job_name": AGENTS, "http_sd_configs": [discovery]},
            {"job_name": WATCH, "metrics_path": "/watch/metrics", "static_configs": [watch]},
            {"job_name": "prometheus", "static_configs": [{"targets": [f"127.0.0.1:{port}"]}]},
        ],
        "remote_write": [{"url": f"http://127.0.0.1:{store.port}/api/v1/write"}] if store else [],
    }
