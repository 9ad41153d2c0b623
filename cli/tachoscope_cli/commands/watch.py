"""`tachoscope watch`: all live jobs of a store, judged every minute, in the foreground, its log on stderr."""

from __future__ import annotations

import logging
import os
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from tachoscope_cli.common.options import StoreOption, needs_analysis, print_notice, store_url
from tachoscope_core.errors import TachoscopeError
from tachoscope_core.net.allowed_hosts import is_loopback
from tachoscope_show.text.safe_text import safe

if TYPE_CHECKING:
    from tachoscope_watch.service import Settings


_WORKERS = min(os.cpu_count() or 1, 4)
_Every = Annotated[float, typer.Option(metavar="SECONDS", min=1, help="Interval between two analyses of all jobs.")]
_Workers = Annotated[int, typer.Option(metavar="N", min=1, help="Number of worker processes.", show_default="cores, at most 4")]
_Over = Annotated[
    float,
    typer.Option(metavar="SECONDS", min=10, help="Length of the judged part of a job, up to its newest step; at least 40 steps."),
]
_CompactEvery = Annotated[
    float, typer.Option(metavar="SECONDS", min=0, help="Interval between two runs of `store compact`; 0: never.")
]
_Lease = Annotated[
    float,
    typer.Option(
        metavar="SECONDS",
        min=0,
        help="Share the jobs with the other watches of the store that set this; one that stops for this long loses its jobs. "
        "0: all jobs are this watch's.",
    ),
]
_Scheduler = Annotated[
    Literal["slurm"] | None,
    typer.Option(help="Ask this scheduler every minute for its queue and accelerators. Set it on one watch of a cluster."),
]
_Nodes = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="Keep the life cycle of nodes by these rules (docs/guides/nodes.md). Set it on one watch, or on all with --lease.",
    ),
]
_Port = Annotated[int, typer.Option(min=0, max=65535, help="Port of the pages; 0: any free one.")]
_Host = Annotated[str, typer.Option(metavar="ADDRESS", help="Address to listen on. Anyone who can reach it can see what jobs do.")]
_WebConfig = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="File with TLS, passwords and tokens, as for the agent (docs/agent/agent.md)."),
]
_AcceptJobs = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="Accept training jobs over the API, from clients of --web-config by the roles in this file "
        "(docs/guides/training-jobs.md).",
    ),
]
_Once = Annotated[bool, typer.Option("--once", help="Analyze once, print a line for each live job, and exit.")]


def watch(
    store: StoreOption = None,
    every: _Every = 60.0,
    workers: _Workers = _WORKERS,
    over: _Over = 120.0,
    compact_every: _CompactEvery = 3600.0,
    lease: _Lease = 0.0,
    scheduler: _Scheduler = None,
    nodes: _Nodes = None,
    port: _Port = 9466,
    host: _Host = "127.0.0.1",
    web_config: _WebConfig = None,
    accept_jobs: _AcceptJobs = None,
    once: _Once = False,
) -> None:
    """Watch all live jobs: a report of each every minute, metrics for alerts, and the whole job over all its nodes.

    Writes jobs/JOB/reports/watch.json into the store, compacts the records of past days as `store compact` does, and serves
    /v1/jobs, /v1/jobs/JOB and its /profile, /v1/training-jobs, /metrics and /v1/openapi.json. Killed and started again, it goes on.
    Runs until Ctrl-C or SIGTERM.
    """
    needs_analysis()
    from tachoscope_core.storage.store import absolute_url, check_url

    url = absolute_url(store_url(store))
    check_url(url)
    if once:
        _refuse_with_once({"--web-config": web_config, "--scheduler": scheduler, "--nodes": nodes, "--accept-jobs": accept_jobs})
        _once(url, workers, over)
        return
    try:
        from tachoscope_watch.nodes.rules_file import read_rules
        from tachoscope_watch.service import Settings
    except ImportError as error:
        raise TachoscopeError(f"the watch needs {error.name}", fix="pip install 'tachoscope[agent,analyze]'") from None
    settings = Settings(
        url,
        host,
        port,
        web_config,
        every_seconds=every,
        workers=workers,
        over_seconds=over,
        compact_seconds=compact_every,
        lease_seconds=lease,
        scheduler=scheduler or "",
        job_roles=accept_jobs,
        node_rules=read_rules(nodes) if nodes is not None else None,
    )
    _serve(settings)


def _serve(settings: Settings) -> None:
    from tachoscope_service.common.log import Log
    from tachoscope_watch.service import Watch, signals

    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(asctime)s %(levelname)s %(message)s")
    service = Watch(settings, Log(logging.getLogger("tachoscope")))
    if settings.web_config is None and not is_loopback(settings.address):
        where = f"port {settings.port} of {settings.address}"
        print_notice(f"anyone who can reach {where} can see what jobs do. Use --web-config to require a password")
    if _is_missing(settings.store):
        print_notice(f"store {settings.store} does not exist yet")
    with signals(service):
        service.run()
    print_notice("ended")


def _is_missing(url: str) -> bool:
    return "://" not in url and not Path(url).is_dir()


def _refuse_with_once(served: Mapping[str, object]) -> None:
    for option in (option for option, given in served.items() if given is not None):
        raise TachoscopeError(f"{option} cannot be combined with --once")


def _once(url: str, workers: int, over: float) -> None:
    from tachoscope_core.storage.store import Store
    from tachoscope_watch.api import line
    from tachoscope_watch.cycle import Failed, JobLooks, executor
    from tachoscope_watch.live_jobs import NodeReader

    if _is_missing(url):
        raise TachoscopeError(f"store {url} does not exist", fix="name the agents' store with --store")
    count, now = 0, time.time()
    live = NodeReader(Store(url), print_notice).live_jobs(now)
    with executor(workers) as pool:
        for view in JobLooks(url, over).cycle(now, pool, live):
            count += 1
            if isinstance(view, Failed):
                sys.stdout.write(f"{view.job}: not analyzed: {safe(view.reason)}\n")
                continue
            told = line(view)
            share = "not known" if told.goodput is None else f"{told.goodput:.1%}"
            worst = told.reason or "nothing found"
            if told.worst is not None:
                ranks = "all ranks" if told.worst.ranks == "all" else f"ranks {', '.join(map(str, told.worst.ranks))}"
                worst = f"{told.worst.class_}, {ranks}, {told.worst.share:.1%}"
            sys.stdout.write(f"{told.job}: {told.state}, {told.workers} workers, compute share {share}: {safe(worst)}\n")
    if not count:
        sys.stdout.write(f"no job in {url} is running or has recorded anything in the last {over:g} seconds\n")
