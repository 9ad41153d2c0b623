"""Plants each failure in a real torchrun job and prints who was named, beside torchelastic's own answer in the same run.

    python -m benchmarks.first_failure            # those that the judge was developed on
    python -m benchmarks.first_failure held-out   # those that it was not; held-out-2 to held-out-4: planted later
    python -m benchmarks.first_failure sleeps     # some

torchelastic is asked as it wants to be: the script's main function has its `@record`, so that it can say a line, too.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.first_failure.cases import CASES, HELD_OUT, HELD_OUT_2, HELD_OUT_3, HELD_OUT_4, Case, line_of

from tachoscope_analyzers.failures.report import failures
from tachoscope_analyzers.records.load import from_store
from tachoscope_core.storage.store import Store

_SETS = {"held-out": HELD_OUT, "held-out-2": HELD_OUT_2, "held-out-3": HELD_OUT_3, "held-out-4": HELD_OUT_4}
_LONGEST_SECONDS = 300
_RANK = re.compile(r"^\s*rank\s*:\s*(\d+)", re.MULTILINE)
_LINE = re.compile(r'File "[^"]*/first_failure/\w+\.py", line (\d+)')


@dataclass(frozen=True, slots=True)
class Answer:
    """Who was named; None: nobody, or no line."""

    rank: int | None
    line: int | None
    cause: str = ""
    words: str = ""


def main(names: Sequence[str]) -> None:
    chosen = _chosen(names)
    print(f"{'fault':<26}{'truth':<18}{'named':<34}{'torchelastic':<20}seconds")
    rank_right = line_right = cause_right = theirs_rank = theirs_line = 0
    for case in chosen:
        began = time.monotonic()
        ours, theirs = _run(case)
        line = line_of(case.fault, case.script)
        right = ours.rank in case.truth
        rank_right += right
        line_right += right and ours.line == line
        cause_right += right and ours.cause == case.cause
        theirs_rank += theirs.rank in case.truth
        theirs_line += theirs.rank in case.truth and theirs.line == line
        truth = f"{'|'.join(map(str, case.truth))} line {line}"
        named = f"{ours.rank} line {ours.line} {ours.cause}"
        mark = "" if right and ours.line == line and ours.cause == case.cause else "  <-- " + ours.words[:150]
        print(
            f"{case.fault:<26}{truth:<18}{named:<34}{f'{theirs.rank} line {theirs.line}':<20}{time.monotonic() - began:.0f}{mark}",
            flush=True,
        )
    count = len(chosen)
    print(f"rank and line right: {line_right} of {count}; rank {rank_right}, cause {cause_right}")
    print(f"torchelastic: rank and line {theirs_line} of {count}; rank {theirs_rank}")


def _chosen(names: Sequence[str]) -> Sequence[Case]:
    if len(names) == 1 and names[0] in _SETS:
        return _SETS[names[0]]
    return [case for case in (*CASES, *HELD_OUT, *HELD_OUT_2, *HELD_OUT_3, *HELD_OUT_4) if case.fault in names] if names else CASES


def _run(case: Case) -> tuple[Answer, Answer]:
    with tempfile.TemporaryDirectory() as folder:
        store = Path(folder) / "store"
        command = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={case.ranks}"]
        watched = [sys.executable, "-m", "tachoscope_cli.main", "run", "--job", case.fault]
        done = subprocess.run(
            [*watched, "--store", str(store), "--", *command, str(case.script), case.fault, folder],
            capture_output=True,
            text=True,
            timeout=_LONGEST_SECONDS,
            env=os.environ | {"TACHOSCOPE_SPOOL": f"{folder}/spool", "OMP_NUM_THREADS": "1"},
            check=False,
        )
        found = failures(from_store(Store(str(store)), case.fault))
    if os.environ.get("SHOW_OUTPUT"):
        print(done.stdout[-3000:], done.stderr[-9000:])
    if not found:
        return Answer(None, None, words=f"no failure; exit code {done.returncode}"), _of_torchelastic(done.stderr)
    root = found[-1]
    _, _, line = root.location.rpartition(":")
    words = f"{root.location} {root.exception}: {root.message}"
    return Answer(root.rank, int(line) if line else None, root.cause, words), _of_torchelastic(done.stderr)


def _of_torchelastic(text: str) -> Answer:
    """Return what torchelastic prints as its root cause."""
    _, found, block = text.partition("Root Cause (first observed failure):")
    if not found:
        return Answer(None, None)
    rank, lines = _RANK.search(block), _LINE.findall(block)
    return Answer(int(rank[1]) if rank else None, int(lines[-1]) if lines else None)


if __name__ == "__main__":
    main(sys.argv[1:])
