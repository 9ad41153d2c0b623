"""Writes the Grafana boards, as files, as ConfigMaps, and into the chart of the agent, which has its own copies."""

from __future__ import annotations

import json
from pathlib import Path

from tachoscope_alerts import policy
from tachoscope_dashboards import build
from tachoscope_dashboards.board import to_json
from tachoscope_dashboards.boards.all import boards

ROOT = Path(__file__).parents[1]
GENERATED = ROOT / "dashboards" / "generated"
OF_CHART = ROOT / "agents" / "deploy" / "chart" / "tachoscope-agent" / "dashboards"


def dashboard_files(*, write: bool) -> list[str]:
    """Write or check the boards; return the files that were not current."""
    made = [to_json(board) for board in boards(policy.load(ROOT / "alerts" / "policy.yaml"))]
    # A release is kept in one Secret, its chart included: here without spaces.
    of_chart = {OF_CHART / f"{one['uid']}.json": json.dumps(one, separators=(",", ":"), ensure_ascii=False) for one in made}
    stale = build.check(made, GENERATED)
    stale += [path for path, text in of_chart.items() if not path.is_file() or path.read_text() != text]
    left_over = [path for path in sorted(OF_CHART.glob("*.json")) if path not in of_chart]
    if write:
        build.build(made, GENERATED)
        OF_CHART.mkdir(exist_ok=True)
        for path, text in of_chart.items():
            path.write_text(text)
        for path in left_over:
            path.unlink()
    return [str(path.relative_to(ROOT)) for path in (*stale, *left_over)]
