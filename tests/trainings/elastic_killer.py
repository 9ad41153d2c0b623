"""Hurts a run of examples/elastic_ddp.py from outside, at steps that its own log tells, and writes down when it did what.

python tests/trainings/elastic_killer.py PLAN FOLDER LAUNCHER_PID > truth.jsonl

PLAN is a JSON list of deeds, each `{"deed": "kill", "rank": 1, "after_steps": 17, "into_step_seconds": 0.02}`, done one after the
other, each in an attempt of its own. `hang` stops the rank and kills it `HANG_SECONDS` later, `preempt` is a TERM to the launcher.
Each line of the output has the deed, Unix times, and when which process of the attempt was gone.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path

HANG_SECONDS = 8.0
RANKS = 2
_PATIENCE_SECONDS = 60.0


def last_attempt(folder: Path) -> list[tuple[int, int]]:
    """Return (process id, steps that it finished) by rank of the newest processes in the job's log, none before all wrote."""
    found = []
    for rank in range(RANKS):
        log = folder / f"log-{rank}.jsonl"
        lines = [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []
        if lines:
            pid = lines[-1]["pid"]
            found.append((pid, sum(line["pid"] == pid and line["event"] == "step" for line in lines)))
    return found if len(found) == RANKS else []


def lives(pid: int) -> bool:
    """Return whether a process is there and not a zombie, which holds nothing any more."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def wait_for_steps(folder: Path, steps: int, hurt: set[int]) -> list[int]:
    """Return the process ids of an attempt that was not hurt yet, once all its ranks did so many steps."""
    stop_after_fault = time.monotonic() + _PATIENCE_SECONDS
    while time.monotonic() < stop_after_fault:
        attempt = last_attempt(folder)
        if attempt and not hurt & {pid for pid, _ in attempt} and all(done >= steps for _, done in attempt):
            return [pid for pid, _ in attempt]
        time.sleep(0.01)
    raise SystemExit(f"no attempt reached {steps} steps in {_PATIENCE_SECONDS:.0f} s")


def wait_until_gone(pids: list[int]) -> dict[int, float]:
    gone: dict[int, float] = {}
    while len(gone) < len(pids):
        gone |= {pid: time.time() for pid in pids if pid not in gone and not lives(pid)}
        time.sleep(0.005)
    return gone


def do(deed: dict[str, object], pids: list[int], launcher: int) -> dict[str, object]:
    victim = pids[int(str(deed["rank"]))]
    truth: dict[str, object] = {**deed, "time": time.time()}
    if deed["deed"] == "preempt":
        os.kill(launcher, signal.SIGTERM)
    elif deed["deed"] == "hang":
        os.kill(victim, signal.SIGSTOP)
        time.sleep(HANG_SECONDS)
        truth["killed"] = time.time()
        os.kill(victim, signal.SIGKILL)
    else:
        os.kill(victim, signal.SIGKILL)
    return {**truth, "gone": wait_until_gone(pids)}


def main(plan: list[dict[str, object]], folder: Path, launcher: int) -> None:
    hurt: set[int] = set()
    for deed in plan:
        pids = wait_for_steps(folder, int(str(deed["after_steps"])), hurt)
        time.sleep(float(str(deed["into_step_seconds"])))
        print(json.dumps(do(deed, pids, launcher)), flush=True)
        hurt.update(pids)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]))
