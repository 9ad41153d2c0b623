"""Writes the Grafana boards, as files, as ConfigMaps, and into the chart of the agent, which has its own copies."""

from __future__ import annotations

import json
from pathlib import Path

from generate_chart import chart_files
from tachoscope_alerts.compile.links import board_name
from tachoscope_alerts.spec import policy
from tachoscope_dashboards import build
from tachoscope_dashboards.boards.all import boards
from tachoscope_dashboards.parts.grafana_json import to_json

ROOT = Path(__file__).parents[1]
GENERATED = ROOT / "dashboards" / "generated"


def dashboard_files(*, write: bool) -> list[str]:
    """Write or check the boards; return the files that were not current."""
    made = [to_json(board) for board in boards(policy.load(ROOT / "alerts" / "policy.yaml"))]
    stale = [str(path.relative_to(ROOT)) for path in build.check(made, GENERATED)]
    if write:
        build.build(made, GENERATED)
    # A release is kept in one Secret, its chart included: here without spaces.
    of_chart = {f"{board_name(one['uid'])}.json": json.dumps(one, separators=(",", ":"), ensure_ascii=False) for one in made}
    return [*stale, *chart_files("dashboards", of_chart, write=write)]
