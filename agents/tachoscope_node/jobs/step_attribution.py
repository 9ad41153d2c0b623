"""Steps by ledger state: what a node can say while the job runs, of one rank's step, and of a step that all its ranks finished.

The same rules as the analyzers' (`tachoscope_analyzers.records.steps`), which see all ranks and the steps around each one: here a
clock that was not read in a step has the value of the last step in which it was.
"""

from __future__ import annotations

import msgspec

from tachoscope_core.jobs.pause_rule import outside_samples, paused_ratio
from tachoscope_core.records.records import Heartbeat, StepDone

_HOST_STATES = {
    "data_wait": "data_wait",
    "preparation": "data_wait",
    "host_to_device": "host_to_device",
    "checkpoint": "checkpoint",
    "evaluation": "evaluation",
    "compile": "compile",
    "gc": "host_wait",
}
_EXCHANGE = "exchange"
MOST_DEVICE_LEFT_SECONDS = 60.0
"""A device is behind by the work that its queue holds, seconds at most: what is more is a clock that runs wrong."""
_GAP_PHASES = ("data_wait", "preparation", "checkpoint", "evaluation", "compile", "gc", "other")


class Clocks(msgspec.Struct):
    """What the CPU clocks said in the last step in which they were read, in seconds a step; `measured` once they were.

    Attributes:
        device_left: seconds by state that the device took for earlier steps and that did not fit into these, see `_on_device`.
        pausing, outside: samples outside of all phases: in which the thread paused, and all. paused: the part of that time.
    """

    backward_cpu: float = 0.0
    backward_delay: float = 0.0
    step_delay: float = 0.0
    measured: bool = False
    device_left: dict[str, float] = {}
    pausing: int = 0
    outside: int = 0
    paused: float = 0.0

    def see(self, beat: Heartbeat) -> None:
        """Take over what this heartbeat saw the thread do."""
        pausing, outside = outside_samples(beat.activity)
        self.pausing, self.outside = self.pausing + pausing, self.outside + outside
        self.paused = paused_ratio(self.pausing, self.outside)

    def read(self, step: StepDone) -> None:
        """Take over what this step's record has."""
        if step.cpu_seconds:
            self.backward_cpu = step.cpu_seconds.get("backward", 0.0)
            self.measured = True
        if step.run_delay_seconds:
            self.step_delay = step.run_delay_seconds.get("step", 0.0)
            self.backward_delay = min(step.run_delay_seconds.get("backward", 0.0), self.step_delay)


class StepStates(msgspec.Struct):
    """A step by state. `states`, `waiting` and `exchange` sum to `wall`.

    Attributes:
        states: seconds by ledger state, without what follows.
        waiting: seconds blocked in collectives, for a later rank or for the transfer.
        exchange: seconds of backward on the accelerator, in which the others' share tells waiting from computing.
    """

    wall: float
    states: dict[str, float]
    waiting: float = 0.0
    exchange: float = 0.0


class PendingWait(msgspec.Struct, gc=False):
    """What stays open of a rank's step until the others have finished it too: see `StepStates`.

    Attributes:
        seconds: of the whole step, where parts of it are accounted otherwise. excused: of them, in a checkpoint, an evaluation or
            compiling.
    """

    wall: float
    waiting: float = 0.0
    exchange: float = 0.0
    seconds: float = 0.0
    excused: float = 0.0


def data_wait_seconds(step: StepDone) -> float:
    """Return how long a step's rank had no batch for its model."""
    return step.phase_seconds.get("data_wait", 0.0) + step.phase_seconds.get("preparation", 0.0)


def attribute(step: StepDone, clocks: Clocks, *, together: bool) -> StepStates:
    """Return a plausible step by state.

    Args:
        together: the job has several ranks, so that being blocked in backward is the gradient exchange.
    """
    return _on_device(step, clocks) if step.device_seconds else _on_cpu(step, clocks, together=together)


def _host_states(phases: dict[str, float], paused: float) -> dict[str, float]:
    outside = phases.get("other", 0.0)
    states = {"host_wait": outside * paused, "unexplained": outside * (1.0 - paused)}
    for phase, seconds in phases.items():
        state = _HOST_STATES.get(phase)
        if state and seconds:
            states[state] = states.get(state, 0.0) + seconds
    return states


def _on_cpu(step: StepDone, clocks: Clocks, *, together: bool) -> StepStates:
    clocks.read(step)
    phases = step.phase_seconds
    states = _host_states(phases, clocks.paused)
    backward = phases.get("backward", 0.0)
    blocked = max(backward - clocks.backward_cpu - clocks.backward_delay, 0.0) if together and clocks.measured else 0.0
    backward_delay = min(clocks.backward_delay, backward - blocked)
    rest = phases.get("forward", 0.0) + phases.get("loss", 0.0) + phases.get("optimizer", 0.0)
    rest_delay = min(max(clocks.step_delay - backward_delay, 0.0), rest)
    states["compute"] = rest - rest_delay + backward - blocked - backward_delay
    states["host_wait"] = states.get("host_wait", 0.0) + rest_delay + backward_delay
    waiting = blocked + phases.get("collective", 0.0)
    states["unexplained"] = max(step.wall_seconds - waiting - sum(states.values()), 0.0) + states.get("unexplained", 0.0)
    return StepStates(step.wall_seconds, states, waiting)


def _on_device(step: StepDone, clocks: Clocks) -> StepStates:
    """Split the device's time: the gap in which nothing was queued goes to what the host did then, the rest of it to launching.

    The host's step is now shorter and now longer than the device's: what does not fit into it is left for the next ones.
    """
    device, wall = step.device_seconds, step.wall_seconds
    gap = device.get("gap", 0.0)
    host = {phase: step.phase_seconds.get(phase, 0.0) for phase in _GAP_PHASES}
    total = sum(host.values())
    share = min(gap / total, 1.0) if total > 0 else 0.0
    states = _host_states({phase: seconds * share for phase, seconds in host.items()}, clocks.paused)
    states["host_wait"] = states.get("host_wait", 0.0) + max(gap - total, 0.0)
    states["host_to_device"] = device.get("host_to_device", 0.0)
    states["compute"] = device.get("forward", 0.0) + device.get("optimizer", 0.0)
    without_gradients = "evaluation" if host["evaluation"] > 0 else "compute"
    states[without_gradients] = states.get(without_gradients, 0.0) + device.get("no_grad", 0.0)
    states[_EXCHANGE] = device.get("backward", 0.0)
    for state, seconds in clocks.device_left.items():
        states[state] = states.get(state, 0.0) + seconds
    measured = sum(states.values())
    fits = min(wall / measured, 1.0) if measured > 0 else 1.0
    left = min(measured * (1.0 - fits), MOST_DEVICE_LEFT_SECONDS)
    clocks.device_left = {state: seconds / measured * left for state, seconds in states.items()} if left > 0 else {}
    states = {state: seconds * fits for state, seconds in states.items()}
    exchange = states.pop(_EXCHANGE)
    states["unexplained"] = states.get("unexplained", 0.0) + max(wall - sum(states.values()) - exchange, 0.0)
    return StepStates(wall, states, 0.0, exchange)


def split_waiting(parts: dict[int, PendingWait], *, whole: bool) -> tuple[dict[int, dict[str, float]], float | None]:
    """Give the waiting of a step to its states: return each rank's seconds by state, and what the latest rank cost the others, if
    there are others and one of them waited.

    With all ranks of the job at hand (`whole`), what all wait is the transfer, and what a rank waits beyond that is for a later
    one; on an accelerator, what a rank's backward takes beyond the shortest one is waiting. Without them the two look the same,
    and count as communication.
    """
    computing = min(part.exchange for part in parts.values())
    waits = {rank: part.waiting + (part.exchange - computing if whole else 0.0) for rank, part in parts.items()}
    transfer = min(waits.values())
    states = {
        rank: {
            "compute": computing if whole else part.exchange,
            "communication": transfer if whole else waits[rank],
            "straggler_wait": waits[rank] - transfer if whole else 0.0,
        }
        for rank, part in parts.items()
    }
    if len(parts) == 1 or not any(waits.values()):
        return states, None
    own = sorted(part.wall - waits[rank] for rank, part in parts.items())
    late = min(own[-1] - own[(len(own) - 1) // 2], max(waits.values()) - transfer)
    return states, max(late, 0.0)
