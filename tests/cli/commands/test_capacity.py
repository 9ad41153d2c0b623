"""`tachoscope capacity`, on a recording of a real vLLM: what it prints, and what it says of what is not a recording."""

import gzip
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from tachoscope_analyzers.data import prices
from tachoscope_analyzers.serving.capacity import capacity
from tachoscope_cli.app import call
from tachoscope_cli.sources import prometheus
from tachoscope_core.errors import TachoscopeError
from tachoscope_core.records import records
from tachoscope_core.servers import recording
from tachoscope_core.storage.store import Store

RECORDING = Path(__file__).parents[2] / "fixtures" / "serving" / "moderate.serving.gz"
ASKED = (
    *("--objective", "ttft_p95=0.5", "--objective", "itl_p95=0.1", "--max-running", "128"),
    *("--forecast-rate", "200", "--device", "NVIDIA L4"),
)
"""All tests of this recording ask for the same, so that it is simulated once."""


@pytest.fixture(autouse=True, scope="module")
def simulated_once() -> Iterator[None]:
    """What is the same in several tests is simulated once."""
    simulate, done = capacity.capacity, dict[object, capacity.Capacity]()

    def remembered(model: Any, objectives: Any, **options: Any) -> capacity.Capacity:
        asked = {name: value for name, value in options.items() if name != "on_step"}
        key = (model.workload.prompt_tokens.tobytes(), repr((model.engine, objectives, asked)))
        if key not in done:
            done[key] = simulate(model, objectives, **options)
        return done[key]

    with mock.patch.object(capacity, "capacity", remembered):
        yield


def test_text_says_the_knee_in_a_sentence_and_what_moves_it(capsys: pytest.CaptureFixture[str]):
    assert call(("capacity", str(RECORDING), *ASKED)) == 0

    out = capsys.readouterr().out
    found = re.search(r"up to ([\d.]+) requests a second \(95 % interval ([\d.]+) to ([\d.]+)\)", out)
    assert found is not None
    low, knee, high = float(found[2]), float(found[1]), float(found[3])
    assert low <= knee <= high
    # Loads from 20 to 85 requests a second were driven at this server: 55 were in time, 85 not.
    assert 50 < knee < 85
    assert "200 requests a second: " in out
    assert "USD for a million output tokens" in out
    assert out.count("knee  ") == 1
    assert "two replicas for each" in out


def test_a_prometheus_that_scraped_the_server_tells_the_same(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch):
    looks, asked = recording.read(RECORDING), list[tuple[str, str, float]]()
    monkeypatch.setattr(prometheus, "read", lambda *words: asked.append(words) or looks)
    assert call(("capacity", 'job="vllm"', "--prometheus", "http://prometheus:9090", "--for", "5m", *ASKED)) == 0

    assert asked == [("http://prometheus:9090", 'job="vllm"', 300.0)]
    assert "One replica meets" in capsys.readouterr().out


def test_every_device_that_the_error_names_has_a_price():
    with pytest.raises(TachoscopeError) as error:
        call(("capacity", str(RECORDING), "--device", "Abacus"))

    table = prices.shipped_prices()
    for name in str(error.value).partition("known devices: ")[2].rstrip(")").split(", "):
        assert (found := prices.price_of(name, table)) is not None, name
        assert found.name == name


@pytest.mark.bar
def test_text_can_be_written_to_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    assert call(("capacity", str(RECORDING), *ASKED, "--output", str(tmp_path / "said.txt"))) == 0

    assert "One replica meets" in (tmp_path / "said.txt").read_text()
    assert capsys.readouterr().out == ""


def test_json_holds_what_text_says_and_nothing_that_is_no_number(capsys: pytest.CaptureFixture[str]):
    assert call(("capacity", str(RECORDING), *ASKED, "--format", "json")) == 0

    found = json.loads(capsys.readouterr().out, parse_constant=lambda name: pytest.fail(name))
    assert found["objectives"] == {"ttft_p95": 0.5, "itl_p95": 0.1}
    assert found["knee_requests_per_second"] <= found["saturation_requests_per_second"]
    for check in found["checks"].values():
        assert check["replayed"] == pytest.approx(check["recorded"], rel=0.1)


def test_the_page_draws_each_objective_with_its_limit_and_needs_nothing_from_elsewhere(tmp_path: Path):
    page = tmp_path / "capacity.html"
    assert call(("capacity", str(RECORDING), *ASKED, "--format", "html", "--output", str(page))) == 0

    text = page.read_text()
    assert text.count("<svg") == 2
    assert text.count("objective 500.0 ms") == 1
    assert "src=" not in text
    assert "href=" not in text


def test_a_service_in_the_store_is_judged_by_its_own_records(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    envelope = {"job": "chat", "attempt": 0, "writer": "0" * 36, "rank": -1, "local_rank": 0, "host": "h", "monotonic_ns": 0}
    rows: list[records.Record] = []
    for second in range(30):
        fresh, running = 40 + second % 5, 8 + 3 * (second % 7)
        for number in range(fresh):
            rows.append(
                records.RequestDone(
                    **envelope,
                    seq=len(rows),
                    time=1e9 + second + number / fresh + 1.0,
                    request=str(len(rows)),
                    wall_seconds=1.0,
                    phase_seconds={},
                    outcome="ok",
                    tokens_in=100,
                    tokens_out=20,
                    first_token_seconds=0.05,
                )
            )
        iterations, prompt, output = 50, 100 * fresh, 50 * running
        rows.append(
            records.EngineWindow(
                **envelope,
                seq=len(rows),
                time=1e9 + second + 1.0,
                window_seconds=1.0,
                state_seconds={"busy": 1.0},
                iterations=iterations,
                prompt_tokens=prompt,
                generation_tokens=output,
                iteration_seconds=0.005 * iterations + 80e-6 * prompt + 400e-6 * output,
            )
        )
    lines = b"".join(map(records.encode, rows))
    store = str(tmp_path / "store")
    Store(store).write("chat", host="h", writer="0" * 36, attempt=0, offset=0, time=1e9, lines=lines)

    assert call(("capacity", "chat", "--store", store, "--format", "json")) == 0

    found = json.loads(capsys.readouterr().out)
    assert found["iteration_seconds"]["base"] == pytest.approx(0.005, rel=0.01)
    assert found["iteration_seconds"]["prompt_token"] == pytest.approx(80e-6, rel=0.01)
    assert found["iteration_seconds"]["output_token"] == pytest.approx(400e-6, rel=0.01)
    # 20 tokens at 0.4 ms and a prompt of 100 at 0.08 ms are 16 ms of the engine: more than 62 a second cannot be.
    assert 30 < found["knee_requests_per_second"] < 62


def test_what_is_no_recording_is_refused_with_what_to_do(tmp_path: Path):
    empty = tmp_path / "empty.serving.gz"
    empty.write_bytes(gzip.compress(b"# tachoscope recording of an inference server's metrics, form 1\n"))
    other = tmp_path / "notes.txt"
    other.write_text("no recording")
    cases = {
        (str(empty),): "contains no samples",
        (str(other),): "is not a recording",
        (str(tmp_path / "none.serving.gz"),): "none.serving.gz does not exist",
        ("unknown-service", "--store", str(tmp_path / "store")): "no records of job",
        (str(RECORDING), "--objective", "fast"): "is not an objective",
        (str(RECORDING), "--device", "Abacus"): "no price is known for 'Abacus'",
        (str(RECORDING), "--prices", str(other)): "add --device",
    }
    for words, message in cases.items():
        with pytest.raises(TachoscopeError, match=message):
            call(("capacity", *words))
