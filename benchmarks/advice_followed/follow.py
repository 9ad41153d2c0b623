"""Runs one case, reads the advice, follows it, and runs the case again with no other change."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from benchmarks.advice_followed.cases import Case

SCRIPT = Path(__file__).parent / "training.py"
LIMIT_SECONDS = 120.0
CALIBRATION_UNITS = 20_000
NEAR = 0.15
SLOWER_RATIO = 1.03
"""Two runs of the same case differ by less, on a quiet machine."""

Row = dict[str, Any]


class RunError(Exception):
    """A run could not be made."""


@dataclass(frozen=True)
class Follower:
    """What all runs share: the folder of results, and the seconds of a run."""

    out: Path
    seconds: float

    def follow(self, case: Case, repeat: int) -> Row:
        """Return the row of a case.

        Raises:
            RunError: a run failed.
        """
        job = f"{case.name}-{repeat}-{os.getpid()}"
        before = self._train(case, {}, f"{job}-before")
        findings = self._findings(f"{job}-before")
        advised = next((one for one in findings if "advice" in one), None)
        first = advised or next(iter(findings), None)
        row: Row = {
            "case": case.name,
            "repeat": repeat,
            "when": time.strftime("%Y-%m-%dT%H:%M:%S"),
            "before": before["step_seconds"],
        }
        row |= {"class": first["class"] if first else "", "action": first["action"] if first else ""}
        if advised is None:
            return row | {"settings": None}
        settings = advised["advice"]["settings"]
        after = self._train(case, settings, f"{job}-after")
        measured, promised = after["step_seconds"], advised["advice"].get("expected_step_seconds")
        return row | judged(before["step_seconds"], measured, promised) | {"settings": settings, "again": after["again"]}

    def _train(self, case: Case, settings: dict[str, Any], job: str) -> dict[str, Any]:
        result, log = self.out / f"{job}.json", self.out / f"{job}.log"
        environment = os.environ | {
            "ADVICE_CASE": json.dumps(case.parameters()),
            "ADVICE_SETTINGS": json.dumps(settings),
            "ADVICE_UNITS": str(self._units()),
            "ADVICE_SECONDS": str(self.seconds),
            "ADVICE_RESULT": str(result),
            "OMP_NUM_THREADS": str(settings.get("OMP_NUM_THREADS", case.threads)),
            "PYTHONWARNINGS": "ignore",
        }
        command = [*_tachoscope(), "run", "--job", job, "--store", str(self.out / "store"), "--", sys.executable, str(SCRIPT)]
        with log.open("wb") as output:
            child = subprocess.Popen(command, env=environment, stdout=output, stderr=subprocess.STDOUT, start_new_session=True)
            try:
                code = child.wait(timeout=LIMIT_SECONDS)
            except subprocess.TimeoutExpired:
                raise RunError(f"{case.name} did not end within {LIMIT_SECONDS:.0f} s: see {log}") from None
            finally:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(child.pid, signal.SIGKILL)
        if code or not result.exists():
            raise RunError(f"{case.name} ended with exit code {code}: see {log}")
        log.unlink()
        measured: dict[str, Any] = json.loads(result.read_text())
        return measured

    def _findings(self, job: str) -> list[dict[str, Any]]:
        command = [*_tachoscope(), "analyze", "--job", job, "--store", str(self.out / "store"), "--format", "json"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        try:
            findings: list[dict[str, Any]] = json.loads(done.stdout)["findings"]
        except (ValueError, KeyError):
            raise RunError(f"tachoscope analyze --job {job}: {done.stderr.strip() or done.stdout[:200]}") from None
        return findings

    def _units(self) -> float:
        """Return the units of computing in a millisecond, measured once and kept."""
        path = self.out / "units.json"
        if not path.exists():
            path.write_text(json.dumps(units_a_millisecond()))
        return float(json.loads(path.read_text()))


def judged(before: float, measured: float, promised: float | None) -> Row:
    """Return the comparison of a step as it is with what was promised, None: nothing, and with what it was."""
    ratio = measured / promised if promised else None
    return {
        "measured": measured,
        "promised": promised,
        "ratio": ratio,
        "near": None if ratio is None else abs(ratio - 1) <= NEAR,
        "slower": measured > SLOWER_RATIO * before,
    }


def units_a_millisecond() -> float:
    """Return how often `training.compute` computes in a millisecond: the best of five, on one thread."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    best = min(_seconds_of_units() for _ in range(5))
    torch.set_num_threads(threads)
    return CALIBRATION_UNITS / 5 / best / 1e3


def _seconds_of_units() -> float:
    begin, x = time.perf_counter(), torch.full((24, 24), 0.5)
    for _ in range(CALIBRATION_UNITS // 5):
        x = (x @ x).clamp(-1, 1)
    return time.perf_counter() - begin


def _tachoscope() -> list[str]:
    return [str(Path(sys.executable).with_name("tachoscope"))]
