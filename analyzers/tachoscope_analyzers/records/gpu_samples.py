"""Metric samples of the GPUs of a job: from the store, for the window of its steps, a small table for each rank.

A node agent writes hundreds of series every 15 seconds. Of these only the names below are decoded, only the objects are opened that
can hold a part of the window, and of a GPU at most `MAX_SAMPLES` rows are kept: of a longer job every second, third, ... sample.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from tachoscope_analyzers.records.step_table import StepTable
from tachoscope_core.errors import TachoscopeError
from tachoscope_core.metrics import gpu as gpu_metrics
from tachoscope_core.metrics.metric import Metric
from tachoscope_core.records.records import JobStarted
from tachoscope_core.redaction import redact
from tachoscope_core.report.report import Source
from tachoscope_core.storage.store import Store

MAX_SAMPLES = 4096
MARGIN_SECONDS = 60.0
"""Read before and after the window, so that its ends lie between two samples."""

Key = tuple[str, ...]
"""Name of a metric and the values of the labels that come after those of the GPU."""

_WANTED = {
    metric.name
    for metric in (
        gpu_metrics.GPU_UTILIZATION,
        gpu_metrics.GPU_ACTIVE,
        gpu_metrics.GPU_MEMORY_BYTES,
        gpu_metrics.GPU_POWER,
        gpu_metrics.GPU_CLOCK,
        gpu_metrics.GPU_TEMPERATURE,
        gpu_metrics.GPU_THROTTLED,
        gpu_metrics.GPU_THROTTLED_SECONDS,
        gpu_metrics.GPU_PCIE_BYTES,
        gpu_metrics.GPU_PCIE_LINK,
        gpu_metrics.GPU_LINK_RATE,
        gpu_metrics.GPU_WORKLOAD,
    )
}
_GPU_LABELS = ("gpu", "uuid", "mig")
_LEAST_JOB_RATIO = 0.1
"""Of the samples in which another job must be on the GPU to be sharing it: those that come and go between jobs are not."""

_PREFIX = b'"tachoscope_gpu_'
_NAN = float("nan")
_NO_STORE = "metric samples of the GPUs (these records come from a spool; an agent writes samples to a store)"


@dataclass(frozen=True, slots=True)
class GpuSamples:
    """What one GPU, or MIG instance, was sampled to do.

    Attributes:
        times: Unix seconds, ascending, shape (N,).
        values: shape (N,) each, in the metric's unit, NaN where it was not told. Of a MIG instance, what only its whole GPU tells
            (clocks, power, throttling) is the whole GPU's.
        jobs: training jobs that had the GPU at the time. mig: whether it is a MIG instance.
    """

    times: Sequence[float]
    values: Mapping[Key, Sequence[float]]
    jobs: frozenset[str] = frozenset()
    mig: bool = False

    def series(self, metric: Metric, *labels: str) -> Sequence[float]:
        """Return the values of a metric; all NaN where it was never told."""
        return self.values.get((metric.name, *labels)) or array("d", [_NAN]) * len(self.times)


@dataclass(frozen=True, slots=True)
class Gpus:
    """The GPU samples of a job.

    Attributes:
        by_writer: of each process whose GPU has samples. missing: why the others have none, by writer.
        why_none: where nothing was read at all, the missing signal.
        source: lines that were read. unread: errors of objects that could not be.
    """

    by_writer: Mapping[str, GpuSamples] = field(default_factory=dict)
    missing: Mapping[str, str] = field(default_factory=dict)
    why_none: str = _NO_STORE
    source: Source | None = None
    unread: tuple[str, ...] = ()


def of_job(store: Store, starts: Iterable[JobStarted], steps: StepTable, hosts: Mapping[str, str]) -> Gpus:
    """Return the samples of the GPUs of a job's last attempt that has steps. A store that cannot be read is a reason, no error.

    Args:
        hosts: by writer, the host under which its records are in the store: the node's name, as in the samples.
    """
    attempt = steps.last_attempt()
    ours = [start for start in starts if start.attempt == attempt and start.device != "cpu" and start.rank >= 0]
    missing = {start.writer: "which GPU the rank has (torch did not tell)" for start in ours if not start.gpu_uuid}
    wanted = {start.writer: without_uuid_prefix(start.gpu_uuid) for start in ours if start.gpu_uuid}
    judged = steps.of_writers(wanted)
    if not judged:
        return Gpus(missing=missing)
    start, end = float((judged.column("time") - judged.column("wall_seconds")).min()), judged.last_time()
    nodes: dict[str, set[str]] = {}
    for writer, uuid in wanted.items():
        nodes.setdefault(hosts.get(writer, ""), set()).add(uuid)
    found: dict[str, GpuSamples] = {}
    count = _Count()
    for node, uuids in sorted(nodes.items()):
        try:
            found |= _of_node(store, node, uuids, (start, end), count)
        except TachoscopeError as error:
            count.unread.append(str(error))
    for writer, uuid in wanted.items():
        if uuid not in found:
            missing[writer] = f"metric samples of its GPU from the agent on {hosts.get(writer) or 'its host'}"
    source = Source(path=f"{redact(store.url)}: metrics", records=count.lines, garbage_lines=count.garbage)
    by_writer = {writer: found[uuid] for writer, uuid in wanted.items() if uuid in found}
    return Gpus(by_writer, missing, "", source if count.lines else None, tuple(count.unread))


def without_uuid_prefix(uuid: str) -> str:
    """Return a UUID as torch gives it (`1b4e28ba-...`): NVML puts `GPU-` or `MIG-` before it."""
    uuid = uuid.lower()
    return uuid[4:] if uuid.startswith(("gpu-", "mig-")) else uuid


@dataclass(slots=True)
class _Count:
    lines: int = 0
    garbage: int = 0
    unread: list[str] = field(default_factory=list)


class _Line(msgspec.Struct):
    time: float
    name: str
    labels: list[str]
    points: msgspec.Raw


_line_decoder = msgspec.json.Decoder(_Line)
_points_decoder = msgspec.json.Decoder(list[tuple[list[str], float | None]])


class _Rows:
    """A table that grows by rows; a cell that no line filled is NaN."""

    def __init__(self) -> None:
        self.times = array("d")
        self.columns: dict[Key, array[float]] = {}
        self.jobs: Counter[str] = Counter()

    def put(self, time: float, key: Key, value: float) -> None:
        if not self.times or time != self.times[-1]:
            self.times.append(time)
        column = self.columns.get(key)
        if column is None:
            column = self.columns[key] = array("d")
        missing = len(self.times) - len(column) - 1
        if missing >= 0:
            column.extend([_NAN] * missing)
            column.append(value)
        else:
            column[-1] = value

    def column(self, key: Key) -> array[float]:
        values = self.columns[key]
        return values + array("d", [_NAN]) * (len(self.times) - len(values))


class _Tables:
    """The rows of the wanted GPUs of a node by UUID, and of whole GPUs, by number, of which an instance is wanted."""

    def __init__(self, uuids: set[str]) -> None:
        self.of = {uuid: _Rows() for uuid in uuids}
        self.whole: dict[str, _Rows] = {}
        self.gpu_of: dict[str, str] = {}
        self._bare: dict[str, str] = {}

    def rows(self, gpu: str, uuid: str, mig: str) -> list[_Rows]:
        """Return the tables that take what this GPU or instance told."""
        name = self._bare.get(uuid)
        if name is None:
            name = self._bare[uuid] = without_uuid_prefix(uuid)
        if mig and name in self.of and name not in self.gpu_of:
            self.gpu_of[name] = gpu
            self.whole.setdefault(gpu, _Rows())
        found = [self.of[name]] if name in self.of else []
        return found if mig or gpu not in self.whole else [*found, self.whole[gpu]]

    def samples(self) -> dict[str, GpuSamples]:
        """Return the tables of the GPUs that were seen."""
        return {
            uuid: _table(rows, self.whole[self.gpu_of[uuid]] if uuid in self.gpu_of else None)
            for uuid, rows in self.of.items()
            if rows.times
        }


def _of_node(store: Store, node: str, uuids: set[str], window: tuple[float, float], count: _Count) -> dict[str, GpuSamples]:
    """Return the samples of some GPUs of a node, by UUID."""
    slot_seconds = (window[1] - window[0] + 2 * MARGIN_SECONDS) / MAX_SAMPLES
    tables = _Tables(uuids)
    for line in _thinned(_lines(store, node, window, slot_seconds, count), slot_seconds):
        try:
            points = _points_decoder.decode(line.points)
        except msgspec.DecodeError:
            count.garbage += 1
            continue
        gpu, uuid, mig = (line.labels.index(name) for name in _GPU_LABELS)
        further = [at for at, name in enumerate(line.labels) if name not in _GPU_LABELS]
        for labels, value in points:
            if len(labels) != len(line.labels):
                count.garbage += 1
                continue
            for rows in tables.rows(labels[gpu], labels[uuid], labels[mig]):
                if line.name != gpu_metrics.GPU_WORKLOAD.name:
                    key = line.name, *[labels[at] for at in further]
                    rows.put(line.time, key, _NAN if value is None else value)
                elif window[0] <= line.time <= window[1]:
                    rows.jobs.update(_job(line.labels, labels))
    return tables.samples()


def _job(names: Sequence[str], labels: Sequence[str]) -> set[str]:
    """Return the training job of a workload, if it is one."""
    return {label for name, label in zip(names, labels, strict=True) if name == "training_job" and label}


def _lines(store: Store, node: str, window: tuple[float, float], slot_seconds: float, count: _Count) -> Iterator[_Line]:
    """Yield the lines of the wanted metrics about the window. Of objects that begin in the same slot one is opened."""
    start, end = window[0] - MARGIN_SECONDS, window[1] + MARGIN_SECONDS
    slot = -1
    for one in store.samples(node, start=start, end=end):
        if int(one.began // slot_seconds) == slot:
            continue
        slot = int(one.began // slot_seconds)
        try:
            content = store.read(one)
        except TachoscopeError as error:
            count.unread.append(str(error))
            continue
        for text in content.split(b"\n"):
            if _PREFIX not in text:
                continue
            try:
                line = _line_decoder.decode(text)
            except (msgspec.DecodeError, UnicodeDecodeError):
                count.garbage += 1
                continue
            if line.name in _WANTED and start <= line.time <= end and set(_GPU_LABELS) <= set(line.labels):
                count.lines += 1
                yield line


def _thinned(lines: Iterable[_Line], slot_seconds: float) -> Iterator[_Line]:
    """Yield the lines of the first sample of each slot; all lines of a sample have the same time."""
    slot, kept = -1, _NAN
    for line in lines:
        if line.time != kept and int(line.time // slot_seconds) == slot:
            continue
        slot, kept = int(line.time // slot_seconds), line.time
        yield line


def _table(rows: _Rows, whole: _Rows | None) -> GpuSamples:
    """Return the table in the order of time, each time once, with what only the whole GPU told."""
    at = {time: row for row, time in enumerate(rows.times)}
    times = sorted(at)
    values = {key: _picked(rows.column(key), (at[time] for time in times)) for key in rows.columns}
    if whole is not None:
        there = {time: row for row, time in enumerate(whole.times)}
        for key in whole.columns.keys() - rows.columns.keys():
            values[key] = _picked(whole.column(key), (there.get(time, -1) for time in times))
    jobs = frozenset(job for job, seen in rows.jobs.items() if seen >= _LEAST_JOB_RATIO * len(times))
    return GpuSamples(array("d", times), values, jobs, mig=whole is not None)


def _picked(column: Sequence[float], rows: Iterable[int]) -> array[float]:
    return array("d", [column[row] if row >= 0 else _NAN for row in rows])
