"""Metric samples in the store: all of them, once, and not for ever more of them."""

import gzip
import json
from pathlib import Path

import pytest

from spool_writing import Process
from spooling import FakeClock, agent_of, pass_seconds
from tachoscope_core.errors import TachoscopeError
from tachoscope_core.metrics.catalogue import BY_NAME
from tachoscope_core.storage.store import Store
from tachoscope_node.spool import metric_samples as samples_module
from tachoscope_node.spool.metric_samples import Samples
from tachoscope_service.metrics.family import Family, Histogram


def stored(tmp_path: Path) -> list[dict[str, object]]:
    files = sorted((tmp_path / "store" / "metrics").rglob("*.jsonl.gz"))
    return [json.loads(line) for path in files for line in gzip.decompress(path.read_bytes()).splitlines()]


def family(value: float) -> list[Family]:
    return [Family(BY_NAME["tachoscope_agent_records_total"], [((), value)])]


def made(tmp_path: Path) -> Samples:
    return Samples(tmp_path / "samples", Store(str(tmp_path / "store")), "node/1", max_age_seconds=60.0)


def test_the_agent_writes_all_its_metrics_every_fifteen_seconds(tmp_path: Path) -> None:
    clock = FakeClock()
    agent = agent_of(tmp_path, clock=clock, sample_seconds=15.0)
    rank = Process(tmp_path / "spool" / "run")
    rank.clock = clock
    rank.start()
    rank.step(forward=0.5)
    pass_seconds(agent, clock, 300)
    agent.finish(clock.now + 10)
    steps = [row for row in stored(tmp_path) if row["name"] == "tachoscope_steps_total"]

    assert len(steps) == 20
    assert steps[-1]["labels"] == ["training_job", "rank", "workload_namespace"]
    assert steps[-1]["points"] == [[["job", "0", ""], 1.0]]
    assert "/host=node-1/" in str(next((tmp_path / "store" / "metrics").rglob("*.gz")))


def test_what_a_killed_agent_had_not_shipped_is_shipped_by_the_next(tmp_path: Path) -> None:
    first = made(tmp_path)
    first.append(family(1.0), now=0.0, unix_seconds=1.7e9)
    second = made(tmp_path)
    second.append(family(2.0), now=0.0, unix_seconds=1.7e9)

    assert second.ship() == 1
    assert [row["points"] for row in stored(tmp_path)] == [[[[], 1.0]]]


def test_a_line_cut_by_the_kill_is_left_out(tmp_path: Path) -> None:
    first = made(tmp_path)
    first.append(family(1.0), now=0.0, unix_seconds=1.7e9)
    path = next((tmp_path / "samples").iterdir())
    path.write_bytes(path.read_bytes() + b'{"time": 1')
    made(tmp_path).ship()

    assert len(stored(tmp_path)) == 1


def test_a_store_that_is_away_keeps_samples_but_not_without_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "store").write_text("in the way")
    monkeypatch.setattr(samples_module, "MAX_KEPT_BYTES", 1000)
    kept = made(tmp_path)
    for number in range(100):
        kept.append(family(number), now=number * 100.0, unix_seconds=1.7e9 + number)
        kept.finish()
        with pytest.raises(TachoscopeError):
            kept.ship()

    assert sum(path.stat().st_size for path in (tmp_path / "samples").iterdir()) <= 1000
    assert kept.dropped > 0


def test_a_histogram_is_kept_with_its_counts() -> None:
    one = Family(BY_NAME["tachoscope_step_seconds"], [(("job",), Histogram((1, 2), 3.5))])

    assert json.loads(samples_module.lines([one], 1.7e9))["points"] == [[["job"], {"counts": [1, 2], "sum": 3.5}]]
