"""A file's checksum is the standard one, and is of what the file was throughout."""

from __future__ import annotations

import hashlib
import subprocess
from pathlib import Path
from threading import Event

import pytest
from hypothesis import given
from hypothesis import strategies as st

from checkpointing import summed
from tachoscope_core.checkpoints.checksums import UnsteadyFileError, open_file_checksum
from tachoscope_core.checkpoints.verification import open_regular


def test_the_checksum_is_what_sha256sum_says(tmp_path: Path) -> None:
    file = tmp_path / "shard"
    file.write_bytes(b"weights" * 100_003)
    said = subprocess.run(["sha256sum", file], capture_output=True, text=True, check=True).stdout.split()[0]

    found = summed(file)

    assert (found.checksum, found.bytes, found.path) == (f"sha256:{said}", 700_021, "")


@given(content=st.binary(max_size=5000), chunk_bytes=st.integers(1, 6000), drop_cache=st.booleans())
def test_it_does_not_depend_on_how_the_file_is_read(
    tmp_path_factory: pytest.TempPathFactory, content: bytes, chunk_bytes: int, drop_cache: bool
) -> None:
    file = tmp_path_factory.getbasetemp() / "any"
    file.write_bytes(content)

    with open_regular(str(file)) as opened:
        found = open_file_checksum(opened, chunk_bytes=chunk_bytes, drop_cache=drop_cache)

    assert found is not None
    assert found.checksum == f"sha256:{hashlib.sha256(content).hexdigest()}"
    assert found.bytes == len(content)


def test_a_file_that_is_written_to_while_it_is_read_has_none(tmp_path: Path) -> None:
    file = tmp_path / "shard"
    file.write_bytes(bytes(10_000))

    def append(_: int) -> None:
        with file.open("ab") as more:
            more.write(b"x")

    with open_regular(str(file)) as opened, pytest.raises(UnsteadyFileError, match="shard"):
        open_file_checksum(opened, chunk_bytes=20_000, on_bytes=append)


def test_it_can_be_stopped(tmp_path: Path) -> None:
    file, stop, seen = tmp_path / "shard", Event(), []
    file.write_bytes(bytes(10_000))
    stop.set()

    with open_regular(str(file)) as opened:
        assert open_file_checksum(opened, chunk_bytes=1000, stop=stop, on_bytes=seen.append) is None
    assert seen == []
