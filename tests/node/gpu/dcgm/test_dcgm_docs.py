"""docs/agent/dcgm.md and the reference name the fields that there are, and show the dashboard's queries that are tested."""

from __future__ import annotations

import re
import shutil
import subprocess

import pytest

from gpu.fake_dcgm_exporter import recorded
from gpu.test_dcgm_dashboard import QUERIES, VARIABLES
from helpers import REPOSITORY
from tachoscope_core.metrics.dcgm import DCGM_LABELS
from tachoscope_node.gpu.dcgm import compat_names as dcgm_names
from tachoscope_node.gpu.dcgm.fields import FIELDS
from tachoscope_node.gpu.dcgm.parser import read
from tachoscope_node.gpu.metrics import families
from tachoscope_service.metrics.prometheus_text import render

PAGE = (REPOSITORY / "docs" / "agent" / "dcgm.md").read_text()
REFERENCE = (REPOSITORY / "docs" / "reference" / "gpus.md").read_text()


def test_every_query_of_the_dashboard_is_shown() -> None:
    for query in (*QUERIES, *VARIABLES.values()):
        assert f"`{query}`" in PAGE


@pytest.mark.skipif(shutil.which("promtool") is None, reason="needs promtool")
def test_promtool_complains_of_nvidias_names_as_the_page_says_and_of_none_of_ours() -> None:
    ours = families(read(recorded("l4")).readings, 0)
    said = {}
    for name, page in (("ours", render(ours)), ("theirs", render(dcgm_names.families(ours, "node-1", 1000.0)))):
        done = subprocess.run(["promtool", "check", "metrics"], input=page, capture_output=True, check=False)
        said[name] = (done.stdout + done.stderr).decode()

    assert said["ours"] == ""
    assert all(complaint in said["theirs"] for complaint in ("camelCase", '"_total" suffix', "include type"))
    assert "`promtool check metrics`" in PAGE


def test_every_label_and_every_name_that_the_page_mentions_is_there() -> None:
    for label in DCGM_LABELS:
        assert f"`{label}`" in PAGE
    every = {name for field in FIELDS for name in (field.field, *field.also)} | {"DCGM_FI_DEV_XID_ERRORS", "DCGM_FI_DRIVER_VERSION"}
    assert set(re.findall(r"DCGM_FI_\w+", PAGE + REFERENCE)) == every
