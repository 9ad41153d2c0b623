"""A LitServe server of a small model for tests: the middleware before it, the engine API in its worker process."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from typing import Any

import litserve

import tachoscope


class Doubling(litserve.LitAPI):
    """Answers with the double of what is sent; 0 is not a number that it takes."""

    def setup(self, device: str) -> None:
        """Begin as an engine of the service, in a process of its own."""
        self.engine = tachoscope.service("lit", role="engine").engine("0", capacity=4)
        with self.engine.loading():
            time.sleep(0.2)

    def decode_request(self, request, **_):  # what an annotation says LitServe asks of the query
        """Return the number that was sent."""
        return int(request["input"])

    def predict(self, number: Any, **_: Any) -> Any:
        """Return its double."""
        with self.engine.batch(prefill_tokens=number, decode_tokens=1, running=1, waiting=0):
            time.sleep(0.01)
            return 2 * number // (number != 0)

    def encode_response(self, output: Any, **_: Any) -> Any:
        """Return the answer's body."""
        return {"output": output}


class Counting(Doubling):
    """Streams the numbers up to the one that is sent."""

    def predict(self, number: Any, **_: Any) -> Iterator[int]:
        """Yield one number after the other."""
        for one in range(number):
            with self.engine.batch(decode_tokens=1, running=1):
                time.sleep(0.02)
            yield one

    def encode_response(self, output: Any, **_: Any) -> Iterator[Any]:
        """Yield the parts of the answer's body."""
        for one in output:
            yield {"output": one}


if __name__ == "__main__":
    kind, port = sys.argv[1:]
    api = Counting(stream=True) if kind == "stream" else Doubling()
    server = litserve.LitServer(
        api, accelerator="cpu", middlewares=[(tachoscope.ServingMiddleware, {"service": "lit", "paths": ["/predict"]})]
    )
    server.run(port=int(port), host="127.0.0.1", generate_client_file=False, num_api_servers=2)
