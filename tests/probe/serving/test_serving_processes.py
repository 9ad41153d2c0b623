"""What is left of the records of servers that are killed, shut down, forked and spawned, and that cannot write."""

from __future__ import annotations

import os
import pickle
import re
import signal
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path

import pytest

import tachoscope
from helpers import execute
from processes import free_port, wait_for
from serving_server import SERVERS, ask, counts, post, read_all, requests_in, running, served, stored
from tachoscope.process.identity import Identity
from tachoscope.serving.outbox import MAX_QUEUED, ServiceOutbox
from tachoscope_core.records import records
from tachoscope_core.records.records import AnyRecord
from tachoscope_core.storage import spool


def by_writer(rows: list[AnyRecord]) -> dict[str, list[AnyRecord]]:
    found: dict[str, list[AnyRecord]] = {}
    for row in rows:
        found.setdefault(row.writer, []).append(row)
    for writer, mine in found.items():
        assert [row.seq for row in mine] == list(range(len(mine))), f"{writer} has a gap"
        assert isinstance(mine[0], records.ServiceStarted)
    return found


def spooled(tmp_path: Path) -> list[AnyRecord]:
    """Return what processes have written so far that still run."""
    lines = [line for path in spool.segments(tmp_path / "spool") for line in path.read_bytes().split(b"\n")[:-1]]
    return [records.decode(line) for line in lines]


def windows_of(rows: list[AnyRecord]) -> list[records.EngineWindow]:
    return [row for row in rows if isinstance(row, records.EngineWindow)]


def test_a_server_that_is_killed_leaves_what_was_in_flight_in_its_last_heartbeat_and_says_no_end(tmp_path: Path) -> None:
    with served(tmp_path) as (server, port):
        ask(port, {})
        streams = [post(port, {"stream": 4000, "seconds": 0.05}) for _ in range(3)]
        for client in streams:
            assert client.recv(1 << 16)
        end = time.monotonic() + 120
        while not any(b'"requests_in_flight":3.0' in path.read_bytes() for path in spool.segments(tmp_path / "spool")):
            assert time.monotonic() < end, "no heartbeat reports the three"
            time.sleep(0.05)
        server.kill()
        server.wait()
        for client in streams:
            client.close()
    (rows,) = by_writer(stored(tmp_path)).values()

    assert [row.outcome for row in requests_in(rows)] == ["ok"]
    last = [row for row in rows if isinstance(row, records.Heartbeat)][-1]
    assert last.signals == {"requests_in_flight": 3.0}
    assert not any(isinstance(row, records.ServiceEnded) for row in rows)


def test_a_server_that_is_told_to_stop_answers_what_it_has_begun_and_ends_in_order(tmp_path: Path) -> None:
    with served(tmp_path) as (server, port):
        client = post(port, {"stream": 10, "seconds": 0.05})
        assert client.recv(1 << 16)
        server.send_signal(signal.SIGTERM)
        assert b"[DONE]" in read_all(client)
        server.wait(timeout=120)
        assert not list(spool.segments(tmp_path / "spool")), "it put them into the store itself"
    (rows,) = by_writer(stored(tmp_path)).values()

    assert [row.outcome for row in requests_in(rows)] == ["ok"]
    assert isinstance(rows[-1], records.ServiceEnded)
    assert rows[-1].in_flight == 0


def test_under_tachoscope_run_the_records_are_put_into_the_store_by_it(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "import tachoscope\n"
        "with tachoscope.service('chat').request(tokens_in=5) as request, request.phase('prefill'):\n"
        "    request.token()\n"
    )
    store = str(tmp_path / "store")
    done = execute(tmp_path, "tachoscope", "run", "--store", store, "--job", "chat", "--", sys.executable, str(script))

    assert done.returncode == 0, done.stderr
    rows = [row for row in stored(tmp_path) if not isinstance(row, records.JobStarted | records.JobEnded)]
    assert [type(row) for row in rows if not isinstance(row, records.Heartbeat)] == [
        records.ServiceStarted,
        records.RequestDone,
        records.ServiceEnded,
    ]


@pytest.mark.parametrize("way", ["uvicorn", "prefork"])
def test_each_worker_of_a_server_is_a_writer_of_its_own_and_of_one_service(tmp_path: Path, way: str) -> None:
    port = free_port()
    command = [sys.executable, "-m", "uvicorn", "serving_app:app", "--workers", "2", "--log-level", "warning", "--port", str(port)]
    command += ["--timeout-worker-healthcheck", "120"]  # of 5 s: a worker that is slow to start is replaced by another
    if way == "prefork":
        command = [sys.executable, str(SERVERS / "serving_prefork.py"), str(port)]
    with running(tmp_path, command, port) as server:
        end = time.monotonic() + 120
        pids: set[int] = set()
        while len(pids) < 2:
            assert time.monotonic() < end, "only one worker answers"
            with ThreadPoolExecutor(8) as pool:
                pids |= {found["pid"] for found in pool.map(counts, [port] * 8)}
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda _: ask(port, {"seconds": 0.01}), range(100)))
        server.terminate()
        server.wait(timeout=120)
    rows = stored(tmp_path)
    writers = by_writer(rows)
    started = [row for row in rows if isinstance(row, records.ServiceStarted)]

    assert sum(row.outcome == "ok" for row in requests_in(rows)) == 100
    assert {row.pid for row in started} == (pids | {server.pid} if way == "prefork" else pids)
    assert len({row.pid for row in started}) == len(writers)
    for mine in writers.values():
        assert isinstance(mine[-1], records.ServiceEnded)
    if way == "prefork":
        (parents,) = [row.writer for row in started if row.pid == server.pid]
        assert [row.outcome for row in writers[parents] if isinstance(row, records.RequestDone)] == ["shed"]


def test_a_child_of_multiprocessing_writes_its_own_records_and_none_of_its_parents(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "import multiprocessing, sys, tachoscope\n"
        "service = tachoscope.service('chat', model='m')\n"
        "def work(service):\n"
        "    with service.request() as request:\n"
        "        request.token()\n"
        "if __name__ == '__main__':\n"
        "    mine = service.request()\n"
        "    for method in ('fork', 'spawn'):\n"
        "        child = multiprocessing.get_context(method).Process(target=work, args=(service,))\n"
        "        child.start(), child.join()\n"
        "        assert child.exitcode == 0\n"
        "    mine.done('shed')\n"
    )
    done = execute(tmp_path, sys.executable, str(script))

    assert done.returncode == 0, done.stderr
    assert not done.stderr
    writers = by_writer(stored(tmp_path))
    outcomes = sorted([row.outcome for row in mine if isinstance(row, records.RequestDone)] for mine in writers.values())
    assert outcomes == [["ok"], ["ok"], ["shed"]]
    assert {row.model for mine in writers.values() for row in mine if isinstance(row, records.RequestDone)} == {"m"}
    assert all(isinstance(mine[-1], records.ServiceEnded) for mine in writers.values())


@pytest.mark.parametrize("kind", ["whole", "stream"])
@pytest.mark.bar(but=("stream",))
def test_litserve_is_recorded_through_the_middleware_and_its_worker_as_an_engine(tmp_path: Path, kind: str) -> None:
    port = free_port()
    command = [sys.executable, str(SERVERS / "serving_litserve.py"), kind, str(port)]
    with running(tmp_path, command, port, ending=signal.SIGINT):  # by SIGTERM it would leave its workers behind
        with ThreadPoolExecutor(4) as pool:
            answers = list(pool.map(lambda number: ask(port, {"input": number}, path="/predict"), range(1, 9)))
        if kind == "whole":
            assert ask(port, {"input": 0}, path="/predict").startswith(b"HTTP/1.1 500")
            assert ask(port, raw=b"{not JSON", path="/predict").startswith(b"HTTP/1.1 500"), "as LitServe says"
        # LitServe ends its worker without a word: what it did has to be written before, a window a second.
        told = "prompt_tokens" if kind == "whole" else "iterations"
        wait_for(lambda: sum(getattr(window, told) for window in windows_of(spooled(tmp_path))) >= sum(range(1, 9)), 120)
    assert all(answer.startswith(b"HTTP/1.1 200") for answer in answers)
    rows = stored(tmp_path, "lit")
    found = requests_in(rows)
    windows = windows_of(rows)

    assert {row.role for row in rows if isinstance(row, records.ServiceStarted)} == {"server", "engine"}
    if kind == "whole":
        assert sorted(row.outcome for row in found) == [*["ok"] * 8, "server_error", "server_error"]
        assert sum(window.prompt_tokens for window in windows) == sum(range(1, 9))
    else:
        assert [row.outcome for row in found] == ["ok"] * 8
        assert sorted(row.inter_token_count for row in found) == list(range(8))
        assert sum(window.iterations for window in windows) == sum(range(1, 9))
    assert sum(window.state_seconds.get("cold_start", 0.0) for window in windows) >= 0.2
    for window in windows:
        assert sum(window.state_seconds.values()) == pytest.approx(window.window_seconds, abs=1e-9)


def test_a_client_records_its_own_side_of_the_same_service(tmp_path: Path) -> None:
    for role in ("server", "client"):
        service = tachoscope.service("both", role=role)  # type: ignore[arg-type]
        service.request(arrived=time.monotonic() - 5.0).done()
        service.close()

    found = {row.side: row for row in requests_in(stored(tmp_path, "both"))}
    assert set(found) == {"server", "client"}
    assert found["client"].wall_seconds >= 5.0


def test_one_service_of_a_name_and_role_in_a_process_also_after_it_was_sent_away(tmp_path: Path) -> None:
    service = tachoscope.service("one", model="m")

    assert tachoscope.service("one", version="2") is service is pickle.loads(pickle.dumps(service))
    assert (service.model, service.version) == ("m", "2")
    with pytest.raises(ValueError, match="'a/b'"):
        tachoscope.service("a/b")
    with pytest.raises(ValueError, match="unknown role 'proxy'; valid roles: server, engine, client"):
        tachoscope.service("one", role="proxy")  # type: ignore[arg-type]


def test_a_spool_that_cannot_be_written_loses_records_and_no_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TACHOSCOPE_SPOOL", "/dev/null/no")
    service = tachoscope.service("nowhere")
    for _ in range(10):
        service.request().done()
    service.close()

    told = capsys.readouterr().err
    assert re.match(r"tachoscope: 1[2-9] records dropped, no request was affected \(/dev/null/no", told), told


def test_what_comes_faster_than_it_can_be_written_is_counted_and_not_kept(tmp_path: Path) -> None:
    outbox = ServiceOutbox(
        Identity("job", 0, "host"), tmp_path, engines=list, side="server", started={"pid": os.getpid()}
    )  # without its thread: nothing is written before the end
    service = tachoscope.service("queue")
    for _ in range(MAX_QUEUED + 7):
        request = service.request()
        request.done()
        outbox.request_ended(request)
    service.close()
    outbox.close()
    lines = [records.decode(line) for path in spool.segments(tmp_path) for line in path.read_bytes().splitlines()]

    assert len(requests_in([line for line in lines if line.writer == lines[0].writer])) == MAX_QUEUED
    (ended,) = [line for line in lines if isinstance(line, records.ServiceEnded)]
    assert ended.dropped_total == 7


def test_importing_the_probe_imports_nothing_of_serving(tmp_path: Path) -> None:
    done = execute(
        tmp_path, sys.executable, "-c", "import sys, tachoscope; print([name for name in sys.modules if 'serving' in name])"
    )

    assert done.stdout.strip() == "[]", done.stderr


@pytest.mark.alone
@pytest.mark.waits
def test_the_windows_of_an_engine_join_and_idle_ones_are_written_together(tmp_path: Path) -> None:
    service = tachoscope.service("engines")
    began = time.monotonic()
    engine = service.engine("0", capacity=8)
    engine.update(waiting=0)
    time.sleep(2.5)  # longer than two windows, also where the thread that writes them is late
    with engine.batch(prefill_tokens=5, decode_tokens=2, running=3, waiting=0):
        time.sleep(1.1)
    service.close()
    took = time.monotonic() - began
    windows = [row for row in stored(tmp_path, "engines") if isinstance(row, records.EngineWindow)]

    assert windows[0].state_seconds["idle"] == pytest.approx(windows[0].window_seconds, rel=0.1)
    assert windows[0].window_seconds >= 1.9, "windows of a second, and one record"
    assert 2.5 + 1.1 <= sum(window.window_seconds for window in windows) <= took
    for before, after in pairwise(windows):
        assert after.monotonic_ns / 1e9 - after.window_seconds == pytest.approx(before.monotonic_ns / 1e9, abs=1e-6)
    assert sum(window.state_seconds.get("busy", 0.0) for window in windows) >= 1.1
    assert sum(window.iterations for window in windows) == 1
    assert {window.capacity for window in windows} == {8}
