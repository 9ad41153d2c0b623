"""What the procedures tell people to write is what the software takes."""

from __future__ import annotations

import math
import re
from pathlib import Path

import pytest

import tachoscope
from helpers import REPOSITORY
from runbook_pages import blocks, procedures
from tachoscope.data.shards import QuarantineList
from tachoscope_analyzers.checkpoint_policy.cost_model import young_interval
from tachoscope_core.storage.shard_quarantine import PATH_VARIABLE

DAY = 86_400.0


def test_the_procedures_that_the_platform_needs_are_there() -> None:
    assert procedures().keys() == {
        "procedure-bad-data-shard",
        "procedure-checkpoint-policy",
        "procedure-silent-corruption",
        "procedure-spot-preemption",
    }


def test_a_quarantine_list_written_by_hand_as_the_page_says_is_believed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (document,) = blocks(procedures()["procedure-bad-data-shard"], "json")
    path = tmp_path / "list.json"
    path.write_text(document)
    monkeypatch.setenv(PATH_VARIABLE, str(path))

    assert QuarantineList().names() == {"/data/part-003.tar"}
    monkeypatch.setattr("tachoscope.data.shards.LIST", QuarantineList())
    assert tachoscope.without_quarantined(["/data/part-002.tar", "/data/part-003.tar"]) == ["/data/part-002.tar"]


def test_the_example_of_the_checkpoint_policy_is_what_its_formula_gives() -> None:
    page = procedures()["procedure-checkpoint-policy"]
    found = re.search(r"0\.87 d = ([\d,]+) s, and\nsqrt\(2 x 30 x [\d,]+\) = ([\d,]+) s: every (\d+) minutes", page)

    assert found is not None
    between = 1 / (1 / DAY + 0.15 / DAY)
    interval = young_interval(30.0, between)
    assert [int(text.replace(",", "")) for text in found.groups()] == [
        round(between, -2),
        round(math.sqrt(2 * 30 * round(between, -2))),
        round(interval / 60),
    ]


def test_the_days_between_preemptions_are_those_of_15_percent_a_day() -> None:
    page = " ".join(procedures()["procedure-spot-preemption"].split())

    days, hours_of_8, hours_of_64 = (24 / 0.15 / 24, 24 / (0.15 * 8), 24 / (0.15 * 64))
    assert f"one machine every {days:.1f} days, 8 every {hours_of_8:.0f} h, 64 every {hours_of_64:.1f} h" in page


def test_the_example_that_the_procedure_runs_is_in_the_repository() -> None:
    (script,) = set(re.findall(r"examples/\w+\.py", "".join(blocks(procedures()["procedure-spot-preemption"], "sh"))))

    assert (REPOSITORY / script).is_file()
