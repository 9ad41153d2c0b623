"""What an agent says of when the memory of a job will be full."""

from __future__ import annotations

from pathlib import Path

import pytest

from spool_writing import Process
from spooling import FakeClock, agent_of, pass_seconds, value
from tachoscope_core.records import records
from tachoscope_node.agent import Agent

MIB = 1 << 20
FULL = "tachoscope_job_memory_full_seconds"


def sample(process: Process, mib: float) -> None:
    group = records.ControlGroupMemory(path="/job", limit_bytes=4000 * MIB, anonymous_bytes=round(mib * MIB))
    process.write(records.MemorySampled, step=1, process=records.ProcessMemory(), group=group, total_bytes=64000 * MIB)


def told(agent: Agent) -> bool:
    return any(family.metric.name == FULL and family.points for family in agent.families())


def test_a_leak_is_told_with_the_seconds_that_are_left_until_its_process_has_ended(tmp_path: Path) -> None:
    clock = FakeClock()
    agent = agent_of(tmp_path, clock=clock)
    leak, cache = (Process(tmp_path / "spool" / name, job=name) for name in ("leak", "cache"))
    for process in (leak, cache):
        process.clock = clock
        process.start()
    for second in range(240):
        sample(leak, 500 + 10 * second)
        sample(cache, 500 + min(10 * second, 900))
        pass_seconds(agent, clock, 1)

    assert value(agent, FULL, "leak") == pytest.approx((4000 - 500 - 2390) / 10, abs=15)
    with pytest.raises(StopIteration):
        value(agent, FULL, "cache")
    again = agent_of(tmp_path, clock=clock)
    assert value(again, FULL, "leak") == value(agent, FULL, "leak"), "an agent that is started anew knows it at once"
    pass_seconds(again, clock, 160)
    assert not told(again), "its rank lives, perhaps, but says nothing more"
    for second in (239, 240):
        sample(leak, 500 + 10 * second)
        pass_seconds(again, clock, 1)
    assert told(again)
    leak.end()
    pass_seconds(again, clock, 2)
    assert not told(again)
