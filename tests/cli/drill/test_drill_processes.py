"""Processes that a drill starts end with it, and what is waited for in vain says why."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from processes import wait_for
from tachoscope_cli.drill import processes as drill_processes
from tachoscope_core.errors import TachoscopeError

STUBBORN = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); time.sleep(600)"
PARENT = f"import subprocess, sys, time; subprocess.Popen([sys.executable, '-c', {STUBBORN!r}, sys.argv[1]]); time.sleep(600)"


def named(mark: str) -> list[Path]:
    """Return living processes whose command ends with a mark."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            if (path / "cmdline").read_bytes().endswith(mark.encode() + b"\0") and " Z " not in (path / "stat").read_text():
                found.append(path)
        except OSError:
            continue
    return found


def test_a_process_ends_with_its_block_and_so_does_a_child_that_ignores_being_told(tmp_path: Path) -> None:
    mark = str(tmp_path / "mark")
    with drill_processes.running([sys.executable, "-c", PARENT, mark], tmp_path / "log") as process:
        wait_for(lambda: "up" in (tmp_path / "log").read_text())
        assert len(named(mark)) == 2

    assert process.returncode is not None
    wait_for(lambda: not named(mark))


def test_an_error_within_the_block_ends_the_process_too(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt), drill_processes.running(["sleep", "600"], tmp_path / "log") as process:
        raise KeyboardInterrupt

    assert process.returncode is not None


def test_who_waits_for_a_process_that_died_is_told_at_once_what_it_said(tmp_path: Path) -> None:
    log = tmp_path / "log"
    command = [sys.executable, "-c", "print('no such option'); raise SystemExit(1)"]
    with drill_processes.running(command, log) as process, pytest.raises(TachoscopeError, match="no such option"):
        drill_processes.wait_until(lambda: None, 3600, "it serves", {"the server": log}, process)


def test_a_program_that_is_not_installed_names_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")

    with pytest.raises(TachoscopeError, match="apt-get install prometheus-alertmanager"):
        drill_processes.program("prometheus-alertmanager", "prometheus-alertmanager")


def test_what_is_found_is_returned_though_it_could_not_be_reached_before() -> None:
    tries = iter([None, OSError("refused"), "there"])

    def found() -> str | None:
        one = next(tries)
        if isinstance(one, OSError):
            raise one
        return one

    assert drill_processes.wait_until(found, 60, "it is there") == "there"
