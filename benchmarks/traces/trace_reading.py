"""How fast traces are read and analysed, beside Holistic Trace Analysis 0.5.0, traceinsight 0.6.1 and the floor, in one run.

The inputs are a real trace of an A100 (facebookresearch/HolisticTraceAnalysis, MIT) repeated to a million events, to eight ranks of
324,000, and for tachoscope and the floor to five and twenty million. Each program runs in a process of its own; seconds are its own
count, from the start of reading; memory is the largest resident set of its process tree. The programs take turns, and the median of
the turns counts.

    python -m benchmarks.traces.trace_reading --turns 3 --write        # about half an hour, 3 GiB below build/bench
    python -m benchmarks.traces.trace_reading --only x1m --turns 1
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.sections import write_section
from benchmarks.traces.trace_data import repeated

HERE = Path(__file__).parent
BUILD = HERE.parents[1] / "build" / "bench"
DATA = Path(os.environ.get("TACHOSCOPE_TEST_DATA") or HERE.parents[2] / "shared" / "data") / "traces"
SOURCE = DATA / "hta" / "diff_control_a100.json.gz"
PEERS = {"HTA 0.5.0": "HolisticTraceAnalysis==0.5.0", "traceinsight 0.6.1": "traceinsight==0.6.1"}
INPUTS = {
    "x1m": (1, 981_000, "1 million events"),
    "r8": (8, 324_000, "8 ranks of 324,000 events"),
    "x5m": (1, 5_000_000, "5 million events"),
    "x20m": (1, 20_000_000, "20 million events"),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--only", choices=INPUTS, action="append")
    parser.add_argument("--write", action="store_true", help="write the result into docs/develop/measurements.md")
    options = parser.parse_args()
    rows = []
    for name in options.only or INPUTS:
        rows += measured(name, files(name), options.turns)
    table = "\n".join(
        [
            "| input | program | load s | with breakdown, overlap, idle s | peak MiB | load, times as fast |",
            "|---|---|---|---|---|---|",
            *rows,
        ]
    )
    print(table)
    if options.write:
        write_section("trace_reading", table, "python -m benchmarks.traces.trace_reading --write")


def files(name: str) -> list[Path]:
    """Return the files of an input, made on first use."""
    ranks, events, _ = INPUTS[name]
    folder = BUILD / name
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"rank-{rank}.json.gz" for rank in range(ranks)]
    for rank, path in enumerate(paths):
        if not path.is_file():
            print(f"making {path} ...", file=sys.stderr)
            repeated(SOURCE, events, path, rank=rank, world_size=ranks)
    return paths


def environment(package: str) -> Path:
    """Return the python of a peer's own environment, made on first use."""
    folder = BUILD / package.partition("==")[0]
    python = folder / "bin" / "python"
    if not python.is_file():
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", package], check=True)
    return python


def measured(name: str, paths: list[Path], turns: int) -> list[str]:
    """Return the rows of one input, the programs taking turns."""
    programs = {
        "floor": [sys.executable, str(HERE / "trace_floor.py")],
        "tachoscope": [sys.executable, str(HERE / "trace_ours.py")],
    }
    if name in {"x1m", "r8"}:
        programs |= {peer: [str(environment(package)), str(HERE / "trace_peer.py")] for peer, package in PEERS.items()}
    results: dict[str, list[tuple[dict[str, float], int]]] = {program: [] for program in programs}
    for _ in range(turns):
        for program, command in programs.items():
            results[program].append(run([*command, *map(str, paths)]))
    again = run_with_warm_cache([sys.executable, str(HERE / "trace_ours.py"), *map(str, paths)])
    loads = {program: statistics.median(seconds["load"] for seconds, _ in taken) for program, taken in results.items()}
    slowest = loads.get("HTA 0.5.0")
    rows = []
    for program, taken in results.items():
        whole = statistics.median(sum(seconds.values()) for seconds, _ in taken)
        peak = statistics.median(peak for _, peak in taken)
        times = f"{slowest / loads[program]:.1f}" if slowest else ""
        all_parts = "" if program == "floor" else f"{whole:.2f}"
        rows.append(f"| {INPUTS[name][2]} | {program} | {loads[program]:.2f} | {all_parts} | {int(peak) >> 20:,} | {times} |")
    rows.append(f"| {INPUTS[name][2]} | tachoscope, second opening | {again:.3f} | | | |")
    return rows


def run(command: list[str], cache: Path | None = None) -> tuple[dict[str, float], int]:
    """Run a program with an empty cache; return its own seconds by part, and the largest resident bytes of its process tree."""
    folder = cache or Path(tempfile.mkdtemp(dir=BUILD, prefix="cache-"))
    try:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=os.environ | {"TACHOSCOPE_CACHE": str(folder)})
        peak = 0
        while process.poll() is None:
            peak = max(peak, sum(map(resident_bytes, tree(process.pid))))
            time.sleep(0.05)
        output = process.stdout.read() if process.stdout else ""
        if process.returncode:
            raise SystemExit(f"{' '.join(command)} ended with {process.returncode}")
        return json.loads(output.splitlines()[-1])["seconds"], peak
    finally:
        if cache is None:
            shutil.rmtree(folder, ignore_errors=True)


def run_with_warm_cache(command: list[str]) -> float:
    """Return the seconds of a second opening."""
    folder = Path(tempfile.mkdtemp(dir=BUILD, prefix="cache-"))
    try:
        run(command, folder)
        return run(command, folder)[0]["load"]
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def tree(pid: int) -> list[int]:
    """Return a process and all below it."""
    found = [pid]
    for task in Path(f"/proc/{pid}/task").glob("*"):
        try:
            children = (task / "children").read_text().split()
        except OSError:
            continue
        for child in children:
            found += tree(int(child))
    return found


def resident_bytes(pid: int) -> int:
    """Return the resident set of a process, 0 when it is gone."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")
    except (OSError, IndexError):
        return 0


if __name__ == "__main__":
    main()
