"""A loader whose costs are planted: what a step waits for its batch, without a clock."""

from __future__ import annotations

PREFETCH = 2


def waits(costs: list[float], step: float, number: int) -> list[float]:
    """Return what each step waits for its batch in a loader with so many workers, as PyTorch's hands them out: in order, by turns,
    `PREFETCH` batches ahead for each worker, and a new one asked for when one was taken.
    """
    ready, free, asked = {}, [0.0] * number, 0

    def ask(now: float) -> None:
        nonlocal asked
        if asked < len(costs):
            worker = asked % number
            free[worker] = max(free[worker], now) + costs[asked]
            ready[asked] = free[worker]
            asked += 1

    for _ in range(PREFETCH * number):
        ask(0.0)
    now, found = 0.0, []
    for batch in range(len(costs)):
        found.append(max(ready[batch] - now, 0.0))
        now += found[-1]
        ask(now)
        now += step
    return found[len(found) // 4 :]  # the first are made while nobody computes
