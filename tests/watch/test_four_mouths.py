"""What the terminal, the agent's metrics, a Prometheus and the watch's API say of the same jobs is the same."""

from __future__ import annotations

import contextlib
import re
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest
from benchmarks.four_mouths import asking
from benchmarks.four_mouths.playing import Played, written

from processes import agent_process, free_port, prometheus, store_of, wait_for
from tachoscope_core.records import records
from test_watch import watching
from watched_jobs import Phases, PlantedJob, even, slow_input

RANKS = 4
HANG_SECONDS = "8"
STEP_SECONDS = 1.0


def pausing(step: int, rank: int) -> dict[str, float]:
    return even(step, rank) | {"other": 0.3}


def planted(folder: Path, name: str, phases: Phases = even, *, stands: bool = False, seen_late: bool = False) -> Played:
    """Return a job of a minute on one host, which ends in order, or stands still, its rank 1 elsewhere than the others.

    Args:
        seen_late: only the last heartbeat says that the ranks pause outside of all phases: no counter can go back for that.
    """
    job = PlantedJob(folder, name, ranks=RANKS)
    job.start(job.now - 60)
    end = job.steps(job.now - 60, job.now - (20 if stands else 1), phases)
    for rank in range(RANKS):
        if stands:
            job.beats(end + 2, job.now, "forward" if rank == 1 else "backward", (rank,))
            continue
        if seen_late:
            job.write(records.Heartbeat, rank, end, step=job.step, activity={"other": {"other sleep": 50}})
        job.write(records.JobEnded, rank, end, status="completed")
    rows = [msgspec.structs.replace(records.decode(line), host="node-1") for lines in job.lines for line in lines]
    return Played(name, tuple(sorted(rows, key=lambda row: row.time)))


class Standing:
    """The processes of a job that stands still: they go on with their heartbeats."""

    def __init__(self, job: Played, spool: Path) -> None:
        self._writers, self._last = written(job, spool), {row.writer: row for row in job.rows}
        moved = time.time() - job.rows[-1].time  # as they are written: the last record is of now
        self.last_step = moved + max(row.time for row in job.rows if isinstance(row, records.StepDone))

    def beat(self) -> None:
        for writer, last in self._last.items():
            now = {"time": time.time(), "monotonic_ns": time.monotonic_ns()}
            self._last[writer] = msgspec.structs.replace(last, seq=last.seq + 1, **now)
            self._writers[writer].append(records.encode(self._last[writer]))

    def close(self) -> None:
        for spooled in self._writers.values():
            spooled.close()


def scraped(agent: int, watch: str) -> list[dict[str, Any]]:
    """Return what a Prometheus is to scrape: an agent by its port, and a watch by its address."""
    targets = {"agent": f"127.0.0.1:{agent}", "tachoscope-watch": watch.removeprefix("http://")}
    return [{"job_name": name, "static_configs": [{"targets": [target]}]} for name, target in targets.items()]


def hangs_of(report: dict[str, Any]) -> list[Any]:
    return [finding["ranks"] for finding in report.get("findings", []) if finding["class"] == "hang"]


def as_pytest_compares(said: asking.Said) -> dict[str, Any]:
    """Return what was said as it must be said by all: ETTR to 1e-6, and seconds to a millionth of the job's."""
    within = 1e-6 * sum(said.seconds.values())
    return {
        "ettr": pytest.approx(said.ettr, abs=1e-6),
        **{s: pytest.approx(value, abs=within) for s, value in said.seconds.items()},
    }


def test_seconds_by_state_ettr_and_the_rank_at_which_a_job_hangs_are_the_same_wherever_they_are_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TACHOSCOPE_HANG_SECONDS", HANG_SECONDS)
    store, port = str(tmp_path / "store"), free_port()
    ended = [
        planted(tmp_path / "planted", "slow", slow_input(1)),
        planted(tmp_path / "planted", "pausing", pausing, seen_late=True),
    ]
    # A page that shows a job's first time would show it as 0 for a minute: Prometheus begins when the jobs are known.
    with (
        agent_process(tmp_path, port=port, sample_seconds=0) as agent,
        watching(tmp_path / "store", hang_seconds=HANG_SECONDS) as (_, url),
    ):
        for job in ended:
            for spooled in written(job, tmp_path / "spool").values():
                spooled.close()
        stuck = Standing(planted(tmp_path / "planted", "stuck", stands=True), tmp_path / "spool")

        def hangs_at() -> list[int]:
            stuck.beat()
            hang = asking.watch(url, "stuck")[1]
            return [] if hang is None else hang.ranks

        assert wait_for(hangs_at, pause=0.5) == [1]
        with prometheus(tmp_path, *scraped(port, url)) as api:
            wait_for(lambda: hangs_at() == [1] and asking.hangs_in_prometheus(api)["stuck"].told, pause=0.5)
            wait_for(lambda: hangs_of(asking.terminal(store, "stuck")[1]) == [[1]], pause=0.5)
            assert set(asking.hangs_in_prometheus(api)) == {"stuck"}
            wait_for(lambda: {job.job for job in ended} <= set(asking.prometheus(api)), pause=0.5)
            page, stored = asking.agent(agent.get("/metrics")), asking.prometheus(api)
            for job in ended:
                terminal, report = asking.terminal(store, job.job)
                assert report["life"]["ledger"] == "agents"
                assert terminal.seconds["compute"] > 100
                for said in (page[job.job], stored[job.job], asking.watch(url, job.job)[0]):
                    assert {"ettr": said.ettr, **said.seconds} == as_pytest_compares(terminal)
        stuck.close()


@pytest.mark.parametrize("kind", ["directory", pytest.param("S3", marks=pytest.mark.bar)])
def test_a_hang_counts_once_and_keeps_its_rank_and_begin_when_agent_and_watch_are_killed_and_started_again(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TACHOSCOPE_HANG_SECONDS", HANG_SECONDS)
    ports = (free_port(), free_port())
    url = f"http://127.0.0.1:{ports[1]}"
    job = planted(tmp_path / "planted", "stuck", stands=True)
    with (
        store_of(kind, tmp_path, monkeypatch) as store,
        agent_process(tmp_path, store=store, port=ports[0], sample_seconds=0) as agent,
        prometheus(tmp_path, *scraped(ports[0], url)) as api,
        contextlib.closing(Standing(job, tmp_path / "spool")) as stuck,
    ):

        def is_told() -> bool:
            """Whether all tell of the one hang of rank 1, since the last step; a usual step more by the agent's metrics."""
            stuck.beat()
            hang, counted = asking.watch(url, "stuck")[1], asking.hangs_in_prometheus(api)["stuck"]
            assert hang is not None and hang.ranks == [1]
            begins = [hang.since - stuck.last_step, counted.since - stuck.last_step - STEP_SECONDS]
            return (counted.times, counted.told) == (1, True) and all(abs(begin) < 3.0 for begin in begins)

        for _ in range(2):
            with watching(tmp_path / "unused", "--store", store, "--port", str(ports[1]), hang_seconds=HANG_SECONDS):
                # Once the agent watches the job again, it has judged it again.
                wait_for(lambda: re.search(r"""tachoscope_job_active\{[^}]*"stuck"[^}]*} 1""", agent.get("/metrics")))
                wait_for(is_told, pause=0.5)
                assert asking.hangs_in_prometheus(api)["stuck"].times == 1
                agent.kill()
            agent.start()
        wait_for(lambda: hangs_of(asking.terminal(store, "stuck")[1]) == [[1]], pause=0.5)
