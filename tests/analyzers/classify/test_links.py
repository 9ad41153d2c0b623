"""Delays by pair of ranks with planted truth: one link, a sender, a receiver, a network card; and what only looks like one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from msgspec import structs

from making import job, moved
from tachoscope_analyzers.classify.communication.network_places import common_part, part_in, parts_of
from tachoscope_analyzers.job.report import analyze
from tachoscope_analyzers.records.load import from_spool
from tachoscope_core.report.report import Finding, Report

STEPS = 50
COMPUTING = {"forward": 0.020, "backward": 0.030, "optimizer": 0.002}
USUAL = 0.002
EXTRA = 0.012

Pairs = set[tuple[int, int]]
RING = {(rank, (rank + 1) % 4) for rank in range(4)}
ALL = {(a, b) for a in range(4) for b in range(4) if a != b}


def report(
    tmp_path: Path,
    pairs: Pairs,
    slow: Pairs = frozenset(),
    late: int | None = None,
    ranks: int = 4,
    waits: str = "send",
    hosts: dict[int, str] | None = None,
) -> Report:  # type: ignore[assignment]
    """Judge a job whose ranks send each other a message a step over `pairs`, and then wait for each other at a barrier.

    Messages of `slow` pairs take longer. Whoever deals with rank `late` waits for it first, when it sends to it or receives.
    """
    delay = {pair: USUAL + EXTRA * (pair in slow) for pair in pairs}
    busy = {rank: sum(seconds for pair, seconds in delay.items() if rank in pair) for rank in range(ranks)}
    lateness = 0.05
    waiting = max(busy.values()) + (lateness if late is not None else 0.0)
    row = [
        COMPUTING
        | (
            {"forward": COMPUTING["forward"] + lateness, "collective": waiting - lateness}
            if rank == late
            else {"collective": waiting}
        )
        for rank in range(ranks)
    ]
    rows = []
    for seq, ((a, b), seconds) in enumerate(sorted(delay.items())):
        sending = seconds + lateness * (b == late and waits == "send")
        receiving = seconds + lateness * (a == late and waits == "recv")
        # One of the two is always there first, and waits a little.
        rows.append(moved(a, "send", 20_000 + seq, peer=b, step=STEPS, count=STEPS, seconds=STEPS * sending))
        rows.append(moved(b, "recv", 30_000 + seq, peer=a, step=STEPS, count=STEPS, seconds=STEPS * (receiving + 0.003)))
    path = tmp_path / "00000000-0000-4000-8000-000000000000-000000.jsonl"
    path.write_bytes(job([row] * STEPS, collectives=rows))
    read = from_spool([path])
    if hosts is not None:
        read = replace(read, starts=[structs.replace(start, host=hosts[start.rank]) for start in read.starts])
    return analyze(read)


def found(result: Report) -> dict[str, Finding]:
    return {finding.class_: finding for finding in result.findings}


@pytest.mark.parametrize("pairs", [RING, ALL])
def test_one_slow_cell_is_the_link_of_two_ranks(tmp_path: Path, pairs: Pairs) -> None:
    link = found(report(tmp_path, pairs, {(1, 2)}))["slow_link"]

    assert link.ranks == [1, 2]
    assert link.seconds_per_step == pytest.approx(EXTRA, rel=0.02)
    assert "the link of ranks 1 and 2" in " ".join(row.signal for row in link.evidence)


@pytest.mark.parametrize(
    ("slow", "words"),
    [
        ({(2, other) for other in (0, 1, 3)}, "all that rank 2 sends;"),
        ({(other, 2) for other in (0, 1, 3)}, "all that rank 2 receives;"),
        ({pair for pair in ALL if 2 in pair and 0 not in pair}, "all that rank 2 sends and receives;"),
    ],
)
def test_a_row_is_a_sender_a_column_a_receiver_and_both_a_card(tmp_path: Path, slow: Pairs, words: str) -> None:
    link = found(report(tmp_path, ALL, slow))["slow_link"]

    assert link.ranks == [2]
    assert any(row.signal.startswith(words) for row in link.evidence)


def test_links_that_are_all_alike_are_measured_and_well(tmp_path: Path) -> None:
    result = report(tmp_path, ALL)

    assert "slow_link" not in found(result)
    assert "slow_link" not in {row.class_ for row in result.not_measured}
    assert found(result)["comm_exposed"].ranks == "all"


@pytest.mark.parametrize("waits", ["send", "recv"])
def test_a_late_rank_for_which_others_wait_is_no_slow_link(tmp_path: Path, waits: str) -> None:
    result = report(tmp_path, ALL, late=3, waits=waits)

    assert "slow_link" not in found(result)
    assert found(result)["compute_straggler"].ranks == [3]


def test_with_two_ranks_no_link_can_be_held_against_another(tmp_path: Path) -> None:
    result = report(tmp_path, {(0, 1), (1, 0)}, {(0, 1)}, ranks=2)

    assert "slow_link" not in found(result)
    assert "slow_link" in {row.class_ for row in result.not_measured}


def test_without_summaries_by_pair_links_are_not_measured(tmp_path: Path) -> None:
    assert "slow_link" in {row.class_ for row in report(tmp_path, set(), late=1).not_measured}


def test_a_transfer_that_senders_do_not_see_for_the_systems_buffers_is_found_between_the_pair(tmp_path: Path) -> None:
    """Two ranks exchange in each step, the first sends and then receives; on the slow link the receivers wait for the transfer."""
    rows = []
    for seq, (a, b) in enumerate(sorted(pair for pair in ALL if pair[0] < pair[1])):
        moving = USUAL + 0.03 * ((a, b) == (0, 2))
        for rank, peer, receiving in ((a, b, 2 * moving), (b, a, moving)):
            rows.append(moved(rank, "send", 20_000 + seq, peer=peer, step=STEPS, count=STEPS // 3, seconds=STEPS / 3 * 1e-4))
            rows.append(moved(rank, "recv", 30_000 + seq, peer=peer, step=STEPS, count=STEPS // 3, seconds=STEPS / 3 * receiving))
    steps = [[COMPUTING | {"collective": 2 * USUAL + 0.06 * (number % 3 == 0)}] * 4 for number in range(STEPS)]
    path = tmp_path / "00000000-0000-4000-8000-000000000000-000000.jsonl"
    path.write_bytes(job(steps, collectives=rows))

    link = found(analyze(from_spool([path])))["slow_link"]
    assert link.ranks == [0, 2]
    assert link.seconds_per_step == pytest.approx(0.06 / 3, rel=0.1)


def test_noise_in_one_direction_does_not_hide_a_slow_pair(tmp_path: Path) -> None:
    """What one side of a short message sees is noise: a multiple of next to nothing, on links that are all well."""
    rows = []
    for seq, (a, b) in enumerate(sorted(pair for pair in ALL if pair[0] < pair[1])):
        moving = USUAL + 0.03 * ((a, b) == (0, 1))
        for rank, peer, sending in ((a, b, 1e-3), (b, a, 2e-4)):
            rows.append(moved(rank, "send", 20_000 + seq, peer=peer, step=STEPS, count=STEPS // 3, seconds=STEPS / 3 * sending))
            rows.append(moved(rank, "recv", 30_000 + seq, peer=peer, step=STEPS, count=STEPS // 3, seconds=STEPS / 3 * 2 * moving))
    steps = [[COMPUTING | {"collective": 2 * USUAL + 0.06 * (number % 3 == 0)}] * 4 for number in range(STEPS)]
    path = tmp_path / "00000000-0000-4000-8000-000000000000-000000.jsonl"
    path.write_bytes(job(steps, collectives=rows))

    assert found(analyze(from_spool([path])))["slow_link"].ranks == [0, 1]


# --- where in the network -----------------------------------------------------------------------------------------------------

TREE = {rank: (f"switch leaf-{rank // 4}", f"host node-{rank // 2}") for rank in range(8)}
"""Two leaf switches below a spine without a name, two hosts below each, two ranks on each host."""
LINKS = {frozenset((a, b)) for a in range(8) for b in range(a)}


@pytest.mark.parametrize(
    ("part", "count"), [("switch leaf-1", 20), ("host node-1", 12), ("inside of host node-2", 1)], ids=["switch", "host", "NVLink"]
)
def test_the_part_that_all_slow_links_pass_is_named(part: str, count: int) -> None:
    spine = {rank: ("switch spine", *place) for rank, place in TREE.items()}
    slow = {link for link in LINKS if part in parts_of(link, spine)}

    assert common_part(slow, LINKS - slow, spine) == (part, count)


def test_slow_links_without_such_a_part_name_none() -> None:
    scattered = {frozenset((0, 4)), frozenset((1, 5))}

    assert common_part(scattered, LINKS - scattered, TREE) is None
    assert common_part(LINKS, set(), TREE) is None


def test_a_report_names_the_host_of_the_slow_links(tmp_path: Path) -> None:
    slow = {pair for pair in ALL if 2 in pair}
    hosts = {rank: f"gpu-{rank}" for rank in range(4)}

    link = found(report(tmp_path, ALL, slow, hosts=hosts))["slow_link"]

    assert any("through host gpu-2, all slow" in row.signal for row in link.evidence)
    assert [part for row in link.evidence if (part := part_in(row))] == ["host gpu-2"]
