"""Files into which the traces of several ranks were merged: whose device and whose call each event is.

Ranks count alike, so correlation ids and device numbers stand for something else in each of them. Tools that merge give each rank
processes of its own and put one rank after the other.
"""

from __future__ import annotations

from itertools import count

import numpy as np
import numpy.typing as npt

from tachoscope_analyzers.stats.arrays import distinct
from tachoscope_analyzers.trace.reading import uncategorised_events
from tachoscope_analyzers.trace.reading.trace import Trace

Rows = npt.NDArray[np.int64]


def processes(trace: Trace, rows: Rows) -> Rows:
    """Return a number for the process of each event, shape of `rows`."""
    numbers: dict[str, int] = {}
    of_track = [numbers.setdefault(track.process, len(numbers)) for track in trace.meta.tracks]
    return np.array(of_track or [0], dtype=np.int64)[trace.events["track"][rows]]


def devices_apart(trace: Trace, rows: Rows, device: Rows) -> Rows:
    """Return the devices of device events, so that no number stands for devices of several processes, shape of `rows`.

    The process that comes first in the file keeps the number, the others get free ones.
    """
    if trace.meta.writer in uncategorised_events.WRITERS or not len(rows):  # these have a process for each line of a device
        return device
    process = processes(trace, rows)
    if (process == process[0]).all():
        return device
    numbers, place = np.unique(device, return_inverse=True)
    pairs, first, pair = np.unique(place * (int(process.max()) + 1) + process, return_index=True, return_inverse=True)
    if len(pairs) == len(numbers):
        return device
    chosen = np.empty(len(pairs), dtype=np.int64)
    used, taken = set(numbers.tolist()), set[int]()
    free = (number for number in count() if number not in used)
    for position in np.argsort(rows[first], kind="stable").tolist():
        number = int(device[first[position]])
        if number in taken:
            number = next(free)
        taken.add(number)
        chosen[position] = number
    return chosen[pair]


def own_callers(trace: Trace, calls: Rows, rows: Rows) -> tuple[Rows, Rows] | None:
    """Return the process of each call, and for each device event the process whose calls launch it.

    None where correlation ids tell that: all calls are of one process, or no two processes use the same id. Else a device's own
    process is the one whose calls stand next to its events in the file.
    """
    of_work = processes(trace, rows)
    devices = _there(of_work)
    if len(devices) < 2:
        return None
    of_call = processes(trace, calls)
    hosts = np.setdiff1d(_there(of_call), devices, assume_unique=True)  # on some accelerators the device calls too
    if len(hosts) < 2 or not _share_ids(trace, calls, of_call, hosts):
        return None
    host_place, host_process = _middles(calls, of_call, hosts)
    work_place, work_process = _middles(rows, of_work, devices)
    order = np.argsort(host_place, kind="stable")
    host_place, host_process = host_place[order], host_process[order]
    after = np.minimum(np.searchsorted(host_place, work_place), len(host_place) - 1)
    before = np.maximum(after - 1, 0)
    nearer = np.where(np.abs(host_place[before] - work_place) <= np.abs(host_place[after] - work_place), before, after)
    own = np.full(int(devices.max()) + 1, -1, dtype=np.int64)
    own[work_process] = host_process[nearer]
    return of_call, own[of_work]


def launching_processes(trace: Trace, launch: Rows) -> int:
    """Return how many processes launched device work; `launch` are rows of calls, -1 for none."""
    return len(_there(processes(trace, launch[launch >= 0])))


def _there(numbers: Rows) -> Rows:
    return np.flatnonzero(np.bincount(numbers))


def _share_ids(trace: Trace, calls: Rows, process: Rows, hosts: Rows) -> bool:
    mine = np.isin(process, hosts)
    ids, number = np.unique(trace.events["correlation"][calls[mine]], return_inverse=True)
    return len(distinct(number * (int(process.max()) + 1) + process[mine])) > len(ids)


def _middles(rows: Rows, process: Rows, wanted: Rows) -> tuple[Rows, Rows]:
    """Return the middle row of each wanted process, and the process."""
    order = np.lexsort((rows, process))
    found, first, counts = np.unique(process[order], return_index=True, return_counts=True)
    kept = np.isin(found, wanted)
    return rows[order][(first + counts // 2)[kept]], found[kept]
