"""The examples as their headers tell to run them: each shows its fault. For elastic_ddp.py see test_elastic_life.py too."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from helpers import REPOSITORY, answer, records_of, run_watched

EXAMPLES = REPOSITORY / "examples"
TORCHRUN = ("torchrun", "--standalone", "--nproc-per-node", "2")


def script(name: str, *options: str) -> list[str]:
    return [str(EXAMPLES / f"{name}.py"), "--folder", "data", *options]


def goodput(tmp_path: Path, job: str = "job") -> dict[str, Any]:
    done = answer(tmp_path, "goodput", job, "--format", "json")
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))


@pytest.mark.bar
def test_fsdp2_that_saves_each_step_is_told_to_save_less_often_and_goes_on_from_its_checkpoint(tmp_path: Path) -> None:
    command = script("fsdp2", "--fault", "checkpoint_stall", "--steps", "12")
    first = run_watched(tmp_path, *TORCHRUN, *command)
    again = run_watched(tmp_path, *TORCHRUN, *command)
    report = goodput(tmp_path)
    life = report["life"]

    assert (first.returncode, again.returncode) == (0, 0), first.stderr + again.stderr
    assert "steps 13 to 24" in again.stdout
    assert [(attempt["first_step"], attempt["last_step"]) for attempt in life["attempts"]] == [(1, 12), (13, 24)]
    assert life["checkpoints"]["saves"] == 24  # not 48: a checkpoint of two ranks is one
    assert "checkpoint_stall" in [finding["class"] for finding in report["findings"]]


@pytest.mark.bar  # as tests/probe/checkpoints/test_checkpoints.py, with an example
def test_an_asynchronous_checkpoint_is_written_in_the_background_and_a_plain_one_blocks(tmp_path: Path) -> None:
    for fault in ("checkpoint_stall", "none"):
        done = run_watched(tmp_path, "python", *script("async_checkpoints", "--fault", fault, "--steps", "30"), job=fault)
        assert done.returncode == 0, done.stderr
    blocking, background = records_of(tmp_path, "checkpoint_stall").checkpoints, records_of(tmp_path, "none").checkpoints

    assert [save.step for save in blocking] == [save.step for save in background] == [10, 20, 30]
    assert not any(save.asynchronous or save.background_seconds for save in blocking)
    assert all(save.asynchronous and save.background_seconds > 0 for save in background)
    assert min(save.bytes for save in (*blocking, *background)) >= 65536 * 512 * 4
    assert {Path(save.reference).name for save in background} == {"step-000010", "step-000020", "step-000030"}


@pytest.mark.bar  # as tests/probe/test_shards_process.py, with an example
def test_a_corrupt_shard_is_left_out_once_both_ranks_failed_on_it(tmp_path: Path) -> None:
    done = run_watched(tmp_path, *TORCHRUN, *script("streaming_shards", "--fault", "corrupt_shard"))
    report = goodput(tmp_path)
    (suspect,) = [suspect for suspect in report["life"]["suspects"] if suspect["kind"] == "shard"]

    assert done.returncode == 0, done.stderr
    assert "epoch 0: 8 of 8 shards" in done.stdout
    assert "epoch 3: 7 of 8 shards" in done.stdout
    assert Path(suspect["name"]).name == "part-003.tar"
    assert suspect["quarantined"]
    assert "part-003.tar" in " ".join(report["review"])


@pytest.mark.bar
def test_a_healthy_example_shows_no_fault_of_its_own(tmp_path: Path) -> None:
    plain = run_watched(tmp_path, *TORCHRUN, *script("fsdp2", "--steps", "30"), job="plain")
    streaming = run_watched(tmp_path, *TORCHRUN, *script("streaming_shards", "--epochs", "1"), job="streaming")

    assert (plain.returncode, streaming.returncode) == (0, 0)
    assert "checkpoint_stall" not in [finding["class"] for finding in goodput(tmp_path, "plain")["findings"]]
    assert goodput(tmp_path, "streaming").get("review", []) == []


@pytest.mark.bar
def test_a_rank_that_stops_itself_is_named_while_it_hangs_and_the_job_goes_on_afterwards(tmp_path: Path) -> None:
    command = [str(EXAMPLES / "elastic_ddp.py"), "--folder", "data", "--fault", "hang", "--fault-step", "20", "--steps", "40"]
    done = run_watched(tmp_path, *TORCHRUN, *command, TACHOSCOPE_HANG_SECONDS="5")
    report = goodput(tmp_path)

    assert done.returncode == 0, done.stderr
    assert "rank 1 hangs" in done.stderr
    assert report["ledgers"][0]["states"]["hung"] == pytest.approx(2 * 20, abs=2)  # both ranks, for 20 s
    assert "hang" in [finding["class"] for finding in report["findings"]]
    assert [attempt["ended"] for attempt in report["life"]["attempts"]] == ["completed"]


@pytest.mark.bar  # as tests/probe/training/test_collectives.py, with an example
def test_the_exchanges_of_tensor_and_data_groups_are_told_apart(tmp_path: Path) -> None:
    launch = ("torchrun", "--standalone", "--nproc-per-node", "4")
    done = run_watched(tmp_path, *launch, str(EXAMPLES / "tensor_parallel.py"), "--steps", "40")
    assert done.returncode == 0, done.stderr
    told = answer(tmp_path, "analyze", "--job", "job", "--format", "json")
    (finding,) = [one for one in json.loads(told.stdout)["findings"] if one["class"] == "comm_exposed"]
    dimensions = {
        one["signal"].split(":")[0]: one["value"] for one in finding["evidence"] if one["source"] == "collective summaries"
    }

    assert set(dimensions) == {"tp (2 groups of 2)", "dp (2 groups of 2)"}
    assert all(value > 0 for value in dimensions.values())


@pytest.mark.bar
@pytest.mark.parametrize("fault", ["none", "stage_imbalance"])
def test_the_bubble_of_two_stages_is_held_against_the_ideal_one_and_uneven_stages_are_named(tmp_path: Path, fault: str) -> None:
    done = run_watched(tmp_path, *TORCHRUN, str(EXAMPLES / "pipeline.py"), "--fault", fault)
    assert done.returncode == 0, done.stderr
    told = answer(tmp_path, "analyze", "--job", "job", "--format", "json")
    found = {one["class"]: one for one in json.loads(told.stdout)["findings"]}
    evidence = {row["signal"]: row for row in found["pipeline_bubble"]["evidence"]}
    (measured,) = [row for signal, row in evidence.items() if "(p - 1)/(v m)" in signal]

    assert (evidence["stages"]["value"], evidence["micro-batches"]["value"], measured["threshold"]) == (2, 4, 1 / 4)
    assert 0.1 < measured["value"] < 2
    assert [one["ranks"] for slug, one in found.items() if slug == "stage_imbalance"] == ([[1]] if fault != "none" else [])


@pytest.mark.bar
def test_chunks_of_an_interleaved_schedule_count_like_micro_batches(tmp_path: Path) -> None:
    done = run_watched(tmp_path, *TORCHRUN, str(EXAMPLES / "pipeline.py"), "--steps", "20", "--chunks", "2")
    assert done.returncode == 0, done.stderr

    assert {step.backward_calls for step in records_of(tmp_path).steps} == {2 * 4}
