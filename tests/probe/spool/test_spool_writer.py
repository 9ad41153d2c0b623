import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tachoscope.spool.writer import SpoolWriter
from tachoscope_core.storage import spool

WRITER = "01234567-89ab-4cde-8f01-23456789abcd"
LINE = b"x" * 99 + b"\n"


def kept(directory: Path) -> bytes:
    return b"".join(path.read_bytes() for path in spool.segments(directory))


def test_what_is_appended_is_there_at_once_and_whole(tmp_path: Path) -> None:
    writer = SpoolWriter(tmp_path / "run", WRITER)

    assert all(writer.append(b"%d\n" % number) for number in range(23))
    assert kept(tmp_path / "run").split() == [b"%d" % number for number in range(23)]


def test_a_segment_is_locked_while_its_writer_lives(tmp_path: Path) -> None:
    writer = SpoolWriter(tmp_path, WRITER)
    writer.append(LINE)
    segment = next(spool.segments(tmp_path))

    assert spool.is_locked(segment)
    writer.close()
    assert not spool.is_locked(segment)


def test_beyond_the_cap_the_oldest_segment_goes_and_every_lost_line_is_counted(tmp_path: Path) -> None:
    writer = SpoolWriter(tmp_path, WRITER, segment_bytes=1000, max_bytes=3000)

    for _ in range(100):
        assert writer.append(LINE)

    lines = kept(tmp_path).count(b"\n")
    assert lines + writer.dropped == 100
    assert lines * len(LINE) <= 3000
    assert writer.dropped > 0


def test_what_was_shipped_meanwhile_does_not_count_as_lost(tmp_path: Path) -> None:
    writer = SpoolWriter(tmp_path, WRITER, segment_bytes=1000, max_bytes=3000)
    for _ in range(100):
        writer.append(LINE)
        for segment in list(spool.segments(tmp_path))[:-1]:
            segment.unlink()

    assert writer.dropped == 0


def test_a_spool_that_cannot_be_made_drops_and_counts(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    writer = SpoolWriter(tmp_path / "file" / "run", WRITER)

    assert [writer.append(LINE) for _ in range(23)] == [False] * 23
    assert writer.dropped == 23
    assert "file" in writer.error


def test_a_nearly_full_file_system_is_left_alone(tmp_path: Path) -> None:
    total = shutil.disk_usage(tmp_path).total
    writer = SpoolWriter(tmp_path / "run", WRITER, min_free_bytes=total * 2)
    writer_min = SpoolWriter(tmp_path / "other", WRITER)
    writer_min._check_free = lambda: (_ for _ in ()).throw(OSError(28, "less than 64 MiB free"))  # type: ignore[method-assign]

    assert writer.append(LINE)  # 5 % are free here: the smaller of the two limits counts
    assert not writer_min.append(LINE)
    assert list(spool.segments(tmp_path / "other")) == []
    assert "free" in writer_min.error


_FILL = """
import sys
from pathlib import Path
from tachoscope.spool.writer import SpoolWriter
writer = SpoolWriter(Path(sys.argv[1]) / "run", "01234567-89ab-4cde-8f01-23456789abcd")
written = sum(writer.append(b"x" * 999 + b"\\n") for _ in range(5000))
lines = b"".join(p.read_bytes() for p in sorted((Path(sys.argv[1]) / "run").glob("*.jsonl")))
assert lines.count(b"\\n") == written and all(len(l) == 999 for l in lines.split()), "a cut line stayed"
print(written, writer.dropped, writer.error)
"""


@pytest.mark.skipif(os.geteuid() != 0 or shutil.which("unshare") is None, reason="needs root and unshare to mount a small tmpfs")
@pytest.mark.parametrize(("options", "expected"), [("size=2m", "free"), ("ro", "Read-only")])
def test_a_real_full_or_read_only_file_system_drops_counts_and_leaves_no_cut_line(
    tmp_path: Path, options: str, expected: str
) -> None:
    script = f'mount -t tmpfs -o {options} tmpfs "$1" && exec "$2" -c "$3" "$1"'
    done = subprocess.run(
        ["unshare", "-m", "sh", "-c", script, "sh", str(tmp_path), sys.executable, _FILL], capture_output=True, text=True
    )
    if "mount" in done.stderr:
        pytest.skip(f"cannot mount here: {done.stderr.strip()}")

    written, dropped, error = done.stdout.strip().split(" ", 2)
    assert done.returncode == 0, done.stderr
    assert int(written) + int(dropped) == 5000
    assert int(dropped) > 0
    assert expected in error
