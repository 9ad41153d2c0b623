"""Counters that are born with a value are shown at 0 first."""

from __future__ import annotations

from pathlib import Path

import pytest
from test_slo_signals import SCRAPE_SECONDS, Scraped

from spool_writing import Process
from spooling import FakeClock, agent_of
from tachoscope_core.metrics.catalogue import BY_NAME
from tachoscope_core.records import records
from tachoscope_service.metrics.family import Family
from tachoscope_service.metrics.zero_start import ZeroStart

SHARDS, STEPS = BY_NAME["tachoscope_shard_failures_total"], BY_NAME["tachoscope_steps_total"]
STARTING_SECONDS = 80
OF_TIME = ("job_held_seconds_total", "job_effective_seconds_total", "job_time_seconds_total")


def shards(**counts: float) -> list[Family]:
    return [Family(SHARDS, [(("job", shard), count) for shard, count in counts.items()]), Family(STEPS, [(("job", "0"), 5.0)])]


def seen(newborn: ZeroStart, families: list[Family], now: float) -> dict[str, float]:
    first, second = newborn.with_zero_starts(families, now)
    assert second is families[1], "others are shown as they are"
    return {labels[1]: value for labels, value in first.points}  # type: ignore[misc]


def test_a_series_is_at_zero_for_two_scrapes_and_then_at_its_value() -> None:
    newborn = ZeroStart(45.0)
    newborn.with_zero_starts(shards(), 0.0)

    assert seen(newborn, shards(a=3.0), 10.0) == {"a": 0.0}
    assert seen(newborn, shards(a=4.0), 10.0 + 90.0 - 1.0) == {"a": 0.0}
    assert seen(newborn, shards(a=4.0, b=1.0), 10.0 + 90.0) == {"a": 4.0, "b": 0.0}


def test_what_a_restarted_agent_finds_is_shown_at_once_for_a_counter_must_not_go_back() -> None:
    assert seen(ZeroStart(), shards(a=3.0), 10.0) == {"a": 3.0}


def test_a_series_that_went_and_comes_back_is_born_again() -> None:
    newborn = ZeroStart()
    newborn.with_zero_starts(shards(a=3.0), 0.0)
    newborn.with_zero_starts(shards(), 1000.0)

    assert seen(newborn, shards(a=1.0), 2000.0) == {"a": 0.0}


# --- the time of a job, through a real agent: its start-up is known only with its first step ------------------------------------


def started_up(tmp_path: Path, scraped: Scraped) -> Process:
    """Return a rank that took a while to come to its first step, which it begins now: only then it records anything."""
    scraped.go_on(STARTING_SECONDS)
    clock = scraped.clock
    rank = Process(tmp_path / "spool" / "pod")
    rank.clock, rank.unix_clock = clock, lambda: 1.7e9 + clock.now
    rank.write(records.JobStarted, world_size=1, pid=0, process_time=rank.unix_clock() - STARTING_SECONDS)
    return rank


def train(scraped: Scraped, rank: Process, steps: int) -> None:
    """Let it do steps that each end with a scrape, the first of them before its start is seen."""
    for _ in range(steps):
        scraped.clock.now += SCRAPE_SECONDS
        rank.step(forward=float(SCRAPE_SECONDS))
        scraped.agent.tick()
        scraped.look()


def test_the_start_up_of_a_job_is_seen_to_grow_whole(tmp_path: Path) -> None:
    clock = FakeClock()
    scraped = Scraped(agent_of(tmp_path, clock=clock), clock)
    train(scraped, started_up(tmp_path, scraped), 10)

    assert [scraped.increase(name, "job") for name in OF_TIME] == pytest.approx([80 + 150, 150, 80 + 150])
    assert scraped.increase("job_time_seconds_total", "job", "initialisation") == pytest.approx(80)


@pytest.mark.parametrize("steps_before", [2, 8])
def test_a_restart_of_the_agent_adds_nothing_to_the_time_of_a_job(steps_before: int, tmp_path: Path) -> None:
    """Whether it comes while the series are at 0 still, or later."""
    clock = FakeClock()
    scraped = Scraped(agent_of(tmp_path, clock=clock), clock)
    rank = started_up(tmp_path, scraped)
    train(scraped, rank, steps_before)
    scraped.agent.finish(clock())
    scraped.agent.close()
    scraped.agent = agent_of(tmp_path, clock=clock)
    scraped.look()  # before it has read anything
    train(scraped, rank, 10 - steps_before)

    assert [scraped.increase(name, "job") for name in OF_TIME] == pytest.approx([80 + 150, 150, 80 + 150])
    held = scraped.samples["job_held_seconds_total", "job"]
    assert held == sorted(held), "it never goes back"
