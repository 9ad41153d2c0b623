"""Whether a job's terminal report, its agent's metrics, a Prometheus and the watch's API say the same of it.

Runs of the lab (`python -m benchmarks.lab`) are played through a real agent into a directory or an S3 server (moto), beside a real
watch and a real Prometheus that scrapes both. All runs are played at the same time, each as a job of its own. Compared are, of each
job: rank-seconds by state and the effective training time ratio (ETTR), of the whole life; and whether it hung, with the rank.
On S3 the agent ships with its defaults, so that it takes six minutes until all can be asked; hangs of the lab are shorter than what
a watch can see there, and are not compared.

    python -m benchmarks.lab --set development --runs-per-class 1 --most 12 --out runs
    python -m benchmarks.four_mouths runs                       # a directory
    python -m benchmarks.four_mouths runs --s3 --restart        # S3; agent and watch are killed and started again in between
    python -m benchmarks.four_mouths --planted 60 --s3          # 60 made runs of ten minutes in place of the lab's
"""

from __future__ import annotations

import argparse
import contextlib
import math
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2] / "tests" / "node"))

from benchmarks.four_mouths import asking
from benchmarks.four_mouths.asking import HungInPrometheus, Said
from benchmarks.four_mouths.playing import Played, Player, made, recorded

from processes import AgentProcess, free_port, prometheus, s3_environment, s3_server
from tachoscope_core.metrics.training import TRAINING_STATES

MOUTHS = ("terminal", "agent", "Prometheus", "API")
HANG_SECONDS = "4"
"""As the lab has it."""
_SETTLE_SECONDS = 70.0
"""An agent shows the time of a job as 0 in its first minute, and what nodes say is in an object store after 30 s."""
_EVERY_S3_SECONDS = 60.0
"""From one cycle of the watch to the next, by default."""
_FLUSH_SECONDS = 310.0
"""Into an object store an agent ships every five minutes."""
_SHIP_SECONDS = 400.0


@dataclass(slots=True)
class Answers:
    """Of one job: what each mouth said, and who saw it hang, at which ranks. source: whose ledger the terminal had."""

    said: dict[str, Said] = field(default_factory=dict)
    hung: dict[str, str] = field(default_factory=dict)
    source: str = ""

    def difference(self) -> tuple[float, str]:
        """Return by how many seconds mouths differ at most, and in which state."""
        return max(
            (self._spread([one.seconds.get(state, math.nan) for one in self.said.values()]), state) for state in TRAINING_STATES
        )

    def ettr_difference(self) -> float:
        return self._spread([one.ettr for one in self.said.values()])

    @staticmethod
    def _spread(values: list[float]) -> float:
        return max(values) - min(values) if not any(map(math.isnan, values)) else math.inf


class Watching:
    """`tachoscope watch` as its own process, what it said last of each job, and at which ranks it ever said that it hangs."""

    def __init__(self, store: str, log: Path, jobs: list[str], every_seconds: float) -> None:
        self._every = every_seconds
        self._store, self._log, self._jobs, self.port = store, log, jobs, free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.goes_on = True
        self.hangs: dict[str, set[int]] = {}
        self.said: dict[str, Said] = {}
        self.looks: dict[str, int] = {}
        self.absent: dict[str, int] = {}
        self._process: subprocess.Popen[bytes] | None = None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._thread.start()

    def start(self) -> None:
        words = [
            "watch",
            "--store",
            self._store,
            "--port",
            str(self.port),
            "--every",
            f"{self._every:g}",
            "--workers",
            "1",
            "--compact-every",
            "0",
        ]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen([sys.executable, "-m", "tachoscope_cli.main", *words], stdout=log, stderr=log)

    def kill(self) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def close(self) -> None:
        self._stop.set()
        self._thread.join()
        self.kill()

    def _look(self) -> None:
        while not self._stop.wait(0.5):
            for job in self._jobs:
                with contextlib.suppress(OSError):
                    said, hang = asking.watch(self.url, job)
                    self._note(job, known=bool(said.seconds))
                    if said.seconds:  # a job that ended leaves the list after two minutes
                        self.said[job] = said
                    if hang is not None:
                        self.hangs.setdefault(job, set()).update(hang.ranks)

    def _note(self, job: str, *, known: bool) -> None:
        """Count a look at a job that was there before and goes on."""
        if self.goes_on and job in self.said:
            self.looks[job] = self.looks.get(job, 0) + 1
            self.absent[job] = self.absent.get(job, 0) + (not known)


def answers(runs: list[Played], folder: Path, store: str, *, s3: bool, restart: bool) -> dict[str, Answers]:
    """Play runs into a store, and ask all mouths."""
    jobs = [run.job for run in runs]
    port = free_port()
    flush: dict[str, object] = {"flush": {}} if s3 else {"flush": {"seconds": 1.0}}
    limits = {"jobs": 2 * len(runs), "ranks": 2 * sum(len({row.rank for row in run.rows}) for run in runs)}
    agent = AgentProcess(folder, store=store, port=port, tick_seconds=1.0, retention_seconds=3600, limits=limits, **flush)
    agent.start()
    watch = Watching(store, folder / "watch.log", jobs, _EVERY_S3_SECONDS if s3 else 2.0)
    scraped = [
        {"job_name": "tachoscope", "static_configs": [{"targets": [f"127.0.0.1:{port}"]}]},
        {"job_name": "tachoscope-watch", "static_configs": [{"targets": [f"127.0.0.1:{watch.port}"]}]},
    ]
    try:
        watch.start()
        with prometheus(folder, *scraped) as api:
            player = Player(runs, agent.spool)
            player.start()
            if restart:
                time.sleep(0.4 * max(run.seconds for run in runs))
                agent.kill()
                watch.kill()
                time.sleep(2.0)
                agent.start()
                watch.start()
            while player.goes_on():
                time.sleep(0.5)
            watch.goes_on = False
            print(f"looks at the watch's API: {sum(watch.looks.values())}; without a job that runs: {sum(watch.absent.values())}")
            return _asked(runs, agent, watch, api, store, _FLUSH_SECONDS if s3 else 0.0)
    finally:
        watch.close()
        agent.kill()


def _asked(
    runs: list[Played], agent: AgentProcess, watch: Watching, api: int, store: str, flush_seconds: float
) -> dict[str, Answers]:
    time.sleep(_SETTLE_SECONDS + (_EVERY_S3_SECONDS if flush_seconds else 0.0))
    of_agent, of_prometheus = asking.agent(agent.get("/metrics")), asking.prometheus(api)
    hangs, found = asking.hangs_in_prometheus(api), {run.job: Answers() for run in runs}
    for job, one in found.items():
        one.said |= {"agent": of_agent.get(job, Said()), "Prometheus": of_prometheus.get(job, Said())}
        one.said["API"] = watch.said.get(job, Said())
        of_job = hangs.get(job, HungInPrometheus())
        one.hung |= {"agent": f"{of_job.times} times", "Prometheus": "yes" if of_job.told else "no"}
        one.hung["API"] = f"ranks {sorted(watch.hangs[job])}" if job in watch.hangs else "no"
    time.sleep(flush_seconds)
    until, left = time.monotonic() + _SHIP_SECONDS, list(runs)
    while left:
        last = time.monotonic() > until
        left = [run for run in left if not _told_all(found[run.job], store, run) and not last]
        time.sleep(1.0)
    return found


def _told_all(found: Answers, store: str, run: Played) -> bool:
    """Take what the terminal says; return whether all records, and the rows of the agent, are in the store."""
    found.said["terminal"], report = asking.terminal(store, run.job)
    hung = [one["ranks"] for one in report.get("findings", []) if one["class"] == "hang"]
    found.hung["terminal"] = f"ranks {hung[0]}" if hung else "no"
    count = sum(one["records"] for one in report.get("sources", []))
    found.source = report["life"]["ledger"] if "life" in report else report.get("error", "")
    found.source += f", {count} of {len(run.rows)} records" if count != len(run.rows) else ""
    return found.source == "agents"


def table(found: dict[str, Answers], runs: list[Played], tolerance: float) -> tuple[str, int]:
    """Return a table of all jobs in Markdown, and how many of them not all mouths agree on."""
    heads = ("job", "state that differs most", *MOUTHS, "ETTR: largest difference", "hangs", "the terminal's ledger")
    lines = ["| " + " | ".join(heads) + " |", "|---" * len(heads) + "|"]
    differ = 0
    for run in runs:
        one = found[run.job]
        difference, state = one.difference()
        differ += difference > tolerance * max(run.seconds, 1.0) or one.ettr_difference() > tolerance
        values = " | ".join(f"{one.said[mouth].seconds.get(state, math.nan):.6f}" for mouth in MOUTHS)
        hung = ", ".join(f"{mouth} {one.hung[mouth]}" for mouth in MOUTHS)
        lines.append(
            f"| {run.job} | {state}: {difference:.6f} s | {values} | {one.ettr_difference():.7f} | {hung} | {one.source} |"
        )
    return "\n".join(lines), differ


def details(found: dict[str, Answers]) -> Iterator[str]:
    """Yield a line of each state of a job, and of its ETTR, on which mouths differ."""
    for job, one in found.items():
        if not one.ettr_difference() <= 1e-6:
            yield f"{job} ETTR: " + ", ".join(f"{mouth} {one.said[mouth].ettr:.7f}" for mouth in MOUTHS)
        for state in TRAINING_STATES:
            values = [one.said[mouth].seconds.get(state, math.nan) for mouth in MOUTHS]
            if not max(values) - min(values) <= 1e-6:
                yield f"{job} {state}: " + ", ".join(f"{mouth} {value:.6f}" for mouth, value in zip(MOUTHS, values, strict=True))


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.four_mouths", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("runs", type=Path, nargs="?", help="folder of the lab's runs")
    parser.add_argument("--planted", type=int, metavar="JOBS", default=0, help="made runs, in place of the lab's")
    parser.add_argument("--seconds", type=int, default=600, help="that made runs last")
    parser.add_argument("--s3", action="store_true", help="play into moto's S3 server, with the agent's defaults")
    parser.add_argument("--restart", action="store_true", help="kill agent and watch in between, and start them again")
    parser.add_argument("--only", metavar="PATTERN", default="", help="runs in whose names the regular expression matches")
    parser.add_argument("--tolerance", type=float, default=1e-6, help="of ETTR, and of seconds per second of the run (1e-6)")
    given = parser.parse_args()
    if given.runs is None and not given.planted:
        parser.error("give a folder of the lab's runs, or --planted JOBS")
    runs = [made(f"made-{number}", given.seconds) for number in range(given.planted)]
    folders = [path.parent for path in sorted(given.runs.glob("*/truth.json"))] if given.runs is not None else []
    runs += [recorded(path) for path in folders if re.search(given.only, path.name) and (path / "store" / "jobs").is_dir()]
    os.environ["TACHOSCOPE_HANG_SECONDS"] = HANG_SECONDS
    with tempfile.TemporaryDirectory() as name, contextlib.ExitStack() as ended:
        folder, store = Path(name), f"{name}/store"
        for place in ("spool", "state"):
            (folder / place).mkdir()
        if given.s3:
            port, store = free_port(), "s3://bucket/tachoscope"
            os.environ |= s3_environment(port)
            ended.enter_context(s3_server(port))
        else:
            Path(store).mkdir()
        found = answers(runs, folder, store, s3=given.s3, restart=given.restart)
    text, differ = table(found, runs, given.tolerance)
    print(text, *details(found), f"{len(runs)} jobs; mouths differ on {differ}", sep="\n")
    return 1 if differ else 0


if __name__ == "__main__":
    sys.exit(main())
