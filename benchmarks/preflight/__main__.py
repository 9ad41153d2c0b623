"""Plants slow and broken hosts under `tachoscope preflight` of four hosts, and counts whom it names; see docs/guides/preflight.md.

python -m benchmarks.preflight --faults 30 --healthy 50 --minutes 60 --output build/preflight.jsonl

The results of healthy runs stay in the store: they are the fleet. A planted run works on a copy.
"""

from __future__ import annotations

import argparse
import collections
import json
import shutil
import time
from pathlib import Path
from typing import Any

import torch  # noqa: F401  # once for all hosts, which are forked
from benchmarks.lab import facilities, processes
from benchmarks.preflight import hosts
from benchmarks.preflight.faults import KINDS, Planted, plan
from benchmarks.preflight.hosts import Shape

from tachoscope_preflight.repeat import QUICK, Effort

NEEDS = ("network_cards", "cpu_quota", "disk_throttle")
SIZE = 4
FLEET_RUNS = 6
"""Healthy runs before the first one that counts: three of each of the two sets of hosts."""
SIZE_ALONE, EFFORT_ALONE = 3, Effort(0.01, 3)
"""Of a run without a fleet: hosts, and the effort of each host's own tests, whose rates are compared with nothing."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--faults", type=int, default=30)
    parser.add_argument("--healthy", type=int, default=50, help="runs of four hosts each")
    parser.add_argument("--minutes", type=float, default=60.0, help="begin no run after that")
    parser.add_argument("--output", type=Path, default=Path("build/preflight.jsonl"))
    parser.add_argument("--kind", choices=sorted(KINDS), help="one short run with this fault, of three hosts, without a fleet")
    parser.add_argument("--fleet", type=Path, help="a store of earlier healthy runs; default: makes one first")
    parser.add_argument("--skip", type=int, default=0, help="with --fleet: begin with a later run of the plan")
    parser.add_argument("--keep", type=Path, help="copy the store of healthy runs there at the end")
    given = parser.parse_args()
    if reason := facilities.why_not(NEEDS):
        raise SystemExit(f"this machine cannot be four hosts: {reason}")
    processes.adopt_orphans()
    preload()
    given.output.parent.mkdir(parents=True, exist_ok=True)
    stop = time.monotonic() + 60 * given.minutes
    with hosts.folder() as place, given.output.open("w") as output:
        rows = []
        if given.fleet:
            shutil.copytree(given.fleet, place / "store")
        for number, planted in enumerate(
            [Planted(given.kind, 1, 2 if given.kind.startswith("link_") else None)]
            if given.kind
            else order(given.faults, given.healthy)[FLEET_RUNS + given.skip if given.fleet else 0 :]
        ):
            if time.monotonic() > stop:
                break
            fleet = planted is None and number < FLEET_RUNS and not given.fleet
            rows.append(row(number, planted, place, fleet=fleet, alone=bool(given.kind)))
            output.write(json.dumps(rows[-1]) + "\n")
            output.flush()
        if given.keep:
            shutil.copytree(place / "store", given.keep)
    print(summary(rows))


def preload() -> None:
    """Import what the command imports, so that forked hosts share it."""
    import tachoscope_show.preflight.text  # noqa: F401


def order(faults: int, healthy: int) -> list[Planted | None]:
    """Return the fleet's runs, then planted ones, and among them healthy ones (None)."""
    found: list[Planted | None] = [None] * FLEET_RUNS
    for index, planted in enumerate(plan(faults, SIZE)):
        found += [planted] + [None] * ((index + 1) * healthy // faults - index * healthy // faults)
    return found


def row(number: int, planted: Planted | None, place: Path, *, fleet: bool, alone: bool) -> dict[str, Any]:
    """Run once, and return the result with the planted fault. `alone`: hosts have no fleet to compare with."""
    size = SIZE_ALONE if alone else SIZE
    names = [f"host{index + size * (number // 2 % 2 if planted is None else 0)}" for index in range(size)]
    store = place / "store"
    if planted is not None:
        store = place / "copy"
        shutil.rmtree(store, ignore_errors=True)
        if (place / "store").exists():
            shutil.copytree(place / "store", store)
    shapes = planted.shapes(size, place) if planted is not None else [Shape() for _ in names]
    done = hosts.preflight(names, shapes, store, place, effort=EFFORT_ALONE if alone else QUICK)
    named, links = done.named
    truth = planted.truth(names) if planted is not None else (set[str](), set[frozenset[str]]())
    found = (done.report or {}).get("hosts", [])
    return {
        "number": number,
        "fleet": fleet,
        "kind": planted.kind if planted is not None else None,
        "truth": sorted([*truth[0], *("-".join(sorted(link)) for link in truth[1])]),
        "named": sorted([*named, *("-".join(sorted(link)) for link in links)]),
        "right": (named, links) == truth,
        "codes": done.codes,
        "verdicts": {one["host"]: one["verdict"] for one in found},
        "why": {one["host"]: one["why"] for one in found if one["verdict"] != "fit"},
        "seconds": round(done.seconds, 1),
        "errors": {} if done.report else done.errors,
        "rates": [
            [one["host"], one["name"], one["median"], one["least"], one["rounds"]]
            for one in (done.report or {}).get("measurements", [])
        ],
    }


def summary(rows: list[dict[str, Any]]) -> str:
    """Return the counts as lines."""
    counted = [one for one in rows if not one["fleet"]]
    planted = [one for one in counted if one["kind"]]
    healthy = [one for one in counted if not one["kind"]]
    by_kind = collections.Counter((one["kind"], one["right"]) for one in planted)
    kinds = ", ".join(
        f"{kind} {by_kind[kind, True]}/{by_kind[kind, True] + by_kind[kind, False]}"
        for kind in sorted({one["kind"] for one in planted})
    )
    verdicts = collections.Counter(verdict for one in healthy for verdict in one["verdicts"].values())
    refused = sum(bool(one["named"]) for one in healthy)
    seconds = sorted(one["seconds"] for one in counted)
    return "\n".join(
        [
            f"planted: {sum(one['right'] for one in planted)} of {len(planted)} named right ({kinds})",
            f"healthy: {refused} of {len(healthy)} runs refused; hosts {dict(verdicts)}",
            f"seconds a run: {seconds[len(seconds) // 2]:.0f} median, {seconds[-1]:.0f} most" if seconds else "no run",
        ]
    )


if __name__ == "__main__":
    main()
