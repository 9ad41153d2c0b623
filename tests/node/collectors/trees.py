"""What the tests of collectors share: trees of small files, and what collectors gave as plain dictionaries."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from tachoscope_core.metrics.metric import Metric
from tachoscope_node.collectors.collector import Collector
from tachoscope_service.metrics.family import Family, Histogram, Labels

RECORDED = Path(__file__).parent.parent / "fixtures"
"""Files of /proc as they were on one machine: two cores, one disk, four network interfaces, kernel 6.18."""


def plant(root: Path, files: Mapping[str, str]) -> str:
    """Write the files below `root` and return it as collectors take it."""
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    return str(root)


def points(families: Iterable[Family], metric: Metric) -> dict[Labels, float]:
    """Return the points of one metric; it may be given once at most, and no series twice."""
    (family,) = [family for family in families if family.metric is metric] or [Family(metric, [])]
    assert len(dict(family.points)) == len(family.points)
    return {labels: value for labels, value in family.points if isinstance(value, int | float)}


def collected(collector: Collector) -> list[Family]:
    """Collect once, and hold what came against what the collector declares and the catalogue says of labels."""
    families = collector.collect()
    for family in families:
        assert family.metric in collector.metrics
        for labels, value in family.points:
            assert len(labels) == len(family.metric.labels)
            assert all(isinstance(label, str) for label in labels)
            assert isinstance(value, Histogram) == (family.metric.type == "histogram")
            assert family.metric.type == "gauge" or isinstance(value, Histogram) or value >= 0
    return families
