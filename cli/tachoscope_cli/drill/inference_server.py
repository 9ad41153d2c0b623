"""The inference server of a fire drill: HTTP under the serving probe, with a few places, that refuses who finds none.

Each request takes a while on one of a few slots, as on an accelerator; some may wait, and whoever comes then gets 503. While a file
exists each takes forty times as long: the same traffic is then more than it can serve.
"""

from __future__ import annotations

import argparse
import signal
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import tachoscope

SERVICE, MODEL = "drill", "drill"
SLOTS, WAITING = 4, 4
WORK_SECONDS, TIMES_SLOWER = 0.05, 40


def handler(slow_while: Path) -> type[BaseHTTPRequestHandler]:
    """Return what answers requests, slowly while the file exists."""
    service = tachoscope.service(SERVICE, model=MODEL)
    places, slots = threading.BoundedSemaphore(SLOTS + WAITING), threading.Semaphore(SLOTS)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            prompt = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            with service.request(tokens_in=len(prompt)) as request:
                if not places.acquire(blocking=False):
                    request.status = 503
                    self._answer(503, b"all places are taken")
                    request.done("shed")
                    return
                try:
                    with slots:
                        request.enter("decode")
                        time.sleep(WORK_SECONDS * (TIMES_SLOWER if slow_while.exists() else 1))
                        request.token()
                finally:
                    places.release()
                request.status = 200
                self._answer(200, b"done")

        def _answer(self, status: int, body: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - as the library names it
            pass

    return Handler


def main() -> None:
    """Serve until a TERM."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--slow-while", type=Path, required=True, metavar="FILE")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    ThreadingHTTPServer(("127.0.0.1", options.port), handler(options.slow_while)).serve_forever()


if __name__ == "__main__":
    main()
