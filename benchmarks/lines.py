"""Compares the lines that tachoscope names with those that py-spy sees in the same run.

Each loop trains for some seconds under `tachoscope run` while py-spy, which needs no interpreter's lock, samples it from outside
(pip install py-spy; it must be allowed to trace the process: as root, or with the capability SYS_PTRACE). Two samplers agree to the
extent that their shares by line of user code overlap: the sum over lines of the smaller of both shares. Backward is left out, where
tachoscope takes no samples, and so is waiting for a loader's workers.

    python -m benchmarks.lines --write
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from benchmarks.sections import write_section

from tachoscope_analyzers.records.load import from_store
from tachoscope_core.storage.store import Store

SCRIPT = Path(__file__).with_name("lines_loops.py")
PY_SPY = shutil.which("py-spy", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}") or ""
LOOPS = ("tokenizer", "numpy", "generator", "workers", "sleep", "file", "queue", "evaluation")


def main() -> None:
    """Run the loops and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", default=LOOPS, choices=LOOPS)
    parser.add_argument("--seconds", type=float, default=20.0, help="how long each loop trains")
    parser.add_argument("--write", action="store_true", help="write the table into docs/develop/measurements.md")
    options = parser.parse_args()
    if not PY_SPY:
        parser.error("py-spy is neither beside this interpreter nor on the path: pip install py-spy")
    rows = [compare(loop, options.seconds) for loop in options.only]
    text = "\n".join(
        [
            "| loop | most seen by tachoscope | by py-spy | samples | overlap by line | by function |",
            "|---|---|---|---|---|---|",
            *rows,
        ]
    )
    print(text)
    if options.write:
        write_section("lines", text, "python -m benchmarks.lines --write")


def compare(loop: str, seconds: float) -> str:
    """Train one loop under both, and return its row."""
    with tempfile.TemporaryDirectory() as folder:
        ours, theirs = record(loop, seconds, Path(folder))
    by_line, by_function = overlap(ours, theirs), overlap(functions(ours), functions(theirs))
    first = [f"{line} {count / counts.total():.0%}" for counts in (ours, theirs) for line, count in counts.most_common(1)]
    return f"| {loop} | {' | '.join(first)} | {ours.total()}, {theirs.total()} | {by_line:.0%} | {by_function:.0%} |"


def record(loop: str, seconds: float, folder: Path) -> tuple[Counter[str], Counter[str]]:
    """Return the samples by line of both, while the loop trained."""
    bin_folder = Path(sys.executable).parent
    environment = os.environ | {
        "OMP_NUM_THREADS": "1",
        "TACHOSCOPE_SPOOL": str(folder / "spool"),
        "LINES_READY": str(folder / "ready"),
    }
    command = [str(bin_folder / "tachoscope"), "run", "--job", "lines", "--store", str(folder / "store"), "--"]
    child = subprocess.Popen([*command, sys.executable, str(SCRIPT), loop, str(seconds)], env=environment)
    while not (folder / "ready").exists():
        if child.poll() is not None:
            raise SystemExit(f"{loop}: the loop ended with exit code {child.returncode} before it trained")
        time.sleep(0.05)
    pid = (folder / "ready").read_text()
    spy = [PY_SPY, "record", "--pid", pid, "--subprocesses", "--nonblocking", "--idle", "--rate", "50"]
    watched = subprocess.Popen(
        [*spy, "--format", "raw", "--duration", "10000", "--output", str(folder / "raw")], stderr=subprocess.DEVNULL
    )
    child.wait()
    if watched.poll() is None:
        watched.send_signal(signal.SIGINT)
    watched.wait(timeout=60)
    workers = loop == "workers"
    return ours_of(folder / "store", workers=workers), theirs_of((folder / "raw").read_text(), workers=workers)


def ours_of(store: Path, *, workers: bool) -> Counter[str]:
    """Return the lines of the heartbeats, but for those that are told a second time as pauses; of workers what they load."""
    found: Counter[str] = Counter()
    for beat in from_store(Store(str(store)), "lines").heartbeats:
        for phase, lines in beat.where.items():
            if phase == "data_wait" if workers else phase != "pause":
                found.update(lines)
    return Counter({line: count for line, count in found.items() if line.startswith(SCRIPT.name)})


def theirs_of(raw: str, *, workers: bool) -> Counter[str]:
    """Return the innermost line of the script in each stack of py-spy's raw format that tachoscope samples, too."""
    found: Counter[str] = Counter()
    for row in raw.splitlines():
        stack, _, count = row.rpartition(" ")
        frames = stack.split(";")
        in_worker = any("_worker_loop" in frame for frame in frames)
        if (
            ("<module>" not in stack and not in_worker)
            or any("backward (torch" in frame for frame in frames)
            or (workers and not in_worker)
        ):
            continue
        if in_worker:
            frames = frames[next(i for i, frame in enumerate(frames) if "_worker_loop" in frame) + 1 :]
        if "validate" in stack:  # of an evaluation the line that calls the model
            frames = frames[: next((i for i, frame in enumerate(frames) if "module.py" in frame), len(frames))]
        mine = [frame for frame in frames if f"{SCRIPT.name}:" in frame]
        if mine and "<module>" not in mine[-1]:
            qualified, _, place = mine[-1].partition(" (")
            function = qualified.split(".")[-1]
            found[f"{Path(place.rstrip(')').split(':')[0]).name}:{place.rstrip(')').split(':')[1]} {function}"] += int(count)
    return found


def functions(counts: Counter[str]) -> Counter[str]:
    """Return the samples by function."""
    found: Counter[str] = Counter()
    for line, count in counts.items():
        found[line.split()[-1]] += count
    return found


def overlap(ours: Counter[str], theirs: Counter[str]) -> float:
    """Return the sum over keys of the smaller of both shares, 0 to 1."""
    if not ours.total() or not theirs.total():
        return 0.0
    return sum(min(ours[key] / ours.total(), theirs[key] / theirs.total()) for key in ours)


main()
