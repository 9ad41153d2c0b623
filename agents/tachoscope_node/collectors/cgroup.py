"""How long a CPU quota stopped the ranks, from their control groups (v1, v2 and both at once).

A group's cpu.stat reports its own quota only, not of those above it, and a rank may be held by its pod's. So the nearest
ancestor with a quota is read as well. https://docs.kernel.org/admin-guide/cgroup-v2.html#cpu-interface-files
https://docs.kernel.org/scheduler/sched-bwc.html
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from tachoscope.process.control_group import ControlGroup, group_with, hierarchy
from tachoscope_core.metrics.host import CGROUP_PERIODS, CGROUP_THROTTLED_PERIODS, CGROUP_THROTTLED_SECONDS
from tachoscope_core.metrics.metric import Metric
from tachoscope_node.collectors.collector import HOST_INTERVAL_SECONDS, NoDataError, NotSupportedError
from tachoscope_node.common.kernel_files import MalformedError, read, rows, value
from tachoscope_service.metrics.family import Family, Point

_MAX_KNOWN = 256

Ranks = Callable[[], Mapping[tuple[str, str], int]]
"""(training job, rank) of each rank of the node, and its process id as <proc> shows it."""


class _Throttling(NamedTuple):
    level: str
    periods: int
    throttled_periods: int
    throttled_seconds: float


class CgroupCollector:
    """Throttled seconds and periods of each rank's group and of the nearest above it with a quota.

    Args:
        own: where the agent's own control groups are mounted; only read when the agent is in a cgroup namespace of its own.
    """

    name = "cgroup"
    metrics: Final[tuple[Metric, ...]] = (CGROUP_THROTTLED_SECONDS, CGROUP_THROTTLED_PERIODS, CGROUP_PERIODS)

    def __init__(
        self,
        ranks: Ranks,
        proc: str = "/proc",
        sys: str = "/sys",
        *,
        own: str = "/sys/fs/cgroup",
        interval_seconds: float = HOST_INTERVAL_SECONDS,
    ) -> None:
        self.interval_seconds = interval_seconds
        self._ranks = ranks
        self._proc = proc
        self._root = f"{sys}/fs/cgroup"
        self._own = own
        self._namespaces: dict[str, str] = {}
        self._known: dict[bytes, ControlGroup | None] = {}

    def collect(self) -> list[Family]:
        ranks = self._ranks()
        if not ranks:
            raise NoDataError("no rank runs on this node")
        seconds: list[Point] = []
        throttled: list[Point] = []
        periods: list[Point] = []
        read_already: dict[ControlGroup, list[_Throttling]] = {}
        for rank, pid in ranks.items():
            group = self._group_of(pid)
            if group is None:
                continue
            if group not in read_already:
                read_already[group] = list(_levels(group))
            for found in read_already[group]:
                labels = (*rank, found.level)
                seconds.append((labels, found.throttled_seconds))
                throttled.append((labels, found.throttled_periods))
                periods.append((labels, found.periods))
        if not read_already:
            raise NoDataError("the processes of all ranks have ended")
        if not periods:
            self._check_seen(ranks.values())
            raise NoDataError("no rank is under a CPU quota")
        return [
            Family(CGROUP_THROTTLED_SECONDS, seconds),
            Family(CGROUP_THROTTLED_PERIODS, throttled),
            Family(CGROUP_PERIODS, periods),
        ]

    def _check_seen(self, pids: Iterable[int]) -> None:
        """Raise if groups are hidden from the agent, which would look like groups without a quota."""
        for pid in pids:
            group = self._group_of(pid)
            if group is not None and not os.path.isdir(group.folder):
                raise NotSupportedError(
                    f"{group.folder}, the control group of process {pid}, does not exist: mount the host's /sys"
                )

    def _group_of(self, pid: int) -> ControlGroup | None:
        """Return the group with the CPU controller of a process, or None if it ended."""
        path = f"{self._proc}/{pid}/cgroup"
        try:
            content = read(path)
        except (FileNotFoundError, ProcessLookupError):
            return None
        if content not in self._known:  # ranks of one container have the same
            if len(self._known) >= _MAX_KNOWN:
                self._known.clear()
            self._known[content] = self._group(rows(path, hierarchy, content=content))
        return self._known[content]

    def _group(self, lines: list[tuple[str, str]]) -> ControlGroup | None:
        group = group_with("cpu", lines, self._root)
        return self._on_host(group) if group is not None else None

    def _on_host(self, group: ControlGroup) -> ControlGroup:
        """Make the path one from the hierarchy's root.

        From within a cgroup namespace the kernel shows other groups as `/../..`, relative to the namespace's root, and container
        runtimes give an unprivileged agent such a namespace. https://github.com/inspektor-gadget/inspektor-gadget/pull/3085
        """
        if not group.path.startswith("/.."):
            return group
        if group.root not in self._namespaces:
            self._namespaces[group.root] = _find(group.root, self._own + group.root.removeprefix(self._root))
        return group._replace(path=os.path.normpath(self._namespaces[group.root] + group.path))


def _find(root: str, own: str) -> str:
    """Return the path below `root` of the folder that is mounted at `own`: the same inode. Costs a walk, once."""
    try:
        wanted = os.stat(own)
        if wanted.st_dev == os.stat(root).st_dev:
            for folder, _, _ in os.walk(root):
                if os.stat(folder).st_ino == wanted.st_ino:
                    return folder.removeprefix(root)
    except FileNotFoundError:
        pass
    raise NotSupportedError(
        f"the agent is in a cgroup namespace of its own, and {own} is not found below {root}: mount the host's /sys into it"
    )


def _levels(group: ControlGroup) -> Iterator[_Throttling]:
    if own := _throttling(group, "own"):
        yield own
    for above in list(group.with_those_above())[1:]:
        if _has_quota(above) and (found := _throttling(above, "ancestor")):
            yield found
            return


def _has_quota(group: ControlGroup) -> bool:
    path = f"{group.folder}/{'cpu.max' if group.unified else 'cpu.cfs_quota_us'}"
    try:
        content = read(path)
    except OSError:  # the root has none, nor has a group without the controller
        return False
    quota = content.split(None, 1)[:1]
    if not quota:
        raise MalformedError(path, 1, content)
    return quota[0] not in (b"max", b"-1")


def _throttling(group: ControlGroup, level: str) -> _Throttling | None:
    """Read cpu.stat; None when the group has gone or can have no quota."""
    path = f"{group.folder}/cpu.stat"
    try:
        content = read(path)
    except OSError:
        return None
    periods = value(path, content, b"nr_periods ")
    throttled = value(path, content, b"nr_throttled ")
    duration = value(path, content, b"throttled_usec " if group.unified else b"throttled_time ")
    if periods is None or throttled is None or duration is None:
        return None
    return _Throttling(level, periods, throttled, duration / (1e6 if group.unified else 1e9))
