"""Compute threads of the ranks on one host against its cores."""

from making import envelope
from tachoscope_analyzers.advice.threads import advice
from tachoscope_core.records.records import JobStarted


def starts(ranks: int, threads: int, cores: int, hosts: int = 1) -> list[JobStarted]:
    return [
        JobStarted(**envelope(rank, host=f"node-{rank % hosts}"), world_size=ranks, pid=1, cpu_threads=threads, cpu_count=cores)
        for rank in range(ranks)
    ]


def test_more_threads_than_cores_are_cut_to_what_fits() -> None:
    assert advice(starts(4, 8, 16)).text == (
        "OMP_NUM_THREADS=4, unless each rank is pinned to cores of its own: 4 ranks x 8 threads on node-0 share 16 cores, and "
        "floor(16 / 4) = 4 fit"
    )
    assert advice(starts(4, 8, 16)).settings == {"OMP_NUM_THREADS": 4}


def test_threads_that_fit_are_not_the_reason() -> None:
    assert advice(starts(2, 8, 16)).text.startswith("the compute threads fit the cores: find who shares these")
    assert advice(starts(4, 8, 16, hosts=2)).text.startswith("the compute threads fit")


def test_threads_that_are_not_known_or_cannot_be_fewer_are_left_alone() -> None:
    assert advice(starts(4, 0, 0)).text == ""
    assert advice(starts(4, 1, 2)).text == "", "one thread is the least"
