"""Three ranks that read shards, one of which is corrupt, and two of which die while they read a healthy one. Run by test_shards.py.

The ranks are forked, so that torch, which webdataset imports, is imported once.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import tarfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path

import webdataset

import tachoscope

CORRUPT, HEALTHY, LAST = "part-1.tar", "part-2.tar", "part-3.tar"
WAIT_SECONDS = 60.0


def until(what: Callable[[], object]) -> None:
    deadline = time.monotonic() + WAIT_SECONDS
    while not what():
        if time.monotonic() > deadline:
            sys.exit("waited in vain")
        time.sleep(0.05)


def read_plainly(path: str) -> int:
    with tachoscope.shard(path), tarfile.open(path) as tar:
        return sum(len(tar.extractfile(member).read()) for member in tar)  # type: ignore[union-attr]


def read_by_library(paths: Iterable[str]) -> int:
    return len(list(webdataset.WebDataset(list(paths), handler=webdataset.ignore_and_continue, shardshuffle=False)))


def first(folder: Path) -> None:
    """Twice over the same shard: that is one failure."""
    samples = [read_by_library([str(folder / "part-0.tar"), str(folder / CORRUPT)]) for _ in range(2)]
    time.sleep(1.2)
    read_by_library([str(folder / CORRUPT)])
    time.sleep(1.0)
    (folder / "first.json").write_text(json.dumps({"samples": samples, "listed": sorted(tachoscope.quarantined())}))


def second(folder: Path) -> None:
    until((folder / "first.json").exists)
    try:
        read_plainly(str(folder / CORRUPT))
    except tarfile.TarError:
        pass
    until(tachoscope.quarantined)
    die_reading(folder)


def third(folder: Path) -> None:
    """Comes when the list has the corrupt one, and leaves it out."""
    until(tachoscope.quarantined)
    left = tachoscope.without_quarantined([str(folder / name) for name in ("part-0.tar", CORRUPT, LAST)])
    (folder / "third.json").write_text(json.dumps([Path(name).name for name in left]))
    for path in left:
        read_plainly(path)
    die_reading(folder)


def die_reading(folder: Path) -> None:
    with tachoscope.shard(folder / HEALTHY):
        os.kill(os.getpid(), signal.SIGKILL)


def main(folder: Path) -> None:
    children = []
    for rank, role in enumerate((first, second, third)):
        child = os.fork()
        if child == 0:
            os.environ["RANK"] = str(rank)
            role(folder)
            os._exit(0)
        children.append(child)
    ends = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    print(json.dumps(ends))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
