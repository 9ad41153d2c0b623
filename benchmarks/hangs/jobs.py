"""Real trainings that stand still or pause, under `tachoscope run` without an agent, in a folder of their own."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
SCRIPTS = ROOT / "tests" / "watch"
MOUNT = ROOT / "tests" / "trainings" / "slow_mount.py"


def environment(folder: Path, **extra: str) -> dict[str, str]:
    ours = {name: value for name, value in os.environ.items() if not name.startswith(("TACHOSCOPE_", "TORCHELASTIC_", "SLURM_"))}
    ours |= {"TACHOSCOPE_SPOOL": str(folder / "spool"), "TACHOSCOPE_STORE": str(folder / "store"), "OMP_NUM_THREADS": "1"}
    return {**ours, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}", "TMPDIR": str(folder), **extra}


@contextlib.contextmanager
def slow_mount(folder: Path, seconds: float) -> Iterator[str]:
    """Mount a file system that answers reads so late."""
    place = folder / "mount"
    place.mkdir()
    server = subprocess.Popen([sys.executable, MOUNT, place, str(seconds)], stdout=subprocess.PIPE, text=True)
    assert server.stdout is not None
    try:
        if server.stdout.readline().strip() != "mounted":
            raise SystemExit("no FUSE mount is possible here: run as root, or leave out the way `mount`")
        yield str(place)
    finally:
        server.terminate()
        server.wait()


@contextlib.contextmanager
def job(folder: Path, ranks: int, script: Path, *words: str, **extra: str) -> Iterator[subprocess.Popen[str]]:
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks), str(script), *words]
    command = [sys.executable, "-m", "tachoscope_cli.main", "run", "--job", "stuck", "--", *launch]
    with open(folder / "said", "w") as said:
        running = subprocess.Popen(
            command, env=environment(folder, **extra), stdout=subprocess.DEVNULL, stderr=said, text=True, start_new_session=True
        )
    try:
        yield running
    finally:
        for pid in reversed(descendants(running.pid)):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        running.wait(60)


def descendants(pid: int) -> list[int]:
    found = [pid]
    for one in found:
        with contextlib.suppress(OSError):
            for tid in os.listdir(f"/proc/{one}/task"):
                found += map(int, Path(f"/proc/{one}/task/{tid}/children").read_text().split())
    return found
