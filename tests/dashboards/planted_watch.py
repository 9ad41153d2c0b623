"""What the recorded demo lacks, planted over its time: series of NCCL, a watch and a scheduler. None of these ran.

They are named as those of real ones and are made up: straight lines, with a rank that is late, a hang and a look that fails.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from recorded_series import Labels, Series, span
from tachoscope_core.metrics.catalogue import BY_NAME
from tachoscope_core.metrics.metric import NAMESPACE
from tachoscope_core.metrics.nccl import COLLECTIVE_SECONDS, COMMUNICATOR_STATES, MISSING_CONDITIONS
from tachoscope_core.metrics.watch import JOB_STATES, NODE_STATES

SCRAPE_SECONDS = 15.0
LATE, HUNG = (330.0, 475.0), (400.0, 475.0)
"""Seconds after the begin in which ranks wait for one that is late, and in which a communicator hangs."""
_OPERATIONS = (
    ("node-1", "pretrain", "dp", "all_reduce", ">16MiB", 4.0, 0.012, 3.2e9),
    ("node-1", "pretrain", "dp", "all_reduce", "<=64KiB", 8.0, 0.0004, 2e7),
    ("node-1", "pretrain", "tp", "all_gather", "<=16MiB", 40.0, 0.0009, 9e9),
    ("node-1", "pretrain", "tp", "reduce_scatter", "<=16MiB", 40.0, 0.0011, 8e9),
    ("node-2", "vision", "all", "all_reduce", "<=1MiB", 12.0, 0.002, 6e8),
)
"""Node, job, group, kind, size of message; operations a second, seconds of each, bytes a second over the bus."""
_At = Callable[[float], float]


def added(series: Series) -> Series:
    """Return the series of the demo, and what is planted."""
    begin, end = span(series)
    times = [begin + count * SCRAPE_SECONDS for count in range(int((end - begin) / SCRAPE_SECONDS) + 1)]
    found = dict(series)

    def plant(name: str, at: _At, node: str, job: str = "tachoscope", **labels: str) -> None:
        base = name.removesuffix("_bucket").removesuffix("_sum").removesuffix("_count")
        if ":" not in name:  # what rules recorded has labels of its own
            assert labels.keys() - {"le"} == set((BY_NAME.get(name) or BY_NAME[base]).labels) - {NAMESPACE}, name
        of = {"__name__": name, "cluster": "demo", "namespace": "monitoring", "instance": node, "job": job, **labels}
        key: Labels = tuple(sorted(of.items()))
        found[key] = {round(time * 1000): at(time - begin) for time in times}

    _collectives(plant)
    _communicators(plant)
    _watch(plant, begin)
    _scheduler(plant)
    return found


def _collectives(plant: Callable[..., None]) -> None:
    for node, job, group, kind, size, rate, seconds, bus in _OPERATIONS:
        of = {"training_job": job, "group": group, "collective": kind, "size_class": size}
        late = 8.0 if job == "pretrain" else 1.0
        name = COLLECTIVE_SECONDS.name
        for bound in (*COLLECTIVE_SECONDS.buckets, math.inf):
            usual = 1.0 if bound >= seconds * 2 else 0.0
            slow = 1.0 if bound >= seconds * 2 * late else 0.0
            le = "+Inf" if bound == math.inf else f"{bound:g}" if bound < 1 else f"{bound:.1f}"
            plant(f"{name}_bucket", _counted(rate * usual, rate * slow), node, **of, le=le)
        plant(f"{name}_count", _counted(rate, rate), node, **of)
        plant(f"{name}_sum", _counted(rate * seconds, rate * seconds * late), node, **of)
        plant("tachoscope_nccl_bus_bytes_total", _counted(bus * seconds * rate, bus * seconds * rate), node, **of)
    for node in ("node-1", "node-2"):
        plant("tachoscope_nccl_inspector_files", _always(4.0), node)
        plant("tachoscope_nccl_skipped_bytes_total", _counted(0.0, 3e5), node)
        for outcome, rate in (("counted", 80.0), ("cut", 0.02), ("malformed", 0.1)):
            plant("tachoscope_nccl_lines_total", _counted(rate, rate), node, outcome=outcome)
        plant("tachoscope_nccl_bandwidth_differs_total", _counted(0.0, 0.2), node, collective="all_reduce")


def _communicators(plant: Callable[..., None]) -> None:
    after = (HUNG[0], math.inf)
    hung, incomplete = _within(HUNG, 1.0, 0.0), _within(after, 1.0, 0.0)
    states = {
        "running": lambda at: 5.0 - hung(at) - incomplete(at),
        "disagreeing": _always(1.0),
        "hung": hung,
        "incomplete": incomplete,
    }
    for state in COMMUNICATOR_STATES:
        plant("tachoscope_nccl_communicators", states.get(state, _always(0.0)), "node-1", state=state)
    for condition in MISSING_CONDITIONS:
        missing = _within(after, float(condition == "dead"), 0.0)
        plant("tachoscope_nccl_missing_ranks", missing, "node-1", condition=condition)
    plant("tachoscope_nccl_ras_up", _always(1.0), "node-1")


def _watch(plant: Callable[..., None], begin: float) -> None:
    here = {"node": "watch", "job": "tachoscope-watch"}
    jobs = {"judged": _always(2.0), "failed": _within(LATE, 1.0, 0.0)}
    for state in JOB_STATES:
        plant("tachoscope_watch_jobs", jobs.get(state, _always(0.0)), **here, state=state)
    plant("tachoscope_watch_share_ratio", _always(1.0), **here)
    plant("tachoscope_watch_cycle_seconds", _within(LATE, 3.1, 1.2), **here)
    plant("tachoscope_watch_last_cycle_timestamp_seconds", lambda after: begin + after // 60 * 60, **here)
    for found, then, else_ in (("compute_straggler", 0.34, 0.06), ("checkpoint_stall", 0.05, 0.12)):
        of = {"training_job": "pretrain", "class": found}
        plant("tachoscope_bottleneck_ratio", _within(LATE, then, else_), **here, **of)


def _scheduler(plant: Callable[..., None]) -> None:
    here = {"node": "watch", "job": "tachoscope-watch"}
    plant("tachoscope_scheduler_up", _always(1.0), **here, scheduler="slurm")
    fleet = "fleet:tachoscope_scheduler"
    for state, count in (("allocated", 8.0), ("idle", 1.0), ("drained", 1.0), ("down", 0.0)):
        plant(f"{fleet}_accelerators:max", _always(count), **here, state=state)
    for account, activity, count in (("nlp", "stepping", 6.0), ("vision", "idle", 1.0), ("serving", "unreported", 2.0)):
        plant(f"{fleet}_accelerators_held:max", _always(count), **here, account=account, activity=activity)
    for state, count in (("eligible", 16.0), ("not_eligible", 8.0)):
        plant(f"{fleet}_pending_accelerators:max", _within(LATE, count, count / 2), **here, partition="train", state=state)
    plant(f"{fleet}_oldest_pending:max", lambda after: 600.0 + after, **here, partition="train")
    plant(f"{fleet}_requeue:mean6h", _always(240.0), **here, partition="train")
    for state in NODE_STATES:
        plant("fleet:tachoscope_watch_nodes:max", _always(float(state == "testing")), **here, state=state)
    plant("fleet:tachoscope_watch_nodes_held:max", _always(0.0), **here)
    plant("place:tachoscope_slow_links:max", _within(LATE, 4.0, 2.0), **here, training_job="pretrain", place="switch leaf-3")


def _always(value: float) -> _At:
    return lambda _: value


def _within(when: tuple[float, float], then: float, else_: float) -> _At:
    return lambda after: then if when[0] <= after < when[1] else else_


def _counted(usual: float, late: float) -> _At:
    """Return a counter that grows by `usual` a second, and by `late` while ranks wait."""
    return lambda after: usual * after + (late - usual) * min(max(after - LATE[0], 0.0), LATE[1] - LATE[0])
