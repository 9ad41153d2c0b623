"""Plants slow and broken hosts under `tachoscope preflight` of four hosts, and counts whom it names; see docs/guides/preflight.md.

python -m benchmarks.preflight --faults 30 --healthy 50 --minutes 60 --folder build/preflight

With --pace it only measures how long healthy runs take where each host has a core, ahead of what else runs on the machine.

Goes on where it was interrupted. The results of healthy runs stay in the store: they are the fleet. A planted run works on a copy.
"""

from __future__ import annotations

import argparse
import collections
import json
import os
import shutil
import statistics
import time
from pathlib import Path
from typing import Any

import torch  # noqa: F401  # once for all hosts, which are forked
from benchmarks.lab import facilities, processes
from benchmarks.preflight import hosts
from benchmarks.preflight.faults import KINDS, SIZE, Planted, plan
from benchmarks.preflight.hosts import Shape

from tachoscope_core.storage import preflights
from tachoscope_core.storage.store import Store
from tachoscope_preflight.repeat import QUICK, Effort

NEEDS = ("network_cards", "cpu_quota", "disk_throttle", "memory_limit")
FLEET_RUNS = 4
"""Healthy runs before the first one that counts: two of each of the two sets of hosts."""
PACED_RUNS, PACED_CORE_SHARE, MOST_CPU_SHARES = 3, 0.95, 262144
SIZE_ALONE, EFFORT_ALONE = 3, Effort(0.01, 3)
"""Of a run without a fleet: hosts, and the effort of each host's own tests, whose rates are compared with nothing."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--faults", type=int, default=30)
    parser.add_argument("--healthy", type=int, default=50, help="runs of four hosts each")
    parser.add_argument("--minutes", type=float, default=60.0, help="begin no run after that")
    parser.add_argument("--folder", type=Path, default=Path("build/preflight"), help="holds the runs and the store of the fleet")
    parser.add_argument("--kind", choices=sorted(KINDS), help="one short run with this fault, of three hosts, without a fleet")
    parser.add_argument("--pace", action="store_true", help="healthy runs of a host for each core, quick and whole")
    given = parser.parse_args()
    if reason := facilities.why_not(NEEDS):
        raise SystemExit(f"this machine cannot be four hosts: {reason}")
    processes.adopt_orphans()
    if given.pace:
        print(pace())
        return
    preload()
    given.folder.mkdir(parents=True, exist_ok=True)
    output, stop = given.folder / "runs.jsonl", time.monotonic() + 60 * given.minutes
    planned = (
        [Planted(given.kind, 1, 2 if given.kind.startswith("link_") else None)]
        if given.kind
        else order(given.faults, given.healthy)
    )
    rows = done(output)
    with hosts.folder() as place, output.open("a") as file:
        for number, planted in enumerate(planned):
            if time.monotonic() > stop:
                break
            if number not in {one["number"] for one in rows}:
                fleet = planted is None and number < FLEET_RUNS
                rows.append(row(number, planted, place, given.folder / "store", fleet=fleet, alone=bool(given.kind)))
                file.write(json.dumps(rows[-1]) + "\n")
                file.flush()
    print(summary(rows))


def pace() -> str:
    """Return how long healthy runs take, from the start of the command on each host."""
    lines = []
    names = [f"host{index}" for index in range(os.cpu_count() or 1)]
    with hosts.folder() as place:
        for quick in (True, False):
            seconds = []
            for _ in range(PACED_RUNS):
                shapes = [Shape(core_share=PACED_CORE_SHARE, cpu_shares=MOST_CPU_SHARES) for _ in names]
                ended = hosts.preflight(names, shapes, place / "store", place, effort=None, quick=quick)
                seconds.append(ended.seconds)
            found = ", ".join(f"{one:.1f}" for one in seconds)
            lines.append(f"{len(names)} hosts, {'--quick' if quick else 'whole'}: {found} s at load {os.getloadavg()[0]:.0f}")
    return "\n".join(lines)


def done(output: Path) -> list[dict[str, Any]]:
    """Return the runs of an interrupted benchmark; the last line may be half a line, and is then removed."""
    lines = output.read_text().splitlines(keepends=True) if output.exists() else []
    whole = [line for line in lines if line.endswith("\n")]
    output.write_text("".join(whole))
    return [json.loads(line) for line in whole]


def preload() -> None:
    """Import what the command imports, so that forked hosts share it."""
    import tachoscope_show.preflight.text  # noqa: F401


def order(faults: int, healthy: int) -> list[Planted | None]:
    """Return the fleet's runs, then planted ones, and among them healthy ones (None)."""
    found: list[Planted | None] = [None] * FLEET_RUNS
    for index, planted in enumerate(plan(faults)):
        found += [planted] + [None] * ((index + 1) * healthy // faults - index * healthy // faults)
    return found


def row(number: int, planted: Planted | None, place: Path, store: Path, *, fleet: bool, alone: bool) -> dict[str, Any]:
    """Run once, and return the result with the planted fault. `alone`: hosts have no fleet to compare with."""
    size = SIZE_ALONE if alone else SIZE
    names = [f"host{index + size * (number // 2 % 2 if planted is None else 0)}" for index in range(size)]
    if planted is not None:
        fleet_store, store = store, place / "copy"
        shutil.rmtree(store, ignore_errors=True)
        if fleet_store.exists():
            shutil.copytree(fleet_store, store)
    shapes = planted.shapes(size, place) if planted is not None else [Shape() for _ in names]
    ended = hosts.preflight(names, shapes, store, place, effort=EFFORT_ALONE if alone else QUICK)
    named, links = ended.named
    truth = planted.truth(names) if planted is not None else (set[str](), set[frozenset[str]]())
    found = (ended.report or {}).get("hosts", [])
    return {
        "number": number,
        "fleet": fleet,
        "kind": planted.kind if planted is not None else None,
        "truth": sorted([*truth[0], *("-".join(sorted(link)) for link in truth[1])]),
        "named": sorted([*named, *("-".join(sorted(link)) for link in links)]),
        "right": (named, links) == truth,
        "codes": ended.codes,
        "stored": {one.host: one.verdict for one in preflights.read_all(Store(str(store)), [])},
        "verdicts": {one["host"]: one["verdict"] for one in found},
        "why": {one["host"]: one["why"] for one in found if one["verdict"] != "fit"},
        "seconds": round(ended.seconds, 1),
        "load": round(os.getloadavg()[0], 1),
        "errors": {} if ended.report else ended.errors,
        "rates": [
            [one["host"], one["name"], one["median"], one["least"], one["rounds"]]
            for one in (ended.report or {}).get("measurements", [])
        ],
    }


def summary(rows: list[dict[str, Any]]) -> str:
    """Return the counts as a table."""
    counted = [one for one in rows if not one["fleet"]]
    planted, healthy = ([one for one in counted if bool(one["kind"]) == wanted] for wanted in (True, False))
    lines = ["| planted | named right | seconds a run |", "|---|---|---|"]
    kinds = sorted({one["kind"] for one in planted})
    lines += [_line(kind, [one for one in planted if one["kind"] == kind]) for kind in kinds]
    verdicts = collections.Counter(verdict for one in healthy for verdict in one["verdicts"].values())
    refused, silent = sum(bool(one["named"]) for one in healthy), sum(not one["verdicts"] for one in healthy)
    loads = [one["load"] for one in counted]
    return "\n".join(
        [
            *(lines if planted else []),
            *([_line("all", planted)] if planted else []),
            *(f"wrong: {one['number']} {one['kind']}: {one['named']} for {one['truth']}" for one in planted if not one["right"]),
            f"healthy: {refused} of {len(healthy)} runs refused, {silent} without a report; hosts {dict(verdicts)}",
            f"load {min(loads):.0f} to {max(loads):.0f}" if loads else "no run",
        ]
    )


def _line(name: str, rows: list[dict[str, Any]]) -> str:
    seconds = [one["seconds"] for one in rows]
    right = sum(one["right"] for one in rows)
    return f"| {name} | {right} of {len(rows)} | {statistics.median(seconds):.0f}, at most {max(seconds):.0f} |"


if __name__ == "__main__":
    main()
