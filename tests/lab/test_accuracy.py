"""The page of planted rows says what was planted, and the committed one is what its table gives."""

import json
import re
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from dataclasses import replace
from pathlib import Path

import pytest
from benchmarks.lab import accuracy
from benchmarks.lab.accuracy_page import bars, page
from benchmarks.lab.rows_of_runs import Fault, write_rows

from row_making import named, planted_run, row, step

DIGESTS = {"thresholds.yaml": "ab" * 32, "calibration.yaml": "cd" * 32}
ABOUT = {"frozen_sha256": DIGESTS, "scored_with_sha256": DIGESTS, "machine": "cores 2", "calibration_origin": "planted"}
ON_ONE = {"faults": (Fault("compute_straggler", [1], 0.02),)}
RUNS = [
    replace(one, id=f"{number:03}")
    for number, one in enumerate(
        [
            *[row("input_fetch", named("input_fetch", seconds=0.021))] * 19,
            row("input_fetch", "input_workers", severity=0.1),
            *[row("compute_straggler", named("compute_straggler", ranks=[1]), **ON_ONE)] * 20,
            row("compute_straggler", "input_straggler", lookalike="4v12", kind="lookalike", **ON_ONE),
            *[row()] * 30,
            row("slow_link", skipped="no network namespaces here"),
            row("input_fetch", "unknown", set="development"),
            row(
                "",
                "input_fetch",
                "host_pause",
                kind="pair",
                faults=(Fault("input_fetch", "all", 0.1), Fault("host_pause", "all", 0.2)),
            ),
        ]
    )
]


def test_the_page_tells_what_was_counted() -> None:
    text = page(RUNS, ABOUT)

    assert "72 test runs: 40 with one fault, 30 without, 1 of look-alike pairs, 1 with two faults" in re.sub(r"\s+", " ", text)
    assert "| `input_fetch` | 100.0 % (19 of 19; 83.2 % to 100.0 %) | 100.0 % (19 of 19;" in text
    assert "| culprit ranks right | ≥ 0.95 | 95.2 % (20 of 21;" in text
    assert "| clean runs with a warning | ≤ 0.02 | 0.0 % (0 of 30; 0.0 % to 11.4 %) | yes |" in text
    assert "| median error of the attributed seconds | ≤ 0.1 | 0.0 % (39 rightly named faults) | yes |" in text
    assert "| look-alike pairs told apart | ≥ 0.9 | 0.0 % (0 of 1;" in text
    assert "| `slow_link` | 1 | no network namespaces here |" in text
    assert "Both named: 100.0 % (1 of 1;" in text
    assert "These figures were scored with just these." in text
    assert "thresholds.yaml `abababababababab`" in text


def test_other_thresholds_than_the_frozen_ones_are_said() -> None:
    other = ABOUT | {"scored_with_sha256": DIGESTS | {"thresholds.yaml": "ef"}}

    assert "**These figures were scored with others than the frozen ones: thresholds.yaml.**" in page(RUNS, other)
    assert "**That they were frozen before the test runs is not recorded.**" in page(RUNS, {})


def test_figures_of_runs_that_were_looked_at_before_rules_were_changed_are_called_those_of_development() -> None:
    assert "these are figures of development" in page(RUNS, ABOUT | {"looked_at": True})
    assert "these are figures of development" not in page(RUNS, ABOUT)


def test_a_bar_that_was_not_measured_is_neither_met_nor_missed() -> None:
    assert {bar.met for bar in bars([])} == {None}
    assert "There are no test runs yet" in page([], {})


def test_pictures_are_well_formed_and_show_each_count() -> None:
    made = accuracy.files(RUNS, ABOUT)

    for name in ("accuracy/confusion.svg", "accuracy/calibration.svg"):
        ElementTree.fromstring(made[name])
    cells = re.findall(r"<text[^>]*>(\d+)</text>", made["accuracy/confusion.svg"])
    assert sorted(map(int, cells)) == [1, 1, 19, 20, 30]


@pytest.mark.bar  # of a benchmark
def test_page_and_pictures_are_made_from_the_table_alone_and_a_stale_one_is_found(tmp_path: Path) -> None:
    (tmp_path / "accuracy").mkdir()
    write_rows(RUNS, tmp_path / "accuracy" / "results.csv")

    def make(*words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "benchmarks.lab.accuracy", "--docs", str(tmp_path), *words]
        return subprocess.run(command, cwd=accuracy.REPOSITORY, capture_output=True, text=True, check=False)

    assert make("--check").returncode == 1
    assert make().returncode == 0
    assert make("--check").returncode == 0
    (tmp_path / "accuracy.md").write_text((tmp_path / "accuracy.md").read_text().replace("19 of 19", "20 of 20"))
    stale = make("--check")
    assert (stale.returncode, "accuracy.md" in stale.stderr) == (1, True)


def test_the_committed_page_is_what_the_committed_table_gives() -> None:
    docs = accuracy.REPOSITORY / "docs" / "develop"

    for name, text in accuracy.files(*accuracy.load(docs)).items():
        assert (docs / name).read_text() == text, "python -m benchmarks.lab.accuracy"


def test_every_picture_of_the_page_is_made() -> None:
    made = accuracy.files(RUNS, ABOUT)

    assert set(re.findall(r"!\[[^]]*\]\(([^)]+)\)", made["accuracy.md"])) == made.keys() - {"accuracy.md"}


def test_what_was_frozen_is_read_from_the_folder_of_the_lab(tmp_path: Path) -> None:
    digests = {name: accuracy.digest(name) for name in ("thresholds.yaml", "calibration.yaml")}
    (tmp_path / "frozen.json").write_text(json.dumps({"schema": 1, "time": 1.0, "sha256": digests}))
    run = planted_run(tmp_path / "a", [[step(), step()]] * 20, [])

    facts = accuracy.about(tmp_path, [run])

    assert facts["frozen_sha256"] == facts["scored_with_sha256"] == digests
    assert facts["machine"] == "cores 2"
