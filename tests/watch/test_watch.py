"""The watch: jobs of a store are judged cycle by cycle, and told as metrics, reports and documents; nothing is kept between."""

import json
import logging
import os
import signal
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import psutil
import pytest
from prometheus_client.parser import text_string_to_metric_families

from forked import Forked
from helpers import BIN, command, environment
from processes import wait_for
from tachoscope_core.report.report import parse
from tachoscope_core.storage.compacted import compacted_sets
from tachoscope_core.storage.store import Store
from tachoscope_service.common.log import Log
from tachoscope_service.metrics.prometheus_text import render
from tachoscope_watch import api
from tachoscope_watch.compaction import Compaction
from tachoscope_watch.cycle import Failed, JobLooks
from tachoscope_watch.families import MOST_JOBS, families
from tachoscope_watch.live_jobs import NodeReader
from tachoscope_watch.profile_view import Profile
from tachoscope_watch.view import JobView
from watched_jobs import PlantedJob, slow_input, standing, well


def looked(folder: Path, *, now: float | None = None, over: float = 120.0) -> dict[str, JobView | Failed]:
    now = time.time() if now is None else now
    live = NodeReader(Store(str(folder))).live_jobs(now)
    with ThreadPoolExecutor(1) as pool:
        return {view.job: view for view in JobLooks(str(folder), over).cycle(now, pool, live)}


def view_of(folder: Path, job: str) -> JobView:
    view = looked(folder)[job]
    assert isinstance(view, JobView), view
    return view


def test_a_job_is_told_with_its_workers_of_all_hosts_and_its_bottleneck(tmp_path: Path) -> None:
    well(tmp_path, "slow", phases=slow_input(2))
    view = view_of(tmp_path, "slow")

    assert (view.state, view.attempts, view.world_size) == ("running", [0], 4)
    assert [(worker.rank, worker.host, worker.pid) for worker in view.workers] == [
        (0, "node-0", 1000),
        (1, "node-0", 1001),
        (2, "node-1", 1002),
        (3, "node-1", 1003),
    ]
    assert {worker.step for worker in view.workers} == {max(worker.step for worker in view.workers)}
    assert view.report is not None
    assert [(one.class_, one.ranks) for one in view.report.findings][:1] == [("input_straggler", [2])]


def test_a_job_that_hangs_is_told_as_that_first(tmp_path: Path) -> None:
    standing(tmp_path, "stuck", phases={0: "backward", 1: "forward", 2: "backward", 3: "backward"})
    view = view_of(tmp_path, "stuck")

    assert view.state == "hung" and view.report is not None
    assert (view.report.findings[0].class_, view.report.findings[0].ranks) == ("hang", [1])


def test_of_a_job_that_became_slow_the_shorter_time_is_judged_the_worse_it_looks(tmp_path: Path) -> None:
    job = PlantedJob(tmp_path, "job")
    job.start(job.now - 111)
    job.steps(job.steps(job.now - 110, job.now - 50), job.now, slow_input(2))
    job.ship()
    worst = []
    for over in (120.0, 10.0):
        (view,) = looked(tmp_path, now=job.now, over=over).values()
        assert isinstance(view, JobView) and view.report is not None
        worst.append(view.report.findings[0])

    assert {one.class_ for one in worst} == {"input_straggler"}
    assert worst[1].share > 1.2 * worst[0].share


def test_a_hang_is_still_told_when_its_last_step_is_longer_ago_than_what_is_judged(tmp_path: Path) -> None:
    job = standing(tmp_path, "stuck", phases={0: "backward", 1: "forward", 2: "backward", 3: "backward"}, seconds=600)
    view = view_of(tmp_path, "stuck")

    assert view.state == "hung" and view.report is not None
    assert (view.report.findings[0].class_, view.report.findings[0].ranks) == ("hang", [1])
    later = looked(tmp_path, now=job.now + 10)["stuck"]  # its nodes have said nothing new
    assert isinstance(later, JobView) and view.hang_since == later.hang_since == pytest.approx(job.now - 600, abs=2)


def test_the_report_lies_in_the_store_one_a_job_however_often_it_is_judged(tmp_path: Path) -> None:
    well(tmp_path, "job")
    for _ in range(2):
        view = view_of(tmp_path, "job")

    ((path, document),) = Store(str(tmp_path)).reports("job")
    assert path.endswith("jobs/job/reports/watch.json")
    assert parse(document, path) == view.report


def test_a_store_that_takes_no_reports_costs_the_reports_and_not_the_look(tmp_path: Path) -> None:
    well(tmp_path, "slow", phases=slow_input(2))
    (tmp_path / "jobs" / "slow" / "reports").write_text("in the way")
    view = view_of(tmp_path, "slow")

    assert view.report is not None and view.report.findings[0].ranks == [2]
    assert "reports" in view.unwritten


def test_a_report_is_no_sign_of_life(tmp_path: Path) -> None:
    job = well(tmp_path, "job")
    before = job.store.job_times()
    time.sleep(0.02)
    view_of(tmp_path, "job")

    assert job.store.job_times() == before


def test_jobs_that_ended_or_are_broken_do_not_cost_the_others_their_look(tmp_path: Path) -> None:
    well(tmp_path, "good")
    old = PlantedJob(tmp_path, "old", now=time.time() - 900)
    old.start(old.now)
    old.ship(old.now)
    well(tmp_path, "torn")
    for path in tmp_path.glob("jobs/torn/records/*/*/*.gz"):
        path.write_bytes(b"no gzip")
    young = PlantedJob(tmp_path, "young")
    young.start(young.now)
    young.ship()
    found = looked(tmp_path)

    assert set(found) == {"good", "torn", "young"}
    assert isinstance(found["torn"], Failed) and "torn" in found["torn"].reason
    assert isinstance(found["young"], JobView) and found["young"].report is None and found["young"].reason


def values(views: list[JobView], failed: list[Failed]) -> dict[str, dict[tuple[str, ...], float]]:
    text = render(families(views, failed, seconds=1.5, ended=100.0)).decode()
    return {
        family.name: {tuple(sample.labels.values()): sample.value for sample in family.samples}
        for family in text_string_to_metric_families(text)
    }


def test_metrics_tell_shares_by_class_and_how_many_jobs_could_not_be_judged(tmp_path: Path) -> None:
    well(tmp_path, "slow", phases=slow_input(1))
    well(tmp_path, "calm")
    views = [view_of(tmp_path, "slow"), view_of(tmp_path, "calm")]
    told = values(views, [Failed("torn", "no gzip")])

    shares = {labels: value for labels, value in told["tachoscope_bottleneck_ratio"].items() if "slow" in labels}
    assert [set(labels) for labels in shares] == [{"slow", "input_straggler"}]
    assert 0.2 < next(iter(shares.values())) < 0.4
    assert not any("calm" in labels for labels in told["tachoscope_bottleneck_ratio"])
    assert set(told["tachoscope_compute_share_ratio"]) == {("slow",), ("calm",)}
    assert told["tachoscope_watch_jobs"][("failed",)] == 1 and told["tachoscope_watch_jobs"][("judged",)] == 2


def test_a_job_that_hangs_loses_all_its_time_to_that_and_nothing_to_what_it_lost_before(tmp_path: Path) -> None:
    well(tmp_path, "slow", phases=slow_input(1))
    standing(tmp_path, "stuck", phases={0: "backward", 1: "forward", 2: "backward", 3: "backward"})
    stuck = view_of(tmp_path, "stuck")
    slow = view_of(tmp_path, "slow").report
    assert stuck.report is not None and slow is not None
    report = msgspec.structs.replace(stuck.report, findings=[*stuck.report.findings, *slow.findings], goodput=0.5)
    told = values([msgspec.structs.replace(stuck, report=report)], [])

    assert [set(labels) for labels in told["tachoscope_bottleneck_ratio"]] == [{"stuck", "hang"}]
    assert told["tachoscope_compute_share_ratio"] == {("stuck",): 0.0}


def test_series_are_bounded_however_many_jobs_there_are(tmp_path: Path) -> None:
    well(tmp_path, "slow", phases=slow_input(1))
    view = view_of(tmp_path, "slow")
    told = values([msgspec.structs.replace(view, job=f"job-{number}") for number in range(MOST_JOBS + 7)], [])

    assert len(told["tachoscope_bottleneck_ratio"]) == MOST_JOBS
    assert told["tachoscope_watch_jobs"][("left_out",)] == 7


def test_the_openapi_document_describes_what_is_served(tmp_path: Path) -> None:
    well(tmp_path, "slow", phases=slow_input(1))
    view = view_of(tmp_path, "slow")
    document = api.openapi("1.0")
    schemas = document["components"]["schemas"]

    served = json.loads(msgspec.json.encode(view))
    assert set(served) == set(schemas["JobView"]["properties"])
    assert set(served["workers"][0]) == set(schemas["Worker"]["properties"])
    assert set(json.loads(api.jobs([view]))["jobs"][0]) == set(schemas["JobLine"]["properties"])
    assert set(Profile.__struct_fields__) == set(schemas["Profile"]["properties"])


class Watching(Forked):
    """A watch, with what it writes to stderr."""

    def __init__(self, words: list[str], around: dict[str, str]) -> None:
        read, written = os.pipe()
        super().__init__(words, around, stdout=written, stderr=written)
        os.close(written)
        self.stderr = os.fdopen(read, encoding="utf-8")


@contextmanager
def watching(folder: Path, *options: str, hang_seconds: str = "30") -> Iterator[tuple[Watching, str]]:
    """Run a real watch of a store; yield its process and the address of its pages."""
    around = environment(folder.parent, TACHOSCOPE_HANG_SECONDS=hang_seconds)
    words = ["watch", "--store", str(folder), "--port", "0", "--every", "1", "--workers", "1", *options]
    process = Watching(words, around)
    try:
        for line in process.stderr:
            if "serving " in line:
                yield process, line.split("serving ")[1].removesuffix("/v1/jobs\n")
                return
        raise AssertionError("it ended before it served anything")
    finally:
        process.kill()
        process.wait()
        process.stderr.close()


def get(url: str) -> Any:
    with urllib.request.urlopen(url, timeout=60) as answer:
        return answer.read()


def jobs_of(url: str) -> list[Any]:
    """Return the list of jobs as soon as there is one."""
    for _ in range(1200):
        found: list[Any] = json.loads(get(f"{url}/v1/jobs"))["jobs"]
        if found:
            return found
        time.sleep(0.1)
    raise AssertionError("no job was told of")


def test_a_watch_serves_what_it_found_and_killed_and_started_again_goes_on(tmp_path: Path) -> None:
    store = tmp_path / "store"
    well(store, "slow-input", phases=slow_input(3))
    for number in (signal.SIGKILL, signal.SIGTERM):
        with watching(store) as (process, url):
            (line,) = jobs_of(url)
            assert line["worst"]["class"] == "input_straggler" and line["hosts"] == ["node-0", "node-1"]
            assert json.loads(get(f"{url}/v1/jobs/slow-input"))["report"]["findings"][0]["ranks"] == [3]
            assert b'tachoscope_bottleneck_ratio{class="input_straggler",training_job="slow-input"}' in get(f"{url}/metrics")
            assert json.loads(get(f"{url}/v1/openapi.json"))["openapi"] == "3.1.0"
            assert get(f"{url}/healthz") == b"ok\n"
            for wrong in ("/v1/jobs/nobody", "/v1/jobs/slow-input/more", "/v1/jobs/..%2f..%2fetc"):
                try:
                    get(url + wrong)
                except urllib.error.HTTPError as error:
                    assert error.code == 404
                else:
                    raise AssertionError(f"{wrong} was answered")
            workers = psutil.Process(process.pid).children(recursive=True)
            assert workers
            process.send_signal(number)
            assert process.wait(120) == (0 if number == signal.SIGTERM else -signal.SIGKILL)
            assert psutil.wait_procs(workers, timeout=60)[1] == []


def test_pages_ask_for_the_password_of_the_web_config(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("open-sesame")
    token.chmod(0o600)
    config = tmp_path / "web.yaml"
    config.write_text(f"bearer_token_files: [{token}]\n")
    well(tmp_path / "store", "job")
    with watching(tmp_path / "store", "--web-config", str(config)) as (_, url):
        try:
            get(f"{url}/v1/jobs")
        except urllib.error.HTTPError as error:
            assert error.code == 401
        else:
            raise AssertionError("it was answered without a token")
        request = urllib.request.Request(f"{url}/v1/jobs", headers={"Authorization": "Bearer open-sesame"})
        assert "jobs" in json.loads(get(request))  # type: ignore[arg-type]


def test_a_watch_compacts_the_store_and_one_job_that_cannot_be_does_not_keep_others_from_it(tmp_path: Path) -> None:
    store = Store(str(tmp_path / "store"))
    ended = PlantedJob(tmp_path / "store", "ended", now=time.time() - 7200)
    ended.start(ended.now - 11)
    ended.steps(ended.now - 10, ended.now)
    ended.ship(ended.now)
    broken = tmp_path / "store" / "jobs" / "broken" / "compacted" / "date=2026-01-01" / "1_a.json.gz"
    broken.parent.mkdir(parents=True)
    broken.write_bytes(b"no list")

    with watching(tmp_path / "store", "--compact-every", "1") as (process, _):
        assert "job broken" in next(line for line in process.stderr if "not compacted: " in line)
        assert "compacted 4 segments of 1 job" in next(line for line in process.stderr if "segments" in line)
        process.terminate()
        assert process.wait(60) == 0

    assert list(store.segments("ended")) == [] and compacted_sets(store, "ended")


def test_a_compaction_with_more_faults_than_fit_into_a_pipe_ends(tmp_path: Path, logged: list[str]) -> None:
    for number in range(300):
        broken = tmp_path / "jobs" / f"{number}-{'x' * 90}" / "compacted" / "date=2026-01-01" / "1_a.json.gz"
        broken.parent.mkdir(parents=True)
        broken.write_bytes(b"no list")
    compaction = Compaction(str(tmp_path), 0.001, Log(logging.getLogger("compaction")))
    try:

        def said() -> bool:
            compaction.check()
            return any("not compacted: job 99-" in line for line in logged)

        wait_for(said)
    finally:
        compaction.close()


def test_once_prints_a_line_for_each_live_job(tmp_path: Path) -> None:
    well(tmp_path, "slow", phases=slow_input(2))
    done = command("watch", "--once", "--store", tmp_path, "--workers", 1)

    assert done.returncode == 0
    assert "slow: running, 4 workers, compute share" in done.stdout and "input_straggler, ranks 2," in done.stdout
    assert command("watch", "--once", "--store", tmp_path / "nowhere").returncode == 2
    assert command("watch", "--once", "--store", tmp_path, "--web-config", "web.yaml").returncode == 2
    empty = tmp_path / "empty"
    os.makedirs(empty)
    assert "no job in" in command("watch", "--once", "--store", empty, "--workers", 1).stdout


def test_a_job_that_failed_twice_at_the_same_root_is_told_with_it_and_with_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("raise ValueError('sample 17 has no label')\n")
    for _ in range(2):
        subprocess.run(
            [BIN / "tachoscope", "run", "--job", "twice", "--", BIN / "python", tmp_path / "train.py"],
            env=environment(tmp_path), capture_output=True, check=False, timeout=120,
        )  # fmt: skip
    view = view_of(tmp_path / "store", "twice")

    assert view.state == "failed" and view.failure is not None
    assert (view.failure.location, view.failure.exception, view.failure.policy) == ("train.py:1", "ValueError", "stop")
    assert json.loads(api.jobs([view]))["jobs"][0]["failure"]["repeats_attempt"] == 0
    assert values([view], [])["tachoscope_job_same_failure"] == {("twice",): 1.0}
