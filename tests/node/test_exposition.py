"""The page of metrics, judged by Prometheus's own tools."""

from __future__ import annotations

import gzip
import shutil
import subprocess
from pathlib import Path

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse

from spooling import FakeClock, Process, agent_of, pass_seconds
from tachoscope_core import records
from tachoscope_core.names import BY_NAME
from tachoscope_node.agent import Agent
from tachoscope_node.exposition import Exposition

OPENMETRICS = "application/openmetrics-text; version=1.0.0"


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
    _, page = Exposition(agent.families, lambda: agent.ticks).page("")
    checked = subprocess.run(["promtool", "check", "metrics"], input=page, capture_output=True, check=False)

    assert (checked.returncode, checked.stderr.decode()) == (0, "")


def test_every_family_is_of_the_catalogue_with_its_own_labels(agent: Agent) -> None:
    for family in agent.families():
        assert BY_NAME[family.metric.name] is family.metric
        for labels, _ in family.points:
            assert len(labels) == len(family.metric.labels)


@pytest.mark.parametrize(("accept", "parser"), [("", parse), (OPENMETRICS, parse_openmetrics)])
def test_both_formats_say_the_same(agent: Agent, accept: str, parser: object) -> None:
    content_type, page = Exposition(agent.families, lambda: agent.ticks).page(accept)
    samples = {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in parser(page.decode())  # type: ignore[operator]
        for sample in family.samples
    }

    assert content_type.startswith(accept.partition(";")[0] or "text/plain")
    assert samples["tachoscope_time_seconds_total", (("rank", "1"), ("state", "data_wait"), ("training_job", "job"))] == 0.25
    assert samples["tachoscope_step_seconds_count", (("training_job", "job"),)] == 2
    assert samples["tachoscope_step_seconds_bucket", (("le", "1.0"), ("training_job", "job"))] == 2
    assert samples["tachoscope_shard_failures_total", (("shard", 'a"b\\c\nd'), ("training_job", "job"))] == 2


def test_within_a_tick_a_page_is_rendered_once_for_all_who_ask(agent: Agent) -> None:
    asked = []
    exposition = Exposition(lambda: asked.append(1) or agent.families(), lambda: agent.ticks)  # type: ignore[func-returns-value]
    pages = {exposition.page("")[1] for _ in range(5)}
    zipped = exposition.page("", gzipped=True)[1]

    assert len(asked) == len(pages) == 1
    assert gzip.decompress(zipped) in pages
    agent.tick()
    exposition.page("")
    assert len(asked) == 2


def test_what_the_agent_itself_uses_is_there(agent: Agent) -> None:
    _, page = Exposition(agent.families, lambda: agent.ticks).page("")

    assert b"process_cpu_seconds_total" in page
    assert b"process_resident_memory_bytes" in page
