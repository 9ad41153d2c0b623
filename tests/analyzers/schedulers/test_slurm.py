import json
import time
from datetime import datetime
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tachoscope_analyzers import schedulers
from tachoscope_analyzers.schedulers.common.allocation import Allocation, gang_wait_seconds, queued_seconds, running_seconds
from tachoscope_analyzers.schedulers.slurm import allocations as slurm
from tachoscope_analyzers.schedulers.slurm import node_lists as slurm_nodes
from tachoscope_analyzers.schedulers.slurm import sacct_table
from tachoscope_core.errors import TachoscopeError

DOCUMENTS = Path(__file__).parent / "documents"
EIGHT = datetime(2026, 5, 4, 8, tzinfo=ZoneInfo("UTC")).timestamp()
"""When the jobs of the documents were submitted."""


def read(name: str) -> dict[tuple[str, int], Allocation]:
    return {(one.name, one.attempt): one for one in schedulers.read([DOCUMENTS / name])}


@pytest.fixture
def berlin(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def test_a_requeued_job_is_two_allocations_and_queues_again_from_the_requeue() -> None:
    found = read("sacct_21_08.json")

    first, second = found["4711", 0], found["4711", 1]
    assert (first.state, second.state) == ("preempted", "completed")
    assert (queued_seconds(first), running_seconds(first)) == (300, 3700)
    assert second.submitted == first.ended
    assert (queued_seconds(second), running_seconds(second)) == (1000, 4000)
    assert second.eligible == EIGHT + 4120
    assert second.nodes == ("gpu001", "gpu007")


def test_numbers_that_say_whether_they_are_set_are_read_as_plain_ones_are() -> None:
    found = read("sacct_24_05.json")

    failed, running = found["5001", 0], found["5001", 1]
    assert (failed.state, failed.reason) == ("node_failed", "NODE_FAIL; failed node gpu002")
    assert (failed.accelerators, failed.device) == (16, "h100")
    assert (running.state, running.ended) == ("running", None)
    assert queued_seconds(running) == 200


def test_components_of_a_heterogeneous_job_are_one_allocation() -> None:
    found = read("sacct_24_05.json")

    whole = found["5010", 0]
    assert whole.nodes == ("gpu004", "cpu01", "cpu02")
    assert (whole.accelerators, whole.device) == (8, "h100")
    assert (whole.state, running_seconds(whole)) == ("timeout", 1000)
    assert not any(name.startswith("5011") for name, _ in found)


def test_a_job_in_the_queue_has_no_start_and_waits_for_what_it_asked_for() -> None:
    waits = read("sacct_24_05.json")["5020", 0]

    assert (waits.state, waits.reason) == ("pending", "PENDING; Resources")
    assert (waits.placed, waits.started, waits.ended, waits.nodes) == (None, None, None, ())
    assert waits.accelerators == 32
    assert queued_seconds(waits) is None
    assert queued_seconds(waits, now=EIGHT + 60) == 10


def test_a_job_cancelled_in_the_queue_never_held_its_nodes() -> None:
    gone = read("sacct_24_05.json")["5021", 0]

    assert (gone.state, gone.reason) == ("cancelled", "CANCELLED by ada")
    assert gone.started is None
    assert (queued_seconds(gone), gang_wait_seconds(gone), running_seconds(gone)) == (30, 0, 0)


def test_the_table_of_a_machine_elsewhere_tells_the_same_as_the_json(berlin: None) -> None:
    table = read("sacct.txt")
    told = {**read("sacct_21_08.json"), **{key: one for key, one in read("sacct_24_05.json").items() if key[0] != "5001"}}

    for key, one in told.items():
        other = table[key]
        for field in ("submitted", "eligible", "placed", "started", "ended", "nodes", "accelerators", "device", "state"):
            assert getattr(other, field) == getattr(one, field), (key, field)
    assert table["5021", 0].reason == "CANCELLED by 1000"
    assert (table["5030", 0].state, table["5030", 0].reason) == ("failed", "OUT_OF_MEMORY; signal 125")


def test_both_outputs_of_a_real_slurm_report_the_same() -> None:
    by_json, by_table = read("sacct_22_05.json"), read("sacct_22_05.txt")

    assert {(*key, one.state) for key, one in by_json.items()} == {
        ("4", 0, "failed"), ("5", 0, "timeout"), ("6", 0, "cancelled"), ("6", 1, "completed"), ("7", 0, "cancelled"),
        ("8", 0, "failed"), ("9_1", 0, "completed"), ("9_2", 0, "completed"), ("10", 0, "completed"), ("16", 0, "failed"),
    }  # fmt: skip
    assert by_table.keys() == by_json.keys()
    for key, one in by_json.items():
        for field in ("submitted", "eligible", "placed", "started", "ended", "nodes", "accelerators", "device", "state"):
            assert getattr(by_table[key], field) == getattr(one, field), (key, field)
    assert queued_seconds(by_json["6", 1]) == 148
    # Slurm 22.05 writes exit code 0 into the JSON of a job that failed; the table has the code.
    assert (by_json["4", 0].reason, by_table["4", 0].reason) == ("FAILED", "FAILED; exit code 3")
    assert by_json["6", 1].reason == by_table["6", 1].reason == "COMPLETED; waited for BeginTime"


@pytest.mark.parametrize("delimiter", ["|", ";", "\t", ",", "^^"])
def test_a_table_may_have_another_delimiter_and_one_at_the_end_of_each_line(delimiter: str) -> None:
    lines = [["JobID", "Submit", "Start", "End", "State"], ["7", "", "1010", "1020", "COMPLETED"]]
    text = "".join(delimiter.join(line) + "\n" for line in lines)

    for content in text, text.replace("\n", delimiter + "\n"):
        (found,) = schedulers.read_texts([("sacct", content)])
        assert (found.name, found.submitted, found.started, found.ended) == ("7", None, 1010, 1020)


def test_steps_of_a_job_are_not_allocations(berlin: None) -> None:
    assert len(read("sacct.txt")) == 7


def test_times_in_unix_seconds_need_no_zone() -> None:
    table = "JobID|Submit|Start|End|State\n7|1777881600|1777881610|Unknown|RUNNING\n"

    (job,) = schedulers.read_texts([("sacct", table)])

    assert (job.submitted, job.started, job.eligible) == (EIGHT, EIGHT + 10, None)


def test_a_time_with_its_offset_is_not_moved_by_the_zone_of_the_reader(berlin: None) -> None:
    table = "JobID|Submit|Start|End|State\n7|2026-05-04T08:00:00+0000|Unknown|Unknown|PENDING\n"

    (row,) = sacct_table.rows(table, "sacct")

    assert row.submitted == EIGHT


def test_an_older_output_of_the_same_job_gives_way_to_the_newer() -> None:
    older = "JobID|Submit|Start|End|State|NodeList\n7|1000|Unknown|Unknown|PENDING|None assigned\n"
    running = older + "7|1000|1010|Unknown|RUNNING|n1\n"
    newer = "JobID|Submit|Start|End|State|NodeList\n7|1000|1010|1020|COMPLETED|n1\n"

    assert schedulers.read_texts([("a", older), ("b", newer), ("c", running)]) == schedulers.read_texts([("b", newer)])


def test_without_its_earlier_allocations_a_requeued_job_keeps_its_attempt() -> None:
    table = "JobID|Submit|Start|End|State|Restarts\n7|1000|1010|1020|COMPLETED|3\n"

    (job,) = schedulers.read_texts([("sacct", table)])

    assert job.attempt == 3


def test_nodes_that_boot_are_held_but_the_job_does_not_run_yet() -> None:
    document = json.loads((DOCUMENTS / "sacct_24_05.json").read_text())
    document["jobs"] = [{**document["jobs"][1], "state": {"current": ["RUNNING", "CONFIGURING"], "reason": "None"}}]

    (job,) = schedulers.read_texts([("sacct", json.dumps(document))])

    assert (job.state, job.placed, job.started) == ("pending", EIGHT + 7400, None)
    assert gang_wait_seconds(job, now=EIGHT + 7500) == 100


@pytest.mark.parametrize(
    ("words", "state"),
    [
        ("CANCELLED by 1000", "cancelled"),
        ("CANCELLED+", "cancelled"),
        ("NODE_FAIL", "node_failed"),
        ("BOOT_FAIL", "node_failed"),
        ("OUT_OF_MEMORY", "failed"),
        ("DEADLINE", "timeout"),
        ("REQUEUED", "cancelled"),
        ("SOMETHING_NEW", "unknown"),
    ],
)
def test_states_of_slurm_become_the_common_ones(words: str, state: str) -> None:
    (job,) = schedulers.read_texts([("sacct", f"JobID|Submit|Start|End|State\n7|1000|1010|1020|{words}\n")])

    assert (job.state, job.reason) == (state, words)


@pytest.mark.parametrize(
    ("text", "nodes"),
    [
        ("gpu[001-003,007]", ("gpu001", "gpu002", "gpu003", "gpu007")),
        ("a1,b[9-11]-ib,c", ("a1", "b9-ib", "b10-ib", "b11-ib", "c")),
        ("r[1-2]n[01-02]", ("r1n01", "r1n02", "r2n01", "r2n02")),
        ("None assigned", ()),
        ("", ()),
    ],
)
def test_node_lists_are_expanded(text: str, nodes: tuple[str, ...]) -> None:
    assert slurm_nodes.expand(text) == nodes


@given(st.lists(st.integers(0, 999), min_size=1, unique=True))
def test_a_list_of_single_nodes_is_these_nodes(numbers: list[int]) -> None:
    assert slurm_nodes.expand(f"n[{','.join(f'{number:03}' for number in numbers)}]") == tuple(
        f"n{number:03}" for number in numbers
    )


@pytest.mark.parametrize("text", ["n[1-999999999]", "n[a-b]", "n[1-99999]m[1-99999]", "n[]"])
def test_a_damaged_node_list_is_refused_with_its_job(text: str) -> None:
    with pytest.raises(TachoscopeError, match="job 7: node list"):
        schedulers.read_texts([("sacct", f"JobID|Submit|Start|End|State|NodeList\n7|1000|1010|1020|COMPLETED|{text}\n")])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("JobID|State\n7|RUNNING\n", "no column end, start, submit"),
        ("JobID|Submit|Start|End\n7|1|2|3\n", "no column state"),
        ("JobID|Submit|Start|End|State\n7|a|b|1|2|RUNNING\n", "sacct:2: 6 fields where the first line names 5"),
        ("JobID|Submit|Start|End|State\n7|Ystday 12:00|1|2|RUNNING\n", "sacct:2: submit is 'Ystday 12:00'.*SLURM_TIME_FORMAT"),
        ("JobID|Submit|Start|End|State\n12345+|1|1|2|RUNNING\n", "sacct:2: job id '12345\\+'"),
        ('{"jobs": [{"job_id": 7, "job_state": ["RUNNING"]}]}', r"sacct: jobs\[0\] has no time.submission: it is not a job"),
    ],
)
def test_an_output_that_cannot_be_read_says_where_and_what_to_do(content: str, message: str) -> None:
    with pytest.raises(TachoscopeError, match=message):
        schedulers.read_texts([("sacct", content)])


def test_gpus_are_counted_once_whether_their_kind_is_tracked_or_not() -> None:
    assert slurm.gpus({"gres/gpu": 8, "gres/gpu:h100": 8, "cpu": 64}) == (8, "h100")
    assert slurm.gpus({"gres/gpu:a100": 4, "gres/gpu:h100": 8}) == (12, "a100,h100")
    assert slurm.gpus({"cpu": 64}) == (0, "")


MOMENTS = st.lists(st.integers(1_000, 10_000), min_size=3, max_size=3).map(sorted)


@given(MOMENTS, st.booleans())
def test_queue_wait_for_the_gang_and_running_sum_to_the_time_from_submission_to_end(moments: list[int], starts: bool) -> None:
    submit, start, end = moments
    table = f"JobID|Submit|Start|End|State\n7|{submit}|{start if starts else 'Unknown'}|{end}|CANCELLED\n"

    (job,) = schedulers.read_texts([("sacct", table)])

    parts = (queued_seconds(job), gang_wait_seconds(job), running_seconds(job))
    assert None not in parts
    assert sum(part for part in parts if part is not None) == end - submit
