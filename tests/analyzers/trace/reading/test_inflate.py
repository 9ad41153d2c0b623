from __future__ import annotations

import gzip
import hashlib
import random
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest
import zstandard
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from left_behind import LeftBehind
from tachoscope_analyzers.trace.reading import decompress as inflate
from tachoscope_analyzers.trace.reading.decompress import Blocks

TEXT = bytes(random.Random(1).choices(b"abcdefgh\n", k=300_000))


def blocks_of(folder: Path, data: bytes) -> Blocks:
    path = folder / "file"
    path.write_bytes(data)
    return Blocks(path)


@pytest.mark.parametrize("packed", [TEXT, gzip.compress(TEXT), zstandard.compress(TEXT)], ids=["plain", "gzip", "zstandard"])
def test_the_text_comes_back_and_the_digest_is_that_of_the_file(packed: bytes, tmp_path: Path) -> None:
    blocks = blocks_of(tmp_path, packed)
    assert b"".join(blocks) == TEXT
    assert blocks.digest == hashlib.sha256(packed).hexdigest()
    assert blocks.bytes_read == len(packed)
    assert not blocks.cut


@pytest.mark.parametrize("pack", [gzip.compress, zstandard.compress])
def test_members_one_after_the_other_are_one_text(pack: Callable[[bytes], bytes], tmp_path: Path) -> None:
    parts = [TEXT[:1000], b"", TEXT[1000:150_000], TEXT[150_000:]]
    assert b"".join(blocks_of(tmp_path, b"".join(pack(part) for part in parts))) == TEXT


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(sizes=st.lists(st.integers(0, 400), max_size=8), read_bytes=st.integers(1, 50), block_bytes=st.integers(1, 300))
def test_sizes_of_blocks_and_members_do_not_matter(sizes: list[int], read_bytes: int, block_bytes: int, tmp_path: Path) -> None:
    parts = [TEXT[:size] for size in sizes]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(inflate, "_READ_BYTES", read_bytes)
        patch.setattr(inflate, "_BLOCK_BYTES", block_bytes)
        blocks = blocks_of(tmp_path, b"".join(map(gzip.compress, parts)))
        assert b"".join(blocks) == b"".join(parts)
        assert not blocks.cut


@pytest.mark.parametrize("tail", [b"\0" * 512, b"signature", b"\x1f"])
def test_padding_after_the_last_member_is_left_out_but_hashed(tail: bytes, tmp_path: Path) -> None:
    packed = gzip.compress(TEXT) + tail
    blocks = blocks_of(tmp_path, packed)
    assert b"".join(blocks) == TEXT
    assert blocks.digest == hashlib.sha256(packed).hexdigest()


def test_a_gzip_file_cut_anywhere_gives_the_beginning_of_its_text(tmp_path: Path) -> None:
    packed = gzip.compress(TEXT[:2000])
    for length in range(2, len(packed), 7):
        blocks = blocks_of(tmp_path, packed[:length])
        found = b"".join(blocks)
        assert TEXT.startswith(found)
        assert blocks.cut


def test_a_zstandard_file_that_was_cut_gives_the_beginning_of_its_text(tmp_path: Path) -> None:
    packed = zstandard.compress(TEXT * 10)
    found = b"".join(blocks_of(tmp_path, packed[: len(packed) // 2]))
    assert found
    assert (TEXT * 10).startswith(found)


@pytest.mark.parametrize("pack", [gzip.compress, zstandard.ZstdCompressor(write_checksum=True).compress])
def test_damaged_data_are_an_error_and_not_a_wrong_text(pack: Callable[[bytes], bytes], tmp_path: Path) -> None:
    packed = bytearray(pack(TEXT))
    packed[len(packed) // 2] ^= 0xFF
    with pytest.raises(ValueError, match="damaged"):
        b"".join(blocks_of(tmp_path, bytes(packed)))


def test_a_bomb_comes_in_small_blocks(tmp_path: Path) -> None:
    for packed in (gzip.compress(bytes(64 << 20)), zstandard.compress(bytes(64 << 20))):
        sizes = [len(block) for block in blocks_of(tmp_path, packed)]
        assert sum(sizes) == 64 << 20
        assert max(sizes) <= inflate._BLOCK_BYTES


def test_a_frame_that_asks_for_a_huge_window_is_refused(tmp_path: Path) -> None:
    parameters = zstandard.ZstdCompressionParameters.from_level(1, window_log=30)
    packed = zstandard.ZstdCompressor(compression_params=parameters).compressobj().compress(TEXT * 40)
    with pytest.raises(ValueError, match="damaged"):
        b"".join(blocks_of(tmp_path, packed))


def test_nothing_goes_on_when_the_reader_stops(tmp_path: Path) -> None:
    left = LeftBehind()
    stream = iter(blocks_of(tmp_path, gzip.compress(bytes(256 << 20), 1)))
    next(stream)
    stream.close()
    assert not left.threads("tachoscope-inflate")


def test_a_missing_file_is_the_errors_of_the_system(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        list(Blocks(tmp_path / "none"))


def test_members_without_end_do_not_take_quadratic_time(tmp_path: Path) -> None:
    empty = zlib.compressobj(wbits=31).flush()
    assert b"".join(blocks_of(tmp_path, empty * 20_000 + gzip.compress(b"end"))) == b"end"
