"""A cloud's notice on its way to the jobs of the node, with a real agent."""

from __future__ import annotations

import json
from pathlib import Path

from spool_writing import Process
from spooling import FakeClock, agent_of, pass_seconds
from tachoscope.preemption.notice_file import Notice
from tachoscope_core.records import records
from tachoscope_core.storage.store import Store


def start(tmp_path: Path, clock: FakeClock, job: str) -> Process:
    process = Process(tmp_path / "spool" / job, job=job)
    process.clock = clock
    process.start()
    return process


def notices(tmp_path: Path, job: str) -> list[tuple[str, float, float]]:
    store = Store(str(tmp_path / "store"))
    found = [records.decode(line) for segment in store.segments(job) for line in store.read(segment).splitlines()]
    return [(said.source, said.time, said.deadline) for said in found if isinstance(said, records.PreemptionNotice)]


def test_a_notice_reaches_each_job_once_and_the_directory_of_its_processes(tmp_path: Path) -> None:
    class Said:
        current: Notice | None = None

        def close(self) -> None:
            pass

    clock = FakeClock()
    agent = agent_of(tmp_path, clock=clock)
    agent.collecting.preemption = Said()  # type: ignore[assignment]
    early = start(tmp_path, clock, "early")
    launcher = Process(tmp_path / "spool" / "early", job="early", rank=records.LAUNCHER_RANK)
    launcher.start()
    pass_seconds(agent, clock, 4)
    assert not (tmp_path / "spool" / "early" / "notice.json").exists()
    Said.current = Notice("aws", 1.7e9, 1.7e9 + 120.0)
    pass_seconds(agent, clock, 6)
    late = start(tmp_path, clock, "late")
    pass_seconds(agent, clock, 6)

    for job in ("early", "late"):
        assert notices(tmp_path, job) == [("aws", 1.7e9, 1.7e9 + 120.0)]
        left = json.loads((tmp_path / "spool" / job / "notice.json").read_text())
        assert left == {"source": "aws", "time": 1.7e9, "deadline": 1.7e9 + 120.0}
    for process in (early, launcher, late):
        process.end()
    pass_seconds(agent, clock, 8)
    assert list((tmp_path / "spool").iterdir()) == [], "the notice goes with the run's directory"
    agent.close()
