"""Heartbeats as columns say what the records that they were made of say."""

from __future__ import annotations

from collections import Counter

import msgspec
import pytest

from tachoscope_analyzers.records.beat_table import MOST_SIGNALS, Heartbeats
from tachoscope_core.records.records import Heartbeat

WRITERS = ("b", "a")
BEATS = [
    Heartbeat(
        job="planted",
        attempt=0,
        writer=writer,
        seq=seq,
        rank=rank,
        local_rank=0,
        host="node-1",
        time=1.7e9 + seq,
        monotonic_ns=seq * 10**9,
        step=seq,
        window_seconds=0.1 * seq,
        signals={"ticks": 0.1 * seq, **({"workers": 2.0} if seq == 3 else {})},
        wait_samples={"forward": {"sleep": seq % 2 + 1}},
    )
    for rank, writer in enumerate(WRITERS)
    for seq in range(1, 30)
]


def test_records_become_columns_and_records_again() -> None:
    beats = Heartbeats.of(BEATS)

    assert [*beats] == BEATS
    assert [*Heartbeats.joined([beats[:7], beats[7:]])] == BEATS


def test_each_is_kept_once_in_order_and_of_two_the_one_that_was_read_last() -> None:
    later = msgspec.structs.replace(BEATS[4], step=99)

    beats, repeated = Heartbeats.joined([Heartbeats.of(BEATS), Heartbeats.of([later])]).once()

    assert repeated == 1
    assert [*beats] == sorted([later, *(one for one in BEATS if one != BEATS[4])], key=lambda one: (one.writer, one.seq))


@pytest.mark.parametrize("writer", WRITERS)
def test_sums_of_a_process_are_those_of_its_records_to_the_last_digit(writer: str) -> None:
    own = [one for one in BEATS if one.writer == writer]
    beats = Heartbeats.of(BEATS).by_writer()[writer]

    assert beats.total("ticks") == sum(one.signals["ticks"] for one in own)
    assert beats.window_total == sum(one.window_seconds for one in own)
    assert beats.totals() == {"ticks": beats.total("ticks"), "workers": 2.0}
    assert beats.samples("wait_samples", "forward") == sum((Counter(one.wait_samples["forward"]) for one in own), Counter())
    assert (beats.most("workers"), beats.most("unknown"), beats.has("workers").sum()) == (2.0, 0.0, 1)


def test_a_flood_of_names_of_signals_costs_none_that_most_heartbeats_have() -> None:
    flood = [
        msgspec.structs.replace(one, signals=one.signals | {f"{number}-{place}": 1.0 for place in range(20)})
        for number, one in enumerate(BEATS)
    ]

    beats = Heartbeats.joined([Heartbeats.of(flood[:20]), Heartbeats.of(flood[20:])])

    assert len(beats.signals) == MOST_SIGNALS
    assert beats.total("ticks") == Heartbeats.of(BEATS).total("ticks")
