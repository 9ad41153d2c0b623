"""Which clocks are wrong, from what each host's clock said between two moments of the first host's."""

from __future__ import annotations

import statistics
from collections.abc import Mapping

from tachoscope_analyzers.data.thresholds import preflight_threshold as threshold
from tachoscope_core.report.preflight import JudgedMeasurement, Verdict

NAME = "clock_seconds"


def judge(offsets: Mapping[str, tuple[float, float]]) -> list[JudgedMeasurement]:
    """Return the clocks that certainly differ from most others.

    Args:
        offsets: by host, the least and the most by which its clock can be ahead of the first host's.
    """
    usual = statistics.median((low + high) / 2 for low, high in offsets.values()) if offsets else 0.0
    apart = {host: max(low - usual, usual - high) for host, (low, high) in offsets.items()}
    wrong = {
        host: seconds for host, seconds in apart.items() if seconds > threshold("clock_seconds") / (1 if len(offsets) > 2 else 2)
    }
    told = len(wrong) < len(offsets) / 2
    verdict: Verdict = "unfit" if told else "not judged"
    return [
        JudgedMeasurement(host=host, name=NAME, verdict=verdict, why=_why(seconds, ahead=offsets[host][0] > usual, told=told))
        for host, seconds in wrong.items()
    ]


def _why(seconds: float, *, ahead: bool, told: bool) -> str:
    if not told:
        return "the clocks of the hosts differ, and most agree on no time"
    return f"at least {seconds:.1f} s {'ahead of' if ahead else 'behind'} the other hosts"
