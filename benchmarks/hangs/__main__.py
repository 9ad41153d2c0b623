"""Real jobs that come to a standstill in sixteen ways: when the hang is named, when its evidence is stored, and if it is true.

Each job is a gloo training of two or three ranks under `tachoscope run` without an agent, with steps of 0.1 s, rank 1 of which
stands after 35 s. Truth: rank 1, in the function of that way, where it has one. Then seventeen jobs of which rank 1 pauses for 20 s
while the other waits, after 35 s without any pause: none is a hang. The D-state needs root, for a FUSE mount.

    python -m benchmarks.hangs [--runs 3] [--parallel 6] [--ways stop,skip] [--pauses-only | --no-pauses] [--write]
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from benchmarks.hangs.jobs import SCRIPTS, job, slow_mount
from benchmarks.sections import write_section

from tachoscope_analyzers.hang_evidence.groups import groups_of
from tachoscope_analyzers.hang_evidence.report import odd_group
from tachoscope_core.records import records
from tachoscope_core.storage import hang_bundles
from tachoscope_core.storage.store import Store

RANKS = {
    "stop": 2,
    "skip": 2,
    "lock": 2,
    "deadlock": 2,
    "pipe": 2,
    "file_lock": 2,
    "mount": 2,
    "worker": 2,
    "worker_stop": 2,
    "worker_lock": 2,
    "between": 2,
    "between_lock": 2,
    "between_child": 2,
    "larger": 3,
    "smaller": 3,
    "omit": 3,
}
"""Ranks of the job by way to stand."""
WITHOUT_A_PLACE = {"larger", "smaller", "omit"}
"""Rank 1 stands in a collective as the others do: only the rank can be told."""
STEP_SECONDS, AT_STEP = 0.1, 350
BUNDLE_BAR, NAME_BAR = 60.0, 20.0
PAUSES, PAUSE_SECONDS = 17, 20.0


@dataclass(frozen=True, slots=True)
class Outcome:
    """Of one run: seconds from the last step until the hang was noticed and until the evidence was stored; what was named."""

    how: str
    named_seconds: float
    stored_seconds: float
    right: bool
    said: str


def hang(how: str) -> Outcome:
    """Run a job that stands still, and judge what was collected."""
    with tempfile.TemporaryDirectory(prefix=f"hang-{how}-") as name:
        folder = Path(name)
        with contextlib.ExitStack() as stack:
            extra = {"SLOW_MOUNT": stack.enter_context(slow_mount(folder, float("inf")))} if how == "mount" else {}
            script = SCRIPTS / "hanging_ddp.py"
            stack.enter_context(job(folder, RANKS[how], script, how, str(AT_STEP), str(STEP_SECONDS), **extra))
            return outcome(how, folder)


def outcome(how: str, folder: Path) -> Outcome:
    store = Store(str(folder / "store"))
    deadline = time.monotonic() + 600
    while time.monotonic() < deadline:
        bundles = [hang_bundles.read(store, path) for one in hang_bundles.hangs(store, "stuck") for path in one.paths]
        if bundles:
            (bundle,) = bundles
            odd = odd_group(groups_of(bundles))
            right = odd is not None and odd.ranks == [1] and (how in WITHOUT_A_PLACE or odd.where.endswith(f"stand_by_{how}"))
            said = "none" if odd is None else f"{odd.kind} of rank {odd.ranks}: {odd.where}"
            return Outcome(how, bundle.noticed - bundle.since, bundle.complete - bundle.since, right, said)
        time.sleep(0.5)
    return Outcome(
        how, float("inf"), float("inf"), right=False, said=(folder / "said").read_text()[-500:] or "nothing was collected"
    )


def pause(number: int) -> tuple[str, list[str]]:
    """Run a job that pauses once; return the pause, and what was said of hangs."""
    with tempfile.TemporaryDirectory(prefix=f"hang-pause-{number}-") as name, contextlib.ExitStack() as stack:
        folder = Path(name)
        extra = {"SLOW_MOUNT": stack.enter_context(slow_mount(folder, PAUSE_SECONDS))} if os.geteuid() == 0 else {}
        words = (str(number), str(PAUSE_SECONDS), str(folder / "log"), str(AT_STEP))
        running = stack.enter_context(job(folder, 2, SCRIPTS / "pausing_one_rank_ddp.py", *words, **extra))
        running.wait(300)
        store = Store(str(folder / "store"))
        lines = [line for segment in store.segments("stuck") for line in store.read(segment).splitlines() if b"WorkerHung" in line]
        told = [str(records.decode(line)) for line in lines]
        made = (folder / "log").read_text() if (folder / "log").exists() else ""
        return json.loads(made)[0] if made else f"pause {number} was not made: {(folder / 'said').read_text()[-500:]}", told


def table(found: list[Outcome]) -> str:
    rows = ["| way | runs | named after, s | evidence stored after, s | right |", "|---|---:|---|---|---|"]
    for how in dict.fromkeys(one.how for one in found):
        runs = [one for one in found if one.how == how]
        named, stored = [one.named_seconds for one in runs], [one.stored_seconds for one in runs]
        rows.append(
            f"| {how} | {len(runs)} | {median(named):.1f} (to {max(named):.1f}) | {median(stored):.1f} (to {max(stored):.1f}) "
            f"| {sum(one.right for one in runs)} of {len(runs)} |"
        )
    return "\n".join(rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--parallel", type=int, default=6)
    parser.add_argument("--ways", default=",".join(RANKS))
    parser.add_argument("--pauses-only", action="store_true")
    parser.add_argument("--no-pauses", action="store_true")
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    parts = []
    if not options.pauses_only:
        ways = [how for _ in range(options.runs) for how in options.ways.split(",")]
        found = []
        with ThreadPoolExecutor(options.parallel) as pool:
            for one in pool.map(hang, ways):
                print(
                    f"{one.how}: named {one.named_seconds:.1f} s, stored {one.stored_seconds:.1f} s, {one.right}: {one.said}",
                    flush=True,
                )
                found.append(one)
        late = sum(one.named_seconds > NAME_BAR for one in found)
        parts.append(table(found))
        parts.append(
            f"right in {sum(one.right for one in found)} of {len(found)}; stored within {BUNDLE_BAR:.0f} s in "
            f"{sum(one.stored_seconds <= BUNDLE_BAR for one in found)}; named within {NAME_BAR:.0f} s in {len(found) - late}"
        )
    if not options.no_pauses:
        with ThreadPoolExecutor(options.parallel) as pool:
            made = list(pool.map(pause, range(1, PAUSES + 1)))
        for what, told in made:
            print(f"{what}: {len(told)} hangs {told}", flush=True)
        names = ", ".join(what for what, _ in made)
        wrong = sum(len(told) for _, told in made)
        parts.append(f"{len(made)} first pauses of {PAUSE_SECONDS:.0f} s of one rank ({names}): {wrong} said to be hangs")
    print("\n\n".join(parts))
    if options.write:
        write_section("hang_evidence", "\n\n".join(parts), "python -m benchmarks.hangs --write")


if __name__ == "__main__":
    main()
