"""The report of dumps: recorded hangs of 16 ranks with injected faults, and the same words for planted ones."""

import json
import os
import re
from pathlib import Path

import pytest

from helpers import command
from recorder_dumps import standing, world
from tachoscope_analyzers.flight_recorder.read import dumps_in, read_all
from tachoscope_analyzers.flight_recorder.report import report
from tachoscope_core.report.report import Report

DATA = Path(os.environ.get("TACHOSCOPE_TEST_DATA") or Path(__file__).parents[4] / "shared" / "data") / "flight_recorder"
RECORDED = sorted(DATA.glob("*/fault_injection.log"))
KINDS = {"GPU_ERROR": "device-stuck", "LOCK_GIL": "host-stuck"}


def of(folder: Path) -> Report:
    paths = dumps_in([str(folder)])
    return report(read_all(paths), paths, folder.name)


@pytest.mark.skipif(not RECORDED, reason=f"no recorded dumps at {DATA} (set TACHOSCOPE_TEST_DATA)")
@pytest.mark.parametrize("log", RECORDED, ids=lambda path: path.parent.name)
def test_recorded_hangs_are_told_with_the_injected_ranks_and_their_kind(log: Path) -> None:
    truth = dict(re.findall(r"Rank (\d+), fault_type: (\w+)", log.read_text()))
    (finding,) = of(log.parent).findings

    assert finding.class_ == "hang" and {str(rank) for rank in finding.ranks} == set(truth)
    told = [re.match(r"rank (\d+), ([a-z -]+):", one.signal) for one in finding.evidence]
    assert {one[1]: one[2] for one in told if one} == {rank: KINDS[fault] for rank, fault in truth.items()}


def test_a_finding_holds_the_operation_its_caller_who_waits_and_for_how_long_at_least(tmp_path: Path) -> None:
    found = of(standing(tmp_path / "job"))
    (finding,) = found.findings

    assert finding.ranks == [2] and finding.severity == "critical"
    assert finding.seconds_per_step == pytest.approx(30.0, abs=0.1)
    (told,) = [one for one in finding.evidence if one.signal.startswith("rank 2")]
    assert "host-stuck: all_reduce 6 of default_pg (8x3), called at train.py:12 step" in told.signal
    assert (told.value, told.unit) == (3, "ranks wait for it there")
    assert sum(found.ledgers[0].states.values()) == pytest.approx(found.ledgers[0].wall_seconds)
    assert {one.class_ for one in found.not_measured} >= {"compute_bound", "input_fetch"}


def test_dumps_in_which_nothing_is_pending_find_nothing_and_call_nothing_healthy(tmp_path: Path) -> None:
    for dump in world(3).values():
        dump.write(tmp_path / "job")
    found = of(tmp_path / "job")

    assert found.findings == [] and found.goodput is None
    assert "hung" not in found.ledgers[0].states
    assert any("no operation" in one.what for one in found.quality)


def test_ranks_without_a_dump_are_told_beside_those_that_are_named(tmp_path: Path) -> None:
    folder = standing(tmp_path / "job")
    (folder / "nccl_trace_rank_3").unlink()
    found = of(folder)

    assert {rank for finding in found.findings for rank in finding.ranks} == {2, 3}
    assert any(one.what == "no dump of rank 3" for one in found.quality)
    assert [(one.severity, one.ranks) for one in found.findings] == [("critical", [2]), ("warning", [3])]


def test_where_most_dumps_are_missing_nobody_is_blamed_for_sure(tmp_path: Path) -> None:
    folder = standing(tmp_path / "job", ranks=6)
    for rank in (0, 2, 3, 4):
        (folder / f"nccl_trace_rank_{rank}").unlink()

    assert {finding.severity for finding in of(folder).findings} == {"warning"}


def test_a_damaged_dump_costs_that_rank_and_not_the_others(tmp_path: Path) -> None:
    folder = standing(tmp_path / "job", ranks=6)
    for rank, content in ((3, b""), (4, (folder / "nccl_trace_rank_4").read_bytes()[:200])):
        (folder / f"nccl_trace_rank_{rank}").write_bytes(content)
    done = command("analyze", folder, "--format", "json")
    told = json.loads(done.stdout)

    assert told["findings"][0]["ranks"] == [2]
    assert sum("nccl_trace_rank_" in note["what"] for note in told["quality"]) == 2
    for path in folder.iterdir():
        path.write_bytes(b"")
    assert "its rank then counts as one without a dump" in command("analyze", folder).stderr


def test_dumps_beside_something_else_are_told_to_stand_alone(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    done = command("analyze", standing(tmp_path / "job"), tmp_path / "other")

    assert done.returncode == 2 and "cannot be combined with other input" in done.stderr


@pytest.mark.parametrize("way", ["text", "json", "html"])
def test_analyze_tells_it_of_a_folder_and_of_files(tmp_path: Path, way: str) -> None:
    folder = standing(tmp_path / "job7")
    files = sorted(map(str, folder.iterdir()))

    for places in ([str(folder)], files):
        done = command("analyze", *places, "--format", way)
        assert done.returncode == 0, done.stderr
        assert "host-stuck" in done.stdout and "job7" in done.stdout
        if way == "json":
            assert json.loads(done.stdout)["findings"][0]["ranks"] == [2]
        else:
            assert "no steps" in done.stdout


def test_a_dump_that_would_run_code_is_one_clear_error(tmp_path: Path) -> None:
    folder = standing(tmp_path / "job")
    (folder / "nccl_trace_rank_1").write_bytes(b"\x80\x02cos\nsystem\nX\x04\x00\x00\x00true\x85R.")
    done = command("analyze", str(folder))

    assert done.returncode == 2 and "nccl_trace_rank_1 was refused" in done.stderr
    assert "Traceback" not in done.stderr
