"""Jobs whose Python keeps the probe out by its flags: `tachoscope run` and the reports say so, and the way out works."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from helpers import REPOSITORY, answer, records_of, run_watched

TRAINING = """
import torch
model = torch.nn.Linear(4, 4)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for _ in range(12):
    model(torch.rand(2, 4)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
"""
WATCHED = "import tachoscope\nwith tachoscope.watch():\n" + TRAINING.replace("\n", "\n    ")
LIGHT_TORCH = REPOSITORY / "tests" / "light_torch" / "sitecustomize.py"
"""On the path of other processes that tests start: `make bars` leaves it out (conftest.py)."""


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (("python", "-I"), "the command ran Python with -I, which ignores $PYTHONPATH, so the probe was not loaded"),
        pytest.param(
            ("env", "A=1", "python", "-BE"),
            "the command ran Python with -E, which ignores $PYTHONPATH, so the probe was not loaded",
            marks=pytest.mark.bar,
        ),
        (("python", "-S"), "the command ran Python with -S, which skips sitecustomize, so the probe was not loaded"),
    ],
    ids=["-I", "env -BE", "-S"],
)
def test_the_flag_that_kept_the_probe_out_is_named_at_the_end_and_in_both_reports(
    tmp_path: Path, command: tuple[str, ...], said: str
) -> None:
    trains = "-BE" in command  # it takes long, and is seen no better than nothing
    (tmp_path / "train.py").write_text(TRAINING if trains else "pass")
    done = run_watched(tmp_path, *command, str(tmp_path / "train.py"))
    report, life = answer(tmp_path, "analyze", "--job", "job"), answer(tmp_path, "goodput", "job")

    assert done.returncode == 0, done.stderr
    assert f"tachoscope: no training step was seen: {said}: leave" in done.stderr
    assert said in report.stderr
    assert said in " ".join(life.stdout.split())


def test_with_watch_in_the_script_such_a_job_is_seen(tmp_path: Path) -> None:
    light = str(LIGHT_TORCH.parent) in os.environ.get("PYTHONPATH", "").split(os.pathsep)
    (tmp_path / "train.py").write_text(f"import runpy\nrunpy.run_path({str(LIGHT_TORCH)!r})\n" * light + WATCHED)
    done = run_watched(tmp_path, "python", "-I", str(tmp_path / "train.py"))

    assert done.returncode == 0, done.stderr
    assert "no training step was seen" not in done.stderr
    assert len(records_of(tmp_path).steps) == 12
