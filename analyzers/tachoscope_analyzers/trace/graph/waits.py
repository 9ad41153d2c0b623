"""Who waits for which device event: host calls for streams, streams for one another.

The trace's own word (`cuda_sync` events) is taken where there is one. Elsewhere a wait is inferred from order and time: the event
waited for was enqueued before the wait, and ended before the waiting side went on.
"""

from __future__ import annotations

from itertools import pairwise

import msgspec
import numpy as np
import numpy.typing as npt

from tachoscope_analyzers.trace.events.runtime_calls import Role
from tachoscope_analyzers.trace.reading.event_kinds import Kind
from tachoscope_analyzers.trace.reading.trace import Trace

Array = npt.NDArray[np.int64]

CLOCK_TOLERANCE_NS = 20_000
"""A device event may seem to end so much after the call that waited for it returned: the two clocks agree to some microseconds."""
_LEAST_BACKLOG = 256
"""A launch blocks only when a stream holds many events (1,024 in CUDA, fewer entries where kernels have large arguments)."""
_LEAST_BLOCKED_RATIO = 4
NONE = np.zeros(0, dtype=np.int64)


class Queues(msgspec.Struct, frozen=True):
    """Device events in the order of their streams, shape (D,).

    Attributes:
        stream: position of the stream in `names`, rising. begin, end: ns.
        enqueued: when the call that launched it began, made to rise along a stream; as the one before where it is not known.
        call: position of that call among the host calls, -1 for none. pageable: whether it copies from or to pageable memory.
        names: (device, stream) of each stream.
    """

    stream: Array
    begin: Array
    end: Array
    enqueued: Array
    call: Array
    pageable: npt.NDArray[np.bool_]
    names: list[tuple[int, int]]

    def bounds(self) -> list[tuple[int, int]]:
        """Return the first event of each stream and the one after its last."""
        edges = np.searchsorted(self.stream, np.arange(len(self.names) + 1)).tolist()
        return list(pairwise(edges))


class Calls(msgspec.Struct, frozen=True):
    """Host calls that matter, sorted by thread and begin, shape (C,): event, thread, begin and end (ns), and `Role`."""

    row: Array
    track: Array
    begin: Array
    end: Array
    role: npt.NDArray[np.uint8]


class SyncEvents(msgspec.Struct, frozen=True):
    """What `cuda_sync` events say about calls, shape (C,): -1 where they do not.

    Attributes:
        stream: position of the stream that waits or is waited for. source: stream on which the awaited event was recorded.
        recorded: when it was recorded (ns). known: whether there is such an event at all.
    """

    stream: Array
    source: Array
    recorded: Array
    known: npt.NDArray[np.bool_]


def sync_events(trace: Trace, calls: Calls, queues: Queues) -> SyncEvents:
    """Return what the trace's synchronisation events say about the calls, found by correlation id."""
    size = len(calls.row)
    nothing = np.full(size, -1, dtype=np.int64)
    result = SyncEvents(nothing, nothing.copy(), nothing.copy(), np.zeros(size, dtype=bool))
    table = trace.device
    place = np.flatnonzero(trace.kind[table["row"]] == Kind.SYNC)
    if not len(place):
        return result
    correlation = trace.events["correlation"]
    at = _find(correlation[calls.row], correlation[table["row"][place]])
    place, at = place[at >= 0], at[at >= 0]
    numbers = {name: position for position, name in enumerate(queues.names)}
    devices = table["device"][place].tolist()
    result.known[at] = True
    for target, column in ((result.stream, "stream"), (result.source, "wait_stream")):
        pairs = zip(devices, table[column][place].tolist(), strict=True)
        target[at] = [numbers.get(pair, -1) for pair in pairs]
    runtime = np.flatnonzero(trace.kind == Kind.RUNTIME)
    record = _find(correlation[runtime], table["wait_correlation"][place])
    result.recorded[at] = np.where(record >= 0, trace.start[runtime[record]], -1)
    return result


def _find(values: Array, wanted: Array) -> Array:
    """Return the index of each non-negative value in `values`, -1 if absent."""
    if not len(values):
        return np.full(len(wanted), -1, dtype=np.int64)
    order = np.argsort(values, kind="stable")
    place = order[np.minimum(np.searchsorted(values[order], wanted), len(values) - 1)]
    return np.where((values[place] == wanted) & (wanted >= 0), place, -1)


def host_waits(calls: Calls, queues: Queues, said: SyncEvents) -> tuple[Array, Array]:
    """Return pairs (device event, call): the call returns only after the event ended, both of shape (W,).

    A call about which nothing is told waits for the event that ended last among those that it can have waited for.
    """
    found = [_own_copies(calls, queues), _full_queues(calls, queues)]
    waiting = np.flatnonzero(np.isin(calls.role, (Role.EVENT_SYNC, Role.STREAM_SYNC, Role.DEVICE_SYNC, Role.FREE)))
    role, begin, until = calls.role[waiting], calls.begin[waiting], calls.end[waiting] + CLOCK_TOLERANCE_NS
    whole = np.isin(role, (Role.DEVICE_SYNC, Role.FREE))
    recorded = np.where((role == Role.EVENT_SYNC) & (said.recorded[waiting] >= 0), said.recorded[waiting], begin)
    named = np.where(role == Role.EVENT_SYNC, said.source[waiting], said.stream[waiting])
    best, best_end = np.full(len(waiting), -1, dtype=np.int64), begin.copy()
    linked = np.maximum.accumulate(np.where(queues.call >= 0, np.arange(len(queues.call)), -1))
    for stream, (first, stop) in enumerate(queues.bounds()):
        last = first + np.searchsorted(queues.enqueued[first:stop], recorded) - 1
        ended = first + np.searchsorted(np.maximum.accumulate(queues.end[first:stop]), until, side="right") - 1
        # It is not known which event was recorded, or whether those without a launch were enqueued before the call.
        open_end = ((role == Role.EVENT_SYNC) & (named < 0)) | (linked[np.maximum(last, 0)] <= ended)
        last = np.where(open_end, np.minimum(last, ended), last)
        possible = (last >= first) & (last <= ended)
        sure = possible & (whole | (named == stream))
        found.append((last[sure], waiting[sure]))
        end = np.where(last >= first, queues.end[np.maximum(last, 0)], -1)
        better = possible & ~whole & (named < 0) & (end > best_end)
        best, best_end = np.where(better, last, best), np.where(better, end, best_end)
    found.append((best[best >= 0], waiting[best >= 0]))
    return np.concatenate([pair[0] for pair in found]), np.concatenate([pair[1] for pair in found])


def _own_copies(calls: Calls, queues: Queues) -> tuple[Array, Array]:
    """Blocking copies return when done; so do some asynchronous copies of pageable memory."""
    event = np.flatnonzero(queues.call >= 0)
    call = queues.call[event]
    blocking = (calls.role[call] == Role.BLOCKING_COPY) & (queues.end[event] <= calls.end[call] + CLOCK_TOLERANCE_NS)
    waited = blocking | (queues.pageable[event] & (queues.end[event] <= calls.end[call]))
    return event[waited], call[waited]


def _full_queues(calls: Calls, queues: Queues) -> tuple[Array, Array]:
    """A launch into a full stream returns when one of its events has ended."""
    events, targets = [NONE], [NONE]
    is_launching = np.zeros(len(calls.begin), dtype=bool)
    is_launching[queues.call[queues.call >= 0]] = True
    launching = np.flatnonzero(is_launching)
    if not len(launching):
        return NONE, NONE
    usual = np.median(calls.end[launching] - calls.begin[launching])
    for first, stop in queues.bounds():
        event = first + np.flatnonzero(queues.call[first:stop] >= 0)
        call = queues.call[event]
        long = calls.end[call] - calls.begin[call] > _LEAST_BLOCKED_RATIO * usual
        event, call = event[long], call[long]
        ends = np.maximum.accumulate(queues.end[first:stop])
        backlog = event - first - np.searchsorted(ends, calls.begin[call], side="right")
        last = first + np.searchsorted(ends, calls.end[call], side="right") - 1
        blocked = (backlog >= _LEAST_BACKLOG) & (last >= first) & (queues.end[last] > calls.begin[call])
        events.append(last[blocked])
        targets.append(call[blocked])
    return np.concatenate(events), np.concatenate(targets)


def stream_waits(calls: Calls, queues: Queues, said: SyncEvents) -> tuple[Array, Array]:
    """Return pairs (device event, event on a stream that was made to wait for it), both of shape (W,)."""
    waiting = np.flatnonzero(calls.role == Role.STREAM_WAIT)
    if not len(waiting) or not len(queues.stream):
        return NONE, NONE
    known = said.known[waiting] & (said.source[waiting] >= 0) & (said.stream[waiting] >= 0) & (said.recorded[waiting] >= 0)
    first, second = _told_waits(waiting[known], calls, queues, said), _guessed_waits(waiting[~said.known[waiting]], calls, queues)
    source, target = np.concatenate([first[0], second[0]]), np.concatenate([first[1], second[1]])
    order = np.lexsort((target, source))
    source, target = source[order], target[order]
    new = np.append(True, (source[1:] != source[:-1]) | (target[1:] != target[:-1]))[: len(order)]
    return source[new], target[new]


def _told_waits(waiting: Array, calls: Calls, queues: Queues, said: SyncEvents) -> tuple[Array, Array]:
    sources, targets = np.full(len(waiting), -1, dtype=np.int64), np.full(len(waiting), -1, dtype=np.int64)
    for stream, (first, stop) in enumerate(queues.bounds()):
        enqueued = queues.enqueued[first:stop]
        here = said.source[waiting] == stream
        last = first + np.searchsorted(enqueued, said.recorded[waiting[here]]) - 1
        sources[here] = np.where(last >= first, last, -1)
        here = said.stream[waiting] == stream
        following = first + np.searchsorted(enqueued, calls.begin[waiting[here]])
        targets[here] = np.where(following < stop, following, -1)
    both = (sources >= 0) & (targets >= 0)
    return sources[both], targets[both]


def _guessed_waits(waiting: Array, calls: Calls, queues: Queues) -> tuple[Array, Array]:
    """Assume that the stream of the thread's next launch waits for the last event elsewhere, of those queued before."""
    launched = np.flatnonzero(queues.call >= 0)
    if not len(launched) or not len(waiting):
        return NONE, NONE
    launched = launched[np.argsort(queues.call[launched], kind="stable")]  # calls stand by thread, and within it by time
    following = np.searchsorted(queues.call[launched], waiting)
    target = launched[np.minimum(following, len(launched) - 1)]
    real = (following < len(launched)) & (calls.track[queues.call[target]] == calls.track[waiting])
    target, waiting = target[real], waiting[real]
    device = np.array([name[0] for name in queues.names])[queues.stream]
    best, best_end = np.full(len(target), -1, dtype=np.int64), np.full(len(target), -1, dtype=np.int64)
    for stream, (first, stop) in enumerate(queues.bounds()):
        last = first + np.searchsorted(queues.enqueued[first:stop], calls.begin[waiting]) - 1
        ended = np.searchsorted(np.maximum.accumulate(queues.end[first:stop]), queues.begin[target], side="right")
        last = np.minimum(last, first + ended - 1)
        end = np.where(last >= first, queues.end[np.maximum(last, 0)], -1)
        better = (queues.stream[target] != stream) & (device[target] == device[first]) & (end > best_end)
        best, best_end = np.where(better, last, best), np.where(better, end, best_end)
    return best[best >= 0], target[best >= 0]
