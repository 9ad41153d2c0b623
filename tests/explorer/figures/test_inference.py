"""The page of inference, on records whose truth is planted."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pytest
from streamlit.testing.v1 import AppTest

from exploring import open_page, words
from serving_making import BEGIN, Server
from tachoscope_analyzers.serving.capacity.capacity import Capacity, Point
from tachoscope_analyzers.serving.capacity.objectives import Objective
from tachoscope_analyzers.serving.records.traffic import Traffic
from tachoscope_core.records import records
from tachoscope_core.storage.store import Store
from tachoscope_explorer.figures import inference as figures
from tachoscope_explorer.page.settings import Settings

SCRIPT = "<script>alert(1)</script>"


def store_of(folder: Path, *servers: Server) -> Path:
    """Write what servers told, each as a writer of its service."""
    store = Store(str(folder))
    for server in servers:
        last = max(row.time for row in server.rows)
        lines = server.lines().splitlines(keepends=True)
        for number, first in enumerate(range(0, len(lines), 10_000)):  # no object is larger than what is shipped at once
            some = b"".join(lines[first : first + 10_000])
            store.write(server.service, host="node-1", writer=server.writer, attempt=0, offset=number, time=last, lines=some)
    return folder


def busy(count: int, *, service: str = "chat", model: str = "tiny", queued: float = 0.0) -> Server:
    """Return a server with an engine that answered so many requests, one each 50 ms."""
    server = Server(service=service, model=model)
    server.start()
    for number in range(count):
        server.request(1.0 + 0.05 * number, queued=queued, gaps=(0.01,) * 4)
    for second in range(int(count * 0.05) + 2):
        server.engine(1.0 + second, state_seconds={"busy": 0.9}, iterations=40, iteration_seconds=0.9, generation_tokens=80)
    return server


def table_with(page: AppTest, column: str) -> list[object]:
    return next(list(table.value[column]) for table in page.dataframe if column in table.value)


def test_a_store_without_services_says_how_to_get_one(tmp_path: Path) -> None:
    shown = open_page("inference", tmp_path / "store", service="chat")

    assert not shown.exception
    assert "The store has no service" in words(shown)
    assert "the store has no service 'chat'" in words(shown).replace("\\", "")


def test_a_queue_is_the_verdict_and_the_slowest_request_shows_it(tmp_path: Path) -> None:
    server = busy(400, queued=1.5)
    server.request(10.0, queued=7.0, gaps=(0.01,) * 4, request="slowest")
    shown = open_page("inference", store_of(tmp_path / "store", server))

    assert not shown.exception
    assert "Requests wait in the queue" in words(shown)
    assert table_with(shown, "request")[0] == "slowest"
    assert table_with(shown, "queued")[0] == 7.0
    assert "to the first token (TTFT)" in table_with(shown, "time")
    assert "chat" in shown.query_params["service"]


def test_of_two_models_one_can_be_looked_at(tmp_path: Path) -> None:
    fast, slow = busy(50), busy(50, model="large", queued=5.0)
    slow.writer = slow.writer.replace("0", "1")
    slow.rows = [
        type(row)(**{name: getattr(row, name) for name in row.__struct_fields__} | {"writer": slow.writer}) for row in slow.rows
    ]
    folder = store_of(tmp_path / "store", fast, slow)

    assert set(table_with(open_page("inference", folder, model="large"), "model")) == {"large"}
    assert set(table_with(open_page("inference", folder), "model")) == {"large", "tiny"}
    assert "no record of chat reports a model" in words(open_page("inference", folder, model="none-such"))


def test_a_window_in_the_address_is_all_that_is_looked_at(tmp_path: Path) -> None:
    folder = store_of(tmp_path / "store", busy(400))
    window = {"from_": str(round((BEGIN + 5) * 1e3)), "to": str(round((BEGIN + 10) * 1e3))}

    shown = open_page("inference", folder, **window)

    assert "100 requests in 5 s" in words(shown)
    shown.button[0].click().run()
    assert "400 requests" in words(shown)
    assert "from" not in shown.query_params
    nothing = {"from_": "1000", "to": "2000"}
    assert "received no requests" in words(open_page("inference", folder, **nothing))


def test_what_clients_alone_saw_has_no_phases_and_says_so(tmp_path: Path) -> None:
    client = Server(role="client")
    for number in range(30):
        client.request(float(number), phase_seconds={})

    shown = open_page("inference", store_of(tmp_path / "store", client))

    assert not shown.exception
    assert "No record contains the states of requests" in words(shown)
    assert "only clients left records" in words(shown)
    assert "Its record does not say in which states it was" in words(shown)


def test_unknown_outcomes_phases_and_names_of_scripts_are_shown_as_text(tmp_path: Path) -> None:
    server = busy(40, model=SCRIPT)
    server.request(3.0, outcome="vanished", phase_seconds={"dreaming": 5.0}, request=SCRIPT, rest=20.0)

    shown = open_page("inference", store_of(tmp_path / "store", server))

    assert not shown.exception
    assert "1 'vanished'" in words(shown)
    assert "<script>" not in "".join(one.value for one in shown.markdown)
    assert table_with(shown, "unexplained")[0] == pytest.approx(20.1)


def test_where_the_knee_cannot_be_told_the_reason_stands(tmp_path: Path) -> None:
    shown = open_page("inference", store_of(tmp_path / "store", busy(30)))
    shown.toggle[0].set_value(True).run()
    assert "It cannot be determined" in words(shown)

    shown.text_input[0].set_value("ttft_p95=soon").run()

    assert not shown.exception
    assert "is not a number" in words(shown)


def test_a_recording_of_a_servers_metrics_is_shown_without_a_store(tmp_path: Path) -> None:
    path = Path(__file__).parents[2] / "analyzers" / "serving" / "recordings" / "vllm_above_capacity.serving.gz"

    shown = open_page("inference", tmp_path, started=Settings(str(tmp_path / "store"), traces=(str(path),)))

    assert not shown.exception
    assert "Requests wait in the queue" in words(shown)
    assert "do not report single requests" in words(shown)
    assert path.name in shown.query_params["service"]


@pytest.mark.bar  # a speed
@pytest.mark.alone
def test_fifty_thousand_requests_are_binned_and_looked_at_again_within_a_second(tmp_path: Path) -> None:
    folder = store_of(tmp_path / "store", busy(50_000))
    shown = open_page("inference", folder)
    assert "50,000 requests" in words(shown)

    began = time.perf_counter()
    shown.toggle[0].set_value(False).run()

    assert time.perf_counter() - began < 1.0
    assert len(table_with(shown, "request")) == 100


# --- figures --------------------------------------------------------------------------------------------------------------------


def traffic_with(states: dict[str, np.ndarray], seconds: np.ndarray) -> Traffic:
    empty: dict[str, np.ndarray] = {}
    return Traffic(
        server="tachoscope",
        start=BEGIN,
        end=BEGIN + float(seconds.sum()),
        seconds=seconds,
        answered=np.ones(len(seconds), dtype=np.bool_),
        engines=1,
        models=(),
        gauges=empty,
        counters=empty,
        counts=empty,
        sums=empty,
        totals={},
        outcomes={},
        request_states=states,
    )


def test_many_intervals_are_binned_and_no_request_second_is_lost() -> None:
    rng = np.random.default_rng(0)
    states = {state: rng.uniform(0, 3, 600) for state in ("queued", "decode")}
    seconds = np.full(600, 2.0)

    drawn = figures.over_time(traffic_with(states, seconds), states)

    assert [one.name for one in drawn.data] == ["decode", "queued"]
    for one, state in zip(drawn.data, ("decode", "queued"), strict=True):
        assert len(one.y) == figures.MOST_BINS
        assert float(np.dot(one.y, np.asarray(one.width) / 1e3)) == pytest.approx(states[state].sum())


def test_one_request_is_drawn_as_long_as_it_took() -> None:
    server = Server()
    server.request(0.0, queued=1.0, gaps=(0.5, 0.5), rest=0.25)
    (request,) = [row for row in server.rows if isinstance(row, records.RequestDone)]

    drawn = figures.one(request)

    assert [one.name for one in drawn.data] == ["queued", "prefill", "decode", "unexplained"]
    assert sum(one.x[0] for one in drawn.data) == pytest.approx(request.wall_seconds)


def test_the_knee_its_interval_the_objectives_and_what_was_recorded_are_on_the_curve() -> None:
    asked = Objective("ttft", 95, 0.5)
    curve = tuple(
        Point(rate, 10 * rate, {"ttft_p95": seconds}, seconds <= 0.5, 1.0) for rate, seconds in ((1.0, 0.1), (2.0, float("inf")))
    )
    found = Capacity((asked,), None, 0.7, 3.0, 1.5, (1.2, 1.8), "ttft_p95", curve[0], curve, (), None)  # type: ignore[arg-type]

    drawn = figures.latency_throughput(found)

    assert list(drawn.data[0].x) == [1.0]  # what is refused without end has no latency
    lines = [(shape.x0, shape.x1, shape.y0) for shape in drawn.layout.shapes]
    assert (1.2, 1.8, 0) in lines
    assert any(line[2] == 0.5 for line in lines)
    assert any(line[:2] == (1.5, 1.5) for line in lines)
    assert any(line[:2] == (0.7, 0.7) for line in lines)
