"""The real explorer, served by the command for the length of a block."""

from __future__ import annotations

import contextlib
import http.client
import os
import signal
import subprocess
import sys
import urllib.parse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Served:
    """A running explorer. `url`: as it printed it."""

    url: str
    process: subprocess.Popen[str]

    @property
    def port(self) -> int:
        return urllib.parse.urlsplit(self.url).port or 0

    def ask(self, path: str, method: str = "GET", body: bytes | None = None, **headers: str) -> tuple[int, dict[str, str], bytes]:
        """Return status, headers and body; the path goes out as it is. Underscores in the names of headers are hyphens."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)
        given = {"Host": f"127.0.0.1:{self.port}"} | {name.replace("_", "-"): value for name, value in headers.items()}
        connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
        for name, value in given.items():
            connection.putheader(name, value)
        if body is not None:
            connection.putheader("Content-Length", str(len(body)))
        connection.endheaders(body)
        answer = connection.getresponse()
        status, found = answer.status, {name.lower(): value for name, value in answer.getheaders()}
        text = b"" if status == 101 else answer.read()
        connection.close()
        return status, found, text

    def handshake(self, **headers: str) -> int:
        """Return the status with which the socket answers: 101 where it opens."""
        asked = {"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13"}
        return self.ask("/_stcore/stream", **asked, Sec_WebSocket_Key="dGhlIHNhbXBsZSBub25jZQ==", **headers)[0]


@contextlib.contextmanager
def served(*words: str, folder: Path | None = None) -> Iterator[Served]:
    """Serve with these options on a free port; ended by an interrupt unless it has ended already."""
    process = begin(["--port", "0", *words], folder)
    try:
        assert process.stdout is not None
        line = process.stdout.readline().strip()
        assert line.startswith("http://"), process.communicate()[1]
        yield Served(line, process)
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
            try:
                process.communicate(timeout=60)
            except subprocess.TimeoutExpired:
                process.kill()
                process.communicate()


def begin(words: Sequence[str], folder: Path | None = None) -> subprocess.Popen[str]:
    """Begin `tachoscope explore` with these words."""
    return subprocess.Popen(
        [sys.executable, "-m", "tachoscope_cli.main", "explore", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=folder,
        env=os.environ | {"PYTHONUNBUFFERED": "1", "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
    )
