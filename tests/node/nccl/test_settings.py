"""The part of the configuration about NCCL."""

from __future__ import annotations

from pathlib import Path

import pytest

from tachoscope_core.errors import TachoscopeError
from tachoscope_node.config.load import load
from tachoscope_node.config.nccl import address
from trying import each


def test_nothing_is_asked_of_anybody_by_default(tmp_path: Path) -> None:
    nccl = load(None).nccl

    assert (nccl.inspector, nccl.ras) == ([], "")


def test_every_fault_is_named_with_its_key_and_the_way_out(tmp_path: Path) -> None:
    path = tmp_path / "agent.yaml"
    path.write_text("nccl: {inspector: [dumps], ras: 'node-7:28028', hung_polls: 1, rotate_bytes: -1, record_one: 3}\n")
    with pytest.raises(TachoscopeError) as raised:
        load(path)

    for fault in (
        "nccl.inspector: 'dumps' is a relative path",
        "nccl.ras: 'node-7:28028' is not an address of this machine",
        "nccl.hung_polls: 1 is not between 2 and 1000",
        "nccl.rotate_bytes: -1",
        "nccl.record_one: no such key",
    ):
        assert fault in str(raised.value)


@each(
    ("text", "found"),
    [
        ("127.0.0.1:28028", ("127.0.0.1", 28028)),
        ("localhost:1", ("127.0.0.1", 1)),
        ("[::1]:28028", ("::1", 28028)),
        ("10.0.0.7:28028", None),
        ("example.com:28028", None),
        ("127.0.0.1", None),
        ("127.0.0.1:0", None),
        ("127.0.0.1:99999", None),
        ("", None),
    ],
)
def test_only_addresses_of_this_machine_are_taken_and_no_name_is_looked_up(text: str, found: tuple[str, int] | None) -> None:
    assert address(text) == found
