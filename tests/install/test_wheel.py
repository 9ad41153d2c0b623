"""What is shipped, tested as it is shipped: the wheel in a clean environment."""

import importlib.metadata
import os
import shutil
import subprocess
import sys
import zipfile
from dataclasses import dataclass
from pathlib import Path

import pandas
import pyarrow
import pytest
from packaging.requirements import Requirement

from making import beat, job
from tachoscope_core import native

REPOSITORY = Path(__file__).parents[2]
STEP = {"data_wait": 0.08, "forward": 0.03, "backward": 0.06}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    pip("wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", str(folder), str(REPOSITORY))
    return next(folder.glob("*.whl"))


@pytest.fixture(scope="module")
def wheel_without_compiler(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pure")
    pip("wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", str(folder), str(REPOSITORY), CC="no-such-compiler")
    return next(folder.glob("*.whl"))


def pip(*words: str, python: str = sys.executable, **environ: str) -> None:
    command = [sys.executable, "-m", "pip", "--python", python, "--quiet", "--disable-pip-version-check", *words]
    subprocess.run(command, check=True, env=os.environ | environ)


@dataclass(frozen=True)
class Clean:
    """An environment with the wheel alone; records of a job whose loader has too few workers."""

    folder: Path
    spool: Path

    @property
    def python(self) -> str:
        return str(self.folder / "venv/bin/python")

    @property
    def packages(self) -> Path:
        (found,) = self.folder.glob("venv/lib/python*/site-packages")
        return found

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        tachoscope = str(self.folder / "venv/bin/tachoscope")
        return subprocess.run([tachoscope, *words], capture_output=True, text=True, cwd=self.folder)

    def analyzes(self) -> bool:
        done = self.run("analyze", str(self.spool))
        assert done.returncode == 0, done.stderr
        runbook = next(word for word in done.stdout.split() if word.endswith("input_workers.md"))
        return (self.folder / runbook).is_file()


@pytest.fixture
def clean(wheel: Path, tmp_path: Path) -> Clean:
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "venv")], check=True)
    spool = tmp_path / "00000000-0000-4000-8000-000000000000-000000.jsonl"
    beats = [beat(wait_samples={"data_wait": {"sleep": 40}}, signals={"workers": 0.0})]
    spool.write_bytes(job([[STEP]] * 60, heartbeats=beats))
    made = Clean(tmp_path, spool)
    pip("install", "--no-deps", "--no-compile", str(wheel), python=made.python)
    return made


def link_requirements(packages: Path) -> None:
    """Put what tachoscope needs without extras, and what that needs, into an environment: as it is in that of the tests."""
    wanted = list(importlib.metadata.Distribution.at(next(packages.glob("tachoscope-*.dist-info"))).requires or ())
    there: set[str] = set()
    while wanted:
        one = Requirement(wanted.pop())
        if one.name in there or not (one.marker is None or one.marker.evaluate({"extra": ""})):
            continue
        there.add(one.name)
        found = importlib.metadata.distribution(one.name)
        for top in {file.parts[0] for file in found.files or ()} - {"..", "__pycache__"}:
            (packages / top).symlink_to(Path(str(found.locate_file(top))))
        wanted += found.requires or ()


def test_the_wheel_in_a_clean_environment_runs_help_and_with_tables_an_analysis(clean: Clean) -> None:
    link_requirements(clean.packages)
    assert "Where does the accelerator time go" in clean.run("--help").stdout
    without = clean.run("analyze", str(clean.spool))
    assert (without.returncode, without.stderr.count("\n")) == (2, 1)
    assert "pip install 'tachoscope[analyze]'" in without.stderr
    assert clean.run("run", "--", "true").returncode == 0  # a GPU node has neither pandas nor numpy

    tables = [str(Path(module.__file__).parents[1]) for module in (pandas, pyarrow)]
    (clean.packages / "zz_tables.pth").write_text("\n".join(tables))  # after the wheel's own
    assert clean.analyzes()


@pytest.mark.bar  # downloads what the wheel and its extra name
def test_installed_by_pip_with_its_extra_the_wheel_analyzes(clean: Clean, wheel: Path) -> None:
    pip("install", f"{wheel}[analyze]", python=clean.python)

    assert clean.analyzes()


def test_with_a_compiler_the_wheel_holds_every_native_module_for_all_versions_of_python(wheel: Path) -> None:
    if shutil.which("cc") is None and shutil.which("gcc") is None:
        pytest.skip("there is no C compiler here")
    names = zipfile.ZipFile(wheel).namelist()

    assert "-cp311-abi3-" in wheel.name
    assert {name for name in names if name.endswith(".so")} == {f"{name.replace('.', '/')}.abi3.so" for name in native.MODULES}
    assert not [name for name in names if name.endswith((".c", ".h"))]


def test_without_a_compiler_the_wheel_is_pure_and_else_the_same(wheel: Path, wheel_without_compiler: Path) -> None:
    with_, without = ({*zipfile.ZipFile(one).namelist()} for one in (wheel, wheel_without_compiler))

    assert wheel_without_compiler.name.endswith("-py3-none-any.whl")
    assert {name for name in with_ - without if ".dist-info" not in name} == {name for name in with_ if name.endswith(".so")}


def test_each_c_file_of_a_package_is_a_native_module_that_doctor_names() -> None:
    found = [
        path.relative_to(REPOSITORY).parts[1:]
        for root in ("core", "agents", "analyzers")
        for path in (REPOSITORY / root).rglob("*.c")
    ]

    assert {".".join(parts).removesuffix(".c") for parts in found} == set(native.MODULES)


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
        "tachoscope_preflight",
        "tachoscope_service",
        "tachoscope_show",
        "tachoscope_watch",
    }
    for data in (
        "tachoscope/syscalls.csv",
        "tachoscope/bootstrap/sitecustomize.py",
        "tachoscope_analyzers/data/thresholds.yaml",
        "tachoscope_analyzers/data/preflight.yaml",
        "tachoscope_alerts/slos/inference-ttft.yaml",
        "tachoscope_alerts/foreign/vllm.yaml",
        "tachoscope_alerts/recordings.yaml",
        "tachoscope_dashboards/exceptions.yaml",
    ):
        assert data in names
