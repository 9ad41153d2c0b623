"""The server that `serving_overhead.py` measures: a header of a request, and its body, say whether the probe is on for it.

A file of its own, since LitServe's worker processes import it.
"""

from __future__ import annotations

import contextlib
import signal
import sys
from typing import Any

import litserve
import torch
from benchmarks.serving.overhead import TOKENS

import tachoscope


class Switch:
    """Sends a request through the middleware, or past it."""

    def __init__(self, app: Any) -> None:
        self.bare, self.probed = app, tachoscope.ServingMiddleware(app, service="benchmark")

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        is_on = scope["type"] != "http" or (b"x-probe", b"1") in scope["headers"]
        await (self.probed if is_on else self.bare)(scope, receive, send)


class Model(litserve.LitAPI):
    """Does next to nothing."""

    def setup(self, device: str) -> None:
        self.engine = tachoscope.service("benchmark", role="engine").engine()

    def decode_request(self, request, **_):
        return request["on"]

    def predict(self, on, **_):
        return self.iteration(on)

    def iteration(self, on):
        with self.engine.batch(prefill_tokens=1, decode_tokens=1, running=1) if on else contextlib.nullcontext():
            return 1

    def encode_response(self, output, **_):
        return {"output": output}


class TransformerModel(Model):
    """Runs six layers of a transformer on 64 tokens."""

    def setup(self, device: str) -> None:
        super().setup(device)
        torch.set_num_threads(1)
        layer = torch.nn.TransformerEncoderLayer(256, 4, dim_feedforward=1024, batch_first=True)
        self.model = torch.nn.TransformerEncoder(layer, 6, enable_nested_tensor=False).eval()
        self.tokens = torch.randn(1, 64, 256)

    def iteration(self, on):
        with self.engine.batch(prefill_tokens=64, running=1) if on else contextlib.nullcontext(), torch.inference_mode():
            return float(self.model(self.tokens)[0, -1, 0])


class StreamingModel(Model):
    """Answers in parts."""

    def predict(self, on, **_):
        for _ in range(TOKENS):
            yield self.iteration(on)

    def encode_response(self, output, **_):
        for one in output:
            yield {"output": one}


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell starts background jobs with interrupts ignored
    apis = {"whole": Model, "model": TransformerModel, "stream": StreamingModel}
    server = litserve.LitServer(apis[sys.argv[1]](stream=sys.argv[1] == "stream"), accelerator="cpu", middlewares=[Switch])
    server.run(port=int(sys.argv[2]), host="127.0.0.1", generate_client_file=False, log_level="error")
