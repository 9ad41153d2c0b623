"""Objectives measured from a store hour by hour: the stretches do not show in the sums, and each is read once."""

from __future__ import annotations

import itertools
import random
from dataclasses import replace
from pathlib import Path

import pytest

from slo_making import AGE, BAD, BEGIN, LATENCY, slo, write_store
from slo_planting import plant
from tachoscope_alerts.measure import from_samples as samples_source
from tachoscope_alerts.measure import parquet_cache
from tachoscope_alerts.measure.evaluator import bad_and_total, needed_metrics
from tachoscope_alerts.measure.events import Ask, Measured, Window, add
from tachoscope_alerts.measure.from_samples import SamplesSource, of_store, parquet_reader, store_reader
from tachoscope_alerts.measure.stored_samples import Samples
from tachoscope_alerts.spec.burn_rate_windows import Timing
from tachoscope_core.errors import TachoscopeError
from tachoscope_core.storage.store import Store

TIMING = Timing()
SLOS = [slo(BAD, by=("service",), name="bad"), slo(LATENCY, name="latency"), slo(AGE, name="age")]
SECONDS = 3 * 3600.0
WINDOWS = (Window(BEGIN, BEGIN + SECONDS), Window(BEGIN + 4000, BEGIN + SECONDS - 1000))
ASKS = [Ask(one, WINDOWS) for one in SLOS]


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("samples") / "store"
    write_store(Store(str(folder)), plant(SLOS, SECONDS))
    return str(folder)


def equal(found: list[Measured], expected: list[Measured]) -> None:
    assert [one.keys() for one in found] == [one.keys() for one in expected]
    for one, other in zip(found, expected, strict=True):
        for group, sums in one.items():
            assert [value for part in sums for value in (part.bad, part.total, part.evaluations)] == pytest.approx(
                [value for part in other[group] for value in (part.bad, part.total, part.evaluations)], rel=1e-9
            )


def test_reading_in_stretches_is_reading_at_once(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    everything = store_reader(Store(url))(needed_metrics(SLOS), BEGIN - 3600, BEGIN + SECONDS)
    at_once: list[Measured] = [{} for _ in ASKS]
    for ask, measured in zip(ASKS, at_once, strict=True):
        add(bad_and_total(ask.slo, everything.by_metric, BEGIN, BEGIN + SECONDS, TIMING), ask, measured)
    seen: list[float] = []
    monkeypatch.setattr(samples_source, "CHUNK_SECONDS", 1800.0)
    source = of_store(url, on_progress=seen.append)

    equal(source.measure(ASKS, TIMING), at_once)
    assert seen == sorted(seen)
    assert (len(seen), seen[-1]) == (6, 1.0)
    assert source.notes == []
    assert all(measured for measured in at_once)


def test_each_stretch_is_read_once_for_all_objectives_with_what_they_look_back(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(samples_source, "CHUNK_SECONDS", 3600.0)
    spans: list[tuple[float, float]] = []
    read = store_reader(Store(url))

    def reading(names: object, start: float, end: float) -> Samples:
        spans.append((start, end))
        return read(names, start, end)  # type: ignore[arg-type]

    SamplesSource(reading, "").measure(ASKS, TIMING)

    assert len(spans) == 3
    assert {round(after - before) for (_, before), (after, _) in itertools.pairwise(spans)} == {-2100}


def test_a_second_report_reads_the_cache_and_says_the_same(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = of_store(url, cache=tmp_path / "cache").measure(ASKS, TIMING)

    def opened(*_: object) -> bytes:
        raise AssertionError("an object was opened")

    monkeypatch.setattr(Store, "read", opened)
    equal(of_store(url, cache=tmp_path / "cache").measure(ASKS, TIMING), first)


def test_parquet_alone_says_the_same(url: str, tmp_path: Path) -> None:
    everything = store_reader(Store(url))(needed_metrics(SLOS), BEGIN, BEGIN + SECONDS)
    parquet_cache.write(tmp_path / "all.parquet", everything)

    found = SamplesSource(parquet_reader([tmp_path / "all.parquet"]), "").measure(ASKS, TIMING)

    equal(found, of_store(url).measure(ASKS, TIMING))


def test_a_store_without_samples_measures_nothing(tmp_path: Path) -> None:
    assert of_store(str(tmp_path / "none")).measure(ASKS, TIMING) == [{}, {}, {}]
    with pytest.raises(TachoscopeError, match="could not open store"):
        of_store("nothing://x")


def test_what_cannot_be_read_is_noted_and_many_errors_are_counted(tmp_path: Path) -> None:
    store = Store(str(tmp_path / "store"))
    write_store(store, plant(SLOS, SECONDS))
    objects = store.samples("node-1", start=BEGIN, end=BEGIN + SECONDS)
    for one in random.Random(1).sample(objects, 5):
        Path(one.path).write_bytes(b"broken")
    source = of_store(store.url)
    source.measure([replace(ASKS[0], windows=(Window(BEGIN, BEGIN + SECONDS),))], TIMING)

    assert len(source.notes) == 4
    assert "could not read" in source.notes[0]
    assert source.notes[-1] == "and 2 more objects that could not be read"
