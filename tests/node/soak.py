"""A day of an agent's life on a clock that is told the time: python soak.py FOLDER TICKS; prints what is left and the memory.

Every ten minutes of its time one job ends and another begins; metrics are asked for every five seconds.
"""

from __future__ import annotations

import gc
import json
import logging
import os
import shutil
import sys
from pathlib import Path

from spool_writing import Process
from spooling import FakeClock, agent_of
from tachoscope_service.metrics.prometheus_text import Exposition

JOB_TICKS = 600
RANKS = 2


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")


def main(folder: Path, ticks: int) -> None:
    logging.disable(logging.INFO)
    clock = FakeClock()
    unix = lambda: 1.7e9 + clock.now  # noqa: E731
    agent = agent_of(folder, clock=clock, sample_seconds=15.0, flush={"seconds": 5.0}, retention_seconds=300.0)
    exposition = Exposition(agent.families, lambda: agent.ticks)
    ranks: list[Process] = []
    resident: list[tuple[int, int]] = []
    steps = 0
    for tick in range(ticks):
        clock.now += 1.0
        if tick % JOB_TICKS == 0:
            for rank in ranks:
                rank.end()
            directory = folder / "spool" / f"run-{tick}"
            ranks = [Process(directory, job=f"job-{tick}", rank=number, world_size=RANKS) for number in range(RANKS)]
            for rank in ranks:
                rank.clock, rank.unix_clock = clock, unix
                rank.start(pid=os.getpid())
        for rank in ranks:
            rank.step(data_wait=0.1, forward=0.4, backward=0.5)
            steps += 1
        agent.tick()
        agent.ship()
        if tick % 5 == 0:
            exposition.page()
        if tick % 500 == 0:
            shutil.rmtree(folder / "store", ignore_errors=True)  # it would grow, and is not what is looked at
            gc.collect()
            resident.append((tick, resident_bytes()))
    for rank in ranks:
        rank.end()
    for _ in range(600):
        clock.now += 1.0
        agent.tick()
        agent.ship()
    complete = agent.finish(clock.now + 60.0)
    left = sorted(
        str(path.relative_to(folder)) for name in ("spool", "state") for path in (folder / name).rglob("*") if path.is_file()
    )
    errors = sum(agent.shipper.errors.values()) + sum(agent.errors.values())
    result = {
        "resident": resident, "left": left, "complete": complete, "steps": steps, "records": agent.live.records,
        "jobs": len(agent.live.jobs), "errors": errors, "descriptors": len(os.listdir("/proc/self/fd")),
    }  # fmt: skip
    sys.stdout.write(json.dumps(result))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
