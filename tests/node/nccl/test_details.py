"""Sampled operations as records: the same ones everywhere, not too many, and none that is always chosen."""

from __future__ import annotations

import json
import time
from typing import Any

from inspecting import line
from spooling import FakeClock
from tachoscope_core.records.records import CollectiveDone, Record
from tachoscope_node.nccl.details import RECORDS_PER_SECOND, Details, sampled
from tachoscope_node.nccl.groups import Groups, Member
from tachoscope_node.nccl.line import Operation, parse

MEMBER = Member("job", 3, 2, 100, 8, 7, {})


def operation(sequence: int = 0, **fields: Any) -> Operation:
    return parse(json.dumps(line(sequence=sequence, rank=3, ranks=8, **fields)).encode())


class Written(list[dict[str, Any]]):
    def __call__(self, job: str, kind: type[Record], *, attempt: int = 0, **fields: Any) -> None:
        assert (job, kind) == ("job", CollectiveDone)
        self.append(fields | {"attempt": attempt})


def test_about_one_in_so_many_is_chosen_whatever_the_period_of_the_steps() -> None:
    base = operation()
    for period in (1, 2, 48, 64, 96, 128):
        chosen = sum(sampled(base._replace(sequence=period * number), 64) for number in range(16_000))
        assert 175 <= chosen <= 325, f"of steps of {period} operations, one of them"
    assert not sampled(base, 0)
    assert sampled(base, 1)


def test_all_ranks_choose_the_same_ones() -> None:
    one, other = operation(), operation(pid=5, comm="0x9e17999afaa87dbb")._replace(rank=6)
    chosen = [{number for number in range(2000) if sampled(of._replace(sequence=number), 64)} for of in (one, other)]

    assert chosen[0] == chosen[1]


def test_a_record_is_of_the_rank_and_of_when_the_operation_was_done() -> None:
    written, clock = Written(), FakeClock()
    done = int((time.time() - 500) * 1e6)
    Details(written, Groups(list), clock=clock).add_operation(MEMBER, operation(17)._replace(time=done / 1e6))

    (record,) = written
    assert (record["rank"], record["attempt"], record["sequence"], record["communicator"]) == (3, 2, 17, "0x9e17999afaa87dbb")
    assert (record["group"], record["group_size"], record["peer"]) == ("", 8, -1)
    assert abs(record["time"] - done / 1e6) < 0.001
    assert abs((clock.now - record["monotonic_ns"] / 1e9) - (time.time() - record["time"])) < 60.0


def test_more_than_the_store_should_get_are_dropped_and_counted() -> None:
    written, clock = Written(), FakeClock()
    details = Details(written, Groups(list), clock=clock)
    for _ in range(100):
        clock.now += 1.0
        for number in range(3 * RECORDS_PER_SECOND):
            details.add_operation(MEMBER, operation(number))

    assert len(written) <= 111 * RECORDS_PER_SECOND
    assert details.outcomes == {"written": len(written), "dropped": 300 * RECORDS_PER_SECOND - len(written)}
