"""The protocol: what torch was seen to send is understood, and nothing else is."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fake_kineto import HEAD, asking, context, settings, text_of
from tachoscope_core.net import kineto_protocol as kineto_wire
from tachoscope_core.net.kineto_protocol import (
    NotUnderstoodError,
    ProfileOrder,
    ProfileQuery,
    answer,
    answered,
    configuration,
    ordered,
    parse,
)

SEEN = bytes.fromhex("030000000600000000000000000000001d7d00001c7d0000117d0000107d0000367800002c780000")
"""What torch 2.13.0 sent while it was idle."""
BUSY = bytes.fromhex("010000000600000000000000000000001d7d00001c7d0000117d0000107d0000367800002c780000")
"""The same while it recorded."""


def test_what_torch_sent_is_understood() -> None:
    assert parse(HEAD.pack(len(SEEN), b"req") + SEEN) == ProfileQuery("req", 32029, idle=True)
    assert parse(HEAD.pack(len(BUSY), b"req") + BUSY) == ProfileQuery("req", 32029, idle=False)
    assert parse(context(7)) == ProfileQuery("ctxt", 7)


@pytest.mark.parametrize(
    "datagram",
    [
        b"",
        HEAD.pack(0, b"req"),
        HEAD.pack(41, b"req") + SEEN,  # not as long as it says
        HEAD.pack(len(SEEN), b"rep") + SEEN,
        HEAD.pack(len(SEEN), b"ctxt") + SEEN,
        HEAD.pack(16, b"req") + struct.pack("=iiq", 3, 0, 0),  # of no process
        HEAD.pack(16, b"req") + struct.pack("=iiq", 3, 1 << 30, 0),  # more pids than there are bytes
        HEAD.pack(16, b"req") + struct.pack("=iiq", 3, -1, 0),
        HEAD.pack((1 << 64) - 1, b"req") + SEEN,
    ],
)
def test_what_is_not_of_the_protocol_is_turned_down(datagram: bytes) -> None:
    with pytest.raises(NotUnderstoodError):
        parse(datagram)


@given(st.binary(max_size=200) | st.binary(max_size=60).map(lambda body: HEAD.pack(len(body), b"req") + body))
def test_no_bytes_cause_another_error(datagram: bytes) -> None:
    try:
        assert parse(datagram).kind in {"req", "ctxt"}
    except NotUnderstoodError:
        pass


def test_an_answer_has_the_type_that_was_asked_and_tells_its_length() -> None:
    assert text_of(answer(parse(asking(1)), "A=1\n")) == "A=1\n"
    assert text_of(answer(parse(asking(1)))) == ""
    assert answer(parse(context(1)), count=2)[HEAD.size :] == struct.pack("=i", 2)


def test_a_configuration_has_whole_milliseconds_and_a_line_for_each_key() -> None:
    told = settings(configuration(start=1795434186.9554, seconds=2.0, file="/traces/trace.json", trace_id="one"))

    assert told["PROFILE_START_TIME"] == "1795434186955"
    assert told["ACTIVITIES_DURATION_MSECS"] == "2000"
    assert told["ACTIVITIES_LOG_FILE"] == "/traces/trace.json"


@pytest.mark.parametrize("file", ["/a\nPROFILE_START_TIME=0", "/a\0b", "/a#b"])
def test_a_folder_by_a_strange_name_cannot_bring_other_keys_in(file: str) -> None:
    with pytest.raises(ValueError, match="no file"):
        configuration(start=1.0, seconds=1.0, file=file, trace_id="one")


def test_the_probe_asks_as_torch_does_and_understands_what_torch_is_answered() -> None:
    assert parse(kineto_wire.encode_query(23, idle=True)) == parse(asking(23)) == ProfileQuery("req", 23, idle=True)
    assert parse(kineto_wire.encode_query(23, idle=False)) == ProfileQuery("req", 23, idle=False)

    text = configuration(start=1795434186.955, seconds=2.0, file="/traces/trace.json", trace_id="one")

    assert ordered(answered(answer(parse(asking(23)), text))) == ProfileOrder(1795434186.955, 2.0, "/traces/trace.json")
    assert ordered(configuration(start=1.0, seconds=2.0, file="/a", trace_id="one", steps=23)).steps == 23
    assert answered(answer(parse(asking(23)))) == ""


@pytest.mark.parametrize(
    "text",
    [
        "PROFILE_START_TIME=1\n",
        "PROFILE_START_TIME=x\nACTIVITIES_DURATION_MSECS=1\nACTIVITIES_LOG_FILE=/a",
        "PROFILE_START_TIME=1\nACTIVITIES_DURATION_MSECS=-1\nACTIVITIES_LOG_FILE=/a",
        "PROFILE_START_TIME=1\nACTIVITIES_DURATION_MSECS=1\nACTIVITIES_LOG_FILE=a",
    ],
)
def test_half_a_configuration_orders_nothing(text: str) -> None:
    with pytest.raises(NotUnderstoodError):
        ordered(text)


@given(st.binary(max_size=200) | st.binary(max_size=60).map(lambda body: HEAD.pack(len(body), b"req") + body))
def test_no_bytes_of_an_answer_cause_another_error(datagram: bytes) -> None:
    try:
        ordered(answered(datagram))
    except NotUnderstoodError:
        pass
