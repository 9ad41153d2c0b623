"""How jobs meet objectives, on samples of which it is known what was good."""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace

import pytest
import streamlit as st

from slo_making import BEGIN, Planted, write_store
from tachoscope_alerts.measure import from_samples
from tachoscope_alerts.report.report import report
from tachoscope_core.metrics.catalogue import BY_NAME
from tachoscope_core.metrics.metric import Metric
from tachoscope_core.storage.store import Store, StoredSamples
from tachoscope_explorer.sources import job_slos
from tachoscope_explorer.sources.slos import objectives

DAY, HOUR = 86400.0, 3600.0
HELD, EFFECTIVE, REQUESTS = (
    BY_NAME[name]
    for name in ("tachoscope_job_held_seconds_total", "tachoscope_job_effective_seconds_total", "tachoscope_requests_total")
)


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TACHOSCOPE_CACHE", str(tmp_path / "cache"))
    st.cache_data.clear()
    st.cache_resource.clear()


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The paths of the objects with samples that were read."""
    paths, read = list[str](), Store.read

    def told(store: Store, one: StoredSamples) -> bytes:
        paths.append(one.path)
        return read(store, one)

    monkeypatch.setattr(Store, "read", told)
    return paths


def counter(metric: Metric, labels: dict[str, str], rate: float, *, begin: float, host: str = "node-1") -> Planted:
    times = [begin + 15.0 * number for number in range(int(HOUR / 15) + 1)]
    return Planted(metric, labels, host, {round(time * 1000): 100 + rate * (time - begin) for time in times})


def training(job: str, effective: float, *, begin: float = BEGIN, host: str = "node-1") -> list[Planted]:
    of = {"training_job": job}
    return [counter(HELD, of, 8.0, begin=begin, host=host), counter(EFFECTIVE, of, 8 * effective, begin=begin, host=host)]


def store_of(folder: Path, *planted: Planted) -> str:
    write_store(Store(str(folder)), planted)
    return str(folder)


def whole_look(url: str) -> job_slos.JobSlos:
    """Return what a look finds that may last as long as it takes."""
    return job_slos.job_slos(url, seconds=float("inf"))


def attained(found: job_slos.JobSlos, job: str) -> dict[str, float]:
    return {one.name: one.attained for one in found.by_job[job]}


def test_each_job_is_compared_with_the_targets_of_the_specs_by_its_own_samples(tmp_path: Path) -> None:
    chat = [
        counter(REQUESTS, {"service": "chat", "model": "m", "version": "1", "outcome": outcome}, rate, begin=BEGIN)
        for outcome, rate in (("ok", 10.0), ("timeout", 0.1))
    ]
    url = store_of(tmp_path, *training("half", 0.5), *training("good", 0.99), *chat)

    found = whole_look(url)

    assert attained(found, "half") == {"training-goodput": pytest.approx(0.5, rel=1e-3)}
    assert attained(found, "good") == {"training-goodput": pytest.approx(0.99, rel=1e-3)}
    assert found.describe("half", BEGIN) == "below 1 of 1: training-goodput 50.0 % of 95.0 %"
    assert found.describe("good", BEGIN) == "meets 1 of 1"
    assert found.describe("chat", BEGIN) == "below 1 of 1: inference-availability 99.0 % of 99.9 %"


def test_the_events_of_all_jobs_and_days_are_those_of_the_report_on_objectives(tmp_path: Path) -> None:
    url = store_of(tmp_path, *training("one", 0.5), *training("one", 0.9, begin=BEGIN + DAY, host="node-2"))
    of_all = report([objectives()["training-goodput"]], from_samples.of_store(url), BEGIN + DAY + 2 * HOUR)

    found = whole_look(url)

    assert attained(found, "one")["training-goodput"] == pytest.approx(of_all.objectives[0].budgets[0].attainment, rel=1e-9)


def test_a_job_without_samples_is_not_measured_and_says_why(tmp_path: Path) -> None:
    store_of(tmp_path / "some", *training("one", 0.5))
    none, some = whole_look(str(tmp_path / "none")), whole_look(str(tmp_path / "some"))

    assert none.describe("laptop", BEGIN) == "not measured: the store has no samples of agents"
    assert some.describe("laptop", BEGIN) == "not measured: no events of it in the samples of agents"
    assert some.describe("laptop", BEGIN - DAY) == "not measured: it ended before the 28 days of samples"


def test_a_look_that_lasts_too_long_leaves_older_samples_to_the_next_look(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, opened: list[str]
) -> None:
    url = store_of(tmp_path, *training("old", 0.5), *training("new", 0.9, begin=BEGIN + 12 * HOUR))
    monkeypatch.setattr(job_slos, "time", SimpleNamespace(time=time.time, monotonic=lambda: float(len(opened))))

    first = job_slos.job_slos(url, seconds=0.5)
    looks = [job_slos.job_slos(url, seconds=0.5) for _ in range(4)]

    assert (first.complete, "old" in first.by_job) == (False, False)
    assert first.describe("old", BEGIN) == "not measured: older samples are not read yet"
    assert (looks[-1].complete, sorted(looks[-1].by_job)) == (True, ["new", "old"])


def test_what_agents_add_to_a_day_is_counted_and_days_before_are_not_read_again(tmp_path: Path, opened: list[str]) -> None:
    url = store_of(tmp_path, *training("old", 0.5), *training("new", 0.9, begin=BEGIN + DAY))
    whole_look(url)
    write_store(Store(url), training("late", 0.9, begin=BEGIN + DAY + 2 * HOUR))
    st.cache_data.clear()
    opened.clear()

    assert "late" in whole_look(url).by_job
    assert len({path for path in opened if "date=2023-11-15" in path}) == 1  # it may hold samples of the next day


def test_samples_of_more_hosts_than_are_read_are_not_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_slos, "MOST_HOSTS", 1)
    url = store_of(tmp_path, *training("one", 0.5), *training("one", 0.5, host="node-2"))

    assert whole_look(url).describe("one", BEGIN).startswith("not measured: samples of 2 hosts, more than 1")
