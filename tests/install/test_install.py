"""The extras installed as a user does it, in new environments: by old installers and new, and in the oldest versions allowed."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from benchmarks.install_matrix import INSTALLERS, LIMIT_SECONDS, install

from helpers import REPOSITORY, environment
from tachoscope_analyzers.records.load import from_store
from tachoscope_core.extras import EXTRAS
from tachoscope_core.storage.store import Store

(TORCH,) = re.findall(r"^torch==\S+$", (REPOSITORY / "requirements-torch.lock").read_text(), re.MULTILINE)
TRAINING = """
import torch
model = torch.nn.Linear(8, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
data = torch.utils.data.TensorDataset(torch.randn(92, 8), torch.randint(0, 2, (92,)))
for x, y in torch.utils.data.DataLoader(data, batch_size=4):
    optimizer.zero_grad()
    torch.nn.functional.cross_entropy(model(x), y).backward()
    optimizer.step()
print("trained", flush=True)
"""
PACKAGES = re.findall(
    r'"\w+/(\w+)"', re.search(r"^packages = \[(.*tachoscope_core.*)\]$", (REPOSITORY / "pyproject.toml").read_text(), re.M)[1]
)  # type: ignore[index]
BOARDS = REPOSITORY / "dashboards" / "generated"
IMPORTS = """
import importlib, pkgutil, sys
for package in sys.argv[1:]:
    for found in pkgutil.walk_packages(importlib.import_module(package).__path__, package + "."):
        if found.name.rpartition(".")[2] != "sitecustomize":
            importlib.import_module(found.name)
"""

pytestmark = [pytest.mark.bar, pytest.mark.timeout(1800)]


def run(*words: str | Path, cwd: Path | None = None, env: dict[str, str] | None = None, timeout: float = 900) -> str:
    done = subprocess.run(
        [str(word) for word in words], cwd=cwd, env=env, timeout=timeout, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{words}: {done.stdout[-2000:]}{done.stderr[-4000:]}"
    return done.stdout


@pytest.fixture
def users(tmp_path: Path) -> dict[str, str]:
    """Return the environment of a user who has nothing of ours but what is installed."""
    ours = environment(tmp_path)
    return {name: value for name, value in ours.items() if name not in {"PYTHONPATH", "VIRTUAL_ENV"}}


@pytest.fixture
def index(tmp_path: Path) -> None:
    """Skip where no package index can be reached."""
    probe = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(tmp_path / "try"), "iniconfig"]
    if subprocess.run(probe, capture_output=True, check=False).returncode:
        pytest.skip("no package index can be reached")


@pytest.fixture
def bare(index: None, tmp_path: Path) -> Path:
    """Return the folder of programs of a bare virtual environment."""
    run(sys.executable, "-m", "venv", tmp_path / "venv")
    return tmp_path / "venv" / "bin"


@pytest.mark.parametrize("installer", INSTALLERS)
def test_all_extras_resolve_in_two_minutes_and_are_installed(
    installer: str, index: None, users: dict[str, str], tmp_path: Path
) -> None:
    found = install(installer, tmp_path)

    assert found.resolving.cpu_seconds < LIMIT_SECONDS  # by the clock it depends on what else runs
    modules = ", ".join(sorted({one for some in EXTRAS.values() for one in some}))
    run(found.bin / "python", "-c", f"import {modules}", env=users)
    run(found.bin / "tachoscope", "dashboards", "build", "--check", "--out", BOARDS, cwd=tmp_path, env=users)


def test_the_extra_for_training_images_and_torch_are_all_that_run_needs(bare: Path, users: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(TRAINING)
    run(bare / "pip", "install", "--quiet", f"{REPOSITORY}[probe]", TORCH)
    command = ["run", "--job", "small", "--", bare / "python", "train.py"]

    assert run(bare / "tachoscope", *command, cwd=tmp_path, env=users) == "trained\n"

    records = from_store(Store(str(tmp_path / "store")), "small")
    assert [step.step for step in records.steps] == list(range(1, 24))
    assert "No broken requirements" in run(bare / "pip", "check")
    names = {line.partition("==")[0] for line in run(bare / "pip", "freeze").splitlines()}
    assert not {"pandas", "pyarrow", "PyYAML", "prometheus_client"} & names


def test_the_oldest_versions_that_the_extras_allow_run_the_demo_its_report_and_the_boards(
    bare: Path, users: dict[str, str], tmp_path: Path
) -> None:
    (locker,) = re.findall(r"^LOCKER := (\S+)$", (REPOSITORY / "Makefile").read_text(), re.MULTILINE)
    run(bare / "pip", "install", "--quiet", locker)
    lowest = [bare / "uv", "pip", "compile", "--quiet", "--resolution", "lowest-direct", "--extra", "all", "--no-header"]
    run(*lowest, "--python", bare / "python", "--output-file", tmp_path / "lowest.txt", REPOSITORY / "pyproject.toml")
    run(bare / "uv", "pip", "install", "--quiet", "--python", bare / "python", "--requirement", tmp_path / "lowest.txt")
    run(bare / "pip", "install", "--quiet", TORCH)  # by pip, which finds the build for CPUs where the user's settings have one
    run(bare / "pip", "install", "--quiet", "--no-deps", REPOSITORY)

    def tachoscope(*words: str | Path) -> str:
        return run(bare / "tachoscope", *words, cwd=tmp_path, env=users)

    run(bare / "python", "-c", IMPORTS, *PACKAGES, cwd=tmp_path, env=users)
    shown = tachoscope("demo")
    assert "Rank 1 is late with the data" in shown
    assert "agent: shipped all records" in shown
    assert "input_straggler" in tachoscope("analyze", "--job", "demo-input_straggler")
    tachoscope("slo", "check")
    tachoscope("dashboards", "build", "--check", "--out", BOARDS)


def test_a_bare_clone_comes_to_its_verdict_with_make_demo_alone(users: dict[str, str], tmp_path: Path) -> None:
    run("git", "clone", "--quiet", REPOSITORY, tmp_path / "clone")

    shown = run("make", "demo", cwd=tmp_path / "clone", env=users)

    assert "Rank 1 is late with the data" in shown
    assert not (tmp_path / "clone" / ".venv" / ".ready").exists()
