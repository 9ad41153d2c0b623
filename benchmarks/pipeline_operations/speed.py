"""How long it takes to replay recorded operations: 128 workers, 1,000 steps, 20 operations each, on one core.

python -m benchmarks.pipeline_operations.speed            # print
python -m benchmarks.pipeline_operations.speed --write    # and put the table into docs/develop/measurements.md
"""

from __future__ import annotations

import argparse
import os
import resource
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import pandas as pd
from benchmarks.sections import write_section

sys.path.insert(0, str(Path(__file__).parents[2] / "tests" / "pipeline_operations"))

from benchmarks.pipeline_operations.attribution import attribute
from benchmarks.pipeline_operations.dependencies import dependencies
from benchmarks.pipeline_operations.operations import dense
from benchmarks.pipeline_operations.reading import read
from benchmarks.pipeline_operations.simulation import measured, simulate
from operations_making import Plan, operations

STEPS = 1_000
DRAWN = 20
SHAPES = {
    "4 stages x 32 replicas, 3 micro-batches": Plan(stages=4, replicas=32, batches=3, steps=DRAWN, lengths=0.2),
    "8 stages x 16 replicas, 3 micro-batches": Plan(stages=8, replicas=16, batches=3, steps=DRAWN, lengths=0.2),
    "1 stage x 128 replicas, 8 micro-batches": Plan(stages=1, replicas=128, batches=8, steps=DRAWN, lengths=0.2),
}


def timed(work: Callable[[], object]) -> tuple[float, object]:
    """CPU seconds of this process, and what came of it."""
    begin = time.process_time()
    result = work()
    return time.process_time() - begin, result


def recording(plan: Plan, folder: Path) -> Path:
    """Write drawn steps again and again until there are enough: the cost does not depend on the values."""
    drawn = operations(plan)
    turns = [drawn.assign(step=drawn["step"] + turn * 10 * DRAWN) for turn in range(STEPS // DRAWN)]
    pd.concat(turns).to_parquet(folder / "trace-large.parquet")
    return folder / "trace-large.parquet"


def row(name: str, plan: Plan) -> str:
    with tempfile.TemporaryDirectory() as folder:
        path = recording(plan, Path(folder))
        reading, found = timed(lambda: dense(read(path)))
    graph = dependencies(found)  # type: ignore[arg-type]
    times = measured(found, graph)  # type: ignore[arg-type]
    own = list(times.own)
    once, _ = timed(lambda: simulate(graph, own))
    whole, _ = timed(lambda: attribute(found))  # type: ignore[arg-type]
    count = found.start.size  # type: ignore[attr-defined]
    each = count / STEPS / 128
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return f"| {name} | {each:.1f} | {count:,} | {reading:.2f} | {once:.3f} | {whole:.2f} | {peak:,.0f} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true")
    arguments = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    head = [
        "| shape | operations a worker and step | operations | reading s | one replay s | attribution s | peak MiB |",
        "|---|---|---|---|---|---|---|",
    ]
    table = "\n".join([*head, *(row(name, plan) for name, plan in SHAPES.items())])
    print(table)
    if arguments.write:
        write_section("replay", table, "python -m benchmarks.pipeline_operations.speed --write")


if __name__ == "__main__":
    main()
