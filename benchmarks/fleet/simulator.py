"""Serves the pages of all agents of a simulated fleet, and of its watch, on one port of this machine, and says which there are.

    python -m benchmarks.fleet.simulator --nodes 50 --port 9465 --scrape-seconds 15

`/node/<n>/metrics` and `/watch/metrics` are the pages, `/targets` is for Prometheus's `http_sd_configs`.
"""

from __future__ import annotations

import argparse
import asyncio
import functools
import gzip
import time

import uvicorn
from benchmarks.fleet.pages import UP_SECONDS, Lives, Page, page_of_node, page_of_watch
from benchmarks.fleet.schedule import Schedule
from benchmarks.fleet_series import Fleet
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from tachoscope_service.metrics.prometheus_text import CONTENT_TYPE_LATEST

JOBS_PER_NODE = 200 / 1250
NODES_PER_SERVICE = 50
MOST_SERVICES = 20


def fleet_of(nodes: int) -> Fleet:
    """Return a fleet of this size with jobs and services in proportion to one of 1,250 nodes: two jobs and one service at least."""
    services = min(max(nodes // NODES_PER_SERVICE, 1), MOST_SERVICES)
    models, replicas = (5, 4) if nodes >= NODES_PER_SERVICE else (1, 2)
    return Fleet(nodes=nodes, jobs=max(round(nodes * JOBS_PER_NODE), 2), services=services, models=models, replicas=replicas)


class Simulator:
    """The fleet as it answers now.

    Args:
        timeout: of a scrape, in seconds; a late node answers after it.
    """

    def __init__(self, schedule: Schedule, port: int, timeout: float) -> None:
        self._schedule, self._port, self._timeout = schedule, port, timeout
        self._page = functools.cache(functools.partial(page_of_node, schedule.fleet, now=schedule.begin))
        self._watch = page_of_watch(schedule.fleet, schedule.begin)

    def app(self) -> Starlette:
        routes = [
            Route("/targets", self._targets),
            Route("/node/{node:int}/metrics", self._node),
            Route("/watch/metrics", self._of_watch),
        ]
        return Starlette(routes=routes)

    async def _targets(self, _: Request) -> Response:
        now, fleet = time.time(), self._schedule.fleet
        return JSONResponse(
            [
                {
                    "targets": [f"127.0.0.1:{self._port}"],
                    "labels": {**fleet.node_labels(node), "__metrics_path__": f"/node/{node}/metrics"},
                }
                for node in range(fleet.nodes)
                if self._schedule.joined(node, now)
            ]
        )

    async def _node(self, request: Request) -> Response:
        node, now = request.path_params["node"], time.time()
        if self._schedule.away(node, now):
            return Response(status_code=503)
        if delay := self._schedule.delay(node, now, self._timeout):
            await asyncio.sleep(delay)
        return _text(self._page(node), now, self._schedule.lives(node, now))

    async def _of_watch(self, _: Request) -> Response:
        long_ago = self._schedule.begin - UP_SECONDS
        return _text(self._watch, time.time(), Lives(long_ago, long_ago))


def _text(page: Page, now: float, lives: Lives) -> Response:
    headers = {"Content-Type": CONTENT_TYPE_LATEST, "Content-Encoding": "gzip"}
    return Response(gzip.compress(page.at(now, lives), compresslevel=1), headers=headers)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, required=True)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--scrape-seconds", type=float, required=True)
    parser.add_argument("--timeout", type=float, default=10.0, help="of a scrape, in seconds")
    parser.add_argument("--cycles", type=int, default=1, help="of eight scrapes each, until nothing unusual happens any more")
    options = parser.parse_args()
    schedule = Schedule(fleet_of(options.nodes), time.time(), options.scrape_seconds, options.cycles)
    app = Simulator(schedule, options.port, options.timeout).app()
    uvicorn.run(app, host="127.0.0.1", port=options.port, log_level="warning", access_log=False)


if __name__ == "__main__":
    main()
