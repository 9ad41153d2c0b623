"""The demo's checkpoints: whole or not at all, and one that fails leaves training to go on."""

from __future__ import annotations

import resource
import subprocess
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

SCRIPT = """
import resource, sys
from pathlib import Path
import torch
from tachoscope_cli.demo.checkpoints import Checkpoints
folder, most = Path(sys.argv[1]), int(sys.argv[2])
checkpoints = Checkpoints(folder, torch.nn.Linear(4, 4), 0.0)
checkpoints.step_ended(1)
resource.setrlimit(resource.RLIMIT_FSIZE, (most, resource.RLIM_INFINITY))
for step in range(2, 14):
    checkpoints.step_ended(step)
"""


def saved(folder: Path, most: int) -> tuple[list[str], str]:
    """Return the files of a run whose files may become so large after its first step, and what it said."""
    done = subprocess.run([sys.executable, "-c", SCRIPT, str(folder), str(most)], capture_output=True, text=True, timeout=400)
    assert done.returncode == 0, done.stderr
    return sorted(path.name for path in folder.iterdir()), done.stderr


def test_the_newest_checkpoints_are_kept_and_can_be_read(tmp_path: Path) -> None:
    names, said = saved(tmp_path, resource.RLIM_INFINITY)

    assert names == [f"checkpoint-{step:07d}.pt" for step in range(6, 14)]
    assert said == ""
    assert set(torch.load(tmp_path / names[-1])) == {"model", "padding"}


@pytest.mark.bar
def test_a_save_that_the_file_system_refuses_leaves_nothing_half_done_and_is_said(tmp_path: Path) -> None:
    names, said = saved(tmp_path, 1 << 20)

    assert names == ["checkpoint-0000001.pt"]
    assert said.count("could not save") == 12 and "File too large" in said
