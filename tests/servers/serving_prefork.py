"""A server that forks its workers after it has imported the app and answered a request itself, as preforking servers can."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys

import uvicorn

from serving_app import app


async def one_request() -> None:
    """Answer a request in this process, without a server."""
    messages = iter([{"type": "http.request", "body": b'{"status": 429}'}])

    async def receive() -> dict[str, object]:
        return next(messages)

    async def send(message: dict[str, object]) -> None: ...

    await app({"type": "http", "method": "POST", "path": "/v1"}, receive, send)


asyncio.run(one_request())
listener = socket.create_server(("127.0.0.1", int(sys.argv[1])), backlog=100)
workers = []
for _ in range(2):
    worker = os.fork()
    if worker == 0:
        uvicorn.Server(uvicorn.Config(app, log_level="warning")).run(sockets=[listener])
        sys.exit(0)
    workers.append(worker)
listener.close()
signal.signal(signal.SIGTERM, lambda *_: [os.kill(worker, signal.SIGTERM) for worker in workers])
for worker in workers:
    os.waitpid(worker, 0)
