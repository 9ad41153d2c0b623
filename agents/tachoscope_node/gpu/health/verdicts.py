"""The verdicts on all GPUs of a node, kept from look to look: since when a reason stands, and that it stays a while."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from tachoscope_core.metrics.gpu import GPU_ENERGY, GPU_NVLINKS
from tachoscope_node.gpu.health.history import GpuHistory, observe
from tachoscope_node.gpu.health.rules import (
    HealthVerdict,
    Reason,
    Severity,
    gravest_state,
    holds,
    judge_gpu,
    not_measured_at_all,
    thresholds,
    too_young,
    verdict,
)
from tachoscope_node.gpu.reading import FAULTS, Gpu, Reading
from tachoscope_node.gpu.xid.counter import XidCounter, XidError
from tachoscope_service.common.log import Log

_MISSING: Mapping[str, tuple[str, str]] = {
    "works": ("the driver works and lists no more", "inspect_hardware"),
    "starting": ("the driver is starting", "none"),
    "absent": (
        "no driver or exporter can be asked: see gpu.enabled, gpu.expected and the mount of its library",
        "check_configuration",
    ),
    "error": ("the driver does not start", "drain_node"),
}
"""What is said of GPUs that are missing, and the action, by how the driver is. A count alone is not a reason to reboot."""


@dataclass(frozen=True, slots=True)
class Standing:
    """A reason that stands. since: Unix seconds. last_true: monotonic seconds."""

    reason: Reason
    since: float
    last_true: float


def _since(reason: Reason, unix_seconds: float) -> float:
    """Return the start of a new reason: an Xid error, whose value is its age, may precede this process."""
    return unix_seconds - (reason.value if reason.what.startswith("xid_") else 0.0)


def _displayed(standing: Standing, at: float) -> Reason:
    """Return a reason for display, marked if it is no longer true."""
    ago = at - standing.last_true
    return replace(standing.reason, text=f"{ago:.0f} s ago: {standing.reason.text}") if ago > 0 else standing.reason


@dataclass(frozen=True, slots=True)
class GpuHealth:
    """One GPU's verdict; the reasons that made it, since when (Unix seconds) each stands, and which are true no longer."""

    gpu: Gpu
    verdict: HealthVerdict
    since: Mapping[str, float]
    held: frozenset[str] = frozenset()


def apply_hysteresis(before: Mapping[str, Standing], found: HealthVerdict, at: float, unix_seconds: float) -> dict[str, Standing]:
    """Return the reasons that stand now: those that are true, and those that were not long ago.

    A reason whose rule cannot be measured now stays: that is not a recovery. Faults of the asking and Xid errors do not: the first
    are about this moment, the second know themselves for how long they count.
    """
    standing = {
        reason.what: Standing(reason, before[reason.what].since if reason.what in before else _since(reason, unix_seconds), at)
        for reason in found.reasons
    }
    for what, old in before.items():
        if what in standing or old.reason.severity == "unknown" or what.startswith("xid_"):
            continue
        if what in found.not_measured or at - old.last_true < thresholds().hold_seconds:
            standing[what] = old
    return standing


class Board:
    """Looks at all readings and keeps what is known of each GPU. One thread looks; `gpus` and `node` are replaced, not changed.

    Args:
        log: gets a line when a reason comes or grows graver that nobody else reports, and one when a GPU is healthy again.
        start_seconds: how long a GPU must be read before it is called healthy; None: as the thresholds say.
    """

    def __init__(self, counter: XidCounter, log: Log, *, start_seconds: float | None = None) -> None:
        self._start_seconds = thresholds().start_seconds if start_seconds is None else start_seconds
        self._began: tuple[float, float] | None = None
        self.node_since: Mapping[str, float] = {}
        self.gpus: tuple[GpuHealth, ...] = ()
        self.node = judge_node((), 0, 0)
        self._counter = counter
        self._log = log
        self._pasts: dict[str, GpuHistory] = {}
        self._standing: dict[str, dict[str, Standing]] = {}
        self._missing = ""

    def update(self, readings: Sequence[Reading], expected: int, at: float, unix_seconds: float, *, driver: str = "works") -> None:
        """Judge all GPUs again.

        Args:
            expected: GPUs that the node should have. at: monotonic seconds. driver: one of DRIVERS.
        """
        self._began = self._began or (at, unix_seconds)
        whole = _by_gpu(readings)
        for name, reading in whole.items():
            self._tell_counter(name, reading, unix_seconds)
        errors: dict[str, list[XidError]] = {}
        for seen in self._counter.all():
            errors.setdefault(seen.uuid, []).append(seen)
        most = _most_nvlinks(whole.values())
        pasts, standing, gpus = {}, {}, {}
        window = thresholds().window_seconds
        for name, reading in whole.items():
            most_nvlinks = most.get(reading.gpu.model)
            past = observe(self._pasts.get(name, GpuHistory()), reading, at, holds(reading, most_nvlinks), window)
            found = judge_gpu(reading, past, errors.get(name, ()), unix_seconds, most_nvlinks=most_nvlinks)
            before = self._standing.get(name, {})
            held = apply_hysteresis(before, found, at, unix_seconds)
            if not held and past.watched_seconds < self._start_seconds:
                young = too_young(past.watched_seconds, self._start_seconds)
                held = apply_hysteresis(before, verdict([young], found.not_measured), at, unix_seconds)
            pasts[name], standing[name] = past, held
            reasons = verdict((_displayed(each, at) for each in held.values()), found.not_measured)
            gpu = replace(reading.gpu, uuid=name, mig="", parent_uuid="") if reading.gpu.mig else reading.gpu
            old = frozenset(what for what, each in held.items() if each.last_true < at)
            gpus[name] = GpuHealth(gpu, reasons, {what: each.since for what, each in held.items()}, old)
        self._log_changes(gpus, unix_seconds)
        self._pasts, self._standing, self.gpus = pasts, standing, tuple(gpus.values())
        there = sum(reading.fault != "lost" for reading in whole.values())
        starting = at - self._began[0] < self._start_seconds
        states = [health.verdict.state for health in self.gpus]
        self.node = judge_node(states, there, expected, driver=driver, starting=starting)
        self.node_since = {reason.what: self.node_since.get(reason.what, unix_seconds) for reason in self.node.reasons}
        self._tell_of_missing(expected)

    def _tell_counter(self, uuid: str, reading: Reading, unix_seconds: float) -> None:
        if not reading.gpu.uuid:
            return
        before = self._pasts[uuid].reading if uuid in self._pasts else None
        back = reading.up and before is not None and before.fault == "lost"
        energy = reading.value(GPU_ENERGY) if reading.up else None
        self._counter.know(uuid, str(reading.gpu.index), unix_seconds, energy, back=back)

    def _log_changes(self, gpus: Mapping[str, GpuHealth], unix_seconds: float) -> None:
        for name, health in gpus.items():
            known, title = self._standing.get(name, {}), f"GPU {health.gpu.index} ({health.gpu.uuid or 'not identified'})"
            for reason in health.verdict.reasons:
                before = known.get(reason.what)
                news = before is None or before.reason.severity != reason.severity
                if news and not self._told_elsewhere(reason, unix_seconds):
                    line = f"{title}: {reason.severity}, {reason.text}. Action: {reason.action}."
                    self._log.warning(f"health {name} {reason.what}", line)
            if known.keys() - {"not_measured"} and not health.verdict.reasons:
                self._log.info(f"{title}: healthy again")

    def _told_elsewhere(self, reason: Reason, unix_seconds: float) -> bool:
        """Return whether another line reports it: a GPU's collector, or the Xid counter."""
        if reason.what.startswith("xid_"):  # those from before the start have none from this process
            return self._began is None or unix_seconds - reason.value >= self._began[1]
        return reason.what == "not_measured" or (reason.what in FAULTS and reason.severity == "unknown")

    def _tell_of_missing(self, expected: int) -> None:
        missing = [reason for reason in self.node.reasons if reason.what == "gpus_missing"]
        severity = missing[0].severity if missing else ""
        lost = any("lost" in health.since for health in self.gpus)  # then the line about the GPU itself says it
        if missing and severity == "unhealthy" and severity != self._missing and not lost:
            self._log.warning("health gpus_missing", f"{missing[0].text}. Action: {missing[0].action}.")
        if self._missing == "unhealthy" and not missing:
            self._log.info(f"GPUs of the node: all {expected} expected are present")
        self._missing = severity


def _by_gpu(readings: Sequence[Reading]) -> dict[str, Reading]:
    """Return the readings by GPU; a GPU with MIG readings only is represented by one of them."""
    found: dict[str, Reading] = {}
    for reading in sorted(readings, key=lambda reading: (reading.gpu.index, reading.gpu.mig)):
        found.setdefault(reading.gpu.parent_uuid or reading.gpu.uuid or f"gpu {reading.gpu.index}", reading)
    return found


def _most_nvlinks(readings: Iterable[Reading]) -> dict[str, float]:
    """Return the most active NVLinks by model: missing bridges do not show on a single GPU."""
    most: dict[str, float] = {}
    for reading in readings:
        active = reading.value(GPU_NVLINKS, "active")
        if reading.up and active is not None:
            most[reading.gpu.model] = max(active, most.get(reading.gpu.model, 0.0))
    return most


def judge_node(states: Sequence[str], there: int, expected: int, *, driver: str = "works", starting: bool = False) -> HealthVerdict:
    """Judge the node by the states of its GPUs and by how many the driver has not lost.

    Args:
        driver: one of DRIVERS. starting: the agent was started only just.
    """
    reasons = []
    if there < expected:
        says, action = _MISSING[driver]
        severity: Severity = "unhealthy"
        if starting or driver == "starting":
            severity, action = "unknown", "none"
        text = f"GPUs that the node has: {there} < {expected} expected; {says}"
        reasons.append(Reason("gpus_missing", float(there), "<", float(expected), severity, action, text))
    elif not states:
        reasons.append(not_measured_at_all("no GPU was read"))
    return HealthVerdict(gravest_state([*states, *(reason.severity for reason in reasons)]), tuple(reasons))
