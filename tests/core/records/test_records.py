import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from making import envelope
from tachoscope_core.errors import TachoscopeError
from tachoscope_core.records import records


def test_every_kind_survives_writing_and_reading() -> None:
    step = records.StepDone(**envelope(), step=3, wall_seconds=0.5, phase_seconds={"forward": 0.5})

    assert records.decode(records.encode(step).rstrip(b"\n")) == step


def test_an_unknown_field_is_ignored_so_that_versions_can_differ() -> None:
    line = msgspec.json.encode(msgspec.json.decode(records.encode(records.JobEnded(**envelope(), status="left"))) | {"new": 1})

    assert records.decode(line).rank == 0


def test_an_unknown_kind_is_told_apart_from_garbage() -> None:
    with pytest.raises(records.UnknownKindError):
        records.decode(b'{"kind": "FromTheFuture", "job": "x"}')
    with pytest.raises(records.MalformedRecordError):
        records.decode(b'{"kind": "StepDone", "job": 3}')


@given(st.binary(max_size=300))
def test_no_bytes_make_decoding_raise_anything_else(line: bytes) -> None:
    try:
        records.decode(line)
    except (records.UnknownKindError, records.MalformedRecordError):
        pass


@pytest.mark.parametrize("line", [b"[" * 100_000, b'{"kind":' + b"9" * 5000, b"\xff\xfe", b'{"a":' * 50_000])
def test_hostile_lines_are_malformed_and_nothing_worse(line: bytes) -> None:
    with pytest.raises(records.MalformedRecordError):
        records.decode(line)


def test_a_line_longer_than_the_limit_is_refused() -> None:
    with pytest.raises(records.MalformedRecordError, match="longer than"):
        records.decode(b" " * (records.MAX_LINE_BYTES + 1))


@pytest.mark.parametrize("name", ["", "../x", "a/b", "a b", "-x", "x" * 129, "ä"])
def test_a_job_name_that_is_no_safe_folder_name_is_refused(name: str) -> None:
    with pytest.raises(TachoscopeError, match="not usable"):
        records.check_job_name(name)
