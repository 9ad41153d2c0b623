"""Plays a job by the rules of a host that launches into streams, and plants its trace: what a change does is then known exactly."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from hypothesis import strategies as st

from planting import Planted
from tachoscope_analyzers.trace.events.view import TraceView

LAUNCH, LATENCY, SYNC, WAIT, PYTHON = 5_000, 7_000, 3_000, 2_000, 1_000
"""ns: a launching call, from its begin to the kernel's begin, a synchronisation's own time, a stream wait, Python between."""
STREAMS = (7, 20)
LOADER = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"
BEGIN = 1_000_000_000


@dataclass(frozen=True)
class Action:
    """`op`, `load`, `kernel`, `collective`, `copy`, `sync` or `wait` (of a stream for the other one), `ns` long, on a stream."""

    what: str
    ns: int = 0
    stream: int = STREAMS[0]


@dataclass
class Simulation:
    """The job without what is in `without`; it plants its events on the way."""

    without: frozenset[str] = frozenset()
    planted: Planted = field(default_factory=Planted)
    now: int = BEGIN
    end: dict[int, int] = field(default_factory=lambda: dict.fromkeys(STREAMS, 0))
    held: dict[int, int] = field(default_factory=lambda: dict.fromkeys(STREAMS, 0))

    def run(self, actions: Sequence[Action]) -> int:
        """Play the actions and return how long the job took, in ns."""
        for action in actions:
            self.now += 0 if "host" in self.without else PYTHON
            getattr(self, action.what)(action)
        host = self.now
        self.planted.step(1, BEGIN, host - BEGIN)
        return max(host, *self.end.values()) - BEGIN

    def _host(self, what: str, ns: int) -> int:
        before = self.now
        self.now += 0 if what in self.without or "host" in self.without else ns
        return before

    def op(self, action: Action) -> None:
        self.planted.op("aten::work", self._host("op", action.ns), action.ns)

    def load(self, action: Action) -> None:
        self.planted.annotation(LOADER, self._host("load", action.ns), action.ns)

    def _enqueue(self, what: str, cat: str, name: str, call: str, action: Action) -> None:
        begin = self._host("launch", LAUNCH)
        latency = 0 if self.without & {"launch", "host"} else LATENCY
        start = max(begin + latency, self.end[action.stream], self.held[action.stream])
        self.end[action.stream] = start + (0 if what in self.without else action.ns)
        self.planted.call(call, begin, LAUNCH)
        self.planted.device(cat, name, start, action.ns, stream=action.stream, correlation=self.planted.correlation)

    def kernel(self, action: Action) -> None:
        self._enqueue("kernel", "kernel", "gemm", "cudaLaunchKernel", action)

    def collective(self, action: Action) -> None:
        self._enqueue("collective", "kernel", "ncclDevKernel_AllReduce_Sum_f32_RING_LL", "cudaLaunchKernel", action)

    def copy(self, action: Action) -> None:
        self._enqueue("copy", "gpu_memcpy", "Memcpy DtoD (Device -> Device)", "cudaMemcpyAsync", action)

    def sync(self, action: Action) -> None:
        begin = self.now
        if "sync" not in self.without:
            self.now = max(begin, *self.end.values()) + (0 if "host" in self.without else SYNC)
        self.planted.call("cudaDeviceSynchronize", begin, self.now - begin)

    def wait(self, action: Action) -> None:
        other = STREAMS[1 - STREAMS.index(action.stream)]
        record = self.planted.call("cudaEventRecord", self._host("wait", WAIT), WAIT)
        wait = self.planted.call("cudaStreamWaitEvent", self._host("wait", WAIT), WAIT)
        self.held[action.stream] = max(self.held[action.stream], self.end[other])
        self.planted.add(
            "cuda_sync",
            "Stream Wait Event",
            self.now - WAIT,
            1_000,
            pid=0,
            tid=action.stream,
            device=0,
            stream=action.stream,
            correlation=wait,
            wait_on_stream=other,
            wait_on_cuda_event_record_corr_id=record,
        )


def played(actions: Sequence[Action], folder: Path) -> tuple[TraceView, int]:
    """Return the view of a job's trace, and how long it took."""
    job = Simulation()
    took = job.run(actions)
    return TraceView(job.planted.read(folder)), took


def took_without(actions: Sequence[Action], *what: str) -> int:
    """Return how long the job takes without something: load, op, launch, host, sync, kernel, collective or copy."""
    return Simulation(frozenset(what)).run(actions)


_LENGTHS = st.integers(1, 300).map(lambda microseconds: microseconds * 1_000)
_ACTIONS = st.builds(
    Action,
    st.sampled_from(["op", "load", "kernel", "kernel", "kernel", "collective", "copy", "sync", "wait"]),
    _LENGTHS,
    st.sampled_from(STREAMS),
)
JOBS = st.lists(_ACTIONS, min_size=1, max_size=30).map(lambda actions: [Action("kernel", 20_000), *actions, Action("sync")])
"""Jobs that begin with a kernel (so that a latency is seen) and end when all is done."""
