"""The compressed day: what the fleet does there leaves no objective without a value, and a fleet that is gone is seen."""

from __future__ import annotations

import shutil
import time
from dataclasses import dataclass
from pathlib import Path

import pytest
from benchmarks.fleet.day import missing
from benchmarks.fleet.schedule import Schedule
from benchmarks.fleet.simulator import fleet_of
from benchmarks.slo_rules import ALERTS

from tachoscope_alerts.spec.burn_rate_windows import Timing
from tachoscope_alerts.spec.slo_files import load

pytestmark = pytest.mark.skipif(shutil.which("prometheus") is None, reason="prometheus is not installed")
HOURS = 1.0
GONE = (2400.0, 3000.0)


@dataclass(frozen=True, slots=True)
class OfAllGone(Schedule):
    """A schedule in which all nodes are away for ten minutes."""

    def away(self, node: int, now: float) -> bool:
        return GONE[0] <= now - self.begin < GONE[1]


@pytest.mark.parametrize("kind", [Schedule, OfAllGone])
def test_an_objective_lacks_values_only_while_all_nodes_are_away(kind: type[Schedule], tmp_path: Path) -> None:
    timing, slos = Timing(), [slo for slo in load([ALERTS / "slos"]) if slo.name in {"training-goodput", "inference-ttft-p99"}]
    begin = time.time() // 30.0 * 30.0 - HOURS * 3600.0

    found = missing(kind(fleet_of(5), begin, HOURS * 3600.0 / 8), slos, timing, HOURS, tmp_path)

    assert found.keys() == {slo.name for slo in slos}
    for times in found.values():
        gone = [at - begin for at in times]
        assert all(GONE[0] <= at <= GONE[1] + 2 * timing.base for at in gone)
        assert (len(gone) > 10) == (kind is OfAllGone)
