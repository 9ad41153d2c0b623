"""How far apart the ranks of a job begin to record when `tachoscope profile` asks for a profile of it.

A DDP training of two processes that knows nothing of tachoscope (tests/trainings/profiled_training.py, `KINETO_USE_DAEMON=1`), a
real agent, and the command again and again; when a rank began is what kineto wrote into its trace.

    python benchmarks/profile_starts.py            # print, about ten minutes
    python benchmarks/profile_starts.py --write    # and write docs/develop/measurements.md
"""

from __future__ import annotations

import argparse
import contextlib
import gzip
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from sections import write_section

TESTS = Path(__file__).parent.parent / "tests"
sys.path[:0] = [str(TESTS / name) for name in ("generators", "servers", "support", "trainings", "node")]

from processes import AgentProcess, free_port, wait_for  # noqa: E402

JOB = "resnet"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--profiles", type=int, default=12)
    parser.add_argument("--write", action="store_true", help="write the result into docs/develop/measurements.md")
    options = parser.parse_args()
    apart = sorted(measure(options.profiles))
    table = "\n".join(
        [
            "| profiles of two ranks | median apart | worst apart |",
            "|---|---|---|",
            f"| {len(apart)} | {statistics.median(apart) * 1e3:.1f} ms | {apart[-1] * 1e3:.1f} ms |",
        ]
    )
    print(" ".join(f"{one * 1e3:.1f}" for one in apart), "ms")
    print(table)
    if options.write:
        write_section("profile_starts", table)


def measure(profiles: int) -> list[float]:
    """Return, for each profile, by how many seconds one rank began later than the other."""
    apart = []
    with tempfile.TemporaryDirectory(prefix="tk") as folder, tempfile.TemporaryDirectory(prefix="tk") as sockets:
        settings = {"sockets": [sockets], "automatic": False, "interval_seconds": 1}
        agent = AgentProcess(Path(folder), profiles=settings)
        agent.start()
        try:
            with training(sockets):
                wait_for(lambda: len(json.loads(agent.get("/v1/profiles"))["ranks"]) == 2, 60)
                for _ in range(profiles):
                    words = ["profile", "--job", JOB, "--steps", "5", "--store", str(agent.settings["store"])]
                    subprocess.run([sys.executable, "-m", "tachoscope_cli.main", *words], check=True, stdout=subprocess.DEVNULL)
            for traces in sorted(Path(str(agent.settings["store"])).glob(f"jobs/{JOB}/traces/*")):
                first, second = (start_seconds(trace) for trace in sorted(traces.glob("rank-*.json.gz")))
                apart.append(abs(first - second))
        finally:
            agent.stop()
    return apart


@contextlib.contextmanager
def training(sockets: str) -> Iterator[None]:
    """Run both ranks of the training."""
    around = {name: value for name, value in os.environ.items() if not name.startswith(("KINETO_", "TACHOSCOPE_"))}
    around |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "WORLD_SIZE": "2", "OMP_NUM_THREADS": "1"}
    around |= {"TORCHELASTIC_RUN_ID": JOB, "KINETO_USE_DAEMON": "1", "KINETO_IPC_SOCKET_DIR": sockets, "KINETO_LOG_LEVEL": "3"}
    command = [sys.executable, str(TESTS / "trainings" / "profiled_training.py"), "3600"]
    ranks = [subprocess.Popen(command, env=around | {"RANK": str(rank)}) for rank in (0, 1)]
    try:
        yield
    finally:
        for rank in ranks:
            rank.kill()
            rank.wait()


def start_seconds(path: Path) -> float:
    """Return when the profiler of a trace began to record, in Unix seconds."""
    trace = json.loads(gzip.decompress(path.read_bytes()))
    (span,) = [event for event in trace["traceEvents"] if event.get("cat") == "Trace"]
    return float((trace["baseTimeNanoseconds"] / 1e3 + span["ts"]) / 1e6)


if __name__ == "__main__":
    main()
