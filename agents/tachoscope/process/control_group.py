"""The control group of a process (v1, v2 and both at once), and what it says of memory.

https://docs.kernel.org/admin-guide/cgroup-v2.html#memory-interface-files
https://docs.kernel.org/admin-guide/cgroup-v1/memory.html
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from tachoscope_core.records.memory import ControlGroupMemory

MOUNT = "/sys/fs/cgroup"
_NO_LIMIT = 1 << 60
"""From this on a limit of v1 is none: it writes the largest number of pages."""
_KEYS_V1 = {"anonymous": b"total_rss", "cache": b"total_cache", "shared": b"total_shmem"}
_KEYS_V2 = {"anonymous": b"anon", "cache": b"file", "shared": b"shmem"}


class ControlGroup(NamedTuple):
    """A group of one hierarchy: where that is mounted, the group's path in it, and whether it is of version 2."""

    root: str
    path: str
    unified: bool

    @property
    def folder(self) -> str:
        return self.root + self.path.rstrip("/")

    def with_those_above(self) -> Iterator[ControlGroup]:
        """Yield the group and each one above it, up to the root."""
        path = self.path
        yield self
        while path not in ("", "/"):
            path = os.path.dirname(path)
            yield self._replace(path=path)


def hierarchy(line: bytes) -> tuple[str, str]:
    """Return controllers and path of a line of /proc/PID/cgroup.

    Raises:
        ValueError: the line is in another form.
    """
    _, controllers, path = line.decode().split(":", 2)
    return controllers, path


def group_with(controller: str, lines: Iterable[tuple[str, str]], mount: str = MOUNT) -> ControlGroup | None:
    """Return the group of a process that has a controller, given controllers and path of each of its lines; None: there is none."""
    lines = list(lines)
    # Where v1 has the controller, v2 ("0::") cannot: on a hybrid machine the v1 line counts.
    for controllers, path in lines:
        if controller in controllers.split(","):
            folder = controllers if os.path.isdir(f"{mount}/{controllers}") else controller
            return ControlGroup(f"{mount}/{folder}", path, unified=False)
    for controllers, path in lines:
        if not controllers:
            hybrid = f"{mount}/unified"
            return ControlGroup(hybrid if os.path.isdir(hybrid) else mount, path, unified=True)
    return None


def memory_group(pid: int | str = "self", proc: str = "/proc", mount: str = MOUNT) -> ControlGroup | None:
    """Return the group that counts the memory of a process; None: it ended, or no group does. Never raises.

    A group whose files cannot be seen is returned too: what it holds is not known. A container without a namespace of its own for
    groups sees its path on the host, and its own group as the root. Where the controller is not switched on for a group of v2, one
    above it counts.
    """
    try:
        with open(f"{proc}/{pid}/cgroup", "rb") as file:
            group = group_with("memory", map(hierarchy, file.read().splitlines()), mount)
    except (OSError, ValueError):
        return None
    if group is None:
        return None
    if not os.path.isdir(group.folder):
        group = group._replace(path="/")
    counts = (one for one in group.with_those_above() if os.path.exists(f"{one.folder}/memory.stat"))
    nobody_counts = group.unified and os.path.exists(f"{group.root}/cgroup.controllers")
    return next(counts, None if nobody_counts else group)


def limited(group: ControlGroup) -> ControlGroup | None:
    """Return the group, of this one and those above it, whose limit on memory leaves the least; this one where none has any.

    None: one of them could not be read.
    """
    limits = {one: limit_bytes(one) for one in group.with_those_above()}
    rooms: dict[ControlGroup, int] = {}
    for one, limit in limits.items():
        held = memory_of(one) if limit else None
        if limit is None or (limit and held is None):
            return None
        if held is not None:
            rooms[one] = held.limit_bytes - held.anonymous_bytes - held.shared_bytes
    return min(rooms, key=rooms.__getitem__, default=group)


def limit_bytes(group: ControlGroup) -> int | None:
    """Return the limit on a group's memory; 0: it has none; None: that could not be read."""
    path = f"{group.folder}/{'memory.max' if group.unified else 'memory.limit_in_bytes'}"
    try:
        with open(path, "rb") as file:
            content = file.read(64).strip()
        limit = 0 if content == b"max" else int(content)
    except FileNotFoundError:  # the root of v2 has no such file, nor has a group without the controller
        return 0 if group.unified and os.path.isdir(group.folder) else None
    except (OSError, ValueError):
        return None
    return limit if limit < _NO_LIMIT else 0


def kill_count(group: ControlGroup) -> int | None:
    """Return the number of out-of-memory kills in a group; None: it is gone, or the kernel older than 4.13.

    On v2 those of groups below it count too, on v1 only its own.
    """
    rows = _rows(f"{group.folder}/{'memory.events' if group.unified else 'memory.oom_control'}")
    return rows.get(b"oom_kill")


def memory_of(group: ControlGroup) -> ControlGroupMemory | None:
    """Return what a group holds; None where it is gone, does not count memory, or could not be read."""
    usage = _number(f"{group.folder}/{'memory.current' if group.unified else 'memory.usage_in_bytes'}")
    rows, limit = _rows(f"{group.folder}/memory.stat"), limit_bytes(group)
    keys = _KEYS_V2 if group.unified else _KEYS_V1
    if limit is None or keys["anonymous"] not in rows:
        return None
    held: Mapping[str, int] = {name: rows.get(key, 0) for name, key in keys.items()}
    return ControlGroupMemory(
        path=group.path,
        limit_bytes=limit,
        usage_bytes=usage or held["anonymous"] + held["cache"],  # the root of v2 has no sum
        anonymous_bytes=held["anonymous"],
        file_bytes=max(held["cache"] - held["shared"], 0),
        shared_bytes=held["shared"],
        kills=kill_count(group) or 0,
    )


def _number(path: str) -> int:
    """Return the number that a file holds; 0 where it cannot be read."""
    try:
        with open(path, "rb") as file:
            return int(file.read(64))
    except (OSError, ValueError):
        return 0


def _rows(path: str) -> dict[bytes, int]:
    """Return the numbers by name of a file of such lines; none where it cannot be read."""
    found: dict[bytes, int] = {}
    try:
        with open(path, "rb") as file:
            for line in file.read(65536).splitlines():
                name, _, number = line.partition(b" ")
                if number.isdigit():
                    found[name] = int(number)
    except OSError:
        pass
    return found
