"""The harness of public loops: faults stand where it says, and reports are compared with the truth in both directions."""

import compileall
from pathlib import Path

import pytest
from benchmarks.loops.catalogue import LOOPS
from benchmarks.loops.execute import HERE
from benchmarks.loops.faults import CLEAN, FAULTS, edits_of, faults_of
from benchmarks.loops.judge import agrees, judge
from benchmarks.loops.plant import AnchorError, Edit, Spot, apply_edits, edit_lines
from benchmarks.loops.truth import Mark, Truth, truth_of

SCRIPT = """\
import torch

def get_batch():
    x = draw()
    return x

while True:
    loss = model(get_batch())
    loss.backward()
    optimizer.step()
    optimizer.step()
""".splitlines()
BY_NAME = {fault.name: fault for fault in FAULTS}
TRUTH = Truth(seconds_per_step=0.020, step_seconds=0.070, steps=100, ranks=(0,), cpu_share=0.0)
SPOT = Spot("train.py", 10, 12, "get_batch")


def finding(
    name: str, seconds: float = 0.020, line: str = "train.py:11 get_batch", severity: str = "critical"
) -> dict[str, object]:
    evidence = [{"signal": "share of the step"}, {"signal": f"seen at {line}"}]
    return {"class": name, "severity": severity, "share": 0.3, "seconds_per_step": seconds, "ranks": "all", "evidence": evidence}


def report(*findings: dict[str, object], unexplained: float = 0.0) -> dict[str, object]:
    ledger = {"rank": None, "wall_seconds": 10.0, "states": {"unexplained": unexplained}}
    return {"findings": list(findings), "ledgers": [ledger], "window": {"steps": 100}, "step_seconds": {"mean": 0.070}}


def test_a_planted_text_stands_where_its_spot_says_also_after_later_edits() -> None:
    edits = [
        Edit("", "x = draw()", "begin()\nsleep()\nend()", marked=True),
        Edit("", "", "import time\nimport os", "top"),
        Edit("", "loss.backward()", "loss.item()", "after", marked=True),
    ]

    lines, spots = edit_lines(SCRIPT, edits)

    texts = [[line.strip() for line in lines[first - 1 : last]] for first, last in spots]
    assert texts == [["begin()", "sleep()", "end()"], ["loss.item()"]]
    assert lines[:3] == ["import time", "import os", "import torch"]
    assert "        sleep()" not in lines
    assert "    sleep()" in lines


def test_the_function_around_a_planted_text_is_named(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("\n".join(SCRIPT))

    spots = apply_edits(
        tmp_path,
        [
            Edit("train.py", "return x", "sleep()", marked=True),
            Edit("train.py", "loss.backward()", "sleep()", marked=True),
            Edit("train.py", "", "def collate(samples):\n    sleep()", "top", marked=True),
        ],
    )

    assert [spot.function for spot in spots] == ["get_batch", "<module>", "collate"]


@pytest.mark.parametrize("anchor", ["loss.backwards()", "optimizer.step()"])
def test_an_anchor_that_is_missing_or_there_twice_stops_the_run(anchor: str) -> None:
    with pytest.raises(AnchorError, match="train.py"):
        edit_lines(SCRIPT, [Edit("train.py", anchor, "sleep()")])


@pytest.mark.parametrize("loop", [loop for loop in LOOPS if loop.folder == "own"], ids=lambda loop: loop.name)
def test_each_fault_has_its_place_in_our_own_loops_and_leaves_python_that_compiles(loop: object, tmp_path: Path) -> None:
    for fault in faults_of(loop):
        folder = tmp_path / fault.name
        folder.mkdir()
        file = loop.step.file
        (folder / file).write_text((HERE / "own" / file).read_text())

        spots = apply_edits(folder, edits_of(loop, fault, 0.050, 1e6))

        assert compileall.compile_dir(folder, quiet=2)
        assert bool(spots) == (fault != CLEAN)


def test_a_fault_that_is_named_with_its_line_and_seconds_is_right() -> None:
    row = judge(report(finding("host_pause")), BY_NAME["stall_before_backward"], [SPOT], TRUTH)

    assert all(
        row[key]
        for key in ("right", "right_but_for_machine", "class_right", "family_right", "line_right", "seconds_right", "ranks_right")
    )


@pytest.mark.parametrize(
    ("found", "wrong"),
    [
        (finding("unknown"), {"class_right", "family_right", "right"}),
        (finding("host_sync"), {"class_right", "right"}),
        (finding("host_pause", severity="info"), {"class_right", "family_right", "right"}),
        (finding("host_pause", line="model.py:11 forward"), {"line_right", "right"}),
        (finding("host_pause", seconds=0.0225), {"seconds_right"}),
        (finding("host_pause") | {"ranks": [1]}, {"ranks_right"}),
    ],
)
def test_what_is_wrong_in_a_report_is_counted_as_wrong_and_nothing_else(found: dict[str, object], wrong: set[str]) -> None:
    row = judge(report(found), BY_NAME["stall_before_backward"], [SPOT], TRUTH)

    assert {key for key in row if key.endswith("right") and not row[key]} == wrong


@pytest.mark.parametrize(("above", "but_for_machine"), [("cpu_contention", True), ("host_sync", False)])
def test_a_finding_above_the_right_one_makes_the_class_wrong_but_not_the_seconds(above: str, but_for_machine: bool) -> None:
    row = judge(report(finding(above, 0.030), finding("host_pause")), BY_NAME["stall_before_optimizer"], [SPOT], TRUTH)

    assert (row["class_right"], row["seconds_right"], row["line_right"]) == (False, True, True)
    assert row["right_but_for_machine"] == but_for_machine


@pytest.mark.parametrize("name", ["clean", "item"])
def test_a_clean_run_is_right_without_a_warning_only_and_must_have_steps(name: str) -> None:
    quiet = judge(report(finding("compute_bound", severity="info")), BY_NAME[name], [], None)
    noisy = judge(report(finding("unknown", severity="warning"), unexplained=1.0), BY_NAME[name], [], None)
    blind = judge(report() | {"window": {"steps": 0}}, BY_NAME[name], [], None)

    assert [row["right"] for row in (quiet, noisy, blind)] == [True, False, False]
    assert [row["unexplained_right"] for row in (quiet, noisy)] == [True, False]


@pytest.mark.parametrize(
    ("line", "right"),
    [
        ("train.py:13 <module>", True),
        ("train.py:99 get_batch", True),
        ("train.py:99 <module>", False),
        ("model.py:11 get_batch", False),
        ("", False),
    ],
)
def test_a_line_agrees_near_the_planted_one_or_in_its_function(line: str, right: bool) -> None:
    assert agrees(line, SPOT) == right


def test_being_at_module_level_is_no_agreement_without_the_line() -> None:
    assert not agrees("train.py:99 <module>", Spot("train.py", 10, 12, "<module>"))


def marks(*, fault: float, wait: float = 0.0, steps: int = 10) -> list[Mark]:
    own = []
    for number in range(steps):
        own += [Mark("fault", 100.0 + number, fault, 0.0), Mark("step", 100.5 + number, 50.0 + number, 1.0)]
        own += [Mark("wait", 100.6 + number, wait, 0.0)] if wait else []
    return own


def test_the_truth_is_of_the_window_and_of_the_ranks_that_have_the_fault() -> None:
    truth = truth_of({(0, 11): [m for m in marks(fault=0.0) if m.kind == "step"], (1, 12): marks(fault=0.3)}, 102.0, 107.9)

    assert truth is not None
    assert truth.seconds_per_step == pytest.approx(0.3)
    assert (truth.steps, truth.ranks) == (6, (1,))
    assert truth.step_seconds == pytest.approx(1.0)


def test_of_a_loaders_worker_the_waiting_of_the_loop_is_the_truth() -> None:
    trainer = [mark for mark in marks(fault=0.0, wait=0.05) if mark.kind != "fault"]
    worker = [mark for mark in marks(fault=0.9) if mark.kind == "fault"]

    truth = truth_of({(0, 11): trainer, (0, 12): worker}, 99.0, 200.0)

    assert truth is not None
    assert truth.seconds_per_step == pytest.approx(0.05)
    assert truth.ranks == (0,)


def test_no_iteration_in_the_window_is_no_truth() -> None:
    assert truth_of({(0, 11): marks(fault=0.3)}, 500.0, 600.0) is None
