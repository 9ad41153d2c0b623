"""Plants traces whose truth is known: events at exact nanoseconds, written as Kineto writes them."""

from __future__ import annotations

import gzip
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tachoscope_analyzers.trace.reading.read import read
from tachoscope_analyzers.trace.reading.trace import Trace

HOST, MAIN, BACKWARD = 100, 100, 101
"""Process id, main thread and autograd's thread of the planted job."""


def microseconds(nanoseconds: int) -> str:
    return f"{nanoseconds // 1000}.{nanoseconds % 1000:03d}"


@dataclass
class Planted:
    """Collects events; every method takes begin and duration in ns and returns the correlation id or the number of the event."""

    rank: int | None = 0
    world_size: int = 1
    events: list[str] = field(default_factory=list)
    extra: dict[str, Any] = field(default_factory=dict)
    correlation: int = 0

    def add(self, cat: str, name: str, start: int, duration: int, *, pid: Any = HOST, tid: Any = MAIN, **args: Any) -> int:
        names = json.dumps(name)
        self.events.append(
            f'  {{\n    "ph": "X", "cat": "{cat}", "name": {names}, "pid": {json.dumps(pid)}, "tid": {json.dumps(tid)},\n'
            f'    "ts": {microseconds(start)}, "dur": {microseconds(duration)},\n    "args": {json.dumps(args)}\n  }}'
        )
        return len(self.events) - 1

    def op(self, name: str, start: int, duration: int, *, tid: int = MAIN, **args: Any) -> int:
        return self.add("cpu_op", name, start, duration, tid=tid, **args)

    def annotation(self, name: str, start: int, duration: int, **args: Any) -> int:
        return self.add("user_annotation", name, start, duration, **args)

    def step(self, number: int, start: int, duration: int) -> int:
        return self.annotation(f"ProfilerStep#{number}", start, duration)

    def call(self, name: str, start: int, duration: int, *, tid: int = MAIN, correlation: int | None = None) -> int:
        """A host call without device work, such as cudaStreamSynchronize; returns its correlation id."""
        self.correlation += 1
        chosen = self.correlation if correlation is None else correlation
        self.add("cuda_runtime", name, start, duration, tid=tid, correlation=chosen, cbid=211)
        return chosen

    def device(
        self, cat: str, name: str, start: int, duration: int, *, stream: int = 7, device: int = 0, correlation: int = 0, **args: Any
    ) -> int:
        """Device work without its launch; `cat` is kernel, gpu_memcpy or gpu_memset."""
        return self.add(
            cat, name, start, duration, pid=device, tid=stream, device=device, stream=stream, correlation=correlation, **args
        )

    def kernel(
        self,
        name: str,
        start: int,
        duration: int,
        *,
        launched: int | None = None,
        launch_duration: int = 5_000,
        stream: int = 7,
        device: int = 0,
        tid: int = MAIN,
        **args: Any,
    ) -> int:
        """A kernel and, at `launched`, the call that launched it; returns the correlation id."""
        if launched is None:
            self.correlation += 1
        else:
            self.call("cudaLaunchKernel", launched, launch_duration, tid=tid)
        self.device("kernel", name, start, duration, stream=stream, device=device, correlation=self.correlation, **args)
        return self.correlation

    def text(self) -> str:
        distributed = {"backend": "nccl", "rank": self.rank, "world_size": self.world_size}
        top: dict[str, Any] = {
            "schemaVersion": 1,
            "deviceProperties": [
                {"id": 0, "name": "Planted", "totalGlobalMem": 1 << 34, "computeMajor": 9, "computeMinor": 0, "numSms": 132}
            ],
            **({"distributedInfo": distributed} if self.rank is not None else {}),
            **self.extra,
        }
        head = json.dumps(top)[:-1]
        body = ",\n".join(self.events)
        return f'{head}, "traceEvents": [\n{body}\n  ],\n  "traceName": "planted.json", "displayTimeUnit": "ms"\n}}\n'

    def write(self, path: Path) -> Path:
        data = self.text().encode()
        path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
        return path

    def read(self, folder: Path, name: str = "trace.json") -> Trace:
        return read(self.write(folder / name))
