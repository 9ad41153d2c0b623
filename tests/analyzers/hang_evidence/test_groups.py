"""Processes of a job that hangs are grouped by where they stand, the one that the others wait for first."""

from __future__ import annotations

from typing import Any

import pytest

from tachoscope_analyzers.hang_evidence.groups import groups_of
from tachoscope_analyzers.hang_evidence.report import odd_group, report
from tachoscope_core.errors import TachoscopeError
from tachoscope_core.report.stack_groups import sentence
from tachoscope_core.storage.hang_bundles import FoundHang, HangBundle, ProcessEvidence, ThreadEvidence

LIB = "/usr/lib/python3.11/site-packages"
ALL_REDUCE = [f"{LIB}/torch/distributed/distributed_c10d.py:2810 all_reduce", f"{LIB}/torch/distributed/c10d_logger.py:81 wrapper"]
BACKWARD = [f"{LIB}/torch/autograd/graph.py:824 _engine_run_backward", f"{LIB}/torch/_tensor.py:581 backward"]
TRAIN = ["/home/me/train.py:70 main", "/home/me/train.py:90 <module>"]
SAVE = ["/home/me/save.py:41 write_shard", "/home/me/save.py:20 save"]
WAITS_FOR_WORKER = [
    "/usr/lib/python3.11/selectors.py:415 select",
    "/usr/lib/python3.11/multiprocessing/queues.py:113 get",
    f"{LIB}/torch/utils/data/dataloader.py:1131 _try_get_data",
    f"{LIB}/torch/utils/data/dataloader.py:1294 _get_data",
]
WORKER_LOOP = f"{LIB}/torch/utils/data/_utils/worker.py:349 _worker_loop"
FETCHES = ["/home/me/data.py:12 __getitem__", f"{LIB}/torch/utils/data/_utils/fetch.py:52 fetch", WORKER_LOOP]
IDLES = ["/usr/lib/python3.11/multiprocessing/queues.py:113 get", WORKER_LOOP]


def process(rank: int, frames: list[str], *, state: str = "S", kind: str = "rank", pid: int = 0, **more: Any) -> ProcessEvidence:
    pid = pid or 1000 + rank
    return ProcessEvidence(rank, pid, kind, 5, "forward", [ThreadEvidence(pid, "python", state, frames=frames, **more)])


def bundle(*processes: ProcessEvidence, failed_rank: int = -1, node: str = "one") -> HangBundle:
    return HangBundle(
        job="job",
        attempt=0,
        node=node,
        since=1000.0,
        noticed=1012.0,
        complete=1020.0,
        failed_rank=failed_rank,
        processes=list(processes),
    )


def said(*bundles: HangBundle) -> list[str]:
    return [sentence(group) for group in groups_of(bundles)]


def test_the_rank_that_stands_elsewhere_comes_before_the_many_that_wait() -> None:
    found = said(
        bundle(*(process(rank, [*BACKWARD, *TRAIN]) for rank in range(3))),
        bundle(process(3, [*SAVE, *TRAIN], state="D", wchan="folio_wait_bit_common"), process(4, [*BACKWARD, *TRAIN]), node="two"),
    )

    assert found == [
        "rank 3 stands in save.py:41 write_shard (D folio_wait_bit_common)",
        "ranks 0, 1, 2, 4 wait for other ranks in train.py:70 main",
    ]


def test_a_stopped_rank_comes_first_even_if_it_was_stopped_in_the_collective() -> None:
    first = groups_of([bundle(process(0, [*ALL_REDUCE, *TRAIN]), process(1, [*ALL_REDUCE, *TRAIN], state="T"), failed_rank=0)])[0]

    assert first.ranks == [1] and odd_group([first]) is first


def test_where_all_wait_the_rank_that_was_named_comes_first_and_without_a_name_nobody_is_odd() -> None:
    waiting = [process(0, [*BACKWARD, *TRAIN]), process(1, [*ALL_REDUCE, *TRAIN])]
    named, nobody = groups_of([bundle(*waiting, failed_rank=1)]), groups_of([bundle(*waiting)])

    assert (odd := odd_group(named)) is not None and odd.ranks == [1]
    assert odd_group(nobody) is None
    assert report(FoundHang({"here": bundle(*waiting)})).findings[0].ranks == "all"


def test_two_ranks_that_both_wait_for_nobody_are_told_apart_by_the_rule_of_hangs() -> None:
    found = groups_of([bundle(process(0, TRAIN), process(1, [*SAVE, *TRAIN]), failed_rank=1)])

    assert [group.ranks for group in found] == [[1], [0]]


def test_the_loader_worker_that_makes_a_batch_comes_before_the_rank_that_waits_for_it() -> None:
    found = said(
        bundle(
            process(0, [*BACKWARD, *TRAIN]),
            process(0, IDLES, kind="loader_worker", pid=50),
            process(1, [*WAITS_FOR_WORKER, *TRAIN]),
            process(1, [*FETCHES, *WAITS_FOR_WORKER, *TRAIN], kind="loader_worker", pid=51),
            process(1, [*IDLES, *WAITS_FOR_WORKER, *TRAIN], kind="loader_worker", pid=52),
            failed_rank=1,
        )
    )

    assert found == [
        "loader worker 51 of rank 1 stands in data.py:12 __getitem__ (S)",
        "rank 1 waits for a loader worker in train.py:70 main",
        "rank 0 waits for other ranks in train.py:70 main",
    ]


def test_ranks_whose_stacks_are_not_known_are_not_said_to_stand_at_one_place() -> None:
    found = groups_of([bundle(process(0, []), process(1, []))])

    assert [group.ranks for group in found] == [[0], [1]]
    assert sentence(found[0]) == "rank 0 stands where no Python stack could be read (S)"


UNKNOWN = {
    "one cannot be read, the others wait": [process(0, [*BACKWARD, *TRAIN]), process(1, [])],
    "none can be read": [process(0, []), process(1, [])],
    "all stand at one place, as in loss.item()": [process(rank, TRAIN) for rank in range(4)],
    "two stand at two places": [process(0, TRAIN), process(1, SAVE)],
    "as many stand at one place as at the other": [process(rank, TRAIN if rank % 2 else SAVE) for rank in range(4)],
}


@pytest.mark.parametrize("case", UNKNOWN)
def test_where_the_stacks_do_not_show_which_rank_it_is_none_is_named_but_by_the_rule_of_hangs(case: str) -> None:
    (finding,) = report(FoundHang({"here": bundle(*UNKNOWN[case])})).findings
    (named,) = report(FoundHang({"here": bundle(*UNKNOWN[case], failed_rank=1)})).findings

    assert (finding.ranks, finding.confidence) == ("all", 0.5)
    assert "all ranks wait for each other" not in finding.action
    assert 1 in named.ranks


def test_an_object_that_was_refused_is_named_in_the_report_on_the_others_and_alone_is_an_error() -> None:
    refused = {"b": "b is not the evidence of a hang"}
    made = report(FoundHang({"a": bundle(process(0, TRAIN))}, refused))

    assert [(note.what, note.means) for note in made.quality] == [
        ("evidence of the hang of 1 of 2 nodes could not be used", refused["b"])
    ]
    with pytest.raises(TachoscopeError, match=refused["b"]):
        report(FoundHang(refused=refused))


def test_the_report_names_rank_and_line_says_what_to_do_and_what_could_not_be_had() -> None:
    stopped = bundle(process(0, [*BACKWARD, *TRAIN]), process(1, TRAIN, state="T", wchan="do_signal_stop"))
    lacking = ProcessEvidence(2, 7, missing={"python": "the process may not be traced by this one"})
    made = report(FoundHang({"a": stopped, "b": bundle(lacking, node="two")}))
    (finding,) = made.findings

    assert (finding.class_, finding.severity, finding.ranks) == ("hang", "critical", [1])
    assert finding.where == "train.py:70 main"
    assert "kill -CONT 1001" in finding.action
    assert made.step_seconds.mean == 12.0 and made.ranks == 3
    assert [(note.what, note.means, note.severity) for note in made.quality] == [
        ("python is not available", "the process may not be traced by this one", "limited")
    ]
