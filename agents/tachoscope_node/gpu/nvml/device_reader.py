"""Reads one GPU, with its MIG instances: what changes fast each time, what changes slowly every 15 seconds."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, TypeVar

from tachoscope_core.metrics.gpu import GPU_NVLINKS, GPU_PROCESSES, GPU_TEMPERATURE, GPU_TEMPERATURE_MARGIN
from tachoscope_node.gpu.nvml.batched_query import QueryResult, query_gpu
from tachoscope_node.gpu.nvml.conversions import link_states, margins
from tachoscope_node.gpu.nvml.driver import UNSUPPORTED, code_of, raise_if_down
from tachoscope_node.gpu.nvml.gpm import Gpm, Request
from tachoscope_node.gpu.nvml.mig import Instance, instances
from tachoscope_node.gpu.nvml.query_plan import UNSURE_SECONDS, Plan, link_activity, make_plan
from tachoscope_node.gpu.nvml.sources import ValueSource
from tachoscope_node.gpu.reading import Gpu, GpuProcess, Reading
from tachoscope_service.metrics.family import Labels

SLOW_SECONDS = 15.0
Values = dict[str, dict[Labels, float]]
_T = TypeVar("_T")
FUNCTIONS = ("nvmlDeviceGetComputeRunningProcesses_v3", "nvmlDeviceGetComputeRunningProcesses_v2")
"""Drivers of the 535 branch filled _v3 with longer entries than nvidia-ml-py reads (github.com/XuehaiPan/nvitop/pull/79); _v2
never changed. Drivers before CUDA 11.6 have _v2 only."""
_MOST_PID = 1 << 22
"""PID_MAX_LIMIT of the kernel, include/linux/threads.h."""


@dataclass(slots=True)
class _Part:
    """What is kept of a whole GPU or of an instance between two readings."""

    gpu: Gpu
    handle: Any
    gpm: Gpm | None
    processes: Processes


class Reader:
    """One GPU. Not for two threads at a time.

    Args:
        gpu: what it is, under the index that its series have.
    """

    def __init__(self, nvml: Any, handle: Any, gpu: Gpu) -> None:
        self.gpu = gpu
        self.handle = handle
        self._nvml = nvml
        self._request: Request | None = None
        self._plan: Plan | None = None
        self._whole = _Part(gpu, handle, None, Processes())
        self._parts: list[_Part] = []
        self._slow: Values = {}
        self._slow_due = self._learn_due = float("-inf")

    @property
    def instances(self) -> tuple[Gpu, ...]:
        """The MIG instances that it last had."""
        return tuple(part.gpu for part in self._parts)

    def read(self, now: float) -> list[Reading]:
        """Return the reading of the GPU and those of its MIG instances. now: monotonic seconds.

        Raises:
            NVMLError: the GPU is lost, the driver has stopped, or not one call works.
        """
        began = time.perf_counter()
        plan = self._plan
        if plan is None or now >= self._learn_due:
            plan = self._plan = self._make_plan(now)
        if now >= self._slow_due:
            self._read_slowly(plan, now)
        values: Values = {metric: dict(labels) for metric, labels in self._slow.items()}
        answers = query_gpu(self._nvml, self.handle, plan.fast)
        self._check(answers, now)
        processes = self._read_part(self._whole, answers.values, values, now)
        if left := margins(plan.limits, values.get(GPU_TEMPERATURE.name, {})):
            values[GPU_TEMPERATURE_MARGIN.name] = left | values.get(GPU_TEMPERATURE_MARGIN.name, {})
        readings = [Reading(self.gpu, values=values, processes=processes, seconds=time.perf_counter() - began, at=now)]
        readings += [self._read_instance(part, plan, now) for part in self._parts]
        return readings

    def close(self) -> None:
        """Free what the driver keeps for it. Raises NVMLError."""
        for part in (self._whole, *self._parts):
            if part.gpm is not None:
                part.gpm.close()

    def _make_plan(self, now: float) -> Plan:
        plan = make_plan(self._nvml, self.handle, now)
        self._learn_due, self._slow_due = plan.until, now
        if plan.gpm and self._request is None:
            self._request = Request(self._nvml)
        if not plan.gpm or plan.mig:  # where MIG is on, GPM reports instances
            self._whole.gpm = None
        elif self._whole.gpm is None and self._request is not None:
            self._whole.gpm = Gpm(self._nvml, lambda sample: self._nvml.nvmlGpmSampleGet(self.handle, sample), self._request)
        self._whole.processes = Processes()
        return plan

    def _read_slowly(self, plan: Plan, now: float) -> None:
        answers = query_gpu(self._nvml, self.handle, plan.slow)
        self._check(answers, now)
        self._slow = {}
        _put(self._slow, answers.values)
        if plan.links:
            self._slow[GPU_NVLINKS.name] = link_states(link_activity(self._nvml, self.handle, plan.links))
        self._divide(instances(self._nvml, self.handle, self.gpu) if plan.mig else (), plan)
        self._slow_due = now + SLOW_SECONDS

    def _divide(self, found: Iterable[Instance], plan: Plan) -> None:
        """Update the MIG instances; existing ones keep their samples."""
        before = {part.gpu: part for part in self._parts}
        self._parts = []
        for instance in found:
            part = before.pop(instance.gpu, None) or _Part(instance.gpu, instance.handle, self._gpm_of(instance, plan), Processes())
            part.handle = instance.handle
            self._parts.append(part)
        for part in before.values():
            if part.gpm is not None:
                part.gpm.close()

    def _gpm_of(self, instance: Instance, plan: Plan) -> Gpm | None:
        if not plan.gpm or self._request is None:
            return None
        number = instance.gpu_instance
        return Gpm(self._nvml, lambda sample: self._nvml.nvmlGpmMigSampleGet(self.handle, number, sample), self._request)

    def _read_instance(self, part: _Part, plan: Plan, now: float) -> Reading:
        began = time.perf_counter()
        answers = query_gpu(self._nvml, part.handle, plan.instance)
        if not answers.values:  # its handle holds no longer: it was removed, or made again
            self._slow_due = now
        values: Values = {}
        processes = self._read_part(part, answers.values, values, now)
        return Reading(part.gpu, values=values, processes=processes, seconds=time.perf_counter() - began, at=now)

    def _read_part(
        self, part: _Part, answered: list[tuple[ValueSource, float]], values: Values, now: float
    ) -> tuple[GpuProcess, ...] | None:
        _put(values, answered)
        if part.gpm is not None:
            gpm = part.gpm
            _put(values, self._tried(lambda: gpm.read(now)) or ())
        processes = self._tried(lambda: part.processes.read(self._nvml, part.handle))
        if processes is not None:
            values[GPU_PROCESSES.name] = {(): float(len(processes))}
        return processes

    def _check(self, answers: QueryResult, now: float) -> None:
        """Plan again soon if the GPU stopped answering something; raise if nothing works."""
        if not answers.refused:
            return
        passing = [code for code in answers.refused.values() if code not in UNSUPPORTED]
        if passing and not answers.values:
            raise self._nvml.NVMLError(passing[0])
        self._learn_due = min(self._learn_due, now + UNSURE_SECONDS)

    def _tried(self, work: Callable[[], _T]) -> _T | None:
        """Do optional work. Raises NVMLError if the GPU itself does not work."""
        try:
            return work()
        except self._nvml.NVMLError as error:
            raise_if_down(error)
            return None


def _put(values: Values, answers: Iterable[tuple[ValueSource, float]]) -> None:
    for source, value in answers:
        values.setdefault(source.metric, {})[source.labels] = value


class Processes:
    """The processes of a GPU or MIG instance, from the first function with a plausible list."""

    def __init__(self) -> None:
        self._functions = list(FUNCTIONS)

    def read(self, nvml: Any, handle: Any) -> tuple[GpuProcess, ...] | None:
        """Return the processes, None where the driver does not tell. Raises NVMLError for a GPU or driver that does not work."""
        while self._functions:
            try:
                found = getattr(nvml, self._functions[0])(handle)
            except nvml.NVMLError as error:
                if code_of(error) not in UNSUPPORTED:
                    raise
            else:
                processes = tuple(GpuProcess(entry.pid, entry.usedGpuMemory) for entry in found)
                if can_be_true(processes):
                    return processes
            self._functions.pop(0)
        return None


def can_be_true(processes: Iterable[GpuProcess]) -> bool:
    """Return whether a list is plausible: read with the wrong entry size, it has impossible pids."""
    return all(0 < process.pid <= _MOST_PID for process in processes)
