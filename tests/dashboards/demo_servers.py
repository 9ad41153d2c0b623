"""What watches the recorded demo: a real Prometheus with our rules, a real Alertmanager, a real node exporter."""

from __future__ import annotations

import contextlib
import re
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from helpers import REPOSITORY
from processes import free_port
from tachoscope_alerts.compile import alertmanager
from tachoscope_alerts.spec import files, policy
from tachoscope_cli.drill import prometheus_alertmanager as drill_servers
from tachoscope_cli.drill.processes import running
from tachoscope_cli.drill.webhook_receiver import Receiver

CLUSTER, NAMESPACE = "demo", "monitoring"
SCRAPE_SECONDS = 15
LONELY = "node-3"
"""A node with a node exporter and no agent."""
_RULES = REPOSITORY / "alerts" / "generated" / "prometheus"
_OFTEN = "1m"


def rules(folder: Path) -> list[Path]:
    """Write the generated rules below a folder; what is evaluated each 4 and 30 minutes for days and weeks is so each minute."""
    folder.mkdir()
    for path in _RULES.glob("*.rules.yaml"):
        (folder / path.name).write_text(re.sub(r"interval: (4m|30m)\b", f"interval: {_OFTEN}", path.read_text()))
    return sorted(folder.iterdir())


@contextlib.contextmanager
def watching(folder: Path, agents: Mapping[str, int]) -> Iterator[subprocess.Popen[bytes]]:
    """Run all of it for the length of the block; yield the Prometheus, whose database is `tsdb` in the folder.

    Args:
        agents: names of nodes, and the ports of their agents.
    """
    uname = ["prometheus-node-exporter", "--collector.disable-defaults", "--collector.uname"]
    told = policy.load(files.path_of("policy.yaml"))
    with contextlib.ExitStack() as stack:
        receiver = stack.enter_context(Receiver())
        alerted = stack.enter_context(drill_servers.alertmanager(folder, alertmanager.configuration(told, webhook=receiver.url)))
        exporter = free_port()  # now that the others have theirs
        stack.enter_context(running([*uname, f"--web.listen-address=127.0.0.1:{exporter}"], folder / "exporter.log"))
        port = free_port()
        scrapes = [
            _scrape("tachoscope", agents),
            _scrape("node", {LONELY: exporter}, nodename=LONELY),
            _scrape("prometheus", {"prometheus": port}),
        ]
        config = {
            "global": {"scrape_interval": f"{SCRAPE_SECONDS}s", "scrape_timeout": "10s", "evaluation_interval": "30s"},
            "rule_files": [str(path) for path in rules(folder / "rules")],
            "scrape_configs": scrapes,
            "alerting": {"alertmanagers": [{"static_configs": [{"targets": [alerted.removeprefix("http://")]}]}]},
        }
        (folder / "prometheus.yml").write_text(yaml.safe_dump(config))
        database = [f"--storage.tsdb.path={folder / 'tsdb'}", f"--web.listen-address=127.0.0.1:{port}"]
        with running(["prometheus", f"--config.file={folder / 'prometheus.yml'}", *database], folder / "prometheus.log") as process:
            yield process


def _scrape(job: str, targets: Mapping[str, int], **replaced: str) -> dict[str, Any]:
    """Return a scrape job whose targets have the names of nodes. replaced: labels of all series, and what stands there instead."""
    static: Sequence[dict[str, Any]] = [
        {"targets": [f"127.0.0.1:{at}"], "labels": {"instance": name, "cluster": CLUSTER, "namespace": NAMESPACE}}
        for name, at in targets.items()
    ]
    relabelled = [
        {"source_labels": [label], "regex": ".+", "target_label": label, "replacement": value} for label, value in replaced.items()
    ]
    return {"job_name": job, "static_configs": static, "metric_relabel_configs": relabelled}
