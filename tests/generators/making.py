"""Makes records for tests: jobs whose truth is known because it is planted."""

from __future__ import annotations

from typing import Any

from tachoscope_core.records import records


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
    cores: int = 2,
    clocks_every: int = 1,
    backward_calls: int = 1,
    pipelines: list[list[int]] | None = None,
    collectives: list[records.CollectiveDone] | None = None,
    attempt: int = 0,
    elements: list[list[int]] | None = None,
    still: list[list[float]] | None = None,
) -> bytes:
    """Return the JSON lines of a job. `steps[k][r]` are the phases of step k on rank r.

    `blocked[k][r]` seconds of backward are waiting in the gradient exchange, `delay[k][r]` of forward waiting for a core; all other
    time is on the CPU, of `data_wait` and `other` the given ratios. The CPU clocks are read in one step of `clocks_every`.
    `pipelines` are the ranks of each pipeline in the order of their stages.
    `elements[k][r]` numbers are in the batch; `still[k][r]` seconds of forward the thread neither ran nor wanted a core.
    """
    lines = []
    ranks = len(steps[0])
    for rank in range(ranks):
        again = {"attempt": attempt, "writer": f"{attempt:07d}{rank}-0000-4000-8000-000000000000"}
        lines.append(
            records.JobStarted(
                **envelope(rank, **again),
                world_size=world_size or ranks,
                pid=100 + rank,
                device=device,
                cpu_threads=threads,
                cpu_count=cores,
                groups={"pp": [group for group in pipelines or [] if rank in group]} if pipelines else {},
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
                    **envelope(rank, number, monotonic_ns=round(end * 1e9), time=1.7e9 + end, **again),
                    step=number,
                    wall_seconds=wall,
                    phase_seconds=phases,
                    cpu_seconds=cpu if number % clocks_every == 0 else {},
                    run_delay_seconds={"step": without_core, "backward": 0.0} if number % clocks_every == 0 else {},
                    backward_calls=backward_calls,
                    elements=elements[number - 1][rank] if elements else 0,
                )
            )
    lines.extend([*(heartbeats or []), *(collectives or [])])
    return b"".join(map(records.encode, lines))


def beat(rank: int = 0, seq: int = 10_000, **fields: Any) -> records.Heartbeat:
    return records.Heartbeat(**envelope(rank, seq) | {"step": 1, "window_seconds": 5.0, **fields})


def synchronous(
    own: list[list[dict[str, float]]], transfer: float = 0.002
) -> tuple[list[list[dict[str, float]]], list[list[float]]]:
    """Make ranks wait for each other in backward, as DDP does: the same wall time on all, and who waited how long."""
    steps, blocked = [], []
    for row in own:
        total = [sum(phases.values()) for phases in row]
        waits = [max(total) - mine + transfer for mine in total]
        steps.append([phases | {"backward": phases["backward"] + wait} for phases, wait in zip(row, waits, strict=True)])
        blocked.append(waits)
    return steps, blocked


def moved(rank: int, collective: str, seq: int = 20_000, **fields: Any) -> records.CollectiveDone:
    """A summary of one rank's calls over steps 1 to `step`."""
    whole = {"size_class": "<=1MiB", "count": 1, "bytes": 1 << 20, "seconds": 0.0, **fields}
    return records.CollectiveDone(**envelope(rank, seq) | whole, collective=collective)
