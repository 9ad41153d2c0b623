"""Asynchronous training: a parameter server in a process of its own, and workers that read, compute and push without waiting.

Each worker says which version it read and which version its update met; the server's count of updates is the version. Of a step's
time most is slept, as if it were waited for a device.
"""

from __future__ import annotations

import socket
import socketserver
import statistics
import struct
import threading
import time
from pathlib import Path
from typing import Any

import torch
from benchmarks.lab import faults, processes
from benchmarks.lab.site import Site, clock
from benchmarks.lab.workloads import data_parallel, models
from torch import nn

import tachoscope

VERSION = struct.Struct("<q")
BOUND = 6
"""The staleness that the job says it allows: that of its workers is their number less one as long as all are alike."""


class _Handler(socketserver.BaseRequestHandler):
    def handle(self) -> None:
        state: Any = self.server
        size = state.parameters.numel() * 4
        while kind := self.request.recv(1):
            if kind == b"r":
                with state.lock:
                    answer = VERSION.pack(state.version) + state.parameters.numpy().tobytes()
                self.request.sendall(answer)
            else:
                gradient = torch.frombuffer(bytearray(received(self.request, size)), dtype=torch.float32)
                with state.lock:
                    met = state.version
                    state.parameters.add_(gradient, alpha=-1e-3)
                    state.version += 1
                self.request.sendall(VERSION.pack(met))


class _Server(socketserver.ThreadingTCPServer):
    daemon_threads = True
    allow_reuse_address = True


def received(connection: socket.socket, size: int) -> bytes:
    """Return exactly so many bytes. Raises ConnectionError where they end before."""
    parts, left = [], size
    while left:
        part = connection.recv(min(left, 1 << 20))
        if not part:
            raise ConnectionError("the parameter server is gone")
        parts.append(part)
        left -= len(part)
    return b"".join(parts)


def serve(place: Path, parameters: torch.Tensor) -> None:
    """Start the server and leave its port in a file."""
    server = _Server(("127.0.0.1", 0), _Handler)
    server.parameters, server.version, server.lock = parameters, 0, threading.Lock()  # type: ignore[attr-defined]
    processes.fork(server.serve_forever, helper=True)
    server.socket.close()
    (place / "port.tmp").write_text(str(server.server_address[1]))
    (place / "port.tmp").rename(place / "port")


def _connected(place: Path) -> socket.socket:
    while not (place / "port").exists():
        time.sleep(0.01)
    connection = socket.create_connection(("127.0.0.1", int((place / "port").read_text())))
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def train(site: Site) -> None:
    """Train one worker."""
    shape, measured = site.spec.shape, site.measured
    torch.manual_seed(site.spec.seed)
    net = models.MODELS[shape["model"]]()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.0)  # the server updates; a step here marks the end of one
    flat = nn.utils.parameters_to_vector(net.parameters()).detach()
    if site.rank == 0:
        serve(site.folder, flat.clone())
    connection = _connected(site.folder)
    said = [getattr(tachoscope, name, None) for name in ("parameters_read", "parameters_applied")]
    clean: list[float] = []
    measured.clean_step_seconds = 0.0

    def one(step: int, inputs: torch.Tensor, labels: torch.Tensor, read: int, device: float, every: int) -> tuple[int, int]:
        if step % every == 0:
            connection.sendall(b"r")
            (read,) = VERSION.unpack(received(connection, VERSION.size))
            fresh = torch.frombuffer(bytearray(received(connection, flat.numel() * 4)), dtype=torch.float32)
            nn.utils.vector_to_parameters(fresh, net.parameters())
        if said[0] is not None:
            said[0](read)
        time.sleep(device)
        optimizer.zero_grad()
        nn.functional.cross_entropy(net(inputs), labels).backward()
        gradient = torch.cat([parameter.grad.reshape(-1) for parameter in net.parameters()])
        connection.sendall(b"w" + gradient.numpy().tobytes())
        (met,) = VERSION.unpack(received(connection, VERSION.size))
        if said[1] is not None:
            said[1](met, bound=BOUND)
        optimizer.step()
        return read, met

    read = 0
    device = float(shape["device_seconds"])
    for step, ((inputs, _), labels) in enumerate(data_parallel._waited(data_parallel.batches_of(site, 6, []))):
        begin = clock()
        read, _ = one(step, inputs, labels, read, device, 1)
        clean.append(clock() - begin)
    measured.clean_step_seconds = statistics.median(clean[2:])
    stale = faults.of(site, "async_staleness")
    slow = float(stale.parameters.get("slow", 1.0)) if stale and site.is_culprit(stale) else 1.0
    every = int(stale.parameters.get("every", 1)) if stale and site.is_culprit(stale) else 1
    (site.folder / f"ready-{site.rank}").touch()
    while len(list(site.folder.glob("ready-*"))) < site.spec.world_size:
        time.sleep(0.01)
    staleness = []
    try:
        with tachoscope.watch(job=site.job):
            batches = data_parallel._waited(data_parallel.batches_of(site, site.spec.steps, []))
            for step, ((inputs, wait), labels) in enumerate(batches):
                begin = clock()
                read, met = one(step, inputs, labels, read, device * slow, every)
                staleness.append(met - read)
                measured.wall.append(clock() - begin + wait)
                measured.wait.append(wait)
                measured.cpu.append(0.0)
                site.progress[site.rank] = step + 1
            (site.folder / f"done-{site.rank}").touch()
            if site.rank == 0:  # the server is this rank's child and goes with it
                while len(list(site.folder.glob("done-*"))) < site.spec.world_size:
                    time.sleep(0.02)
    finally:
        measured.notes["staleness_mean"] = statistics.fmean(staleness) if staleness else 0.0
        measured.notes["staleness_max"] = max(staleness, default=0)
        measured.write(site.folder / f"rank-{site.rank}.json")
