"""examples/serve.py and its load, each in a process of its own, and the records that they leave."""

from __future__ import annotations

import contextlib
import json
import re
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from helpers import BIN, REPOSITORY, environment
from tachoscope_analyzers.records.load import from_store
from tachoscope_cli.inputs.live_server import analyze_service
from tachoscope_cli.inputs.serving_options import ServingOptions
from tachoscope_core.records import records
from tachoscope_core.storage.store import Store

LOADS = {
    "none": ("--rate", "4"),
    "queue_saturation": ("--rate", "16", "--output", "64"),
    "kv_pressure": ("--rate", "8", "--output", "192"),
    "prefill_interference": ("--rate", "2", "--output", "64", "--long-prompt", "1000", "--long-share", "0.3"),
    "cold_start": ("--rate", "4"),
}
"""What shows each fault on two cores; `none`: well below what the server can."""


@dataclass
class Server:
    """A server that was started, and `output` as far as it was read."""

    url: str
    process: subprocess.Popen[str]
    output: list[str] = field(default_factory=list)

    def wait_until_loaded(self) -> None:
        """Return when the model is there."""
        while True:
            assert self.process.poll() is None
            with contextlib.suppress(urllib.error.HTTPError), urllib.request.urlopen(f"{self.url}/health", timeout=60):
                return
            time.sleep(0.05)

    def end(self, how: signal.Signals = signal.SIGTERM) -> None:
        self.process.send_signal(how)
        self.output.append(self.process.communicate(timeout=60)[0])


@contextmanager
def serving(tmp_path: Path, *options: str, watched: bool = False) -> Iterator[Server]:
    """Serve on a free port, with `watched` under `tachoscope run`; the server takes connections, its model may not be there yet."""
    launcher = [str(BIN / "tachoscope"), "run", "--job", "chat", "--store", str(tmp_path / "store"), "--"] if watched else []
    command = [*launcher, sys.executable, str(REPOSITORY / "examples" / "serve.py"), "--port", "0", *options]
    process = subprocess.Popen(
        command, env=environment(tmp_path), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=tmp_path
    )
    try:
        assert process.stdout is not None
        output: list[str] = []
        for line in process.stdout:
            output.append(line)
            if found := re.search(r"serving on (http://\S+)", line):
                server = Server(found[1], process, output)
                yield server
                break
        else:
            raise AssertionError("".join(output))
        if process.poll() is None:
            server.end()
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()


def load_command(url: str, *options: str) -> list[str]:
    return [sys.executable, str(REPOSITORY / "examples" / "serving_load.py"), url, *options]


def load(tmp_path: Path, server: Server, *options: str) -> tuple[list[dict[str, Any]], str]:
    """Run the load client; return what it wrote of each answer, and what it printed."""
    written = tmp_path / "answers.jsonl"
    done = subprocess.run(
        load_command(server.url, "--write", str(written), *options),
        env=environment(tmp_path),
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return [json.loads(line) for line in written.read_text().splitlines()], done.stdout


def records_of_service(tmp_path: Path, name: str = "chat") -> list[records.AnyRecord]:
    """Return what the store in `tmp_path` holds of a service, in the order of time."""
    store = Store(str(tmp_path / "store"))
    found = [records.decode(line) for segment in store.segments(name) for line in store.read(segment).splitlines()]
    return sorted(found, key=lambda record: record.monotonic_ns)


def verdict(tmp_path: Path, name: str = "chat") -> str:
    """Return the class of the largest finding that is a warning or worse; empty: there is none."""
    report = analyze_service(from_store(Store(str(tmp_path / "store")), name), ServingOptions(""))
    return next((finding.class_ for finding in report.findings if finding.severity != "info"), "")


def caused(
    tmp_path: Path, fault: str, *, seconds: float, watched: bool = False
) -> tuple[list[records.AnyRecord], list[dict[str, Any]]]:
    """Serve with a fault under the load that shows it; return the records and the clients' answers."""
    with serving(tmp_path, "--fault", fault, watched=watched) as server:
        answers, _ = load(tmp_path, server, *LOADS[fault], "--seconds", str(seconds), "--record", "chat")
    return records_of_service(tmp_path), answers
