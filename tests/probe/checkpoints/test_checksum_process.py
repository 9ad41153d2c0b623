"""The process that takes checksums for a training process."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tachoscope.checkpoints import checksum_process


def test_it_answers_with_sizes_and_checksums_in_the_order_of_the_paths(tmp_path: Path) -> None:
    contents = {str(tmp_path / name): content for name, content in (("b", b"x" * 5), ("a", b""), ("ä e", b"y"))}
    for path, content in contents.items():
        Path(path).write_bytes(content)
    with checksum_process.start() as process:
        shards = checksum_process.request_checksums(process, list(contents))

    assert [(shard.bytes, shard.checksum) for shard in shards] == [
        (len(content), f"sha256:{hashlib.sha256(content).hexdigest()}") for content in contents.values()
    ]


def test_a_file_that_cannot_be_read_is_an_error_that_names_it(tmp_path: Path) -> None:
    with checksum_process.start() as process, pytest.raises(OSError, match="gone.pt"):
        checksum_process.request_checksums(process, [str(tmp_path / "gone.pt")])


@pytest.mark.skipif(not hasattr(os, "SCHED_IDLE"), reason="the lowest priority is Linux's")
def test_it_starts_at_the_lowest_priority_and_does_not_only_go_down_to_it() -> None:
    with checksum_process.start() as process:
        assert os.sched_getscheduler(process.pid) == os.SCHED_IDLE
        process.kill()


@pytest.mark.skipif(not hasattr(os, "SCHED_IDLE"), reason="the lowest priority is Linux's")
def test_it_runs_at_the_lowest_priority_and_ends_with_its_parent(tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)  # it waits in opening this, as in reading from a slow storage
    code = (
        "import sys, threading, time; from tachoscope.checkpoints import checksum_process as c;"
        "p = c.start(); print(p.pid, flush=True);"
        "threading.Thread(target=c.request_checksums, args=(p, [sys.argv[1]]), daemon=True).start(); time.sleep(600)"
    )
    parent = subprocess.Popen([sys.executable, "-c", code, str(fifo)], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    child = int(parent.stdout.readline())
    writer = os.open(fifo, os.O_WRONLY)  # returns when it reads
    try:
        assert os.sched_getscheduler(child) == os.SCHED_IDLE
        parent.kill()
        parent.wait()
        os.write(writer, b"more")
        deadline = time.monotonic() + 120  # at the lowest priority it gets a core late where others want it
        while _runs(child) and time.monotonic() < deadline:
            time.sleep(0.02)
        assert not _runs(child)
    finally:
        os.close(writer)
        parent.stdout.close()


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] not in {"Z", "X"}
    except OSError:
        return False
