"""`tachoscope analyze` on profiler traces, as its user sees it."""

import gzip
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from helpers import command
from planting import Planted
from planting_ranks import Group, PlantedJob
from processes import wait_for
from recorded import recorded
from tachoscope_analyzers.trace.reading.read import read

MS = 1_000_000


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TACHOSCOPE_CACHE", str(tmp_path / "cache"))


def analyze(*words: object) -> subprocess.CompletedProcess[str]:
    return command("trace", *words)


def report(*words: object) -> dict[str, Any]:
    done = analyze(*words, "--format", "json")
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    for ledger in found["ledgers"]:
        assert sum(ledger["states"].values()) == pytest.approx(ledger["wall_seconds"], rel=0.01)
    return found


def starved(folder: Path, name: str = "starved.json", *, load: int = 5 * MS, rank: int | None = 0) -> Path:
    """Ten steps that load for 5 ms, then compute for 10 ms on the device."""
    planted, now = Planted(rank=rank), 1_000 * MS
    for number in range(10):
        planted.step(number, now, load + 10 * MS)
        planted.annotation("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", now, load)
        planted.op("aten::mm", now + load, MS)
        planted.kernel(
            "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64",
            now + load + 10_000,
            10 * MS - 10_000,
            launched=now + load + 1_000,
        )
        now += load + 10 * MS
    return planted.write(folder / name)


def test_a_loader_in_the_training_process_is_named_with_its_share_and_a_replayed_speedup(tmp_path: Path) -> None:
    found = report(starved(tmp_path))

    first = found["findings"][0]
    assert first["class"] == "input_workers"
    assert first["share"] == pytest.approx(1 / 3, abs=0.01)
    assert first["speedup_if_fixed"] == pytest.approx(1.5, abs=0.02)
    assert any("_SingleProcessDataLoaderIter" in row["signal"] for row in first["evidence"])


def test_the_real_trace_without_workers_starves_and_that_with_four_does_not() -> None:
    without, with_four = (report(recorded(f"kineto/resnet50_nw{number}_a.pt.trace"), "--no-replay") for number in (0, 4))

    assert without["findings"][0]["class"].startswith("input_")
    assert without["findings"][0]["share"] == pytest.approx(0.334, abs=0.01)
    share = with_four["ledgers"][0]["states"].get("data_wait", 0.0) / with_four["ledgers"][0]["wall_seconds"]
    assert share < 0.02
    assert not [row for row in with_four["findings"] if row["class"].startswith("input_")]


def test_all_eight_ranks_of_a_job_are_read_and_the_late_one_is_named() -> None:
    found = report(recorded("dlrm8/rank-0").parent, "--no-replay")

    assert found["ranks"] == 8
    late = [row for row in found["findings"] if row["class"] == "compute_straggler"]
    assert [row["ranks"] for row in late] == [[7]]
    assert any("shortest" in row["signal"] for row in late[0]["evidence"])


def test_one_step_is_too_few_to_warn_and_the_data_quality_says_so() -> None:
    found = report(recorded("tracelens/vllm_decode_full"), "--no-replay")

    assert found["quality"]
    assert {row["severity"] for row in found["findings"]} <= {"info"}


def test_a_cut_file_gives_what_is_whole_and_a_warning_that_comes_first(tmp_path: Path) -> None:
    path = starved(tmp_path)
    path.write_bytes(path.read_bytes()[:-900])

    done = analyze(path)

    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    head = next(index for index, line in enumerate(lines) if line.startswith("job "))
    assert "cut file" in lines[head + 1]
    assert "input_workers" in done.stdout


def test_tables_are_written_as_parquet_and_csv_with_the_same_rows(tmp_path: Path) -> None:
    done = analyze(starved(tmp_path), "--tables", tmp_path / "tables")

    assert done.returncode == 0, done.stderr
    names = {path.name for path in (tmp_path / "tables" / "rank-0").iterdir()}
    assert {"steps.csv", "steps.parquet", "kernels.csv", "idle_gaps.csv", "critical_path.csv", "roofline.csv"} <= names
    frame = pd.read_parquet(tmp_path / "tables" / "rank-0" / "steps.parquet")
    assert len(frame) == len(pd.read_csv(tmp_path / "tables" / "rank-0" / "steps.csv")) == 10
    assert (frame["data_wait_ns"] > 4 * MS).all()


def test_perfetto_gets_the_trace_back_with_further_tracks(tmp_path: Path) -> None:
    path = starved(tmp_path)

    done = analyze(path, "--perfetto", tmp_path / "out.json.gz")

    assert done.returncode == 0, done.stderr
    written = json.loads(gzip.decompress((tmp_path / "out.json.gz").read_bytes()))
    names = [event["args"]["name"] for event in written["traceEvents"] if event.get("name") == "thread_name"]
    for track in ("ledger", "findings", "critical path"):
        assert any(name.startswith(f"tachoscope: {track}") for name in names), names
    assert len(read(tmp_path / "out.json.gz").events) > len(read(path).events)


def test_a_baseline_shows_what_became_slower(tmp_path: Path) -> None:
    before, after = starved(tmp_path, "before.json"), starved(tmp_path, "after.json", load=8 * MS)

    found = report(after, "--baseline", before, "--no-replay")
    done = analyze(after, "--baseline", before, "--no-replay")

    by_state = {row["name"]: row["seconds"] - row["baseline_seconds"] for row in found["changes"] if row["kind"] == "state"}
    assert by_state["data_wait"] == pytest.approx(0.003, abs=1e-5)
    assert "against before" in done.stdout
    assert "+3.0 ms" in done.stdout


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("a.json", b'{"hello": 1}', "is not a trace"),
        ("a.json.gz", b"\x1f\x8b\x08\x00 broken", "damaged"),
        ("a.json", b"[]", "contain no event"),
        ("a.nsys-rep", b"", "nsys export"),
    ],
)
def test_what_is_no_trace_is_one_line_that_says_what_to_do(tmp_path: Path, name: str, content: bytes, words: str) -> None:
    (tmp_path / name).write_bytes(content)

    done = analyze(tmp_path / name)

    assert done.returncode == 2
    assert len(done.stderr.splitlines()) <= 2
    assert words in done.stderr
    assert Path(name).stem.partition(".")[0] in done.stderr


def test_only_profiler_traces_are_accepted(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"kind":"StepDone"}\n')

    without, other = analyze("--tables", tmp_path / "x"), analyze(tmp_path / "a.jsonl", "--tables", tmp_path / "x")

    assert without.returncode == other.returncode == 2
    assert "Missing argument" in without.stderr
    assert "is not a profiler trace but" in other.stderr


def test_what_is_written_beside_the_report_says_where_it_is(tmp_path: Path) -> None:
    done = analyze(starved(tmp_path), "--tables", tmp_path / "tables", "--perfetto", tmp_path / "out.json", "--no-replay")

    assert f"tables written to {tmp_path / 'tables'}" in done.stderr
    assert f"trace written to {tmp_path / 'out.json'}" in done.stderr


def test_a_perfetto_file_that_cannot_be_written_does_not_take_the_report_with_it(tmp_path: Path) -> None:
    done = analyze(starved(tmp_path), "--perfetto", tmp_path / "no" / "out.json", "--no-replay")

    assert done.returncode == 2
    assert "input_workers" in done.stdout
    assert "could not write" in done.stderr


def test_a_device_without_a_number_is_called_the_device(tmp_path: Path) -> None:
    planted = Planted()
    planted.step(0, 0, 10 * MS)
    planted.add("kernel", "gemm", MS, 2 * MS, pid="device", tid="stream")
    path = planted.write(tmp_path / "t.json")

    analyze(path, "--perfetto", tmp_path / "out.json", "--no-replay")

    events = json.loads((tmp_path / "out.json").read_text())["traceEvents"]
    names = {event["args"]["name"] for event in events if event.get("name") == "thread_name"}
    assert "tachoscope: ledger device" in names


def test_a_share_of_the_steps_is_told_in_digits_that_people_read(tmp_path: Path) -> None:
    planted = Planted()
    planted.step(0, 0, 10_000 * MS)
    planted.kernel("gemm", MS, 10_000, launched=MS // 2)

    done = analyze(planted.write(tmp_path / "t.json"), "--no-replay")

    assert "device seen for a part: less than 0.1 %" in done.stdout


def test_tables_that_cannot_be_written_are_refused_before_the_work(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    done = analyze(starved(tmp_path), "--tables", tmp_path / "file" / "tables")

    assert done.returncode == 2
    assert f"could not write tables to {tmp_path / 'file' / 'tables'}" in done.stderr


def test_without_replay_it_is_said_that_the_loss_was_subtracted(tmp_path: Path) -> None:
    path = starved(tmp_path)

    assert "subtracts the loss" not in analyze(path).stdout
    assert "subtracts the loss" in analyze(path, "--no-replay").stdout


def test_a_trace_does_not_differ_from_itself(tmp_path: Path) -> None:
    path = starved(tmp_path)

    assert f"no difference from {path.stem}" in analyze(path, "--baseline", path, "--no-replay").stdout


def test_a_comparison_has_the_states_of_the_ledger_and_says_that_ranks_are_fewer(tmp_path: Path) -> None:
    (tmp_path / "job").mkdir()
    PlantedJob(3, [Group("0", range(3), "default_pg")], late={2: 3 * MS}, jitter=0).write(tmp_path / "job")

    found = report(tmp_path / "job", "--baseline", starved(tmp_path), "--no-replay")

    ledger = found["ledgers"][0]
    waited = [row["seconds"] for row in found["changes"] if row["name"] == "straggler_wait"]
    assert waited == [pytest.approx(ledger["states"]["straggler_wait"] / ledger["wall_seconds"] * found["step_seconds"]["mean"])]
    notes = [row["means"] for row in found["quality"] if row["what"] == "comparison"]
    assert any("1 rank in the baseline, 3 in the other" in note for note in notes)


def test_a_file_of_a_folder_that_is_no_trace_is_named_and_left_out(tmp_path: Path) -> None:
    starved(tmp_path)
    (tmp_path / "config.json").write_text('{"lr": 0.1}')

    done = analyze(tmp_path, "--no-replay")

    assert done.returncode == 0, done.stderr
    assert any("config.json is not a trace" in line and "left out" in line for line in done.stdout.splitlines())


@pytest.mark.parametrize("rank", [True, False], ids=["a rank is told", "none is"])
@pytest.mark.bar(but=("none is",))
def test_cycles_of_one_process_are_not_taken_for_ranks(rank: bool, tmp_path: Path) -> None:
    for number in range(2):
        planted = Planted(rank=0 if rank else None)
        planted.step(number, 100 * MS * number, 10 * MS)
        planted.op("aten::mm", 100 * MS * number, 5 * MS)
        planted.write(tmp_path / f"host_7.{1795294403569820298 + number}.pt.trace.json")

    done = analyze(tmp_path)

    assert done.returncode == 2
    assert "recordings of the same process" in done.stderr
    assert "repeat=1" in done.stderr


def test_traces_of_several_processes_are_taken_for_ranks_when_they_do_not_tell_theirs(tmp_path: Path) -> None:
    for number in range(2):
        starved(tmp_path, f"host_{number}.1795294403569820298.pt.trace.json", rank=None)

    assert report(tmp_path, "--no-replay")["ranks"] == 2


def is_reading(pid: int) -> bool:
    """Return whether a process is in read(2), by its number on x86-64 or on aarch64."""
    return Path(f"/proc/{pid}/syscall").read_text().split()[0] in {"0", "63"}


def test_an_interrupt_is_one_word(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")  # which nobody writes into
    command = [sys.executable, "-m", "tachoscope_cli.main", "analyze", str(tmp_path / "pipe")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        writer = wait_for(lambda: os.open(tmp_path / "pipe", os.O_WRONLY | os.O_NONBLOCK), 120)  # refused until somebody reads
        wait_for(lambda: is_reading(process.pid), 120)  # a signal just before that would be seen only afterwards
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=60)
        os.close(writer)

    assert (process.returncode, said) == (130, "tachoscope: interrupted\n")
