"""Real trainings: one becomes slow in the middle, one is slow throughout, and is compared with one that is not."""

import json
import sys
from pathlib import Path

import pytest

from helpers import answer, run_watched

SCRIPT = """
import sys, time, torch

slow_from, extra = int(sys.argv[1]), float(sys.argv[2])

class Samples(torch.utils.data.Dataset):
    def __len__(self): return 240
    def __getitem__(self, index):
        time.sleep(0.02 + (extra if index >= slow_from else 0.0))
        return torch.ones(8)

model = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for batch in torch.utils.data.DataLoader(Samples(), batch_size=1):
    optimizer.zero_grad()
    model(batch).sum().backward()
    optimizer.step()
"""


def trained(tmp_path: Path, job: str, slow_from: int, extra: float) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    done = run_watched(tmp_path, sys.executable, str(tmp_path / "train.py"), str(slow_from), str(extra), job=job)
    assert done.returncode == 0, done.stderr


@pytest.mark.bar
def test_a_training_that_becomes_slow_says_from_which_step_on_and_why(tmp_path: Path) -> None:
    trained(tmp_path, "job", 120, 0.02)

    done = answer(tmp_path, "analyze", "--format", "json")
    (change,) = json.loads(done.stdout)["course"]["changes"]

    assert change["step"] == pytest.approx(121, abs=3)
    assert change["after_seconds"] - change["before_seconds"] == pytest.approx(0.02, abs=0.005)
    assert [row["state"] for row in change["states"]] == ["data_wait"]


@pytest.mark.bar
def test_a_training_that_is_slower_than_the_last_one_fails_the_pipeline_and_says_what_grew(tmp_path: Path) -> None:
    trained(tmp_path, "old", 1000, 0.0)
    trained(tmp_path, "new", 0, 0.01)
    words = ("--job", "new", "--baseline-job", "old", "--format", "json", "--fail-on", "regression")

    done = answer(tmp_path, "analyze", *words)
    found = json.loads(done.stdout)["comparison"]

    assert done.returncode == 3
    assert (found["verdict"], found["states"][0]["name"]) == ("slower", "data_wait")
    assert found["step"]["interval"][0] > 0
    assert [row["name"] for row in found["made_of"] if row["name"] == "command"] == ["command"]
