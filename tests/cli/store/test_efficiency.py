"""`tachoscope efficiency`: hours that Slurm gave, and what the jobs of the store did in them."""

import json
from pathlib import Path

import pytest
from msgspec import structs

from life_making import T0, PlantedLife
from tachoscope_analyzers.fleet.efficiency import RecordedJob, of_rows
from tachoscope_analyzers.schedulers.slurm.allocations import SacctRow
from tachoscope_cli.app import call
from tachoscope_core.errors import TachoscopeError
from tachoscope_core.records import records
from tachoscope_core.report.job_life import Cost
from tachoscope_core.storage.store import Store, default_url

LINES = ["JobIDRaw|JobID|User|Account|Submit|Start|End|State|NodeList|AllocTRES"]
AGES = "9000d"
"""The planted lives began in 2023."""


def allocated(job: str, user: str, start: float, end: float, gpus: int = 2) -> str:
    times = f"{T0 + start:.0f}|{T0 + start:.0f}|{T0 + end:.0f}"
    return f"{job}|{job}|{user}|vision|{times}|COMPLETED|node-0|billing=1,gres/gpu={gpus}"


@pytest.fixture
def sacct(tmp_path: Path) -> str:
    """Alice trains for 1,000 of the 2,000 s that she holds two GPUs; of what Bob did there is no record; Carol held no GPU."""
    life = PlantedLife("resnet")
    for rank in range(2):
        life.process(rank, [1.0] * 990, start=5.0, begin=10.0, left=1000.0)
    named = [
        structs.replace(row, lineage={"slurm_job": "4711"}) if isinstance(row, records.JobStarted) else row for row in life.rows
    ]
    lines = b"".join(map(records.encode, named))
    Store(default_url()).write("resnet", host="node-0", writer="0" * 36, attempt=0, offset=0, time=T0, lines=lines)
    table = [
        *LINES,
        allocated("4711", "alice", 0, 2000),
        allocated("4712", "bob", 0, 3600, 1),
        allocated("4713", "carol", 0, 100, 0),
    ]
    path = tmp_path / "sacct.txt"
    path.write_text("\n".join(table))
    return str(path)


def test_hours_of_a_user_are_productive_lost_or_not_recorded(sacct: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(["efficiency", sacct, "--since", AGES, "--format", "json"]) == 0
    alice, bob = json.loads(capsys.readouterr().out)["efficiencies"]

    assert (alice["name"], bob["name"]) == ("alice", "bob")
    assert alice["held_hours"] == pytest.approx(4000 / 3600)
    assert alice["productive_hours"] == pytest.approx(0.9 * 1980 / 3600, rel=0.02)
    assert alice["unrecorded_hours"] == pytest.approx(2000 / 3600, rel=0.02)
    assert next(iter(alice["lost_hours"])) == "data_wait"
    assert bob["unrecorded_hours"] == bob["held_hours"] == pytest.approx(1.0)

    assert call(["efficiency", sacct, "--since", AGES, "--only", "bob"]) == 0
    said = capsys.readouterr().out
    assert "4712" in said and "not known" in said and "alice" not in said


def test_a_name_that_held_nothing_is_an_error(sacct: str) -> None:
    with pytest.raises(TachoscopeError, match="user 'dora' held no accelerators"):
        call(["efficiency", sacct, "--since", AGES, "--only", "dora"])


def test_a_file_that_is_no_table_is_refused_with_the_command_that_writes_one(tmp_path: Path) -> None:
    (tmp_path / "squeue.txt").write_text("JOBS PARTITION\n1 gpu\n")

    with pytest.raises(TachoscopeError, match="not a table of sacct"):
        call(["efficiency", str(tmp_path / "squeue.txt")])


def test_hours_add_up_and_count_only_within_the_period() -> None:
    row = {"states": ("COMPLETED",), "accelerators": 8, "user": "alice", "account": "vision"}
    rows = [
        SacctRow(job="1", started=0.0, ended=7200.0, **row),
        SacctRow(job="2", started=7200.0, ended=10800.0, **row),
        SacctRow(job="3", started=10000.0, states=("RUNNING",), accelerators=1, user="bob"),
    ]
    cost = Cost(unit="GPU", device="", hours=30.0, by_state={"compute": 12.0, "input_wait": 6.0, "restart": 12.0})
    twice = Cost(unit="GPU", device="", hours=4.0, by_state={"compute": 4.0})
    jobs = [RecordedJob("resumed", frozenset({"1", "2"}), cost), RecordedJob("beside", frozenset({"2"}), twice)]

    alice, bob = of_rows(rows, jobs, since=3600.0, until=10900.0)

    for one in (alice, bob):
        assert one.held_hours == pytest.approx(one.productive_hours + sum(one.lost_hours.values()) + one.unrecorded_hours)
    assert alice.held_hours == pytest.approx(16.0)
    by_job = {use.scheduler_job: use for use in alice.allocations}
    assert alice.unrecorded_hours == pytest.approx(0.0, abs=1e-9)  # the jobs were recorded for 34 h, in 24 h of allocations
    assert by_job["1"].lost_hours == pytest.approx({"restart": 8.0 * 0.4, "input_wait": 8.0 * 0.2})
    assert bob.unrecorded_hours == bob.held_hours == pytest.approx(900 / 3600)
    assert list(by_job["2"].jobs) == ["beside", "resumed"]
