"""Lines of NCCL's Inspector: what is read of them, and bus bandwidth by the factors of nccl-tests."""

from __future__ import annotations

import json
from typing import Any

import pytest

from inspecting import line, message
from tachoscope_node.nccl.line import ImplausibleError, Operation, bandwidth_differs, bus_bytes, bus_factor, parse
from trying import each


def parsed(row: dict[str, Any]) -> Operation:
    return parse(json.dumps(row).encode())


@each(
    ("coll", "kind", "size", "carried"),
    [
        ("AllReduce", "all_reduce", 1000, 1500),
        ("AllGather", "all_gather", 4000, 3000),
        ("AllGatherV", "all_gather", 4000, 3000),
        ("ReduceScatter", "reduce_scatter", 4000, 3000),
        ("Broadcast", "broadcast", 1000, 1000),
        ("Reduce", "reduce", 1000, 1000),
        ("All2All", "all_to_all", 4000, 3000),
        ("SomethingNew", "other", 1000, 1000),
    ],
)
def test_bytes_of_the_message_and_of_the_bus_are_those_of_nccl_tests(coll: str, kind: str, size: int, carried: float) -> None:
    found = parsed(line(coll, ranks=4, size=1000))

    assert (found.collective, found.size_bytes, bus_bytes(found)) == (kind, size, carried)


def test_what_the_inspector_computed_agrees_and_its_zero_for_all_to_all_is_no_disagreement() -> None:
    for coll in ("AllReduce", "AllGather", "ReduceScatter", "Broadcast", "Reduce"):
        found = parsed(line(coll, ranks=8, microseconds=1234))
        assert found.said_bandwidth == pytest.approx(bus_bytes(found) / found.seconds, rel=1e-4)
        assert not bandwidth_differs(found, bus_bytes(found))
    found = parsed(line("All2All", coll_busbw_gbs=0.0))

    assert bus_bytes(found) > 0
    assert not bandwidth_differs(found, bus_bytes(found))


def test_a_bus_bandwidth_by_other_factors_is_told() -> None:
    found = parsed(line("AllReduce", ranks=4, microseconds=1000, coll_busbw_gbs=16.777))

    assert bandwidth_differs(found, bus_bytes(found))


def test_a_line_without_a_time_has_no_bandwidth_and_one_that_says_nan_is_read() -> None:
    found = parsed(line(microseconds=0, coll_busbw_gbs="nan"))

    assert (found.seconds, bus_bytes(found), found.said_bandwidth) == (0.0, 0.0, 0.0)


def test_sends_and_receives_have_their_peer_and_all_their_bytes() -> None:
    found = parsed(message("Recv", peer=3))

    assert (found.collective, found.peer, found.size_bytes, bus_bytes(found)) == ("recv", 3, 1 << 20, 1 << 20)
    assert not bandwidth_differs(found, bus_bytes(found))


def test_an_older_format_without_names_and_a_newer_one_with_more_fields_are_read() -> None:
    row = line(name="dp")
    assert parsed(row).name == "dp"
    del row["header"]["comm_name"]
    row["coll_perf"]["event_trace_sn"] = {"coll_start_sn": 1, "kernel_events": [{"channel_id": 0}]}

    assert parsed(row).name == ""
    assert parsed(line(name="unknown")).name == "", "NCCL's word for none"


@each(
    "fields",
    [
        {"rank": 4},
        {"rank": -1},
        {"ranks": 0},
        {"size": -1},
        {"microseconds": -1},
        {"microseconds": 10**13},
        {"sequence": -1},
        {"comm": ""},
    ],
)
def test_numbers_that_cannot_be_are_implausible(fields: dict[str, Any]) -> None:
    row = line()
    head, perf = row["header"], row["coll_perf"]
    names = {"rank": (head, "rank"), "ranks": (head, "n_ranks"), "comm": (head, "id"), "size": (perf, "coll_msg_size_bytes")}
    names |= {"microseconds": (perf, "coll_exec_time_us"), "sequence": (perf, "coll_sn")}
    for name, wrong in fields.items():
        place, key = names[name]
        place[key] = wrong

    with pytest.raises(ImplausibleError):
        parsed(row)


@each(
    "garbage",
    [b"", b"{", b"[]", b"\xff\xfe", b'{"header":{}}', b"[" * 5000, b'{"header":{"id":"0x1","rank":0,"n_ranks":1},"metadata":{}}'],
)
def test_what_is_no_line_of_the_inspector_is_malformed(garbage: bytes) -> None:
    with pytest.raises(ValueError) as raised:
        parse(garbage)
    assert not isinstance(raised.value, ImplausibleError)


def test_one_rank_alone_carries_nothing_over_a_bus() -> None:
    assert bus_factor("all_reduce", 1) == 0.0


@pytest.mark.parametrize(
    ("coll", "size", "microseconds", "bus_gigabytes_per_second"),
    [("AllReduce", 17179869184, 61974, 485.119099), ("ReduceScatter", 2147483648, 41057, 366.134533)],
)
def test_what_nccl_shows_of_eight_real_gpus_has_the_bandwidth_that_we_compute(
    coll: str, size: int, microseconds: int, bus_gigabytes_per_second: float
) -> None:
    """Figures of the examples in the README of NCCL's Inspector."""
    found = parsed(line(coll, ranks=8, size=size, microseconds=microseconds, coll_busbw_gbs=bus_gigabytes_per_second))

    assert bus_bytes(found) / found.seconds / 1e9 == pytest.approx(bus_gigabytes_per_second, abs=1e-6)
    assert not bandwidth_differs(found, bus_bytes(found))
