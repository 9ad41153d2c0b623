"""`tachoscope analyze` on a store with records and GPU samples, as its user sees it."""

import json
import subprocess
from pathlib import Path

import pytest

from gpu_making import FakeGpu, Held, gpu_job, use, write_job, write_samples
from helpers import command
from tachoscope_core.storage.store import Store


def analyze(*words: object) -> subprocess.CompletedProcess[str]:
    return command("analyze", *words)


def test_a_store_with_records_and_samples_names_the_throttled_rank_and_the_ledger_sums(tmp_path: Path) -> None:
    store = Store(str(tmp_path / "store"))
    gpm = use(sm=0.9, tensor=0.5, fp32=0.1)
    gpus = [FakeGpu(0, gauges=gpm), FakeGpu(1, [Held(-60.0, 600.0, 0.5)], gauges=gpm)]
    write_job(store, gpu_job(gpus, 300.0))
    write_samples(store, gpus, 300.0)

    done = analyze(tmp_path / "store", "--format", "json", "--fail-on", "critical")
    report = json.loads(done.stdout)

    assert done.returncode == 3, done.stderr
    assert [(finding["class"], finding["ranks"]) for finding in report["findings"]] == [("gpu_throttle", [1])]
    assert report["findings"][0]["share"] == pytest.approx(0.5, abs=0.01)
    assert report["findings"][0]["runbook"] == "runbooks/gpu_throttle.md"
    assert len(report["ledgers"]) == 3
    for ledger in report["ledgers"]:
        assert sum(ledger["states"].values()) == pytest.approx(ledger["wall_seconds"], rel=0.01)
    assert any(source["path"].endswith(": metrics") for source in report["sources"])
    assert {"gpu_throttle", "underfilled", "compute_inefficient"}.isdisjoint(row["class"] for row in report["not_measured"])


def test_the_text_report_says_how_long_the_clocks_were_held_down_and_why(tmp_path: Path) -> None:
    store = Store(str(tmp_path / "store"))
    gpus = [FakeGpu(0), FakeGpu(1, [Held(-60.0, 600.0, 0.5)])]
    write_job(store, gpu_job(gpus, 300.0))
    write_samples(store, gpus, 300.0)

    text = analyze(tmp_path / "store" / "jobs" / "planted").stdout

    assert "clocks held down by heat" in text
    assert "runbooks/gpu_throttle.md" in text
