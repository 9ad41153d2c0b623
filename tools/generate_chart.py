"""Writes what the chart of the agent has copies of: helm reads no file outside of a chart."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).parents[1]
CHART = ROOT / "agents" / "deploy" / "chart" / "tachoscope-agent"


def chart_files(folder: str, made: Mapping[str, str], *, write: bool) -> list[str]:
    """Write or check a folder of the chart that holds generated files alone; return those that were not current."""
    wanted = {CHART / folder / name: text for name, text in made.items()}
    stale = [path for path, text in wanted.items() if not path.is_file() or path.read_text() != text]
    left_over = [path for path in sorted((CHART / folder).glob("*")) if path not in wanted]
    if write:
        (CHART / folder).mkdir(exist_ok=True)
        for path, text in wanted.items():
            path.write_text(text)
        for path in left_over:
            path.unlink()
    return [str(path.relative_to(ROOT)) for path in (*stale, *left_over)]
