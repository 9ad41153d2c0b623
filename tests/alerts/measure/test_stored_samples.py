"""What agents wrote into the store comes back as series; what is broken is told and costs nothing else."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from slo_making import BEGIN, Planted, ticks, write_store
from tachoscope_alerts.measure.stored_samples import Samples, Series, joined, of_host
from tachoscope_core.metrics.gpu import GPU_ACTIVE
from tachoscope_core.metrics.serving import FIRST_TOKEN_SECONDS, REQUESTS
from tachoscope_core.storage.store import Store
from tachoscope_service.metrics.family import Histogram

HOST = "node-1"
LABELS = {"service": "chat", "model": "m", "version": "", "outcome": "ok"}


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(str(tmp_path / "store"))


def read(
    store: Store, *names: str, start: float = BEGIN, end: float = BEGIN + 7200, bounds: frozenset[float] = frozenset()
) -> Samples:
    objects = store.samples(HOST, start=start, end=end)
    return of_host(store, objects, HOST, dict.fromkeys(names, bounds), start=start, end=end)


def only(samples: Samples, name: str) -> Series:
    (one,) = samples.by_metric[name]
    return one


def counted(times: list[int]) -> Planted:
    return Planted(REQUESTS, LABELS, HOST, {time: float(number) for number, time in enumerate(times)})


def test_a_series_comes_back_with_its_times_values_and_labels_and_the_node_as_its_instance(store: Store) -> None:
    times = ticks(3600.0, random.Random(1))
    write_store(store, [counted(times)])

    one = only(read(store, REQUESTS.name), REQUESTS.name)

    assert one.times_ms.tolist() == times
    assert one.values.tolist() == list(range(len(times)))
    assert one.labels == {"service": "chat", "model": "m", "outcome": "ok", "instance": HOST}, "empty labels are none"
    assert one.ends_ms.tolist() == []


def test_only_the_span_is_read_and_only_objects_that_can_hold_a_part_of_it_are_opened(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    times = ticks(3 * 3600.0, random.Random(1))
    write_store(store, [counted(times)])
    opened: list[str] = []
    whole = Store.read
    monkeypatch.setattr(Store, "read", lambda self, one: (opened.append(one.path), whole(self, one))[1])

    one = only(read(store, REQUESTS.name, start=BEGIN + 3000, end=BEGIN + 4000), REQUESTS.name)

    assert one.times_ms.tolist() == [time for time in times if BEGIN + 3000 <= time / 1000 <= BEGIN + 4000]
    assert len(opened) == 2, "of ten"


def test_what_an_object_of_the_evening_before_holds_of_a_window_after_midnight_is_read(store: Store) -> None:
    midnight = BEGIN - BEGIN % 86400 + 86400
    line = b'{"time":%d,"name":"tachoscope_gpu_active_ratio","labels":["gpu"],"points":[[["0"],0.5]]}\n' % (midnight + 60)
    store.write_samples(host=HOST, name=f"{int(midnight) - 60}-0", time=midnight - 60, lines=line)

    one = only(read(store, GPU_ACTIVE.name, start=midnight, end=midnight + 3600), GPU_ACTIVE.name)

    assert one.values.tolist() == [0.5]


def test_only_wanted_metrics_are_decoded(store: Store) -> None:
    times = ticks(60.0, random.Random(1))
    gpu = Planted(GPU_ACTIVE, {"gpu": "0", "uuid": "u", "mig": "", "unit": "sm"}, HOST, dict.fromkeys(times, 0.5))
    write_store(store, [counted(times), gpu])

    samples = read(store, GPU_ACTIVE.name)

    assert set(samples.by_metric) == {GPU_ACTIVE.name}
    assert (samples.lines, samples.garbage) == (len(times), 0)
    assert only(samples, GPU_ACTIVE.name).values.tolist() == [0.5] * len(times)


def test_a_histogram_becomes_its_count_and_the_cumulative_buckets_that_are_asked_for(store: Store) -> None:
    times = ticks(30.0, random.Random(1))
    counts = [0] * (len(FIRST_TOKEN_SECONDS.buckets) + 1)
    counts[0], counts[FIRST_TOKEN_SECONDS.buckets.index(2.5)], counts[-1] = 3, 4, 5
    labels = {"service": "chat", "model": "m", "version": "v"}
    write_store(store, [Planted(FIRST_TOKEN_SECONDS, labels, HOST, dict.fromkeys(times, Histogram(tuple(counts), 1.0)))])

    samples = read(store, FIRST_TOKEN_SECONDS.name, bounds=frozenset({2.0, 2.5, 2.2}))

    name = FIRST_TOKEN_SECONDS.name
    assert only(samples, f"{name}_count").values.tolist() == [12.0] * 3
    assert {one.labels["le"]: one.values[0] for one in samples.by_metric[f"{name}_bucket"]} == {"2.0": 3.0, "2.5": 7.0}


def test_bounds_that_a_server_has_fewer_of_are_its_own(store: Store) -> None:
    labels = {"service": "chat", "model": "m", "version": "v"}
    foreign = Histogram((1, 2, 3), 1.0, bounds=(0.5, 2.5))
    write_store(store, [Planted(FIRST_TOKEN_SECONDS, labels, HOST, {round(BEGIN * 1000): foreign})])

    samples = read(store, FIRST_TOKEN_SECONDS.name, bounds=frozenset({2.0, 2.5}))

    assert [(one.labels["le"], one.values.tolist()) for one in samples.by_metric[f"{FIRST_TOKEN_SECONDS.name}_bucket"]] == [
        ("2.5", [3.0])
    ]


def test_a_series_that_the_next_sample_lacks_ends_there_and_goes_on_when_it_is_back(store: Store) -> None:
    times = ticks(150.0, random.Random(1))
    leaves = counted([*times[:3], *times[6:8]])
    write_store(store, [leaves, Planted(REQUESTS, {**LABELS, "outcome": "shed"}, HOST, dict.fromkeys(times, 0.0))])

    ends = {one.labels["outcome"]: one.ends_ms.tolist() for one in read(store, REQUESTS.name).by_metric[REQUESTS.name]}

    assert ends == {"ok": [times[3], times[8]], "shed": []}


def test_that_no_wanted_series_is_left_is_known_by_what_the_agent_tells_of_itself(store: Store) -> None:
    times = ticks(150.0, random.Random(1))
    gpu = Planted(GPU_ACTIVE, {"gpu": "0", "uuid": "u", "mig": "", "unit": "sm"}, HOST, dict.fromkeys(times, 0.5))
    write_store(store, [counted(times[:5]), gpu])

    assert only(read(store, REQUESTS.name), REQUESTS.name).ends_ms.tolist() == [times[5]]


def test_an_agent_that_was_away_leaves_a_gap_and_no_end(store: Store) -> None:
    times = ticks(3600.0, random.Random(1))
    write_store(store, [counted([*times[:10], *times[100:]])])

    one = only(read(store, REQUESTS.name), REQUESTS.name)

    assert len(one.times_ms) == len(times) - 90
    assert one.ends_ms.tolist() == []


def test_lines_and_points_that_make_no_sense_are_counted_and_the_others_are_read(store: Store) -> None:
    name = REQUESTS.name.encode()
    labels = b'"labels":["service","outcome"]'
    good = b'{"time":%d,"name":"' + name + b'",' + labels + b',"points":[[["chat","ok"],7]]}\n'
    lines = [
        good % BEGIN,
        b"garbage\n",
        b'{"time":"late","name":"' + name + b'"}\n',
        b'{"time":1e999,"name":"' + name + b'",' + labels + b',"points":[]}\n',
        b'{"time":%d,"name":"' % (BEGIN + 15) + name + b'",' + labels + b',"points":[[["chat"],7],[["chat","ok"],8]]}\n',
        b'{"time":%d,"name":"' % (BEGIN + 30) + name + b'",' + labels + b',"points":[[["chat","ok"],{"counts":[1]}]]}\n',
        b'{"time":%d,"name":"other' % (BEGIN + 45) + b'","what":\n',
        good % (BEGIN + 5),
    ]
    store.write_samples(host=HOST, name=f"{int(BEGIN)}-0", time=BEGIN, lines=b"".join(lines))

    samples = read(store, REQUESTS.name)

    assert only(samples, REQUESTS.name).values.tolist() == [7.0, 8.0]
    # Three lines, two points, and a line older than the one before it; what is not wanted is not looked at.
    assert samples.garbage == 6


def test_a_null_is_no_number(store: Store) -> None:
    line = b'{"time":%d,"name":"tachoscope_gpu_active_ratio","labels":["gpu"],"points":[[["0"],null]]}\n' % BEGIN
    store.write_samples(host=HOST, name=f"{int(BEGIN)}-0", time=BEGIN, lines=line)

    (value,) = only(read(store, GPU_ACTIVE.name), GPU_ACTIVE.name).values.tolist()
    assert value != value


def test_an_object_that_cannot_be_read_is_named_and_leaves_a_gap(store: Store) -> None:
    times = ticks(3600.0, random.Random(1))
    write_store(store, [counted(times)])
    broken = store.samples(HOST, start=BEGIN, end=BEGIN + 3600)[1].path
    Path(broken).write_bytes(b"no gzip")

    samples = read(store, REQUESTS.name)

    assert broken in samples.unread[0]
    assert 0 < len(only(samples, REQUESTS.name).times_ms) < len(times)


def test_nodes_are_read_apart_and_joined(store: Store) -> None:
    times = ticks(60.0, random.Random(1))
    write_store(store, [counted(times), Planted(REQUESTS, LABELS, "node-2", dict.fromkeys(times, 1.0))])

    assert store.sample_hosts(start=BEGIN, end=BEGIN + 61) == [HOST, "node-2"]
    assert store.sample_hosts(start=BEGIN + 3 * 86400, end=BEGIN + 4 * 86400) == []
    parts = [
        of_host(
            store, store.samples(host, start=BEGIN, end=BEGIN + 61), host, {REQUESTS.name: frozenset()}, start=BEGIN, end=BEGIN + 61
        )
        for host in (HOST, "node-2")
    ]
    together = joined(parts)
    assert [one.labels["instance"] for one in together.by_metric[REQUESTS.name]] == [HOST, "node-2"]
    assert together.lines == 2 * len(times)
