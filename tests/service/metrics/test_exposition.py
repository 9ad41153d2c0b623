"""The page of metrics, judged by Prometheus's own tools."""

from __future__ import annotations

import gzip
import itertools
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.parser import text_string_to_metric_families as parse

from spool_writing import Process
from spooling import FakeClock, agent_of, pass_seconds
from tachoscope_core.metrics.catalogue import BY_NAME
from tachoscope_core.metrics.training import JOB_ACTIVE
from tachoscope_core.records import records
from tachoscope_node.agent import Agent
from tachoscope_service.metrics.family import Family, Histogram, with_namespaces
from tachoscope_service.metrics.prometheus_text import Exposition, render


@pytest.fixture
def agent(tmp_path: Path) -> Agent:
    clock = FakeClock()
    made = agent_of(tmp_path, clock=clock)
    ranks = [Process(tmp_path / "spool" / "run", rank=rank, world_size=2) for rank in range(2)]
    for rank in ranks:
        rank.clock = clock
        rank.start()
        rank.step(forward=0.5, data_wait=0.25)
        rank.write(records.CheckpointSaved, step=1, blocking_seconds=1.0, background_seconds=2.0)
        rank.write(records.ShardFailed, shard='a"b\\c\nd', error="")
    pass_seconds(made, clock, 2)
    return made


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed")
def test_promtool_finds_nothing_to_mend_but_what_is_not_ours(agent: Agent) -> None:
    page = Exposition(agent.families, lambda: agent.ticks).page()
    checked = subprocess.run(["promtool", "check", "metrics"], input=page, capture_output=True, check=False)

    assert (checked.returncode, checked.stderr.decode()) == (0, "")


def test_every_family_is_of_the_catalogue_with_its_own_labels(agent: Agent) -> None:
    for family in agent.families():
        assert BY_NAME[family.metric.name] is family.metric.exported()
        for labels, _ in family.points:
            assert len(labels) == len(family.metric.labels)


def test_the_page_says_what_the_families_say(agent: Agent) -> None:
    page = Exposition(agent.families, lambda: agent.ticks).page().decode()
    samples = {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value for family in parse(page) for sample in family.samples
    }

    assert samples["tachoscope_time_seconds_total", (("rank", "1"), ("state", "data_wait"), ("training_job", "job"))] == 0.25
    assert samples["tachoscope_step_seconds_count", (("training_job", "job"),)] == 2
    assert samples["tachoscope_step_seconds_bucket", (("le", "1.0"), ("training_job", "job"))] == 2
    assert samples["tachoscope_shard_failures_total", (("shard", 'a"b\\c\nd'), ("training_job", "job"))] == 2


class Library:
    """Gives families to prometheus-client in its own form."""

    def __init__(self, families: list[Family]) -> None:
        self._families = families

    def collect(self) -> Iterator[Any]:
        for family in self._families:
            metric = family.metric
            kinds = {"counter": CounterMetricFamily, "gauge": GaugeMetricFamily, "histogram": HistogramMetricFamily}
            made = kinds[metric.type](metric.name, metric.help, labels=metric.labels)
            for labels, value in family.points:
                if isinstance(value, Histogram):
                    bounds = [*map(str, metric.buckets), "+Inf"]
                    made.add_metric(labels, list(zip(bounds, itertools.accumulate(value.counts), strict=True)), value.sum)
                else:
                    made.add_metric(labels, value)
            yield made


def test_a_workload_of_a_namespace_has_it_as_a_label_and_another_has_no_such_label() -> None:
    family = Family(JOB_ACTIVE, [(("inside",), 1.0), (("outside",), 1.0)])
    page = render(with_namespaces([family], {"inside": "team-a"}.get)).decode()  # type: ignore[arg-type]

    assert 'tachoscope_job_active{training_job="inside",workload_namespace="team-a"} 1.0' in page
    assert 'tachoscope_job_active{training_job="outside"} 1.0' in page


def test_the_text_is_what_prometheus_client_renders_to_the_byte(agent: Agent) -> None:
    families = agent.families()

    assert render(families).decode() == generate_latest(Library(families)).decode()  # type: ignore[arg-type]


@given(
    st.lists(st.tuples(st.text(), st.floats() | st.integers(-(10**20), 10**20)), max_size=5, unique_by=lambda point: point[0]),
    st.lists(st.integers(0, 10**6), min_size=12, max_size=12),
    st.floats(0, 1e9),
)
def test_whatever_the_labels_and_values_the_text_is_prometheus_clients(
    points: list[tuple[str, float]], counts: list[int], total: float
) -> None:
    families = [
        Family(BY_NAME["tachoscope_checkpoint_age_seconds"], [((label, "a-b"), value) for label, value in points]),
        Family(BY_NAME["tachoscope_step_seconds"], [((label, "a-b"), Histogram(tuple(counts), total)) for label, _ in points]),
    ]

    assert render(families).decode() == generate_latest(Library(families)).decode()  # type: ignore[arg-type]


def test_within_a_tick_a_page_is_rendered_once_for_all_who_ask(agent: Agent) -> None:
    asked = []
    exposition = Exposition(lambda: asked.append(1) or agent.families(), lambda: agent.ticks)  # type: ignore[func-returns-value]
    pages = {exposition.page() for _ in range(5)}
    zipped = exposition.page(gzipped=True)

    assert len(asked) == len(pages) == 1
    assert gzip.decompress(zipped) in pages
    agent.tick()
    exposition.page()
    assert len(asked) == 2


def test_what_the_agent_itself_uses_is_there(agent: Agent) -> None:
    page = Exposition(agent.families, lambda: agent.ticks).page()

    assert b"process_cpu_seconds_total" in page
    assert b"process_resident_memory_bytes" in page
