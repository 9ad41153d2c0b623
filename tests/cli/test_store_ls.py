"""`tachoscope store ls` over planted records: a training by its steps, a service by its requests."""

from pathlib import Path

import pytest

from making import job
from serving_making import Server
from tachoscope_cli.app import call
from tachoscope_core.storage.store import Store, default_url


def put(name: str, lines: bytes, *, offset: int = 0) -> None:
    writer = f"{1:08d}-0000-4000-8000-000000000000"
    Store(default_url()).write(name, host="node-1", writer=writer, attempt=0, offset=offset, time=1.7e9, lines=lines)


def row(capsys: pytest.CaptureFixture[str], name: str) -> list[str]:
    assert call(["store", "ls"]) == 0
    return next(line.split() for line in capsys.readouterr().out.splitlines() if line.startswith(name))


def test_a_service_is_listed_with_its_requests_and_a_training_with_its_steps(capsys: pytest.CaptureFixture[str]) -> None:
    server = Server(1)
    server.start()
    for number in range(23):
        server.request(float(number))
    server.end(30.0)
    put("chat", server.lines())
    put("planted", job([[{"forward": 0.1}]] * 7))

    assert row(capsys, "chat")[1:5] == ["completed", "service", "23", "requests"]
    assert row(capsys, "planted")[2:5] == ["1", "7", "1"]


def test_the_requests_of_a_long_lived_service_are_estimated_instead_of_all_read(capsys: pytest.CaptureFixture[str]) -> None:
    server = Server(1)
    server.start()
    for number in range(999):
        server.request(float(number))
    lines = server.lines().splitlines(keepends=True)
    for begin in range(0, 1000, 100):
        put("chat", b"".join(lines[begin : begin + 100]), offset=begin)

    service, about, count, _ = row(capsys, "chat")[2:6]
    assert (service, about) == ("service", "about")
    assert int(count) == pytest.approx(999, rel=0.01)


def test_a_folder_without_records_has_no_last_record(capsys: pytest.CaptureFixture[str]) -> None:
    put("planted", job([[{"forward": 0.1}]] * 7))
    (Path(default_url()) / "jobs" / "bare").mkdir()

    assert row(capsys, "bare")[-1] == "-"
