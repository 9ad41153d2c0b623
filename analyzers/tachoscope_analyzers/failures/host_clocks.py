"""By how much the clocks of hosts differ, from steps that end together: in a synchronous training ranks leave a step at once."""

from __future__ import annotations

from statistics import median

from tachoscope_analyzers.records.load import JobRecords

_MOST_STEPS = 50
_LEAST_STEPS = 3
_IS_ALIKE_SECONDS = 0.05
"""A difference below this may be of the ranks' own course."""


def ahead_seconds(job: JobRecords) -> dict[str, float]:
    """Return by how many seconds each host's clock is ahead of that of the host with the lowest rank; not of those that agree."""
    hosts = {row.writer: (row.rank, row.host, row.attempt) for row in job.starts if row.rank >= 0}
    if len({host for _, host, _ in hosts.values()}) < 2:
        return {}
    ends: dict[int, dict[str, dict[int, float]]] = {}
    for writer, steps in job.steps.by_writer().items():
        if writer in hosts:
            _, host, attempt = hosts[writer]
            last = steps[-_MOST_STEPS:]
            times = dict(zip(last.column("step").tolist(), last.column("time").tolist(), strict=True))
            ends.setdefault(attempt, {}).setdefault(host, {}).update(times)
    reference = min(hosts.values())[1]
    found: dict[str, list[float]] = {}
    for by_host in ends.values():
        own = by_host.pop(reference, {})
        for host, times in by_host.items():
            found.setdefault(host, []).extend(times[step] - own[step] for step in times.keys() & own.keys())
    ahead = {host: median(apart) for host, apart in found.items() if len(apart) >= _LEAST_STEPS}
    return {host: seconds for host, seconds in ahead.items() if abs(seconds) > _IS_ALIKE_SECONDS}
