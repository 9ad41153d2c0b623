"""What docs/guides/servers.md shows is true."""

from __future__ import annotations

import re
from pathlib import Path

from helpers import REPOSITORY
from tachoscope_core.metrics.serving import SERVING_METRICS
from tachoscope_node.config.load import load
from tachoscope_node.services.scrape_collector import ANSWER_SECONDS, MOST_BYTES, MOST_MODELS

PAGE = (REPOSITORY / "docs" / "guides" / "servers.md").read_text()


def test_its_configuration_is_taken_as_pasted(tmp_path: Path) -> None:
    (text,) = re.findall(r"```yaml\n(.*?)```", PAGE, flags=re.DOTALL)
    (tmp_path / "agent.yaml").write_text(text)

    assert [server.name for server in load(tmp_path / "agent.yaml").servers] == ["chat", "embeddings"]


def test_its_names_and_limits_are_those_of_the_code() -> None:
    ours = {metric.name for metric in SERVING_METRICS}
    named = set(re.findall(r"`(tachoscope_\w+)(?:\{.*?\})?`", PAGE))

    assert named
    assert named <= ours
    assert f"{ANSWER_SECONDS:g} s for an answer of {MOST_BYTES >> 20} MiB" in PAGE
    assert f"more than {MOST_MODELS} models" in PAGE
