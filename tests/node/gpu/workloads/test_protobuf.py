"""Reading of serialised messages, compared with those that the protobuf library writes."""

from __future__ import annotations

import contextlib

import pytest
from google.protobuf import struct_pb2, type_pb2
from hypothesis import given
from hypothesis import strategies as st

from tachoscope_node.gpu.workloads.protobuf_fields import WireError, fields
from trying import each


@given(name=st.text(), values=st.lists(st.text()), syntax=st.integers(0, 2**31 - 1), edition=st.text())
def test_texts_come_in_order_and_numbers_are_passed_over(name: str, values: list[str], syntax: int, edition: str) -> None:
    message = type_pb2.Type(name=name, oneofs=values, syntax=syntax, edition=edition)
    planted = [(1, name), *((3, value) for value in values), (7, edition)]

    found = [(number, content.decode()) for number, content in fields(message.SerializeToString())]

    assert found == [(number, text) for number, text in planted if text or number == 3]


def test_numbers_of_all_sizes_are_passed_over() -> None:
    doubles = struct_pb2.ListValue(values=[struct_pb2.Value(number_value=0.5), struct_pb2.Value(string_value="after")])
    inner = [content for _, content in fields(doubles.SerializeToString())]

    assert [list(fields(content)) for content in inner] == [[], [(3, b"after")]]
    assert list(fields(b"\x0d\1\2\3\4" + b"\x12\1a")) == [(2, b"a")]
    assert list(fields(b"\x08" + b"\xff" * 9 + b"\1" + b"\x12\1a")) == [(2, b"a")]


@each(
    "message",
    [
        b"\x0a",
        b"\x0a\x05abcd",
        b"\x0a\xff\xff\xff\xff\x7fa",
        b"\x08" + b"\xff" * 10 + b"\1",
        b"\x0b",
        b"\x0d\1\2\3",
        b"\x09\1",
        b"\xff",
    ],
)
def test_what_is_no_message_is_an_error(message: bytes) -> None:
    with pytest.raises(WireError):
        list(fields(message))


@given(st.binary(max_size=200))
def test_no_bytes_whatever_raise_anything_else_or_give_more_than_they_hold(message: bytes) -> None:
    size = 0
    with contextlib.suppress(WireError):
        for _, content in fields(message):
            size += len(content)
    assert size <= len(message)
