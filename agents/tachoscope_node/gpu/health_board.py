"""The verdicts on all GPUs of a node, kept from look to look: since when a reason stands, and that it stays a while."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from tachoscope_core.gpu_metrics import GPU_ENERGY, GPU_NVLINKS
from tachoscope_node.gpu.health import Reason, Verdict, holds, judge, judge_node, thresholds, verdict
from tachoscope_node.gpu.health_past import Past, observe
from tachoscope_node.gpu.reading import FAULTS, Gpu, Reading
from tachoscope_node.gpu.xids import Seen, XidCounter
from tachoscope_node.logs import Log


@dataclass(frozen=True, slots=True)
class Standing:
    """A reason that stands. since: Unix seconds. last_true: monotonic seconds."""

    reason: Reason
    since: float
    last_true: float


@dataclass(frozen=True, slots=True)
class GpuHealth:
    """One GPU's verdict; the reasons that made it, and since when (Unix seconds) each stands."""

    gpu: Gpu
    verdict: Verdict
    since: Mapping[str, float]


def hold(before: Mapping[str, Standing], found: Verdict, at: float, unix_seconds: float) -> dict[str, Standing]:
    """Return the reasons that stand now: those that are true, and those that were not long ago.

    A reason whose rule cannot be measured now stays: that is no recovery. Faults of the asking and Xid errors do not: the first
    are about this moment, the second know themselves for how long they count.
    """
    standing = {
        reason.what: Standing(reason, before[reason.what].since if reason.what in before else unix_seconds, at)
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
        log: gets a line when a reason comes that nobody else tells of, and one when a GPU is healthy again.
    """

    def __init__(self, counter: XidCounter, log: Log) -> None:
        self.gpus: tuple[GpuHealth, ...] = ()
        self.node = judge_node((), 0, 0)
        self._counter = counter
        self._log = log
        self._pasts: dict[str, Past] = {}
        self._standing: dict[str, dict[str, Standing]] = {}
        self._missing = False

    def look(self, readings: Sequence[Reading], expected: int, at: float, unix_seconds: float) -> None:
        """Judge all GPUs anew.

        Args:
            expected: GPUs that the node should have. at: monotonic seconds.
        """
        whole = _whole(readings)
        for name, reading in whole.items():
            self._tell_counter(name, reading, unix_seconds)
        errors: dict[str, list[Seen]] = {}
        for seen in self._counter.all():
            errors.setdefault(seen.uuid, []).append(seen)
        most = _most_nvlinks(whole.values())
        pasts, standing, gpus = {}, {}, {}
        window = thresholds().window_seconds
        for name, reading in whole.items():
            most_nvlinks = most.get(reading.gpu.model)
            past = observe(self._pasts.get(name, Past()), reading, at, holds(reading, most_nvlinks), window)
            found = judge(reading, past, errors.get(name, ()), unix_seconds, most_nvlinks=most_nvlinks)
            held = hold(self._standing.get(name, {}), found, at, unix_seconds)
            pasts[name], standing[name] = past, held
            reasons = verdict((each.reason for each in held.values()), found.not_measured)
            gpu = replace(reading.gpu, uuid=name, mig="", parent_uuid="") if reading.gpu.mig else reading.gpu
            gpus[name] = GpuHealth(gpu, reasons, {what: each.since for what, each in held.items()})
        self._tell(gpus)
        self._pasts, self._standing, self.gpus = pasts, standing, tuple(gpus.values())
        there = sum(reading.fault != "lost" for reading in whole.values())
        self.node = judge_node([health.verdict.state for health in self.gpus], there, expected)
        self._tell_of_missing()

    def _tell_counter(self, uuid: str, reading: Reading, unix_seconds: float) -> None:
        if not reading.gpu.uuid:
            return
        before = self._pasts[uuid].reading if uuid in self._pasts else None
        back = reading.up and before is not None and before.fault == "lost"
        energy = reading.value(GPU_ENERGY) if reading.up else None
        self._counter.know(uuid, str(reading.gpu.index), unix_seconds, energy, back=back)

    def _tell(self, gpus: Mapping[str, GpuHealth]) -> None:
        for name, health in gpus.items():
            known, title = self._standing.get(name, {}), f"GPU {health.gpu.index} ({health.gpu.uuid or 'not identified'})"
            for reason in health.verdict.reasons:
                if reason.what not in known and not _told_elsewhere(reason):
                    line = f"{title}: {reason.severity}, {reason.text}. Action: {reason.action}."
                    self._log.warning(f"health {name} {reason.what}", line)
            if known and not health.verdict.reasons:
                self._log.info(f"{title}: healthy again")

    def _tell_of_missing(self) -> None:
        missing = [reason for reason in self.node.reasons if reason.what == "gpus_missing"]
        lost = any("lost" in health.since for health in self.gpus)  # then the line about the GPU itself says it
        if missing and not self._missing and not lost:
            self._log.warning("health gpus_missing", f"{missing[0].text}. Action: {missing[0].action}.")
        self._missing = bool(missing)


def _told_elsewhere(reason: Reason) -> bool:
    """Say whether there is a line already: of a GPU that does not answer by the collector, of an Xid error by the counter."""
    return reason.what in FAULTS or reason.what == "not_measured" or reason.what.startswith("xid_")


def _whole(readings: Sequence[Reading]) -> dict[str, Reading]:
    """Return the readings by GPU; a source that tells only of MIG instances is taken at its word about one of them."""
    found: dict[str, Reading] = {}
    for reading in sorted(readings, key=lambda reading: (reading.gpu.index, reading.gpu.mig)):
        found.setdefault(reading.gpu.parent_uuid or reading.gpu.uuid or f"gpu {reading.gpu.index}", reading)
    return found


def _most_nvlinks(readings: Iterable[Reading]) -> dict[str, float]:
    """Return the most active NVLinks by model: where bridges are missing, a GPU alone cannot tell."""
    most: dict[str, float] = {}
    for reading in readings:
        active = reading.value(GPU_NVLINKS, "active")
        if reading.up and active is not None:
            most[reading.gpu.model] = max(active, most.get(reading.gpu.model, 0.0))
    return most
