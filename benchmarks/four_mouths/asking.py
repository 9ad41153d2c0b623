"""What the terminal, the agent's metrics, a Prometheus and the watch say of a job: its seconds by state, its ETTR, and its hang."""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.error
import urllib.request
from dataclasses import dataclass, field
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from processes import ask_prometheus
from tachoscope_core.metrics.training import (
    EFFECTIVE_STATES,
    HANGS,
    JOB_EFFECTIVE_SECONDS,
    JOB_HELD_SECONDS,
    JOB_TIME_SECONDS,
    TIME_SECONDS,
    TRAINING_STATES,
)


@dataclass(frozen=True, slots=True)
class Said:
    """Of one job: rank-seconds by ledger state, and its ETTR as the mouth says it."""

    seconds: dict[str, float] = field(default_factory=dict)
    ettr: float = float("nan")


@dataclass(frozen=True, slots=True)
class Hung:
    """A hang that the watch tells of: the ranks that are stuck, none: not known; and since when no step ended, Unix seconds."""

    ranks: list[int]
    since: float


@dataclass(frozen=True, slots=True)
class HungInPrometheus:
    """What Prometheus has of the hangs of a job.

    Attributes:
        times: how many its agents counted. told: whether the watch told of one.
        since: Unix seconds when the last of its ranks began to hang, in a job that hangs for the first time: a usual step after
            its last step; nan where no agent tells it now.
    """

    times: int = 0
    told: bool = False
    since: float = float("nan")


def ettr_of(seconds: dict[str, float]) -> float:
    """Return the effective training time ratio: seconds in effective states over those of all but `queued`."""
    held = sum(value for state, value in seconds.items() if state != "queued")
    return sum(seconds.get(state, 0.0) for state in EFFECTIVE_STATES) / held if held else float("nan")


def terminal(store: str, job: str) -> tuple[Said, dict[str, Any]]:
    """Return what `tachoscope goodput` says of a job's whole life, and its whole report; nothing while there is none."""
    words = [sys.executable, "-m", "tachoscope_cli.main", "goodput", job, "--store", store, "--format", "json"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        return Said(), {"error": done.stderr.strip()}
    report = json.loads(done.stdout)
    seconds = _whole(report["ledgers"][0]["states"])
    return Said(seconds, ettr_of(seconds)), report


def agent(page: str) -> dict[str, Said]:
    """Return what the agent's metrics page says of each job."""
    by_name: dict[str, dict[tuple[str, str], float]] = {}
    for family in text_string_to_metric_families(page):
        for sample in family.samples:
            labels = sample.labels
            by_name.setdefault(sample.name, {})[labels.get("training_job", ""), labels.get("state", "")] = sample.value
    return _said(by_name)


def prometheus(port: int) -> dict[str, Said]:
    """Return what a Prometheus says of each job, over all agents, also where a scrape came too late just now."""
    by_name: dict[str, dict[tuple[str, str], float]] = {}
    for metric in (JOB_TIME_SECONDS, JOB_HELD_SECONDS, JOB_EFFECTIVE_SECONDS):
        found = ask_prometheus(port, "query", query=f"sum by (training_job, state) (last_over_time({metric.name}[5m]))")["result"]
        by_name[metric.name] = {
            (one["metric"].get("training_job", ""), one["metric"].get("state", "")): float(one["value"][1]) for one in found
        }
    return _said(by_name)


def _said(by_name: dict[str, dict[tuple[str, str], float]]) -> dict[str, Said]:
    times, held, effective = (by_name.get(one.name, {}) for one in (JOB_TIME_SECONDS, JOB_HELD_SECONDS, JOB_EFFECTIVE_SECONDS))
    jobs = {job for job, _ in times}
    seconds = {job: _whole({state: value for (of, state), value in times.items() if of == job}) for job in jobs}
    return {job: Said(seconds[job], effective[job, ""] / held[job, ""] if held.get((job, "")) else float("nan")) for job in jobs}


def watch(url: str, job: str) -> tuple[Said, Hung | None]:
    """Return what the watch's API says of a job, and its hang; None: it does not hang."""
    try:
        with urllib.request.urlopen(f"{url}/v1/jobs/{job}", timeout=60) as answer:
            view = json.load(answer)
    except urllib.error.HTTPError:
        return Said(), None
    seconds, hang = _whole(view["state_seconds"]), view["hang"]
    said = Said(seconds, ettr_of(seconds))
    if hang is None:
        return said, None
    return said, Hung([] if hang["ranks"] == "all" else hang["ranks"], view["hang_since"])


def hangs_in_prometheus(port: int) -> dict[str, HungInPrometheus]:
    """Return what Prometheus has of the hangs of each job that ever hung."""

    def by_job(query: str) -> dict[str, float]:
        found = ask_prometheus(port, "query", query=f"max by (training_job) ({query}) > 0")["result"]
        return {one["metric"]["training_job"]: float(one["value"][1]) for one in found}

    hung = f'{TIME_SECONDS.name}{{state="hung"}}'
    counted = by_job(f"last_over_time({HANGS.name}[1h])")
    told = by_job('max_over_time(tachoscope_bottleneck_ratio{class="hang"}[1h])')
    since = by_job(f"timestamp({hung}) - ({hung} > 0)")
    return {
        job: HungInPrometheus(round(counted.get(job, 0.0)), job in told, since.get(job, float("nan")))
        for job in counted.keys() | told.keys()
    }


def _whole(seconds: dict[str, float]) -> dict[str, float]:
    return {state: seconds.get(state, 0.0) for state in TRAINING_STATES}
