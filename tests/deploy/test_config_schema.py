"""What values.schema.json says of `config` is what the agent takes there."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

import config_schema
from rendering import CHART, one, render, template
from tachoscope_node.config.load import load
from tachoscope_node.config.settings import Config
from tachoscope_service.metrics.otlp.push import OtlpSettings


def test_the_schema_of_config_is_that_of_the_agents_configuration() -> None:
    written = json.loads((CHART / "values.schema.json").read_text())["properties"]["config"]
    wanted = config_schema.schema(Config)

    assert written == wanted, f"values.schema.json: config has to be {json.dumps(wanted)}"


@pytest.mark.parametrize("place", ["", "flush", "limits", "devices", "devices.disk", "gpu", "otlp"])
def test_a_misspelt_key_of_the_agents_configuration_is_refused_wherever_it_is(place: str) -> None:
    done = template("--set", ".".join(filter(None, ("config", place, "misspelt"))) + "=1")

    assert done.returncode != 0
    assert "misspelt" in done.stderr


def test_every_key_of_the_agents_configuration_is_taken_and_comes_to_the_agent_as_it_was(tmp_path: Path) -> None:
    config = msgspec.to_builtins(Config())
    config |= {
        "spool": "/a",
        "store": "/b",
        "state": "/c",
        "node": "node-1",
        "sample_seconds": 60,
        "flush": {"seconds": 1, "bytes": 8388609},
    }
    config |= {"gpu": config["gpu"] | {"enabled": False}, "devices": {"disk": {"include": "sd."}}}
    config["otlp"] = msgspec.to_builtins(OtlpSettings(endpoint="http://a:4318", headers={"x": "text"}, resource={"k": "value"}))
    (tmp_path / "agent.yaml").write_text(one(render({"config": config}), "ConfigMap")["data"]["agent.yaml"])

    assert load(tmp_path / "agent.yaml") == msgspec.convert(config, Config)


@pytest.mark.parametrize(
    "value", ["gpu.enabled=maybe", "gpu.expected=-1", "gpu=all", "tick_seconds=often", "tick_seconds=61", "otlp.compression=zip"]
)
def test_a_value_that_the_agent_would_refuse_by_its_type_or_range_is_refused(value: str) -> None:
    done = template("--set", f"config.{value}")

    assert done.returncode != 0
    assert f"at '/config/{value.partition('=')[0].replace('.', '/')}'" in done.stderr
