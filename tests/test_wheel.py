"""What is shipped, tested as it is shipped: the wheel in a clean environment."""

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from making import beat, job

REPOSITORY = Path(__file__).parents[1]
STEP = {"data_wait": 0.08, "forward": 0.03, "backward": 0.06}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    pip("wheel", "--no-deps", "--wheel-dir", str(folder), str(REPOSITORY))
    return next(folder.glob("*.whl"))


def pip(*words: str, python: str = sys.executable) -> None:
    subprocess.run([python, "-m", "pip", "--quiet", "--disable-pip-version-check", *words], check=True)


def test_the_wheel_in_a_clean_environment_runs_help_and_an_analysis(wheel: Path, tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-m", "venv", str(tmp_path / "venv")], check=True)
    python, tachoscope = str(tmp_path / "venv/bin/python"), str(tmp_path / "venv/bin/tachoscope")
    spool = tmp_path / "00000000-0000-4000-8000-000000000000-000000.jsonl"
    beats = [beat(wait_samples={"data_wait": {"sleep": 40}}, signals={"workers": 0.0})]
    spool.write_bytes(job([[STEP]] * 60, heartbeats=beats))

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([tachoscope, *words], capture_output=True, text=True, cwd=tmp_path)

    pip("install", str(wheel), python=python)
    assert "Where does the accelerator time go" in run("--help").stdout
    without = run("analyze", str(spool))
    assert (without.returncode, without.stderr.count("\n")) == (2, 1)
    assert "pip install 'tachoscope[analyze]'" in without.stderr
    assert run("run", "--", "true").returncode == 0  # a GPU node has neither pandas nor numpy

    pip("install", f"{wheel}[analyze]", python=python)
    with_analysis = run("analyze", str(spool))
    assert with_analysis.returncode == 0, with_analysis.stderr
    assert "input_workers" in with_analysis.stdout
    runbook = next(word for word in with_analysis.stdout.split() if word.endswith("input_workers.md"))
    assert (tmp_path / runbook).is_file()


def test_the_wheel_holds_only_packages_with_the_projects_prefix_and_its_data(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()

    assert {name.split("/")[0].split("-")[0] for name in names} == {
        "tachoscope",
        "tachoscope_alerts",
        "tachoscope_analyzers",
        "tachoscope_cli",
        "tachoscope_core",
        "tachoscope_dashboards",
        "tachoscope_explorer",
        "tachoscope_node",
        "tachoscope_show",
        "tachoscope_watch",
    }
    for data in (
        "tachoscope/syscalls.csv",
        "tachoscope/bootstrap/sitecustomize.py",
        "tachoscope_analyzers/thresholds.yaml",
        "tachoscope_alerts/slos/inference-ttft.yaml",
        "tachoscope_alerts/foreign/vllm.yaml",
        "tachoscope_alerts/recordings.yaml",
        "tachoscope_dashboards/preview/page.html",
        "tachoscope_dashboards/exceptions.yaml",
    ):
        assert data in names
