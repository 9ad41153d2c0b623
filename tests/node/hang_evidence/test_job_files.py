"""Files that a job names are opened within the job's own root, and only if they are its user's and of the wanted kind."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tachoscope_core.errors import TachoscopeError
from tachoscope_node.hang_evidence.job_files import JobRoot

OTHER_ROOT = "import os, sys; os.chroot(sys.argv[1]); print(flush=True); sys.stdin.read()"

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs a process with another root")


@pytest.fixture
def root(tmp_path: Path) -> Iterator[JobRoot]:
    """The root of a process in `tmp_path/job`, beside which a file lies that is not the job's."""
    (tmp_path / "job").mkdir()
    (tmp_path / "secret").write_text("secret")
    command = [sys.executable, "-c", OTHER_ROOT, tmp_path / "job"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None and process.stdout is not None
        process.stdout.readline()
        found = JobRoot(process.pid)
        yield found
        found.close()
        process.stdin.close()


def read(root: JobRoot, path: str, uid: int = 0) -> bytes:
    with root.opened(path, os.O_RDONLY, stat.S_IFREG, uid) as descriptor:
        return os.read(descriptor, 100)


def test_links_are_followed_within_the_jobs_root_and_do_not_lead_out_of_it(tmp_path: Path, root: JobRoot) -> None:
    job = tmp_path / "job"
    (job / "data" / "deep").mkdir(parents=True)
    (job / "data" / "dump7").write_text("dump")
    (job / "current").symlink_to("/data/deep/..")
    for name, target in {"up": "../secret", "out": str(tmp_path), "loop": "loop", "host": "/proc/1/root"}.items():
        (job / name).symlink_to(target)

    assert read(root, "/current/dump7") == read(root, "/../../current/./dump7") == b"dump"
    for path in ("/up", "/out/secret", "/host/etc/passwd", "/../secret", f"/..{tmp_path}/secret", "/loop", "/" + "a/" * 3000):
        with pytest.raises(OSError):
            read(root, path)


def test_what_is_of_another_kind_or_another_users_is_not_opened(tmp_path: Path, root: JobRoot) -> None:
    job = tmp_path / "job"
    (job / "others").write_text("others")
    os.chown(job / "others", 4001, 4001)
    os.mkfifo(job / "pipe")
    os.mknod(job / "device", stat.S_IFCHR | 0o600, os.makedev(10, 130))  # to open a watchdog is to start it

    for name in ("others", "pipe", "device", ""):
        with pytest.raises(TachoscopeError, match="is not a plain file of the job's user"):
            read(root, f"/{name}")
    assert read(root, "/others", uid=4001) == b"others"
