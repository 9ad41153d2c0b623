"""Recordings of pipeline jobs with planted causes: an event simulation that knows nothing of the one under test."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

FORWARD, BACKWARD = "forward", "backward"
Item = tuple[str, int, int] | list[tuple[str, str, int, int]]
"""Computing (kind, chunk, batch), or transfers at once: (kind, send or recv, chunk, batch)."""


@dataclass(frozen=True)
class Plan:
    """A job; seconds.

    `stage` and `worker` multiply the computing of a stage, or of (stage, replica). `lengths`: sigma of the log-normal length of a
    micro-batch, of mean 1, which all stages compute for; backward takes that to the `power`. `pause`: probability and seconds for
    one forward. `collect`: the same for garbage collection at the end of a step. `slow_pair`: (stage, replica) whose transfers to
    the next stage take `slow_transfer`. `jitter`: sigma of each operation's own noise. `skew`: a clock that is wrong, by worker.
    """

    replicas: int = 2
    stages: int = 4
    chunks: int = 1
    batches: int = 8
    steps: int = 20
    forward: float = 0.010
    backward: float = 0.020
    transfer: float = 0.0002
    slow_transfer: float = 0.0
    slow_pair: tuple[int, int] | None = None
    collective: float = 0.004
    launch: float = 0.00002
    stage: dict[int, float] = field(default_factory=dict)
    worker: dict[tuple[int, int], float] = field(default_factory=dict)
    lengths: float = 0.0
    power: float = 1.0
    jitter: float = 0.01
    pause: tuple[float, float] = (0.0, 0.0)
    collect: tuple[float, float] = (0.0, 0.0)
    skew: dict[tuple[int, int], float] = field(default_factory=dict)
    seed: int = 0


def one_forward_one_backward(plan: Plan, stage: int) -> list[Item]:
    """The schedule of PipeDream-Flush and Megatron: sends and receives block, and go together where both are due."""
    first, last = stage == 0, stage == plan.stages - 1
    ahead = min(plan.stages - stage - 1, plan.batches)
    items: list[Item] = []

    def move(*transfers: tuple[str, str, int]) -> None:
        there = [
            (kind, side, stage, batch)
            for kind, side, batch in transfers
            if not (first and (kind, side) in {(FORWARD, "recv"), (BACKWARD, "send")})
            and not (last and (kind, side) in {(FORWARD, "send"), (BACKWARD, "recv")})
        ]
        if there:
            items.append(there)

    for batch in range(ahead):
        move((FORWARD, "recv", batch))
        items.append((FORWARD, stage, batch))
        move((FORWARD, "send", batch))
    if ahead < plan.batches:
        move((FORWARD, "recv", ahead))
    for batch in range(plan.batches - ahead):
        items.append((FORWARD, stage, batch + ahead))
        move((FORWARD, "send", batch + ahead), (BACKWARD, "recv", batch))
        items.append((BACKWARD, stage, batch))
        more = batch + ahead + 1 < plan.batches
        move(*[(BACKWARD, "send", batch), *([(FORWARD, "recv", batch + ahead + 1)] if more else [])])
    for batch in range(plan.batches - ahead, plan.batches):
        move((BACKWARD, "recv", batch))
        items.append((BACKWARD, stage, batch))
        move((BACKWARD, "send", batch))
    return items


def all_forward_all_backward(plan: Plan, stage: int) -> list[Item]:
    """All forwards of all chunks, then all backwards; sends do not block."""
    items: list[Item] = []
    own = [stage + turn * plan.stages for turn in range(plan.chunks)]
    last = plan.stages * plan.chunks - 1
    for kind, chunks, end in ((FORWARD, own, 0), (BACKWARD, own[::-1], last)):
        for chunk in chunks:
            for batch in range(plan.batches):
                if chunk != end:
                    items.append([(kind, "recv", chunk, batch)])
                items.append((kind, chunk, batch))
                if chunk != last - end:
                    items.append([(kind, "send", chunk, batch)])
    return items


class _Step:
    """One step: rows are worker, type, begin, end, chunk, batch."""

    def __init__(self, plan: Plan, draw: np.random.Generator) -> None:
        self.plan, self.draw = plan, draw
        self.late: list[tuple[int, int, str, int, int, float]] = []
        self.rows: list[tuple[int, int, str, float, float, int, int]] = []

    def run(self) -> list[tuple[int, int, str, float, float, int, int]]:
        plan, draw = self.plan, self.draw
        clock = np.zeros((plan.stages, plan.replicas))
        for stage in range(plan.stages):
            clock[stage] = self._together("params-all-gather", [stage], clock)
        for replica in range(plan.replicas):
            lengths = np.exp(draw.normal(-(plan.lengths**2) / 2, plan.lengths, plan.batches))  # mean 1
            clock[:, replica] = self._pipeline(replica, lengths, clock[:, replica])
        for place in np.ndindex(clock.shape):
            pause = plan.collect[1] if draw.random() < plan.collect[0] else 0.0
            clock[place] = self._row(*place, "gc", clock[place], pause)
        if plan.stages > 1:
            for replica in range(plan.replicas):
                ends = [0, plan.stages - 1]
                begins = [clock[stage, replica] + self._gap() for stage in ends]
                done = max(begins) + plan.collective / 4
                for stage, begin in zip(ends, begins, strict=True):
                    self.rows.append((stage, replica, "embedding-grads-all-reduce", begin, done, -1, -1))
                    clock[stage, replica] = done
        for stage in range(plan.stages):
            clock[stage] = self._together("grads-reduce-scatter", [stage], clock)
        clock[:] = self._together("optimizer-clip-main-grad", list(range(plan.stages)), clock)
        for place in np.ndindex(clock.shape):
            clock[place] = self._row(*place, "optimizer", clock[place], plan.forward / 2)
        return self.rows

    def _gap(self) -> float:
        return float(self.draw.exponential(self.plan.launch)) if self.plan.launch else 0.0

    def _row(self, stage: int, replica: int, optype: str, ready: float, seconds: float, chunk: int = -1, batch: int = -1) -> float:
        begin = ready + self._gap()
        self.rows.append((stage, replica, optype, begin, begin + seconds, chunk, batch))
        return begin + seconds

    def _together(self, optype: str, stages: list[int], clock: np.ndarray) -> float:
        begins = {(s, r): clock[s, r] + self._gap() for s in stages for r in range(self.plan.replicas)}
        end = max(begins.values()) + self.plan.collective * float(np.exp(self.draw.normal(0, self.plan.jitter)))
        self.rows += [(s, r, optype, begin, end, -1, -1) for (s, r), begin in begins.items()]
        return end

    def _seconds(self, kind: str, chunk: int, replica: int, length: float) -> float:
        plan = self.plan
        stage = chunk % plan.stages
        base = plan.forward if kind == FORWARD else plan.backward
        factor = plan.stage.get(stage, 1.0) * plan.worker.get((stage, replica), 1.0)
        own = base * factor * (length if kind == FORWARD else length**plan.power) * float(np.exp(self.draw.normal(0, plan.jitter)))
        paused = kind == FORWARD and self.draw.random() < plan.pause[0]
        return own + (plan.pause[1] if paused else 0.0)

    def _pipeline(self, replica: int, lengths: np.ndarray, clock: np.ndarray) -> list[float]:
        plan = self.plan
        blocking = plan.chunks == 1
        schedule = one_forward_one_backward if blocking else all_forward_all_backward
        items = [schedule(plan, stage) for stage in range(plan.stages)]
        now, at = list(clock), [0] * plan.stages
        posted: dict[tuple[str, int, int, str], float] = {}
        ends: dict[int, float] = {}
        moved = True
        while moved:
            moved = False
            for stage in range(plan.stages):
                while at[stage] < len(items[stage]):
                    item = items[stage][at[stage]]
                    if isinstance(item, tuple):
                        kind, chunk, batch = item
                        seconds = self._seconds(kind, chunk, replica, lengths[batch])
                        now[stage] = self._row(stage, replica, f"{kind}-compute", now[stage], seconds, chunk, batch)
                    else:
                        done = self._move(stage, replica, item, now[stage], posted, ends, blocking=blocking)
                        if done is None:
                            break
                        now[stage] = done
                    at[stage], moved = at[stage] + 1, True
        assert all(place == len(line) for place, line in zip(at, items, strict=True)), "the schedule is stuck"
        return now

    def _move(
        self,
        stage: int,
        replica: int,
        item: list[tuple[str, str, int, int]],
        now: float,
        posted: dict[tuple[str, int, int, str], float],
        ends: dict[int, float],
        *,
        blocking: bool,
    ) -> float | None:
        """End of the transfers, or None while a partner has not come. A transfer is named by the chunk that sends."""
        plan = self.plan
        begin = ends.get(stage)
        if begin is None:
            begin = now + self._gap()
            ends[stage] = begin
        waits, took = [begin], plan.transfer
        for kind, side, chunk, batch in item:
            sender = chunk if side == "send" else chunk - 1 if kind == FORWARD else chunk + 1
            receiver = sender + (1 if kind == FORWARD else -1)
            posted.setdefault((kind, sender, batch, side), begin)
            if side == "send" and not blocking:
                self.late.append((stage, replica, kind, sender, batch, begin))
                del ends[stage]
                return now
            waits.append(posted.get((kind, sender, batch, "recv" if side == "send" else "send"), -1.0))
            if plan.slow_pair == (min(sender, receiver) % plan.stages, replica):
                took = max(took, plan.slow_transfer)
        if min(waits) < 0:
            return None
        end = max(waits) + took
        for kind, side, _, _ in item:
            self.rows.append((stage, replica, f"{kind}-{side}", begin, end, -1, -1))
        if not blocking:
            kind, _, chunk, batch = item[0]
            sender = chunk - 1 if kind == FORWARD else chunk + 1
            for sent in [one for one in self.late if one[1:5] == (replica, kind, sender, batch)]:
                self.rows.append((sent[0], replica, f"{kind}-send", sent[5], end, -1, -1))
        del ends[stage]
        return end


def operations(plan: Plan) -> pd.DataFrame:
    """The recording as a table."""
    draw = np.random.default_rng(plan.seed)
    rows = []
    for step in range(plan.steps):
        counted: dict[tuple[int, int, str], int] = {}
        for stage, replica, optype, begin, end, chunk, batch in sorted(_Step(plan, draw).run(), key=lambda row: row[3:5]):
            key = (stage, replica, optype)
            number = counted[key] = counted.get(key, -1) + 1
            begin += plan.skew.get((stage, replica), 0.0)
            end += plan.skew.get((stage, replica), 0.0)
            turn = chunk // plan.stages if chunk >= 0 else -1
            rows.append(
                (replica, stage, replica * plan.stages + stage, 10 * step, optype, begin, end - begin, number, turn, batch, chunk)
            )
    columns = ["dp_rank", "stage", "rank", "step", "optype", "start_ts", "duration", "seq_id", "mc", "mb_id", "gmc"]
    return pd.DataFrame(rows, columns=columns)


def write(folder: Path, plan: Plan, name: str = "planted", **sizes: Any) -> Path:
    """Write a recording, and beside it its sizes if any are given."""
    path = folder / f"trace-{name}.parquet"
    operations(plan).to_parquet(path)
    if sizes:
        (folder / f"meta-{name}.yaml").write_text("".join(f"{key}: {value}\n" for key, value in sizes.items()))
    return path
