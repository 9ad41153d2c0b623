"""`tachoscope serving` at a server whose pages are large, and new each time: it ends in bounded memory, and says why."""

from __future__ import annotations

import itertools
import subprocess
import sys
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest

from helpers import MEASURED
from http_serving import serving
from tachoscope_core.servers import recording as serving_recording

MOST_MIB = 300
SUM = 'vllm:e2e_request_latency_seconds_sum{model_name="m",engine="0"} 1.0\n'


def buckets(look: int, count: int) -> str:
    """A histogram of so many buckets, none of which an earlier page had."""
    name = "vllm:e2e_request_latency_seconds_bucket"
    rows = (f'{name}{{model_name="m",engine="0",le="{look}.{bucket:06}"}} {look + bucket}.0\n' for bucket in range(1, count + 1))
    return "".join((*rows, SUM))


def models(look: int) -> str:
    """250 models with long names, none of which an earlier page had."""
    long = "x" * 20_000
    return "".join(f'vllm:num_requests_running{{model_name="{look} {model} {long}",engine="0"}} 1.0\n' for model in range(250))


def answering(page: Callable[[int], str]) -> type[BaseHTTPRequestHandler]:
    """A server that has a new page for each request."""
    looks = itertools.count()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = page(next(looks)).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            try:
                self.wfile.write(body)
            except OSError:  # the client has seen enough
                self.close_connection = True

        def log_message(self, *_: object) -> None: ...

    return Handler


def looked_at(folder: Path, page: Callable[[int], str], *words: str) -> tuple[int, str, int]:
    """Return the exit code of the command, what it said, and the most memory that it had in MiB."""
    command = [sys.executable, "-m", "tachoscope_cli.main", "serving", "--every", "0.05s", *words]
    peak = folder / "peak"
    with serving(answering(page)) as url:
        measured = [sys.executable, "-S", "-c", MEASURED, str(peak), *command, url]
        done = subprocess.run(measured, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, timeout=300, check=False)
    return done.returncode, done.stderr.replace(url, "URL"), int(peak.read_text()) >> 10


@pytest.mark.parametrize(
    "page", [models, pytest.param(lambda look: buckets(look, 29_000), marks=pytest.mark.bar)], ids=["models", "buckets"]
)
def test_what_is_kept_of_ever_new_pages_is_bounded_and_judged(tmp_path: Path, page: Callable[[int], str]) -> None:
    kept = tmp_path / "kept.serving.gz"
    code, said, mib = looked_at(tmp_path, page, "--for", "2m", "--save", str(kept))

    assert mib < MOST_MIB
    assert "samples of it take more than 80 MiB: analyzing the samples so far (to sample for longer: --every 0.2s)" in said
    assert "Traceback" not in said
    assert code in {0, 2}
    assert len(serving_recording.read(kept)) >= 2


@pytest.mark.parametrize(
    ("page", "why"),
    [
        (lambda look: buckets(look, 200_000), "it sends more than 8388608 bytes"),
        (lambda look: buckets(look, 60_000), "it has more than 30000 series"),
        (lambda look: "a\n" * (4 << 20), "not the metrics page of a supported inference server"),
    ],
    ids=["bytes", "series", "lines"],
)
@pytest.mark.bar(but=("series",))
def test_a_page_that_no_server_has_is_refused(tmp_path: Path, page: Callable[[int], str], why: str) -> None:
    code, said, mib = looked_at(tmp_path, page, "--for", "2s")

    assert mib < MOST_MIB
    assert code == 2
    assert "URL" in said and why in said
    assert "Traceback" not in said
