"""The agent's ledger, made while the job runs, and the analyzers', made from all records, say the same of the same job."""

from __future__ import annotations

import random
from collections import defaultdict
from pathlib import Path

import pytest

from making import job
from spooling import FakeClock, agent_of
from tachoscope.spool.writer import SpoolWriter
from tachoscope_analyzers.ledger.states import ledgers
from tachoscope_analyzers.records.load import from_spool
from tachoscope_analyzers.records.steps import aligned
from tachoscope_core.records import records

STEPS = 3000
STEP_SECONDS = 0.002


def planted(clocks_every: int) -> list[bytes]:
    """Two ranks with steps of about 2 ms; which of them is late changes, and all numbers scatter."""
    chance = random.Random(7)
    steps, blocked, delay = [], [], []
    for number in range(STEPS):
        late = (number // 250) % 3  # rank 0, rank 1, neither
        waits = [0.0002 * chance.uniform(0.9, 1.1) + (0.0006 if rank == 1 - late else 0.0) for rank in range(2)]
        phases = {"data_wait": 0.0002, "forward": 0.0006, "optimizer": 0.0001, "other": 0.0001}
        steps.append([{**phases, "backward": STEP_SECONDS - 0.001} for _ in range(2)])
        blocked.append(waits)
        delay.append([0.0001 * chance.uniform(0.5, 1.5) for _ in range(2)])
    return job(steps, blocked=blocked, delay=delay, clocks_every=clocks_every).splitlines(keepends=True)


def seconds_after(lines: list[bytes]) -> dict[int, dict[int, list[bytes]]]:
    """Return the lines by the second in which a process writes them, and by rank."""
    by_second: dict[int, dict[int, list[bytes]]] = defaultdict(lambda: defaultdict(list))
    for line in lines:
        record = records.decode(line)
        by_second[record.monotonic_ns // 10**9][record.rank].append(line)
    return by_second


@pytest.mark.parametrize("clocks_every", [1, 7, 20])
@pytest.mark.parametrize("looks", ["each second", "once"])
@pytest.mark.bar(but=("each second-1", "each second-20", "once-7"))
def test_with_clocks_read_in_some_steps_both_split_waiting_alike(tmp_path: Path, clocks_every: int, looks: str) -> None:
    clock = FakeClock()
    clock.now = 0.0  # where the planted times begin
    agent = agent_of(tmp_path, clock=clock, flush={"seconds": 1000.0})
    lines = planted(clocks_every)
    writers = {record.rank: record.writer for record in map(records.decode, lines)}
    spools = {rank: SpoolWriter(tmp_path / "spool" / "run", writer) for rank, writer in writers.items()}
    for second in seconds_after(lines).values():
        for rank, said in second.items():  # a tick finds all that one rank wrote since the last, then what the next one wrote
            for line in said:
                spools[rank].append(line)
        clock.now += 1.0
        if looks == "each second":
            agent.tick()
    for spool in spools.values():
        spool.close()
    agent.tick()

    of_job = ledgers(aligned(from_spool([tmp_path / "spool"])))[1:]
    for rank, theirs in zip(agent.ranks.page(), of_job, strict=True):
        ours = rank["seconds"]
        assert isinstance(ours, dict)
        assert ours["straggler_wait"] > 0.05 * STEPS * STEP_SECONDS
        for state in ("compute", "communication", "straggler_wait", "data_wait", "host_wait"):
            assert ours[state] == pytest.approx(theirs.states[state], rel=0.05), state
        assert sum(ours.values()) == pytest.approx(STEPS * STEP_SECONDS)
    assert agent.live.jobs["planted"].open_steps == {}
    agent.close()
