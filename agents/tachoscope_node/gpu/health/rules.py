"""Is a GPU fit for work? A verdict with reasons: value, threshold, and what to do.

Pure: knows nothing of files, threads and where readings come from. Never `healthy` where nothing was measured that could tell.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

import msgspec

from tachoscope_core import located_yaml
from tachoscope_core.errors import TachoscopeError
from tachoscope_core.metrics import gpu as names
from tachoscope_core.metrics.gpu import ACTIONS
from tachoscope_core.metrics.metric import Metric
from tachoscope_node.gpu.health.history import GpuHistory
from tachoscope_node.gpu.reading import Reading
from tachoscope_node.gpu.xid.counter import XidError

GRAVITY = ("healthy", "degraded", "unknown", "unhealthy")
"""The states, the best first: of two GPUs, one that is slow may be used and one that nobody can ask may be dead."""
_FILE = Path(__file__).with_name("health_thresholds.yaml")
_COMPARISONS: Mapping[str, Callable[[float, float], bool]] = {
    ">": operator.gt,
    ">=": operator.ge,
    "<": operator.lt,
    "<=": operator.le,
    "==": operator.eq,
}

Severity = Literal["none", "degraded", "unknown", "unhealthy"]


class Rule(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One rule of health_thresholds.yaml, which explains it. threshold: None where it is the GPU's own."""

    comparison: Literal[">", ">=", "<", "<="]
    severity: Severity
    action: str
    source: str
    threshold: float | None = None
    unit: str = ""
    for_seconds: float = 0.0


class Advice(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a number of the driver's recovery action asks for."""

    says: str
    severity: Severity
    action: str


class Thresholds(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The content of health_thresholds.yaml."""

    window_seconds: float
    hold_seconds: float
    xid_seconds: float
    silent_seconds: float
    start_seconds: float
    stale_seconds: float
    rules: dict[str, Rule]
    recovery_actions: dict[int, Advice]


@dataclass(frozen=True, slots=True)
class Reason:
    """Why a GPU is not healthy.

    Attributes:
        what: name of the rule, `xid_<code>`, or a fault of the reading. text: a sentence with value and threshold.
    """

    what: str
    value: float
    comparison: str
    threshold: float
    severity: Severity
    action: str
    text: str


@dataclass(frozen=True, slots=True)
class HealthVerdict:
    """A state of `GRAVITY` with its reasons, the gravest first. not_measured: rules that nothing was measured for."""

    state: str
    reasons: tuple[Reason, ...] = ()
    not_measured: tuple[str, ...] = ()


class _Measured(NamedTuple):
    value: float
    threshold: float | None = None


class _RuleInput(NamedTuple):
    reading: Reading
    past: GpuHistory
    most_nvlinks: float | None


_Measure = Callable[[_RuleInput], _Measured | None]


@functools.cache
def thresholds() -> Thresholds:
    """Return the thresholds.

    Raises:
        TachoscopeError: the file is not as it must be.
    """
    try:
        read = msgspec.convert(located_yaml.read_plain(_FILE).data, Thresholds)
    except msgspec.ValidationError as error:
        raise TachoscopeError(f"{_FILE}: {error}") from error
    actions = [*(rule.action for rule in read.rules.values()), *(advice.action for advice in read.recovery_actions.values())]
    wrong = set(actions) - set(ACTIONS)
    if wrong or set(read.rules) != set(_MEASURES):
        raise TachoscopeError(f"{_FILE}: no such action or rule: {', '.join(sorted(wrong | set(read.rules) ^ set(_MEASURES)))}")
    return read


def gravest_state(states: Iterable[str]) -> str:
    """Return the gravest state; unknown where there is none."""
    return max(states, key=GRAVITY.index, default="unknown")


def holds(reading: Reading, most_nvlinks: float | None = None) -> frozenset[str]:
    """Return the rules with `for_seconds` whose condition is true now: `observe` adds up for how long."""
    found, look = set(), _RuleInput(reading, GpuHistory(), most_nvlinks)
    for name, rule in thresholds().rules.items():
        measured = _MEASURES[name](look) if rule.for_seconds else None
        if measured is not None and _true(rule, measured):
            found.add(name)
    return frozenset(found)


def judge_gpu(
    reading: Reading, past: GpuHistory, xids: Sequence[XidError], now: float, *, most_nvlinks: float | None = None
) -> HealthVerdict:
    """Judge one GPU.

    Args:
        past: with this reading in it. xids: errors of this GPU. now: Unix seconds.
        most_nvlinks: the most active NVLinks of a GPU of this model on the node.
    """
    reasons = [*_faults(reading, past), *_errors(xids, now), *_advice(reading)]
    not_measured, look = [], _RuleInput(reading, past, most_nvlinks)
    for name, rule in thresholds().rules.items():
        measured = _MEASURES[name](look)
        if measured is None:
            not_measured.append(name)
        elif _true(rule, measured) and past.seconds(name) >= rule.for_seconds:
            limit = measured.threshold if measured.threshold is not None else rule.threshold or 0.0
            unit = f" {rule.unit}" if rule.unit else ""
            text = f"{name.replace('_', ' ')}: {round(measured.value, 1):g}{unit} {rule.comparison} {limit:g}"
            reasons.append(Reason(name, measured.value, rule.comparison, limit, rule.severity, rule.action, text))
    if not reasons and len(not_measured) == len(_MEASURES) and reading.value(names.GPU_RECOVERY_ACTION) is None:
        reasons.append(not_measured_at_all("nothing was measured that could tell"))
    return verdict(reasons, not_measured)


def too_young(seconds: float, start_seconds: float) -> Reason:
    """Return why a GPU that nothing is known against is not called healthy yet: it was read for less than a window."""
    text = f"read for {seconds:.0f} s < {start_seconds:g} s since the agent's start"
    return Reason("not_measured", seconds, "<", start_seconds, "unknown", "none", text)


def not_measured_at_all(text: str) -> Reason:
    """Return the reason for `unknown` if nothing was measured."""
    return Reason("not_measured", 0.0, "<", 1.0, "unknown", "none", text)


def verdict(reasons: Iterable[Reason], not_measured: Iterable[str] = ()) -> HealthVerdict:
    """Return the verdict that the reasons make."""
    ordered = sorted(reasons, key=lambda reason: -GRAVITY.index(reason.severity))
    return HealthVerdict(ordered[0].severity if ordered else "healthy", tuple(ordered), tuple(not_measured))


def _true(rule: Rule, measured: _Measured) -> bool:
    limit = measured.threshold if measured.threshold is not None else rule.threshold
    return limit is not None and _COMPARISONS[rule.comparison](measured.value, limit)


def _faults(reading: Reading, past: GpuHistory) -> list[Reason]:
    """Return why a GPU cannot be read. Unknown at first: a driver under reset recovers, one that hangs does not."""
    limits = thresholds()
    if reading.up:
        if past.stale_seconds < limits.stale_seconds:
            return []
        text = f"it has not been read for {past.stale_seconds:.0f} s >= {limits.stale_seconds:g} s"
        return [Reason("stale", past.stale_seconds, ">=", limits.stale_seconds, "unknown", "drain_node", text)]
    said = f": {reading.detail}" if reading.detail else ""
    if reading.fault == "lost":
        return [Reason("lost", 1.0, "==", 1.0, "unhealthy", "reboot_node", f"the driver has lost it{said}")]
    fault, value, limit = reading.fault or "no_answer", past.silent_seconds, limits.silent_seconds
    dead = value >= limit
    severity: Severity = "unhealthy" if dead else "unknown"
    comparison = ">=" if dead else "<"
    action = ("reboot_node" if fault == "no_answer" else "drain_node") if dead else "none"
    text = f"{fault.replace('_', ' ')} for {value:.0f} s {comparison} {limit:g} s{said}"
    return [Reason(fault, value, comparison, limit, severity, action, text)]


def _errors(xids: Sequence[XidError], now: float) -> list[Reason]:
    limit = thresholds().xid_seconds
    reasons = []
    for seen in xids:
        age = max(now - seen.last_seen, 0.0)
        severity = seen.xid.severity
        was_reset = seen.reset_since and seen.xid.action != "inspect_hardware"
        if severity == "none" or age > limit or was_reset:
            continue
        text = f"Xid {seen.xid.label}, {seen.xid.name}: {age:.0f} s ago <= {limit:g} s"
        reasons.append(Reason(f"xid_{seen.xid.label}", age, "<=", limit, severity, seen.xid.action, text))
    return reasons


def _advice(reading: Reading) -> list[Reason]:
    number = reading.value(names.GPU_RECOVERY_ACTION)
    if number is None:
        return []
    unheard_of = Advice(f"number {number:g}, which is not known here", "degraded", "drain_node")
    advice = thresholds().recovery_actions.get(int(number), unheard_of)
    if advice.severity == "none":
        return []
    return [Reason("recovery_action", number, ">", 0.0, advice.severity, advice.action, f"the driver advises: {advice.says}")]


def _plain(value: float | None) -> _Measured | None:
    return _Measured(value) if value is not None else None


def _value(metric: Metric, *labels: str) -> _Measure:
    return lambda look: _plain(look.reading.value(metric, *labels))


def _growth(counter: str) -> _Measure:
    return lambda look: _plain(look.past.growth(counter))


def _throttled(reason: str) -> _Measure:
    def measure(look: _RuleInput) -> _Measured | None:
        told = look.reading.value(names.GPU_THROTTLED, reason) is not None
        return _Measured(min(look.past.seconds(reason), thresholds().window_seconds)) if told else None

    return measure


def _retired(look: _RuleInput) -> _Measured | None:
    kinds = [look.reading.value(names.GPU_RETIRED_PAGES, kind) for kind in ("corrected", "uncorrected")]
    told = [pages for pages in kinds if pages is not None]
    return _Measured(sum(told)) if told else None


def _width(look: _RuleInput) -> _Measured | None:
    now, most = (look.reading.value(names.GPU_PCIE_LINK, "width", kind) for kind in ("current", "max"))
    return _Measured(now, most) if now is not None and most is not None else None


def _nvlinks(look: _RuleInput) -> _Measured | None:
    active = look.reading.value(names.GPU_NVLINKS, "active")
    return _Measured(active, look.most_nvlinks) if active is not None and look.most_nvlinks is not None else None


def _crc(look: _RuleInput) -> _Measured | None:
    growth = look.past.growth("nvlink_crc")
    return _Measured(growth / thresholds().window_seconds) if growth is not None else None


_MEASURES: Mapping[str, _Measure] = {
    "ecc_uncorrected": _value(names.GPU_ECC_ERRORS, "uncorrected", "volatile"),
    "row_remap_pending": _value(names.GPU_ROW_REMAP, "pending"),
    "row_remap_failed": _value(names.GPU_ROW_REMAP, "failed"),
    "retired_pages": _retired,
    "hardware_slowdown": _throttled("hardware_slowdown"),
    "hardware_thermal": _throttled("hardware_thermal"),
    "thermal": _throttled("thermal"),
    "power_brake": _throttled("power_brake"),
    "temperature_gpu": _value(names.GPU_TEMPERATURE_MARGIN, "gpu"),
    "temperature_memory": _value(names.GPU_TEMPERATURE_MARGIN, "memory"),
    "pcie_width": _width,
    "pcie_replays": _growth("pcie_replays"),
    "nvlinks_active": _nvlinks,
    "nvlink_errors": _growth("nvlink_errors"),
    "nvlink_crc": _crc,
}
"""What each rule of the thresholds compares."""
