"""A real Prometheus and a real Alertmanager on loopback, each for the length of a block."""

from __future__ import annotations

import contextlib
import json
import subprocess
import urllib.parse
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from tachoscope_alerts.spec.burn_rate_windows import Timing, duration
from tachoscope_cli.drill.processes import free_port, program, running, wait_until
from tachoscope_core.net.http_client import get

_START_SECONDS = 30.0


@contextlib.contextmanager
def alertmanager(folder: Path, configuration: Mapping[str, Any]) -> Iterator[str]:
    """Run an Alertmanager without peers; yield its URL.

    Raises:
        TachoscopeError: it is not installed, or did not start; the message ends with its last words.
    """
    binary = program("prometheus-alertmanager", "prometheus-alertmanager")
    config, port, log = folder / "alertmanager.yml", free_port(), folder / "alertmanager.log"
    config.write_text(yaml.safe_dump(dict(configuration), sort_keys=False))
    places = [f"--config.file={config}", f"--storage.path={folder / 'alertmanager'}", f"--web.listen-address=127.0.0.1:{port}"]
    with running([binary, *places, "--cluster.listen-address="], log) as process:
        url = f"http://127.0.0.1:{port}"
        _wait_until_ready(url, "Alertmanager", log, process)
        yield url


@contextlib.contextmanager
def prometheus(
    folder: Path, *, rules: Sequence[Path], targets: Mapping[str, str], alertmanager_url: str, timing: Timing
) -> Iterator[str]:
    """Run a Prometheus; yield its URL.

    Args:
        rules: rule files. targets: by job, each `host:port`.

    Raises:
        TachoscopeError: it is not installed, or did not start; the message ends with its last words.
    """
    binary = program("prometheus", "prometheus")
    config, port, log = folder / "prometheus.yml", free_port(), folder / "prometheus.log"
    scrape = duration(timing.scrape)
    content = {
        "global": {"scrape_interval": scrape, "scrape_timeout": scrape, "evaluation_interval": duration(timing.interval)},
        "rule_files": [str(path) for path in rules],
        "scrape_configs": [{"job_name": job, "static_configs": [{"targets": [target]}]} for job, target in targets.items()],
        "alerting": {"alertmanagers": [{"static_configs": [{"targets": [alertmanager_url.removeprefix("http://")]}]}]},
    }
    config.write_text(yaml.safe_dump(content, sort_keys=False))
    places = [f"--config.file={config}", f"--storage.tsdb.path={folder / 'tsdb'}", f"--web.listen-address=127.0.0.1:{port}"]
    with running([binary, *places], log) as process:
        url = f"http://127.0.0.1:{port}"
        _wait_until_ready(url, "Prometheus", log, process)
        yield url


def samples(url: str, query: str) -> list[tuple[dict[str, str], float]]:
    """Return the labels and values that an instant query gives a Prometheus now.

    Raises:
        HttpError: it does not answer; StatusError: it refuses the query.
    """
    found = json.loads(get(f"{url}/api/v1/query?{urllib.parse.urlencode({'query': query})}", seconds=10.0))["data"]["result"]
    return [(one["metric"], float(one["value"][1])) for one in found]


def _wait_until_ready(url: str, name: str, log: Path, process: subprocess.Popen[bytes]) -> None:
    def ready() -> bool | None:
        return get(f"{url}/-/ready", seconds=5.0) is not None

    wait_until(ready, _START_SECONDS, f"{name} is ready", {name: log}, process)
