"""Plants jobs of several ranks whose truth is known: who is late, by how much, what each waits for, and how wrong its clock is."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from planting import MAIN, Planted

EPOCH = 1_700_000_000_000_000_000
"""Time at which planted jobs begin, on the true clock, in ns."""
NAMES = {
    "all_reduce": ("allreduce", "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"),
    "all_gather": ("_allgather_base", "ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)"),
    "reduce_scatter": ("_reduce_scatter_base", "ncclDevKernel_ReduceScatter_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"),
    "all_to_all": ("all_to_allv", "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)"),
    "broadcast": ("broadcast", "ncclDevKernel_Broadcast_RING_LL(ncclDevKernelArgsStorage<4096ul>)"),
}


@dataclass(frozen=True)
class Group:
    """A process group and the collective that it runs at the end of each step."""

    name: str
    ranks: Sequence[int]
    description: str = ""
    kind: str = "all_reduce"
    elements: int = 1 << 20
    transfer: int = 300_000


@dataclass(frozen=True)
class Truth:
    """One collective: its place, the arrival of each of the group's ranks on the true clock, and when it ended for all."""

    group: Group
    step: int
    arrival: dict[int, int]
    end: int

    @property
    def last(self) -> int:
        return max(self.arrival, key=lambda rank: self.arrival[rank])

    @property
    def delay(self) -> int:
        """By how much the last rank delayed the next to last."""
        times = sorted(self.arrival.values())
        return times[-1] - times[-2]

    def wait(self, rank: int) -> int:
        return max(self.arrival.values()) - self.arrival[rank]


@dataclass
class PlantedJob:
    """A job whose ranks compute, then run the groups' collectives one after the other, each step.

    Attributes (times in ns): a rank computes for `compute` plus up to `jitter`, plus `late[rank]`. offsets: by how much a rank's
    clock is ahead. scatter: how far apart the recorded ends of a collective may be. skipped: how many of its first collectives a
    rank has not recorded. numbered: whether collectives carry sequence numbers. named: whether they tell anything of themselves at
    all. first_number: of the first step of a rank, where that is not 0. before: what the host of a rank does in a step before it
    launches anything, the name of an operator or annotation ("" for nothing at all) and how long that takes. device: whether there
    is one; without, operators compute, and gloo exchanges on a thread of its own.
    """

    ranks: int
    groups: Sequence[Group]
    steps: int = 6
    compute: int = 5_000_000
    jitter: int = 400_000
    late: dict[int, int] = field(default_factory=dict)
    offsets: dict[int, int] = field(default_factory=dict)
    scatter: int = 0
    skipped: dict[int, int] = field(default_factory=dict)
    numbered: bool = False
    named: bool = True
    first_number: dict[int, int] = field(default_factory=dict)
    before: Callable[[int, int], tuple[str, int]] = lambda rank, step: ("", 0)
    device: bool = True
    seed: int = 0
    truth: list[Truth] = field(default_factory=list)

    def traces(self) -> dict[int, Planted]:
        """Return the trace of each rank and note the truth."""
        rng = random.Random(self.seed)
        traces = {rank: Planted(rank, self.ranks) for rank in range(self.ranks)}
        now = dict.fromkeys(traces, EPOCH)
        sequence = dict.fromkeys((group.name for group in self.groups), 0)
        self.truth = []
        for step in range(self.steps):
            begun = dict(now)
            for rank, trace in traces.items():
                compute = self.compute + rng.randrange(self.jitter + 1) + self.late.get(rank, 0)
                now[rank] += self._before(trace, rank, step, now[rank] + self.offsets.get(rank, 0))
                shown = now[rank] + self.offsets.get(rank, 0)
                trace.op("aten::mm", shown, compute)
                if self.device:
                    trace.kernel("sgemm_tn", shown + 20_000, compute - 20_000, launched=shown + 1_000)
                now[rank] += compute
            for group in self.groups:
                sequence[group.name] += 1
                self._collective(traces, now, group, step, sequence[group.name], rng)
            for rank, trace in traces.items():
                number = step + self.first_number.get(rank, 0)
                trace.step(number, begun[rank] + self.offsets.get(rank, 0), now[rank] - begun[rank])
        return traces

    def _before(self, trace: Planted, rank: int, step: int, shown: int) -> int:
        name, takes = self.before(rank, step)
        if name.startswith("aten::"):
            trace.op(name, shown, takes)
        elif name:
            trace.annotation(name, shown, takes)
        return takes

    def _collective(
        self, traces: dict[int, Planted], now: dict[int, int], group: Group, step: int, sequence: int, rng: random.Random
    ) -> None:
        arrival = {rank: now[rank] for rank in group.ranks}
        end = max(arrival.values()) + group.transfer
        self.truth.append(Truth(group, step, arrival, end))
        for rank, begin in arrival.items():
            noise = rng.randrange(-self.scatter, self.scatter + 1) if self.scatter else 0
            now[rank] = end
            if sequence > self.skipped.get(rank, 0):
                self._record(traces[rank], group, begin + self.offsets.get(rank, 0), end - begin + noise, sequence)

    def _record(self, trace: Planted, group: Group, begin: int, duration: int, sequence: int) -> None:
        name, kernel = NAMES[group.kind]
        args: dict[str, object] = {}
        if self.named:
            args = {
                "Collective name": name,
                "In msg nelems": group.elements,
                "Out msg nelems": group.elements,
                "Group size": len(group.ranks),
                "Process Group Name": group.name,
                "Process Group Description": group.description,
                "Process Group Ranks": str(list(group.ranks)),
                "dtype": "Float",
            }
        if self.numbered:
            args["Seq"] = sequence
        if not self.device:
            trace.add("user_annotation", f"gloo:{name}", begin, duration, tid=MAIN + 1, **args)
            return
        trace.op("record_param_comms", begin - 12_000, 11_000, tid=MAIN + 1, **args)
        trace.kernel(kernel, begin, duration, launched=begin - 10_000, tid=MAIN + 1, stream=20, **args)

    def write(self, folder: Path) -> list[Path]:
        """Write one file for each rank, under names that tell nothing of it."""
        folder.mkdir(parents=True, exist_ok=True)
        names = [f"trace-{chr(ord('z') - place % 26)}{place}.json" for place in range(self.ranks)]
        return [trace.write(folder / name) for trace, name in zip(self.traces().values(), names, strict=True)]
