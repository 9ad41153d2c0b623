"""What Debian has to give is installed by the targets themselves, or named before anything else is begun."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from helpers import REPOSITORY

SCRIPT = REPOSITORY / ".ci" / "system-packages"
OF_PROMETHEUS = ("prometheus", "promtool", "prometheus-alertmanager", "amtool")
PROGRAMS = ("git", "openssl", "unshare", "setpriv", "ip", "tc", *OF_PROMETHEUS, "chromium")
INSTALLS = """#!/bin/bash
echo "$*" >> "$LOG"
[ "$1" = install ] || exit 0
for package in "$@"; do case "$package" in
  prometheus) programs="prometheus promtool" ;;
  chromium) programs=chromium ;;
  *) programs="" ;;
esac; for program in $programs; do : > "$BIN/$program"; chmod +x "$BIN/$program"; done; done
"""
FAILS = "#!/bin/bash\necho 'E: no network' >&2\nexit 100\n"


class Machine:
    """A machine that has the programs in one folder, and no others."""

    def __init__(self, folder: Path) -> None:
        self.bin, self.log = folder / "bin", folder / "apt.log"
        self.bin.mkdir()
        for tool in ("bash", "env", "cat", "chmod"):
            (self.bin / tool).symlink_to(shutil.which(tool) or "")
        self.program("python3", f'#!/bin/bash\nexec "{sys.executable}" "$@"\n')
        self.user(0)
        for name in PROGRAMS:
            self.program(name)

    def program(self, name: str, text: str = "#!/bin/bash\n") -> None:
        (self.bin / name).write_text(text)
        (self.bin / name).chmod(0o755)

    def lacks(self, *names: str) -> None:
        for name in names:
            (self.bin / name).unlink()

    def user(self, number: int) -> None:
        self.program("id", f"#!/bin/bash\necho {number}\n")

    def look(self, level: str = "test") -> subprocess.CompletedProcess[str]:
        # The script also looks where root's path leads; here nothing of this machine is to be found there.
        script = SCRIPT.read_text().replace("PATH=$PATH:/usr/sbin:/sbin", "PATH=$PATH")
        environ = {"PATH": str(self.bin), "BIN": str(self.bin), "LOG": str(self.log), "PYTHON": "python3"}
        command = [str(self.bin / "bash"), "-c", script, "system-packages", level]
        return subprocess.run(command, env=environ, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)

    def asked(self) -> list[str]:
        return self.log.read_text().splitlines() if self.log.exists() else []


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_where_nothing_is_missing_nothing_is_asked_nor_said(machine: Machine) -> None:
    machine.program("apt-get", INSTALLS)

    done = machine.look()

    assert (done.returncode, done.stdout, done.stderr, machine.asked()) == (0, "", "", [])


def test_root_gets_what_is_missing_and_no_more(machine: Machine) -> None:
    machine.program("apt-get", INSTALLS)
    machine.lacks("promtool", "chromium")

    done = machine.look()

    assert (done.returncode, done.stdout) == (0, "installing Debian's packages prometheus chromium\n")
    assert machine.asked() == ["update -qq", "install -y -qq --no-install-recommends prometheus chromium"]


def test_the_demo_asks_for_nothing_that_only_tests_need(machine: Machine) -> None:
    machine.lacks(*PROGRAMS)

    assert machine.look("demo").returncode == 0


def test_the_gate_of_a_fleet_asks_for_its_two_servers_only(machine: Machine) -> None:
    machine.lacks(*PROGRAMS)
    machine.program("promtool")

    done = machine.look("fleet")

    assert done.returncode == 1
    assert "make fleet needs Debian's packages prometheus victoria-metrics," in done.stderr


def test_a_python_without_venv_is_given_its_own_package(machine: Machine) -> None:
    version = "python{}.{}-venv".format(*sys.version_info[:2])
    bare = f'#!/bin/bash\n[ "$2" = "import ensurepip" ] && exit 1\nexec "{sys.executable}" "$@"\n'
    machine.program("python3", bare)

    done = machine.look("demo")

    assert done.returncode == 1
    assert version in done.stderr


def test_an_old_python_is_told_from_a_missing_one(machine: Machine) -> None:
    machine.program("python3", '#!/bin/bash\n[ "$1" = --version ] && echo Python 3.9.2 && exit\nexit 1\n')
    assert "3.11 or newer is needed, and python3 is Python 3.9.2" in machine.look("demo").stderr

    machine.lacks("python3")
    assert "python3 is missing" in machine.look("demo").stderr


@pytest.mark.parametrize(
    ("apt", "user", "said"),
    [
        (None, 0, "there is no apt-get here"),
        (INSTALLS, 1000, "only root may install them: sudo apt-get install prometheus prometheus-alertmanager"),
        (FAILS, 0, "E: no network"),
        ("#!/bin/bash\n", 0, "is still not found"),
    ],
    ids=["no apt-get", "no rights", "apt-get fails", "installed in vain"],
)
def test_what_cannot_be_installed_is_named_and_is_a_failure(machine: Machine, apt: str | None, user: int, said: str) -> None:
    if apt:
        machine.program("apt-get", apt)
    machine.user(user)
    machine.lacks("promtool", "amtool")

    done = machine.look()

    assert done.returncode == 1
    assert said in done.stderr
    assert "prometheus prometheus-alertmanager" in done.stderr
    assert machine.asked() == []


def test_make_test_looks_before_it_installs_or_tests_anything_and_demo_installs_only_its_own(tmp_path: Path) -> None:
    for name in (
        "Makefile",
        "hatch_build.py",
        "requirements.lock",
        "requirements-demo.lock",
        "requirements-torch.lock",
        "pyproject.toml",
    ):
        shutil.copy(REPOSITORY / name, tmp_path)

    def lines(target: str) -> list[str]:
        plain = {name: value for name, value in os.environ.items() if name not in {"MAKEFLAGS", "MAKELEVEL", "MFLAGS"}}
        command = ["make", "--dry-run", target]
        done = subprocess.run(command, cwd=tmp_path, env=plain, capture_output=True, text=True, check=True)
        return done.stdout.splitlines()

    assert lines("test")[0] == ".ci/system-packages test"
    assert any("install-locked .venv/bin requirements.lock" in line for line in lines("test"))
    assert ".ci/system-packages demo" in lines("demo")
    assert not any("system-packages test" in line or "requirements.lock" in line for line in lines("demo"))


def test_continuous_integration_runs_what_a_newcomer_runs() -> None:
    commands = [line for line in (REPOSITORY / ".ci" / "run").read_text().splitlines() if line and not line.startswith("#")]

    assert commands == ["set -euo pipefail", 'cd "$(dirname "$0")/.."', "make test"]
    assert os.access(SCRIPT, os.X_OK)
