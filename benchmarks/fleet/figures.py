"""What a run is measured by: figures of the fleet's pages, and of the servers that took and were asked for them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks.fleet.expressions import Panel, rule_files
from benchmarks.fleet.servers import AGENTS, CORES
from benchmarks.fleet_series import Fleet
from benchmarks.server_process import ServerProcess
from benchmarks.slo_rules import at_once

Figures = dict[str, float]
DURATION = "prometheus_rule_group_last_duration_seconds"
TIMES = 3
"""How often each panel is asked; the median counts."""


def of_pages(prometheus: ServerProcess, fleet: Fleet, at: float) -> Figures:
    """Return how many series the agents' pages have, of the node that has the most."""

    def first(query: str) -> tuple[dict[str, str], float]:
        (row,) = prometheus.ask("query", query=query, time=f"{at:.3f}")["result"]
        return row["metric"], float(row["value"][1])

    labels, page = first(f'topk(1, scrape_samples_scraped{{job="{AGENTS}"}})')
    of_node = f'__name__=~"tachoscope_.+",instance="{labels["instance"]}"'
    return {
        "series_page": page,
        "series_page_gpu": page / fleet.gpus,
        "series_gpu": first(f'count({{{of_node},gpu!=""}})')[1] / fleet.gpus,
        "series_rank": first(f'count({{{of_node},gpu="",training_job!=""}})')[1] / fleet.gpus,
    }


def of_wire(agents: ServerProcess, fleet: Fleet) -> Figures:
    """Return how large the page of node 0 is, compressed as it is served."""
    size = len(agents.get("/node/0/metrics"))
    return {"wire_bytes_gpu": size / fleet.gpus}


def of_prometheus(prometheus: ServerProcess, folder: Path, fleet: Fleet, seconds: float) -> Figures:
    """Return what Prometheus took in, and what that and the rules cost it.

    Args:
        seconds: that it has been scraping for.
    """
    over = f"[{max(seconds, 60.0):.0f}s]"
    block = json.loads(prometheus.post("/api/v1/admin/tsdb/snapshot"))["data"]["name"]
    (meta,) = (folder / "tsdb" / "snapshots" / block).glob("*/meta.json")
    stats = json.loads(meta.read_text())["stats"]
    gpus = fleet.nodes * fleet.gpus
    return {
        "samples_second": prometheus.value(f"sum(rate(prometheus_tsdb_head_samples_appended_total{over}))"),
        "prometheus_series": prometheus.metric("prometheus_tsdb_head_series"),
        "prometheus_series_gpu": prometheus.metric("prometheus_tsdb_head_series") / gpus,
        "samples_series": stats["numSamples"] / stats["numSeries"],
        "prometheus_bytes_sample": _size(meta.parent / "chunks") / stats["numSamples"],
        "prometheus_index_bytes_series": _size(meta.parent / "index") / stats["numSeries"],
        "prometheus_mib": prometheus.resident_mib(),
        "prometheus_kib_series": prometheus.resident_mib() * 1024.0 / stats["numSeries"],
        "rule_evaluation_seconds": prometheus.value(
            f"sum(quantile_over_time(0.5, prometheus_rule_group_last_duration_seconds{over}))"
        ),
        "rule_failures": prometheus.metric("prometheus_rule_evaluation_failures_total"),
        "rules_missed": prometheus.metric("prometheus_rule_group_iterations_missed_total"),
        "rule_series": prometheus.value("sum(prometheus_rule_group_last_evaluation_samples)"),
    }


def of_rules(prometheus: ServerProcess, at: float) -> Figures:
    """Return how long all rules take by two workers at once, and the processor time of both cores in that."""
    wall, cpu = at_once(prometheus, rule_files(), at)
    return {"rule_wall_seconds": wall, "rule_seconds": cpu / CORES}


def of_store(prometheus: ServerProcess, store: ServerProcess, folder: Path) -> Figures:
    """Return what VictoriaMetrics took in, and what that costs it."""
    store.get("/internal/force_flush")
    rows, series = store.metric("vm_rows_added_to_storage_total"), store.metric("vm_new_timeseries_created_total")
    data, index = (_size(folder / "victoria-metrics" / name) for name in ("data", "indexdb"))
    return {
        "store_samples": rows,
        "store_bytes_sample": data / rows,
        "store_index_bytes_series": index / series,
        "store_mib": store.resident_mib(),
        "samples_not_sent": prometheus.metric("prometheus_remote_storage_samples_failed_total")
        + prometheus.metric("prometheus_remote_storage_samples_dropped_total"),
    }


def of_panels(server: ServerProcess, panels: Sequence[Panel], seconds: float, step: float, at: float) -> Mapping[str, float]:
    """Return the processor seconds that a server needs to answer each panel, the median of three times."""
    return {panel.name: _seconds(server, panel, seconds, step, at) for panel in panels}


def _seconds(server: ServerProcess, panel: Panel, seconds: float, step: float, at: float) -> float:
    taken = []
    for _ in range(TIMES):
        began = server.cpu_seconds()
        for one in panel.expressions:
            if one.instant:
                server.answer("query", query=one.text, time=f"{at:.0f}")
            else:
                server.answer("query_range", query=one.text, start=f"{at - seconds:.0f}", end=f"{at:.0f}", step=f"{step:g}")
        taken.append(server.cpu_seconds() - began)
    return sorted(taken)[TIMES // 2]


def _size(path: Path) -> int:
    return sum(one.stat().st_size for one in path.rglob("*") if one.is_file()) if path.is_dir() else path.stat().st_size
