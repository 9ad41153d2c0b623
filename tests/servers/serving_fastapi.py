"""A FastAPI app for tests of the serving probe, which watches for the client's leaving itself, and goes on after its answer."""

# No `from __future__ import annotations`: FastAPI reads what a handler is annotated with.

import asyncio
import json
import os
from collections.abc import AsyncIterator

from fastapi import BackgroundTasks, FastAPI, HTTPException, Request
from fastapi.responses import StreamingResponse
from starlette.middleware.base import BaseHTTPMiddleware

import tachoscope

app = FastAPI()


async def as_it_is(request: Request, call_next):  # type: ignore[no-untyped-def]
    """Pass the request on, by the one middleware that runs its app in a task of its own."""
    return await call_next(request)


@app.get("/counts")
def counts() -> dict[str, int]:
    """Return the process, and what is in flight there."""
    return {"pid": os.getpid(), "in_flight": tachoscope.service("chat").in_flight}


@app.get("/health")
def health() -> str:
    """Say that it answers."""
    return "ok"


@app.post("/stream")
async def stream(count: int = 20) -> StreamingResponse:
    """Answer in parts, and say to the probe what each of them is."""
    request = tachoscope.current_request()

    async def parts() -> AsyncIterator[bytes]:
        request.enter("decode")
        for number in range(count):
            request.token()
            yield f"data: {number}\n\n".encode()
            await asyncio.sleep(0.02)

    return StreamingResponse(parts(), media_type="text/event-stream")


@app.post("/busy")
def busy() -> None:
    """Refuse."""
    raise HTTPException(429)


@app.post("/fault")
def fault() -> None:
    """Fail."""
    raise ValueError("asked for")


@app.post("/typed")
def typed(number: int, later: BackgroundTasks) -> dict[str, int]:
    """Answer, and go on for six seconds."""
    later.add_task(asyncio.sleep, 6.0)
    tachoscope.current_request().enter("prefill")  # in another thread
    return json.loads(json.dumps({"number": number}))


app.add_middleware(BaseHTTPMiddleware, dispatch=as_it_is)
app.add_middleware(tachoscope.ServingMiddleware, service="chat")
app.add_middleware(BaseHTTPMiddleware, dispatch=as_it_is)
