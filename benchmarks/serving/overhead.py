"""What the serving probe costs: the throughput of a LitServe server with and without it, and its calls one by one.

One LitServe server, one worker; its model is a small transformer, or does nothing, so that as much as can be of each request is
the server's own work and the probe's. The request says whether it goes through the middleware and whether the worker uses the
engine API. A closed loop of clients keeps the server busy; blocks with and without the probe alternate; of each pair of
neighbouring blocks the ratio of their throughputs is taken, and of these the median, with a 95 % bootstrap interval. The same of
the CPU seconds that the server's processes use for a request, which what else runs on the machine disturbs less.

    python -m benchmarks.serving.overhead            # print
    python -m benchmarks.serving.overhead --write    # and write docs/develop/measurements.md
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from benchmarks.bootstrap import bootstrap
from benchmarks.sections import write_section

TOKENS = 32
"""Of a streamed answer."""
CLIENTS = 8
BLOCK_SECONDS = 0.5
KINDS = {"model": "a small transformer", "whole": "no model", "stream": f"no model, {TOKENS} parts"}
Block = tuple[float, float]
"""Requests a second, and CPU seconds of the server a request."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=200, help="of blocks with and without the probe")
    parser.add_argument("--write", action="store_true", help="write the result into docs/develop/measurements.md")
    options = parser.parse_args()
    rows = [
        "| LitServe with | pairs | a second without | throughput with / without | CPU a request without | CPU without / with |",
        "|---|---|---|---|---|---|",
    ]
    for kind, title in KINDS.items():
        pairs = measure(kind, options.pairs)
        rate, cpu = (statistics.median(off[index] for _, off in pairs) for index in (0, 1))
        rates, cpus = [on[0] / off[0] for on, off in pairs], [off[1] / on[1] for on, off in pairs]
        rows.append(f"| {title} | {len(pairs)} | {rate:,.0f} | {interval(rates)} | {cpu * 1e6:,.0f} µs | {interval(cpus)} |")
    rows += ["", "| call | µs |", "|---|---|", *(f"| {name} | {each:.1f} |" for name, each in calls())]
    table = "\n".join(rows)
    print(table)
    if options.write:
        write_section("serving_overhead", table, "python -m benchmarks.serving.overhead --write")


def interval(ratios: list[float]) -> str:
    low, high = bootstrap(ratios)
    return f"{statistics.median(ratios):.3f} ({low:.3f} to {high:.3f})"


def measure(kind: str, pairs: int) -> list[tuple[Block, Block]]:
    """Return the blocks with and without the probe, in pairs."""
    print(f"{kind}: {pairs} pairs, about {2 * pairs * BLOCK_SECONDS:.0f} s", file=sys.stderr)
    with server(kind) as (pid, port):
        return asyncio.run(blocks(pid, port, pairs))


@contextlib.contextmanager
def server(kind: str) -> Iterator[tuple[int, int]]:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "benchmarks.serving.overhead_server", kind, str(port)]
        places = {"TACHOSCOPE_SPOOL": f"{folder}/spool", "TACHOSCOPE_STORE": f"{folder}/store", "OMP_NUM_THREADS": "1"}
        process = subprocess.Popen(command, env=os.environ | places, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            until_it_answers(process.pid, port)
            yield process.pid, port
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(timeout=60)


def until_it_answers(pid: int, port: int) -> None:
    end = time.monotonic() + 60
    while True:
        try:
            asyncio.run(block(pid, port, on=False, seconds=0.1))
            return
        except OSError:
            if time.monotonic() > end:
                raise SystemExit("the server does not answer") from None
            time.sleep(0.2)


async def blocks(pid: int, port: int, pairs: int) -> list[tuple[Block, Block]]:
    for on in (True, False):
        await block(pid, port, on=on, seconds=3.0)
    found = []
    for number in range(pairs):
        order = (True, False) if number % 2 else (False, True)
        pair = {on: await block(pid, port, on=on, seconds=BLOCK_SECONDS) for on in order}
        found.append((pair[True], pair[False]))
    return found


async def block(pid: int, port: int, *, on: bool, seconds: float) -> Block:
    """Return the requests a second that the clients got answered, and the server's CPU seconds for each."""
    used, began = cpu_seconds(pid), time.monotonic()
    done = sum(await asyncio.gather(*(client(port, on=on, until=began + seconds) for _ in range(CLIENTS))))
    return done / (time.monotonic() - began), (cpu_seconds(pid) - used) / done


def cpu_seconds(pid: int) -> float:
    """Return what a process and its children have used so far."""
    found = 0.0
    for task in Path(f"/proc/{pid}/task").iterdir():
        found += int((task / "schedstat").read_text().split()[0]) / 1e9
        found += sum(cpu_seconds(int(child)) for child in (task / "children").read_text().split())
    return found


async def client(port: int, *, on: bool, until: float) -> int:
    """Ask again and again; return how often."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    body = b'{"on": %s}' % (b"true" if on else b"false")
    head = b"POST /predict HTTP/1.1\r\nHost: x\r\nX-Probe: %d\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
    request = head % (on, len(body)) + body
    done = 0
    while time.monotonic() < until:
        writer.write(request)
        answer = await reader.readuntil(b"\r\n\r\n")
        if not answer.startswith(b"HTTP/1.1 200"):
            raise SystemExit(f"the server answered {answer[:40]!r}")
        if b"chunked" in answer:
            await reader.readuntil(b"0\r\n\r\n")
        else:
            await reader.readexactly(int(answer.lower().partition(b"content-length:")[2].split(b"\r\n")[0]))
        done += 1
    writer.close()
    return done


def calls() -> list[tuple[str, float]]:
    """Return what the calls take back to back, in microseconds."""
    with tempfile.TemporaryDirectory() as folder:
        os.environ.update(TACHOSCOPE_SPOOL=f"{folder}/spool", TACHOSCOPE_STORE=f"{folder}/store")
        import tachoscope

        service = tachoscope.service("benchmark")
        request, engine = service.request(), service.engine()

        def whole() -> None:
            one = service.request(tokens_in=1)
            one.enter("prefill")
            one.enter("decode")
            one.done()

        def batch() -> None:
            with engine.batch(prefill_tokens=1, decode_tokens=1, running=1, waiting=0):
                pass

        found = [
            ("a request: `service.request()`, two `enter`, `done`", each(whole)),
            ("`request.token()`", each(request.token)),
            ("`with engine.batch(...)`", each(batch)),
            ("a request through the middleware, beside the app and the server", each_through_the_middleware(each)),
            ("the same, processor time of its thread", each_through_the_middleware(own_processor_time)),
            ("the same, processor time of all threads (a record is written)", each_through_the_middleware(processor_time)),
        ]
        service.close()
        return found


def each(call: Callable[[], object], *, count: int = 2000, rounds: int = 15) -> float:
    """Return the median of what a call takes; between the rounds the thread that writes the records catches up."""
    took = []
    for _ in range(rounds):
        began = time.perf_counter()
        for _ in range(count):
            call()
        took.append((time.perf_counter() - began) / count * 1e6)
        time.sleep(0.3)
    return statistics.median(took)


def own_processor_time(call: Callable[[], object]) -> float:
    """Return as `each`, in processor time of this thread: other threads and processes do not count, nor a wait for a lock."""
    return processor_time(call, clock=time.thread_time)


def processor_time(
    call: Callable[[], object], *, clock: Callable[[], float] = time.process_time, count: int = 2000, rounds: int = 15
) -> float:
    took = []
    for _ in range(rounds):
        began = clock()
        for _ in range(count):
            call()
        time.sleep(0.3)  # the thread that writes the records catches up
        took.append((clock() - began) / count * 1e6)
    return statistics.median(took)


def each_through_the_middleware(measured: Callable[[Callable[[], object]], float]) -> float:
    import tachoscope

    headers = [(b"content-type", b"application/json"), (b"content-length", b"2")]
    scope = {"type": "http", "method": "POST", "path": "/v1/completions"}

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": b"{}"})

    async def receive() -> Any:
        return {"type": "http.request", "body": b"{}"}

    async def send(message: Any) -> None: ...

    def once(target: Any) -> Callable[[], None]:
        def call() -> None:
            with contextlib.suppress(StopIteration):
                target(scope, receive, send).send(None)  # nothing in it waits

        return call

    return measured(once(tachoscope.ServingMiddleware(app, service="benchmark"))) - measured(once(app))


if __name__ == "__main__":
    main()
