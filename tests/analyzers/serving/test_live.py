"""`tachoscope serving`: a server that serves recorded pages, one after the other, looked at by the real command."""

import gzip
import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from helpers import command

RECORDINGS = Path(__file__).parent / "recordings"
EXPECTED = {
    "vllm_light": "",
    "vllm_above_capacity": "queue_saturation",
    "vllm_long_prompts": "prefill_interference",
    "vllm_small_cache": "kv_pressure",
    "vllm_bursts": "prefill_interference",
    "vllm_start": "cold_start",
}


def tachoscope(*words: str) -> subprocess.CompletedProcess[str]:
    return command("serving", *words)


def pages(name: str) -> list[str]:
    text = gzip.decompress((RECORDINGS / f"{name}.serving.gz").read_bytes()).decode()
    found = [look.partition("\n")[2].strip("\n") for look in text.split("\n# look ")[1:]]
    return [f"{page}\n" if page else "" for page in found]


@contextmanager
def replayed(answers: list[str], path: str = "/metrics") -> Iterator[str]:
    """A server that gives one page after the other, and the last for ever; an empty one is a closed connection."""
    left = iter(answers)
    last = [answers[0]]

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path != path:
                self.send_error(404)
                return
            last[0] = page = next(left, last[0])
            if not page:
                self.close_connection = True
                return
            body = page.encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.mark.parametrize(("name", "expected"), EXPECTED.items())
@pytest.mark.bar(but=("vllm_start-cold_start", "vllm_bursts-prefill_interference"))
def test_recordings_of_a_real_vllm_are_judged_right(name: str, expected: str) -> None:
    done = tachoscope(str(RECORDINGS / f"{name}.serving.gz"), "--format", "json")

    found = [finding["class"] for finding in json.loads(done.stdout)["findings"] if finding["severity"] != "info"]
    assert next(iter(found), "") == expected


def test_a_live_server_is_judged_and_what_was_seen_can_be_judged_again(tmp_path: Path) -> None:
    kept = tmp_path / "kept.serving.gz"
    with replayed(pages("vllm_above_capacity")[10:]) as url:  # at the pace at which it was recorded
        live = tachoscope(url, "--for", "8s", "--every", "0.5s", "--save", str(kept), "--format", "json")

    assert live.returncode == 0, live.stderr
    first, again = json.loads(live.stdout), json.loads(tachoscope(str(kept), "--format", "json").stdout)
    assert first["findings"][0]["class"] == "queue_saturation"
    assert first["sources"][0]["unit"] == "looks"
    assert first["serving"] == again["serving"]
    assert first["ledgers"] == again["ledgers"]


def test_the_address_needs_neither_scheme_nor_path() -> None:
    with replayed(pages("vllm_light")[3:]) as url:
        done = tachoscope(url.removeprefix("http://"), "--for", "2s", "--every", "0.5s")

    assert done.returncode == 0, done.stderr
    assert "no bottleneck above 10 %" in done.stdout


def test_critical_findings_can_fail_a_pipeline() -> None:
    recording = str(RECORDINGS / "vllm_small_cache.serving.gz")

    assert tachoscope(recording, "--fail-on", "critical").returncode == 3
    assert tachoscope(str(RECORDINGS / "vllm_light.serving.gz"), "--fail-on", "warning").returncode == 0


@pytest.mark.bar
def test_an_interrupt_judges_what_was_seen_until_then() -> None:
    with replayed(pages("vllm_above_capacity")[10:]) as url:
        running = subprocess.Popen(
            [sys.executable, "-m", "tachoscope_cli.main", "serving", url, "--for", "10m", "--every", "0.5s"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert running.stderr is not None and "looking at" in running.stderr.readline()
        time.sleep(7.0)
        running.send_signal(signal.SIGINT)
        out, err = running.communicate(timeout=30)

    assert running.returncode == 0, err
    assert "analyzing the samples so far" in err
    assert "queue_saturation" in out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("http://127.0.0.1:9/metrics", "--for", "1s"), "could not be read"),
        (("URL/other", "--for", "1s"), "404"),
        (("ftp://x", "--for", "1s"), "not the address of a server"),
        (("URL", "--for", "soon"), "'soon' is not a duration"),
        (("URL", "--for", "0.1s"), "too short"),
        (("URL", "--for", "2s", "--device", "Abacus"), "the memory bandwidth of 'Abacus' is unknown"),
        (("--save", "x"), "name a server, a recording, or the --job of a service"),
    ],
)
def test_what_cannot_be_done_is_said_in_one_line(words: tuple[str, ...], said: str) -> None:
    with replayed(pages("vllm_light")) as url:
        done = tachoscope(*(word.replace("URL", url) for word in words))

    assert done.returncode == 2
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_a_page_of_something_else_is_refused_at_once() -> None:
    with replayed(["# HELP go_goroutines x\ngo_goroutines 5\n"]) as url:
        done = tachoscope(url, "--for", "10m")

    assert done.returncode == 2
    assert "not the metrics page of a supported inference server" in done.stderr


def test_a_server_that_was_asked_for_nothing_is_not_called_healthy() -> None:
    with replayed(pages("vllm_light")[:1]) as url:
        done = tachoscope(url, "--for", "1s")

    assert done.returncode == 2
    assert "there is nothing to analyze" in done.stderr


def test_a_server_that_goes_away_is_unknown_not_healthy() -> None:
    with replayed([*pages("vllm_light")[3:8], ""]) as url:
        done = tachoscope(url, "--for", "6s", "--every", "0.1s", "--format", "json")

    report = json.loads(done.stdout)
    assert report["findings"][0]["class"] == "unknown"
    assert report["findings"][0]["severity"] == "critical"
    assert any("samples were not answered" in note["what"] for note in report["quality"])
