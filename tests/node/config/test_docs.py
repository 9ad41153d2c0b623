"""What docs/agent/agent.md shows is true: pasted, it works, and its defaults are the agent's."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from helpers import REPOSITORY
from tachoscope_core import yaml_text
from tachoscope_node.config.load import load
from tachoscope_node.config.settings import Config
from tachoscope_service.http.web_config import load as load_web_config

PAGE = (REPOSITORY / "docs" / "agent" / "agent.md").read_text()
MINIMAL, FULL, WEB, SCRAPE = re.findall(r"```yaml\n(.*?)```", PAGE, flags=re.DOTALL)
EXAMPLES = {"spool", "store", "state", "node", "web_config", "devices", "otlp"}


def test_the_first_configuration_works_as_pasted(tmp_path: Path) -> None:
    (tmp_path / "agent.yaml").write_text(MINIMAL)

    assert load(tmp_path / "agent.yaml", look=True).store == "/var/tmp/tachoscope"


def test_the_full_configuration_has_every_key_and_the_true_defaults() -> None:
    shown = yaml_text.load(FULL)
    defaults = msgspec.to_builtins(Config())

    assert shown.keys() == defaults.keys()
    assert {key: value for key, value in shown.items() if key not in EXAMPLES} == {
        key: value for key, value in defaults.items() if key not in EXAMPLES
    }


def test_the_line_that_makes_a_hash_makes_one_that_the_web_configuration_takes(tmp_path: Path) -> None:
    code = re.search(r'python -c "(.*)"', PAGE)
    assert code is not None
    asked = code[1].replace("getpass.getpass()", "'secret'")
    made = subprocess.run([sys.executable, "-c", asked], capture_output=True, text=True, check=True).stdout.strip()
    (tmp_path / "web.yaml").write_text(f"basic_auth_users: {{prometheus: {made}}}\n")

    assert load_web_config(tmp_path / "web.yaml").users == {"prometheus": made.encode()}
    assert set(yaml_text.load(WEB)) == {"tls_server_config", "basic_auth_users", "bearer_token_files"}


@pytest.mark.skipif(shutil.which("promtool") is None, reason="needs promtool")
def test_the_scrape_configuration_is_one_for_prometheus(tmp_path: Path) -> None:
    (tmp_path / "prometheus.yml").write_text(SCRAPE)
    command = ["promtool", "check", "config", "--syntax-only", str(tmp_path / "prometheus.yml")]

    assert subprocess.run(command, capture_output=True, text=True, check=False).returncode == 0
