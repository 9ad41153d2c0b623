"""Causes bottlenecks for real and keeps, for each run, the probe's records and the truth.

A run is a folder of --out with `truth.json` and `store/` (docs/develop/lab.md). Runs that are there already are kept, so that the
same command goes on where it was interrupted. One run at a time: it needs two cores, and whatever else computes on them is in it.

    python -m benchmarks.lab --set smoke --out runs                               # four runs, half a minute
    python -m benchmarks.lab --set development --runs-per-class 3 --out runs      # about an hour
    python -m benchmarks.lab --set test --runs-per-class 30 --out runs            # many hours
    python -m benchmarks.lab --set development --only hang --only 4v12 --out runs
    python -m benchmarks.lab --list
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import signal
import sys
import time
from pathlib import Path
from types import FrameType

SETS = ("development", "test", "smoke")
SECONDS_A_RUN = 11.0
"""What a run took on average on the machine that the lab was written on; only for the first estimate."""
STOPS_AFTER_FAILURES = 5


def parser() -> argparse.ArgumentParser:
    """Return the command's options."""
    options = argparse.ArgumentParser(
        prog="python -m benchmarks.lab", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("--set", choices=SETS, default="development", help="which runs are drawn; each set draws others")
    options.add_argument("--out", type=Path, default=Path("build/lab"), help="folder of the runs (default: build/lab)")
    options.add_argument(
        "--runs-per-class",
        type=int,
        default=10,
        help="of each class at each severity, look-alike pair and two faults (default: 10)",
    )
    options.add_argument(
        "--only",
        action="append",
        default=[],
        metavar="WHAT",
        help="a class, a look-alike pair, or clean, lookalike, pair; repeat it for more",
    )
    options.add_argument("--seed", type=int, default=1, help="draws the runs and their order (default: 1)")
    options.add_argument("--most", type=int, default=0, help="stop after so many new runs (default: all)")
    options.add_argument("--list", action="store_true", help="say what can be caused here, and why the rest cannot")
    return options


def main() -> None:
    """Parse the options and make the runs."""
    given = parser()
    options = given.parse_args()
    if options.runs_per_class < 1:
        given.error("--runs-per-class is at least 1")
    for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[variable] = "1"  # before torch is imported: a process with threads cannot be forked safely
    from benchmarks.lab import faults, plan

    labels = {*faults.SLUGS, *plan.LOOKALIKES, "clean", "lookalike", "pair"}
    if unknown := sorted(set(options.only) - labels):
        given.error(f"--only {unknown[0]}: there is no such class or kind; there are {', '.join(sorted(labels))}")
    if options.list:
        _list()
        return
    from benchmarks.lab import one_run, processes

    processes.adopt_orphans()
    signal.signal(signal.SIGTERM, _interrupt)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell starts background jobs with it ignored
    one_run.remove_what_others_left()
    specs = plan.runs(options.set, runs_per_class=options.runs_per_class, seed=options.seed, only=tuple(options.only))
    options.out = options.out.resolve()  # ranks have a folder of their own to work in
    options.out.mkdir(parents=True, exist_ok=True)
    if options.set == "test":
        _freeze(options.out)
    missing = [spec for spec in specs if not (options.out / spec.id / "truth.json").exists()]
    print(f"{len(specs)} runs of the {options.set} set, {len(specs) - len(missing)} of them there already", flush=True)
    try:
        sys.exit(_make_all(missing[: options.most or None], options.out))
    except KeyboardInterrupt:
        print("interrupted; the same command goes on from here", file=sys.stderr)
        sys.exit(130)


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _make_all(specs: list[object], out: Path) -> int:
    from benchmarks.lab import one_run

    began, failures, skipped = time.monotonic(), 0, 0
    print(f"{len(specs)} to make, about {_span(len(specs) * SECONDS_A_RUN)}", flush=True)
    for number, spec in enumerate(specs, start=1):
        one = time.monotonic()
        try:
            truth = one_run.make(spec, out)  # type: ignore[arg-type]
        except one_run.RunFailedError as error:
            failures += 1
            print(f"FAILED {error}", file=sys.stderr, flush=True)
            if failures >= STOPS_AFTER_FAILURES:
                print(f"{failures} runs failed: stopping; their logs are in {out / 'failed'}", file=sys.stderr)
                return 1
            continue
        now = time.monotonic()
        left = (now - began) / number * (len(specs) - number)
        skipped += bool(truth["skipped"])
        what = f"skipped: {truth['skipped']}" if truth["skipped"] else f"{now - one:.1f} s, {_cost(truth)}"
        print(f"{number}/{len(specs)} {truth['id']} ({truth['workload']}): {what}; {_span(left)} left", flush=True)
    print(f"done in {_span(time.monotonic() - began)}: {failures} failed, {skipped} skipped")
    return 1 if failures else 0


def _cost(truth: dict[str, object]) -> str:
    faults: list[dict[str, float]] = truth["faults"]  # type: ignore[assignment]
    clean = float(truth["clean_step_seconds"])  # type: ignore[arg-type]
    cost = " + ".join(f"{fault['seconds_per_step'] * 1e3:.1f} ms" for fault in faults) or "nothing"
    return f"clean step {clean * 1e3:.0f} ms, injected {cost}"


def _span(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60} min"


def _freeze(out: Path) -> None:
    """Write down the thresholds by which the test set is to be judged, when its first run is made."""
    path = out / "frozen.json"
    if path.exists():
        return
    import tachoscope_analyzers

    folder = Path(tachoscope_analyzers.__file__).parent
    digests = {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest()
        for path in (folder / "data" / "thresholds.yaml", folder / "findings" / "calibration.yaml")
        if path.exists()
    }
    path.write_text(json.dumps({"schema": 1, "time": time.time(), "sha256": digests}, indent=1))


def _list() -> None:
    from benchmarks.lab import facilities, faults

    for cause in faults.CAUSES:
        reason = facilities.why_not(cause.needs)
        print(f"{cause.slug:18} {cause.name:18} {cause.workload:9} {'skipped: ' + reason if reason else 'can be caused here'}")
