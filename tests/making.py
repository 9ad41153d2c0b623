"""Makes records for tests: jobs whose truth is known because it is planted."""

from __future__ import annotations

from typing import Any

from tachoscope_core import records


def envelope(rank: int = 0, seq: int = 0, **changes: Any) -> dict[str, Any]:
    return {
        "job": "planted",
        "attempt": 0,
        "writer": f"0000000{rank}-0000-4000-8000-000000000000",
        "seq": seq,
        "rank": rank,
        "local_rank": rank,
        "host": "node-1",
        "time": 1.7e9 + seq,
        "monotonic_ns": seq * 10**9,
    } | changes


def job(
    steps: list[list[dict[str, float]]],
    *,
    device: str = "cpu",
    world_size: int | None = None,
    blocked: list[list[float]] | None = None,
    delay: list[list[float]] | None = None,
    heartbeats: list[records.Heartbeat] | None = None,
    data_cpu: float = 0.0,
    other_cpu: float = 0.0,
    threads: int = 1,
    clocks_every: int = 1,
    elements: list[list[int]] | None = None,
    still: list[list[float]] | None = None,
) -> bytes:
    """Return the JSON lines of a job. `steps[k][r]` are the phases of step k on rank r.

    `blocked[k][r]` seconds of backward are waiting in the gradient exchange, `delay[k][r]` of forward waiting for a core; all other
    time is on the CPU, of `data_wait` and `other` the given ratios. The CPU clocks are read in one step of `clocks_every`.
    `elements[k][r]` numbers are in the batch; `still[k][r]` seconds of forward the thread neither ran nor wanted a core.
    """
    lines = []
    ranks = len(steps[0])
    for rank in range(ranks):
        lines.append(
            records.JobStarted(
                **envelope(rank), world_size=world_size or ranks, pid=100 + rank, device=device, cpu_threads=threads, cpu_count=2
            )
        )
        end = 0.0
        for number, row in enumerate(steps, start=1):
            phases = row[rank]
            wall = sum(phases.values())
            end += wall
            waits = blocked[number - 1][rank] if blocked else 0.0
            without_core = delay[number - 1][rank] if delay else 0.0
            cpu = dict(phases)
            cpu["forward"] = phases.get("forward", 0.0) - without_core - (still[number - 1][rank] if still else 0.0)
            cpu["backward"] = phases.get("backward", 0.0) - waits
            cpu["data_wait"] = phases.get("data_wait", 0.0) * data_cpu
            cpu["other"] = phases.get("other", 0.0) * other_cpu
            lines.append(
                records.StepDone(
                    **envelope(rank, number, monotonic_ns=round(end * 1e9), time=1.7e9 + end),
                    step=number,
                    wall_seconds=wall,
                    phase_seconds=phases,
                    cpu_seconds=cpu if number % clocks_every == 0 else {},
                    run_delay_seconds={"step": without_core, "backward": 0.0} if number % clocks_every == 0 else {},
                    elements=elements[number - 1][rank] if elements else 0,
                )
            )
    lines.extend(heartbeats or [])
    return b"".join(map(records.encode, lines))


def beat(rank: int = 0, seq: int = 10_000, **fields: Any) -> records.Heartbeat:
    return records.Heartbeat(**envelope(rank, seq), step=1, **{"window_seconds": 5.0, **fields})
