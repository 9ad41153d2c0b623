"""Who is late and where: device, host or cores, for how long, and what it costs all the others."""

import numpy as np
import pytest

from tachoscope_analyzers.advice import drain
from tachoscope_analyzers.advice.drain import LateRanks, RankPlacement, rank_hours_an_hour, windows_with_the_loss

FOUR_HOSTS = {rank: RankPlacement(f"node-{rank // 2}", rank % 2, f"GPU-{rank}") for rank in range(8)}


def late(ranks: list[int], places: dict[int, RankPlacement], **changes: object) -> LateRanks:
    return LateRanks(ranks, len(places), places, **{"lost": 0.08, "step": 0.18, "late_windows": 9, "windows": 10, **changes})  # type: ignore[arg-type]


def test_one_rank_is_named_with_host_and_device_and_what_it_costs() -> None:
    assert drain.advice(late([3], FOUR_HOSTS)) == (
        "rank 3 (host node-1, local rank 1, GPU GPU-3): late in 9 of 10 parts of the run, costs 8 ranks x 80 ms / 180 ms = 3.6 "
        "rank-hours an hour. Swap its device with one on node-0: if the same device is late again, drain it; if the "
        "rank is, look at its work"
    )


def test_all_ranks_of_one_host_are_that_host() -> None:
    words = drain.advice(late([4, 5], FOUR_HOSTS))

    assert words.startswith("ranks 4, 5, all of node-2: ")
    assert "Start the job without" in words


def test_a_rank_without_a_device_is_swapped_between_hosts_or_pinned_to_other_cores() -> None:
    places = {rank: RankPlacement(f"node-{rank}", 0) for rank in range(2)}
    alone = {rank: RankPlacement("node-0", rank) for rank in range(2)}

    assert "Swap it with a rank on node-0: if the same host is late again, drain it" in drain.advice(late([1], places))
    assert "drain" not in drain.advice(late([1], alone))
    assert "Pin it to other cores" in drain.advice(late([1], alone))


def test_a_rank_whose_place_is_not_known_gives_no_advice() -> None:
    assert drain.advice(late([9], FOUR_HOSTS)) == ""
    assert drain.advice(late([], FOUR_HOSTS)) == ""


def test_the_cost_is_what_all_ranks_lose() -> None:
    assert rank_hours_an_hour(late([3], FOUR_HOSTS, lost=0.09)) == pytest.approx(8 * 0.5)


@pytest.mark.parametrize(("share", "expected"), [(1.0, 10), (0.5, 5), (0.0, 0)])
def test_parts_of_the_run_in_which_a_rank_is_late_are_counted(share: float, expected: int) -> None:
    step = np.full(100, 0.1)
    lost = np.where(np.arange(100) < 100 * share, 0.03, 0.001)

    assert windows_with_the_loss(lost, step) == (expected, 10)


def test_a_short_run_has_fewer_parts() -> None:
    assert windows_with_the_loss(np.full(7, 0.03), np.full(7, 0.1)) == (2, 2)
    assert windows_with_the_loss(np.full(1, 0.03), np.full(1, 0.1)) == (1, 1)


def test_the_words_stay_short() -> None:
    device = "GPU-5e1f2a3b-1c2d-4e5f-8a9b-0123456789ab"
    places = {rank: RankPlacement(f"gpu-node-{rank // 8:04}.cluster.example", rank % 8, device) for rank in range(1024)}

    assert len(drain.advice(late([777], places))) <= 340
