"""Whether the watch's figures of a real Slurm are those that Slurm's own programs give.

Plants jobs on six nodes of two GPUs: idle holders, arrays, a heterogeneous job, dependencies, holds, a job that is preempted, one
that is requeued and one whose node fails. `tachoscope watch --scheduler slurm` runs meanwhile. Then each of its figures is compared
with `squeue --json`, `scontrol show node` and `sacct --json`: it reads none of these. At the end all jobs are cancelled, and the
hours that accounts held, by `tachoscope efficiency`, are compared with `sreport`, which knows whole hours that are over: for that
the accounting gets a clock two hours ahead. What agents would report of two of the jobs is made up, and the question about idle
holders is asked an hour later.

    python -m benchmarks.scheduler_figures            # 5 minutes; prints
    python -m benchmarks.scheduler_figures --write    # and writes docs/develop/measurements.md
"""

from __future__ import annotations

import argparse
import contextlib
import json
import logging
import os
import re
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.slurm_cluster import SlurmCluster, SlurmUnavailableError

from tachoscope_analyzers.schedulers.slurm import queue_table
from tachoscope_core.metrics import scheduler as names
from tachoscope_core.storage.node_status import JobStatus, NodeStatus, RankStatus
from tachoscope_core.storage.store import Store
from tachoscope_service.common.log import Log
from tachoscope_watch.ledgers import JobLedgers
from tachoscope_watch.live_jobs import live_jobs
from tachoscope_watch.scheduler import slurm
from tachoscope_watch.scheduler.collector import SchedulerCollector

sys.path.append(str(Path(__file__).parents[1]))

from sections import write_section
from server_process import ServerProcess, free_port

Figures = dict[str, float]
_LINE = re.compile(r"^tachoscope_scheduler_(\w+?)(?:\{(.*)\})? (\S+)$", re.MULTILINE)
_SHIFT_SECONDS = 3600.0
_MANY = 10_000
_HOURS_APART = 0.05
"""Sixteen GPUs for ten seconds, between both questions."""
_ENDED_HOURS_APART = 1e-3
"""Of jobs that have ended: what the hours are rounded to."""


def plant(cluster: SlurmCluster) -> dict[str, str]:
    """Submit all jobs, and wait until nothing changes any more; return ids by what they are."""

    def submit(*options: str, seconds: int = 900) -> str:
        command = ("sbatch", "--parsable", "--requeue", "--output=/dev/null", *options, "--wrap", f"sleep {seconds}")
        return cluster.run(*command).strip()

    for account in ("vision", "language"):
        cluster.run("sacctmgr", "-i", "add", "account", account)
        cluster.run("sacctmgr", "-i", "add", "user", "root", f"account={account}")
    jobs = {"stepping": submit("-Avision", "-N1", "--gres=gpu:2", "-w", "node1")}
    jobs["idle"] = submit("-Alanguage", "-N1", "--gres=gpu:1", "-w", "node2")
    jobs["unreported"] = submit("-Alanguage", "-N1", "--gres=gpu:1", "-w", "node2")
    jobs["cpu only"] = submit("-Avision", "-N1", "-w", "node1")
    jobs["short array"] = submit("-Avision", "--array=1-3", "-N1", "--gres=gpu:1", seconds=1)
    for name in ("stepping", "idle", "unreported"):
        cluster.wait_for_state(jobs[name], "RUNNING")
    cluster.wait_for(lambda: cluster.run("squeue", "-h", "-j", jobs["short array"], check=False) == "", "the short array to end")
    jobs["preempted"] = submit("-Avision", "-N2", "--gres=gpu:2", "-w", "node3,node4")
    cluster.wait_for_state(jobs["preempted"], "RUNNING")
    jobs["urgent"] = submit("-purgent", "-Alanguage", "-N1", "--gres=gpu:2", "-w", "node3")
    cluster.wait_for_state(jobs["urgent"], "RUNNING")
    jobs["requeued"] = submit("-Avision", "-N1", "--gres=gpu:1", "-w", "node4")
    cluster.wait_for_state(jobs["requeued"], "RUNNING")
    cluster.run("scontrol", "requeue", jobs["requeued"])
    jobs["failed"] = submit("-Avision", "-N1", "--gres=gpu:1", "-w", "node4")
    cluster.wait_for_state(jobs["failed"], "RUNNING")
    cluster.run("scontrol", "update", "nodename=node4", "state=down", "reason=benchmark")
    cluster.run("scontrol", "update", "nodename=node2", "state=drain", "reason=benchmark")
    cluster.run("scontrol", "update", "nodename=node5", "state=drain", "reason=benchmark")
    jobs["large"] = submit("-Avision", "-N4", "--gres=gpu:2")
    jobs["array"] = submit("-Alanguage", "--array=1-40:3%2", "-N1", "--gres=gpu:1", "-w", "node1")
    jobs["held"] = submit("-H", "-N1", "--gres=gpu:1")
    jobs["later"] = submit("--begin=now+2hours", "-N1", "--gres=gpu:1")
    jobs["depends"] = submit(f"--dependency=afterok:{jobs['idle']}", "-N1", "--gres=gpu:1")
    first, second = (("-N1", "--gres=gpu:1", "-w", node, "--output=/dev/null") for node in ("node1", "node2"))
    cluster.run("sbatch", *first, ":", *second, "--wrap", "sleep 900")
    return jobs


def of_watch(page: str) -> Figures:
    """Return the watch's figures, by name and labels; of the histogram its count and sum."""
    found = {f"{name}{{{labels or ''}}}": float(value) for name, labels, value in _LINE.findall(page)}
    return {name: value for name, value in found.items() if "_bucket" not in name}


def by_slurm(cluster: SlurmCluster, began: float, now: float) -> Figures:
    """Return the same figures by what the watch does not read."""
    found: Figures = {}
    queue = json.loads(cluster.run("squeue", "--all", "--json"))["jobs"]
    pending: Counter[str] = Counter()
    gpus: Counter[str] = Counter()
    oldest: Figures = {}
    for job in queue:
        count = _gpus(job["tres_alloc_str"] or job["tres_req_str"])
        if job["job_state"] != "PENDING" or not count:
            continue
        state = "eligible" if 0 < job["eligible_time"] <= now else "not_eligible"
        key, tasks = f'partition="{job["partition"]}",state="{state}"', _tasks(job["array_task_string"])
        pending[key] += tasks
        gpus[key] += tasks * count
        if state == "eligible":
            partition = f'partition="{job["partition"]}"'
            oldest[partition] = max(now - job["eligible_time"], oldest.get(partition, 0.0))
    found |= {f"pending_jobs{{{key}}}": float(count) for key, count in pending.items()}
    found |= {f"pending_accelerators{{{key}}}": float(count) for key, count in gpus.items()}
    found |= {f"oldest_pending_seconds{{{key}}}": seconds for key, seconds in oldest.items()}
    return found | _nodes(cluster) | _events(cluster, began) | _held(queue)


def _held(queue: list[dict[str, Any]]) -> Figures:
    accounts: Counter[str] = Counter()
    for job in queue:
        if job["job_state"] in {"RUNNING", "COMPLETING", "SUSPENDED"}:  # it lists jobs that ended lately, too
            accounts[job["account"]] += _gpus(job["tres_alloc_str"])
    return {f"held of {account}": float(count) for account, count in accounts.items() if count}


def _nodes(cluster: SlurmCluster) -> Figures:
    counts: Counter[str] = Counter()
    for line in cluster.run("scontrol", "show", "node", "--oneliner").splitlines():
        state = re.search(r" State=(\S+)", line)
        total, used = (
            _gpus(found[1]) for found in (re.search(rf" {name}=(\S*)", line) for name in ("CfgTRES", "AllocTRES")) if found
        )
        counts["allocated"] += used
        free = "down" if "DOWN" in (state or [""])[0] else "drained" if "DRAIN" in (state or [""])[0] else "idle"
        counts[free] += total - used
    return {f'accelerators{{state="{state}"}}': float(count) for state, count in counts.items()}


def _events(cluster: SlurmCluster, began: float) -> Figures:
    found: Counter[str] = Counter()
    starts: dict[tuple[str, float], tuple[str, float]] = {}
    document = json.loads(cluster.run("sacct", "--allusers", "--duplicates", "--json", "--starttime=now-1hours"))
    kinds = {"PREEMPTED": "preempted", "NODE_FAIL": "node_failed", "REQUEUED": "requeued"}
    for job in document["jobs"]:
        if not any(one["type"] == "gres" and one["count"] for one in job["tres"]["allocated"]):
            continue
        times, partition = job["time"], job["partition"]
        if times["start"] >= began:
            starts[str(job["het"]["job_id"] or job["job_id"]), times["start"]] = (partition, times["start"] - times["eligible"])
        if kind := kinds.get(job["state"]["current"]):
            found[f'interruptions_total{{partition="{partition}",state="{kind}"}}'] += 1
    for partition, wait in starts.values():
        found[f'gang_wait_seconds_count{{partition="{partition}"}}'] += 1
        found[f'gang_wait_seconds_sum{{partition="{partition}"}}'] += int(wait)
    return {name: float(value) for name, value in found.items()}


def _gpus(resources: str) -> int:
    found = re.search(r"gres/gpu=(\d+)", resources)
    return int(found[1]) if found else 0


def _tasks(listed: str) -> int:
    parts = re.findall(r"(\d+)(?:-(\d+))?(?::(\d+))?", listed.partition("%")[0])
    return sum(len(range(int(first), int(last or first) + 1, int(step or 1))) for first, last, step in parts) or 1


def compared(watch: Figures, slurm_says: Figures) -> tuple[str, int, int]:
    """Return a table of both, their number, and how many differ. Ages may differ by the seconds between both questions."""
    held: Counter[str] = Counter()
    for name, value in watch.items():
        if account := re.match(r'accelerators_held\{account="(\w+)"', name):
            held[f"held of {account[1]}"] += int(value)
    watch = {name: value for name, value in watch.items() if not name.startswith(("accelerators_held", "up"))} | held
    lines, wrong = ["| figure | watch | Slurm |", "|---|---|---|"], 0
    for name in sorted({name for name, value in watch.items() if value} | set(slurm_says)):
        mine, its = watch.get(name, 0.0), slurm_says.get(name, 0.0)
        differs = abs(mine - its) > (5.0 if name.startswith("oldest") else 0.0)
        wrong += differs
        lines.append(f"| `{name}` | {mine:.0f} | {its:.0f}{' **differs**' if differs else ''} |")
    return "\n".join(lines), len(lines) - 2, wrong


def activities(jobs: dict[str, str]) -> dict[str, int]:
    """Return the GPUs held, by activity, an hour from now: as agents would report one job that steps and one that does not."""
    later = time.time() + _SHIFT_SECONDS
    parts = [
        JobStatus(f"slurm-{jobs['stepping']}", ranks=[RankStatus(0, "a", step_time=later - 1, record_time=later)]),
        JobStatus("named-by-hand", ranks=[RankStatus(0, "b", step_time=1.0, record_time=later)], scheduler_job=jobs["idle"]),
    ]
    collector = SchedulerCollector(slurm.Slurm(), Log(logging.getLogger("benchmark")))
    with tempfile.TemporaryDirectory() as store:
        ledgers = JobLedgers(Store(store), print)
        collector.take_live(later, live_jobs([NodeStatus("node1", later, 30.0, 300.0, parts)], later, ledgers))
    collector.look(later)
    counts: Counter[str] = Counter()
    for family in collector.families:
        if family.metric is names.ACCELERATORS_HELD:
            for labels, value in family.points:
                counts[labels[1]] += int(value)  # type: ignore[arg-type]
    return dict(counts)


def held_hours(cluster: SlurmCluster, store: Path) -> tuple[Figures, Figures]:
    """Return the accelerator-hours of each account, as `tachoscope efficiency` and as `sacct --json` have them."""
    command = [sys.executable, "-m", "tachoscope_cli.main", "efficiency", "--by", "account", "--since", "1h", "--format", "json"]
    found = json.loads(cluster.run(*command, "--store", str(store)))["efficiencies"]
    hours: Counter[str] = Counter()
    document = json.loads(cluster.run("sacct", "--allusers", "--duplicates", "--json", "--starttime=now-1hours"))
    for job in document["jobs"]:
        gpus = sum(one["count"] for one in job["tres"]["allocated"] if one["type"] == "gres")
        hours[job["account"]] += gpus * job["time"]["elapsed"] / 3600  # type: ignore[assignment]
    its = {account: value for account, value in hours.items() if value}
    return {one["name"]: one["held_hours"] for one in found}, its


def ended_hours(cluster: SlurmCluster, store: Path, began: float) -> tuple[Figures, Figures, Figures]:
    """Cancel all jobs; return the accelerator-hours of each account by `tachoscope efficiency`, `sacct` and `sreport`."""
    cluster.run("scancel", "--user=root")
    unended = ("sacct", "--allusers", "--noheader", "--allocations", "--state=RUNNING,PENDING", "--starttime=now-1hours")
    cluster.wait_for(lambda: not cluster.run("squeue", "--noheader").strip() and not cluster.run(*unended).strip(), "all ends")
    mine, its = held_hours(cluster, store)
    environment = cluster.accounting_ahead(2)
    hours = [f"start={_full_hour(began)}", f"end={_full_hour(time.time() + 3600)}"]
    words = ("sreport", "--parsable2", "--noheader", "-t", "Seconds", "--tres=gres/gpu")
    columns = "format=Accounts,Login,Used"
    asked = (*words, "cluster", "AccountUtilizationByUser", *hours, columns)
    cluster.wait_for(lambda: bool(cluster.run(*asked, environment=environment, check=False).strip()), "sreport")
    lines = [line.split("|") for line in cluster.run(*asked, environment=environment).splitlines()]
    by_report = {account: int(seconds) / 3600 for account, login, seconds in lines if login and int(seconds)}
    return {name: value for name, value in mine.items() if value}, its, by_report


@contextlib.contextmanager
def _programs_of(cluster: SlurmCluster) -> Iterator[None]:
    """Let this process ask the cluster, too."""
    before = dict(os.environ)
    os.environ.update(cluster.environment)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def cost() -> tuple[float, float]:
    """Return processor seconds of a look at this cluster in this process, and those to read a queue of many jobs."""
    scheduler, began = slurm.Slurm(), time.process_time()
    for _ in range(10):
        scheduler.snapshot(time.time())
    look, began = (time.process_time() - began) / 10, time.process_time()
    line = "{0}|{0}|N/A|train|vision|PENDING|1795942533|N/A|cpu=64,mem=4000M,node=8,billing=1,gres/gpu=64|\n"
    queue_table.jobs("".join(line.format(number) for number in range(_MANY)))
    return look, time.process_time() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="write docs/develop/measurements.md")
    options = parser.parse_args()
    partitions = {"train": "PriorityTier=1", "urgent": "PriorityTier=10"}
    settings = ("PreemptType=preempt/partition_prio", "PreemptMode=REQUEUE")
    try:
        with SlurmCluster(6, partitions=partitions, settings=settings) as cluster, tempfile.TemporaryDirectory() as folder:
            text, wrong = measured(cluster, Path(folder))
    except SlurmUnavailableError as error:
        sys.exit(str(error))
    print(text)
    if options.write:
        write_section("scheduler_figures", text, "python -m benchmarks.scheduler_figures --write")
    sys.exit(1 if wrong else 0)


def measured(cluster: SlurmCluster, folder: Path) -> tuple[str, int]:
    store, port = folder / "store", free_port()
    store.mkdir()
    command = [
        sys.executable,
        "-m",
        "tachoscope_cli.main",
        "watch",
        "--scheduler",
        "slurm",
        "--store",
        str(store),
        "--port",
        str(port),
    ]
    watch = ServerProcess(command, port, folder / "log", ready="/healthz", environ=cluster.environment)
    try:
        cluster.wait_for(lambda: watch.metric("tachoscope_scheduler_up") == 1, "the watch's first answer")
        began = time.time()
        jobs = plant(cluster)
        planted = time.time()
        cluster.wait_for(lambda: time.time() - planted > 65, "the watch to look again")
        looked = watch.metric("tachoscope_scheduler_oldest_pending_seconds")
        cluster.wait_for(lambda: watch.metric("tachoscope_scheduler_oldest_pending_seconds") != looked, "a newer look")
        now = time.time()
        table, count, wrong = compared(of_watch(watch.get("/metrics").decode()), by_slurm(cluster, began, now))
        with _programs_of(cluster):
            found, (look, many) = activities(jobs), cost()
        mine, its = held_hours(cluster, store)
        silent = without_an_answer(cluster, watch)
    finally:
        watch.end()
    ended = ended_hours(cluster, store, began)
    wrong += sum(not _alike([one.get(account, 0.0) for one in ended]) for account in {*ended[0], *ended[1], *ended[2]})
    expected = {"stepping": 2, "idle": 1}
    wrong += sum(found.get(kind) != number for kind, number in expected.items()) + (silent != ["up"])
    unequal = sum(abs(mine.get(account, 0.0) - its.get(account, 0.0)) > _HOURS_APART for account in {*mine, *its})
    wrong += unequal
    held = ", ".join(f"{number} {kind}" for kind, number in sorted(found.items()) if number)
    hours = ", ".join(f"{account} {value:.3f} and {its.get(account, 0.0):.3f}" for account, value in sorted(mine.items()))
    text = (
        f"{count} figures, {wrong} of them wrong.\n"
        f"GPUs held an hour later, planted as 2 stepping, 1 idle, 3 without records: {held}. Metrics while slurmctld is stopped:\n"
        f"{', '.join(silent)}. A look takes {look * 1e3:.0f} ms of processor time beside Slurm's clients; a queue of {_MANY:,}\n"
        f"jobs is read in {many * 1e3:.0f} ms. Hours held, by `tachoscope efficiency` and a moment later `sacct --json`:\n"
        f"{hours}; after the end of all jobs, by these two and `sreport`:\n"
        f"{_shown(ended)}."
    )
    print(table)
    return text, wrong


def _full_hour(unix_seconds: float) -> str:
    return time.strftime("%Y-%m-%dT%H:00:00", time.localtime(unix_seconds))


def _alike(hours: list[float]) -> bool:
    return max(hours) - min(hours) <= _ENDED_HOURS_APART


def _shown(found: tuple[Figures, ...]) -> str:
    accounts = sorted({account for one in found for account in one})
    return ", ".join(f"{account} {' '.join(f'{one.get(account, 0.0):.4f}' for one in found)}" for account in accounts)


def without_an_answer(cluster: SlurmCluster, watch: ServerProcess) -> list[str]:
    """Return the names of the scheduler's metrics while the controller is stopped."""
    cluster.signal("slurmctld", signal.SIGSTOP)
    try:
        cluster.wait_for(lambda: watch.metric("tachoscope_scheduler_up") == 0, "the watch to notice", seconds=300)
        return sorted({name.partition("{")[0] for name in of_watch(watch.get("/metrics").decode())})
    finally:
        cluster.signal("slurmctld", signal.SIGCONT)


if __name__ == "__main__":
    main()
