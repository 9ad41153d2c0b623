"""The pages of simulated agents are pages as an agent writes them, and what happens in the fleet shows on them."""

from __future__ import annotations

import itertools

import pytest
from benchmarks.fleet.pages import Lives, page_of_node
from benchmarks.fleet.schedule import AWAY, CYCLE_SCRAPES, JOINS, LATE, RESTARTS, Schedule
from benchmarks.fleet.simulator import fleet_of
from prometheus_client.parser import text_string_to_metric_families

from tachoscope_core.metrics.catalogue import BY_NAME
from tachoscope_core.metrics.metric import NAMESPACE

BEGIN, SCRAPE, DAY = 1_800_000_000.0, 15.0, 86_400.0
FLEET = fleet_of(50)
SCHEDULE = Schedule(FLEET, BEGIN, SCRAPE)
Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


def samples(node: int, now: float, lives: Lives | None = None) -> Samples:
    text = page_of_node(FLEET, node, BEGIN).at(now, lives or SCHEDULE.lives(node, now)).decode()
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def jobs(page: Samples) -> set[str]:
    return {value for _, labels in page for name, value in labels if name == "training_job"}


def test_a_page_has_the_names_and_labels_of_the_catalogue() -> None:
    for name, labels in samples(0, BEGIN):
        metric = BY_NAME.get(name) or BY_NAME[name.rsplit("_", 1)[0]]
        assert {label for label, _ in labels} - {"le", NAMESPACE} == set(metric.labels) - {NAMESPACE}, name


def test_counters_and_buckets_never_fall_while_node_and_job_live() -> None:
    times = [BEGIN + n * SCRAPE for n in range(5)]
    for earlier, later in itertools.pairwise(samples(0, now, Lives(BEGIN - DAY, BEGIN - DAY)) for now in times):
        assert earlier.keys() == later.keys()
        counters = {key for key in earlier if key[0].endswith(("_total", "_bucket", "_count", "_sum"))}
        assert all(earlier[key] <= later[key] for key in counters)
        assert any(earlier[key] < later[key] for key in counters)


def test_counters_begin_again_when_a_node_restarts() -> None:
    key = ("tachoscope_host_cpu_seconds_total", frozenset({("mode", "user")}))
    before, after = BEGIN + 3.9 * SCRAPE, BEGIN + 4.5 * SCRAPE

    assert samples(RESTARTS, before)[key] > 1e6 > samples(RESTARTS, after)[key]
    assert SCHEDULE.away(RESTARTS, BEGIN + 3.5 * SCRAPE)
    assert not SCHEDULE.away(RESTARTS, after)


def test_a_job_that_ends_gives_way_to_the_next_of_another_name() -> None:
    node = next(node for node in range(FLEET.nodes) if node * FLEET.jobs // FLEET.nodes == 1)

    assert jobs(samples(node, BEGIN)) == {"pretrain-0001"}
    assert jobs(samples(node, BEGIN + CYCLE_SCRAPES * SCRAPE)) == {"pretrain-0001-1"}


@pytest.mark.parametrize(("node", "is_joined"), [(JOINS, False), (0, True)])
def test_some_nodes_join_late(node: int, is_joined: bool) -> None:
    assert SCHEDULE.joined(node, BEGIN) is is_joined
    assert SCHEDULE.joined(node, BEGIN + CYCLE_SCRAPES * SCRAPE)


def test_after_its_cycles_nothing_unusual_happens_in_the_fleet() -> None:
    moments = [BEGIN + (CYCLE_SCRAPES + n / 4) * SCRAPE for n in range(4 * CYCLE_SCRAPES)]

    for node in range(FLEET.nodes):
        assert len({SCHEDULE.lives(node, now) for now in moments}) == 1
        assert not any(SCHEDULE.away(node, now) or SCHEDULE.delay(node, now, 10.0) for now in moments)


def test_some_nodes_are_away_or_answer_after_the_scrape_gave_up_once_a_cycle() -> None:
    moments = [BEGIN + n * SCRAPE for n in range(CYCLE_SCRAPES)]

    assert sum(SCHEDULE.away(AWAY, now) for now in moments) == 2
    assert [SCHEDULE.delay(LATE, now, 10.0) > 10.0 for now in moments].count(True) == 1
    assert not any(SCHEDULE.away(0, now) or SCHEDULE.delay(0, now, 10.0) for now in moments)
