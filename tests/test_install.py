"""The extras installed as a user does it, in an environment of their own: by an old pip, and in the oldest versions that they allow."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from helpers import REPOSITORY, environment
from tachoscope_core.extras import EXTRAS

DEBIAN_12 = "23.0.1"
"""The pip of the oldest system that is told of in docs/install.md."""
PACKAGES = re.findall(r'"\w+/(\w+)"', re.search(r"^packages = \[(.*tachoscope_core.*)\]$", (REPOSITORY / "pyproject.toml").read_text(), re.M)[1])  # type: ignore[index]
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
def bare(tmp_path: Path) -> Path:
    """Return the folder of programs of a bare virtual environment."""
    run(sys.executable, "-m", "venv", tmp_path / "venv")
    bin_ = tmp_path / "venv" / "bin"
    probe = [bin_ / "pip", "download", "--quiet", "--no-deps", "--dest", tmp_path / "try", "iniconfig"]
    if subprocess.run(probe, capture_output=True, check=False).returncode:
        pytest.skip("no package index can be reached")
    return bin_


def test_all_extras_are_installed_by_the_pip_of_debian_12(bare: Path, users: dict[str, str], tmp_path: Path) -> None:
    run(bare / "pip", "install", "--quiet", f"pip=={DEBIAN_12}")
    run(bare / "pip", "install", "--quiet", f"{REPOSITORY}[all]", timeout=600)

    assert "No broken requirements" in run(bare / "pip", "check")
    run(bare / "python", "-c", f"import {', '.join(sorted({one for some in EXTRAS.values() for one in some}))}", env=users)
    run(bare / "tachoscope", "dashboards", "build", "--check", "--out", BOARDS, cwd=tmp_path, env=users)


def test_the_oldest_versions_that_the_extras_allow_run_the_demo_its_report_and_the_boards(
    bare: Path, users: dict[str, str], tmp_path: Path
) -> None:
    (locker,) = re.findall(r"^LOCKER := (\S+)$", (REPOSITORY / "Makefile").read_text(), re.MULTILINE)
    (torch,) = re.findall(r"^torch==\S+$", (REPOSITORY / "requirements-torch.lock").read_text(), re.MULTILINE)
    run(bare / "pip", "install", "--quiet", locker)
    lowest = [bare / "uv", "pip", "compile", "--quiet", "--resolution", "lowest-direct", "--extra", "all", "--no-header"]
    run(*lowest, "--python", bare / "python", "--output-file", tmp_path / "lowest.txt", REPOSITORY / "pyproject.toml")
    run(bare / "uv", "pip", "install", "--quiet", "--python", bare / "python", "--requirement", tmp_path / "lowest.txt")
    run(bare / "pip", "install", "--quiet", torch)  # by pip, which finds the build for CPUs where the user's settings have one
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
