"""The agent reads checkpoints back with the rights of the user who wrote them, within its configuration, and says what it found."""

from __future__ import annotations

import os
import shutil
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from checkpointing import flip, save, summed
from processes import wait_for
from spool_writing import Process
from spooling import FakeClock, agent_of, pass_seconds, value
from tachoscope_core.checkpoints.verification import Manifest, ReadBack
from tachoscope_core.records import records
from tachoscope_core.storage.store import Store
from tachoscope_node.agent import Agent
from tachoscope_node.checkpoints import queue as verify_queue
from tachoscope_node.checkpoints.reader_process import ReadRequest
from tachoscope_node.checkpoints.verifier import in_a_process, mapped
from trying import each

NOBODY = 65534
TIMESTAMP = "tachoscope_checkpoint_verified_timestamp_seconds"
COUNT = "tachoscope_checkpoint_verifications_total"


@pytest.fixture
def orders(monkeypatch: pytest.MonkeyPatch) -> list[ReadRequest]:
    """Collect the orders and find all sound, without reading."""
    taken: list[ReadRequest] = []

    def read(order: ReadRequest, _: threading.Event) -> ReadBack:
        taken.append(order)
        return ReadBack("sound")

    monkeypatch.setattr("tachoscope_node.checkpoints.verifier.in_a_process", read)
    monkeypatch.setattr(verify_queue, "SETTLE_SECONDS", 0.0)
    return taken


def verified(tmp_path: Path, job: str = "job") -> list[records.CheckpointVerified]:
    store = Store(str(tmp_path / "store"))
    lines = [line for part in store.segments(job) for line in store.read(part).splitlines()]
    found = [record for record in map(records.decode, lines) if isinstance(record, records.CheckpointVerified)]
    return sorted(found, key=lambda record: record.time)


def counted(agent: Agent, result: str) -> float:
    """Return how often a checkpoint was read back with this result."""
    family = next(family for family in agent.families() if family.metric.name == COUNT)
    return sum(float(point) for labels, point in family.points if labels == ("job", result))  # type: ignore[arg-type]


def one_save(tmp_path: Path, **config: Any) -> Agent:
    """Return an agent that read of one checkpoint."""
    process = Process(tmp_path / "spool" / "run")
    process.start(pid=os.getpid())
    save(process, tmp_path / "out" / "a.pt", b"weights")
    agent = agent_of(tmp_path, checkpoints={"verify_again_seconds": 60.0} | config)
    agent.verifier._start = lambda: None  # type: ignore[method-assign]  # the test takes the steps
    agent.tick()
    return agent


def test_a_flipped_bit_is_found_and_the_checkpoint_before_it_becomes_the_last_verified_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verify_queue, "SETTLE_SECONDS", 0.0)
    clock, unix = FakeClock(), FakeClock()
    unix.now = time.time()
    process = Process(tmp_path / "spool" / "run")
    process.start(pid=os.getpid())
    agent = agent_of(tmp_path, clock=clock, checkpoints={"verify_again_seconds": 60.0})
    agent.verifier._clock = unix
    saved_at = [unix.now + 10.0, unix.now + 20.0]
    for step, at in enumerate(saved_at, start=1):
        process.unix_clock = lambda at=at: at  # type: ignore[misc]
        save(process, tmp_path / "out" / f"step-{step}.pt", os.urandom(10_000), step=step)
    pass_seconds(agent, clock, 1)
    wait_for(lambda: counted(agent, "sound") == 2)
    assert value(agent, TIMESTAMP, "job") == pytest.approx(saved_at[1], abs=1e-3)

    flip(tmp_path / "out" / "step-2.pt", 5000)
    unix.now += 61
    wait_for(lambda: counted(agent, "corrupt") == 1)
    assert value(agent, TIMESTAMP, "job") == pytest.approx(saved_at[0], abs=1e-3)
    pass_seconds(agent, clock, 3)
    agent.close()

    told = verified(tmp_path)
    bad = next(record for record in told if not record.sound)
    assert [record.sound for record in told if record.step == 2] == [True, False]
    assert bad.reference == f"{tmp_path}/out/step-2.pt"
    assert bad.fault == f"{bad.reference}: another checksum than its manifest says"
    assert {record.rank for record in told} == {records.LAUNCHER_RANK}


def test_a_file_of_another_user_is_read_with_that_users_rights_only(tmp_path: Path, users_folder: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can take another user's rights")
    readable, secret = users_folder / "readable", users_folder / "secret"
    for file, mode in ((readable, 0o644), (secret, 0o600)):
        file.write_bytes(b"content")
        file.chmod(mode)
    (users_folder / "link").symlink_to(secret)

    def result(name: str, uid: int) -> str:
        manifests = {0: Manifest(time.time(), [summed(readable)])}
        order = ReadRequest(str(users_folder / name), str(users_folder / name), manifests, [], whole=True, uid=uid)
        found = in_a_process(order, threading.Event())
        assert found is not None
        return found.result

    assert result("readable", NOBODY) == "sound"
    assert result("secret", NOBODY) == "unreachable"
    assert result("link", NOBODY) == "unreachable"
    assert result("secret", 0) == "sound"


def test_nothing_outside_of_the_roots_is_read_whatever_a_link_says(tmp_path: Path) -> None:
    inside, outside = tmp_path / "inside", tmp_path / "outside"
    for folder in (inside, outside):
        folder.mkdir()
        (folder / "a.pt").write_bytes(b"content")
    (inside / "way_out").symlink_to(outside)

    def found(path: Path) -> ReadBack | None:
        manifests = {0: Manifest(time.time(), [summed(inside / "a.pt")])}
        order = ReadRequest(str(path), str(path), manifests, [], whole=True, uid=os.geteuid(), roots=[str(inside)])
        return in_a_process(order, threading.Event())

    refused = found(inside / "way_out" / "a.pt")
    sound = found(inside / "a.pt")

    assert sound is not None and sound.result == "sound"
    assert refused is not None and refused.result == "unreachable"
    assert "checkpoints.roots" in refused.fault


def test_reading_back_can_be_stopped_and_keeps_to_its_rate(tmp_path: Path) -> None:
    (tmp_path / "a.pt").write_bytes(bytes(4 << 20))
    manifests = {0: Manifest(time.time(), [summed(tmp_path / "a.pt")])}
    order = ReadRequest(
        str(tmp_path / "a.pt"), str(tmp_path / "a.pt"), manifests, [], whole=True, uid=os.geteuid(), bytes_per_second=1 << 16
    )
    stop = threading.Event()
    threading.Timer(0.5, stop.set).start()

    assert in_a_process(order, stop) is None  # it would take a minute


def test_the_order_says_where_the_file_is_here_and_who_may_read_it(tmp_path: Path, orders: list[ReadRequest]) -> None:
    agent = one_save(tmp_path, paths={str(tmp_path): "/here"}, roots=["/here"], bytes_per_second=5)

    assert agent.verifier.step()
    (order,) = orders
    assert (order.reference, order.place) == (f"{tmp_path}/out/a.pt", "/here/out/a.pt")
    assert (order.uid, order.roots, order.bytes_per_second) == (os.geteuid(), ["/here"], 5)
    assert not agent.verifier.step()
    agent.close()


def test_in_kubernetes_nothing_is_read_without_roots(
    tmp_path: Path, orders: list[ReadRequest], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    agent = one_save(tmp_path)

    assert agent.verifier.step()
    assert orders == []
    assert counted(agent, "unreachable") == 1
    agent.close()


def test_an_agent_that_is_not_root_reads_its_own_users_files_only(
    tmp_path: Path, orders: list[ReadRequest], monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = one_save(tmp_path)
    monkeypatch.setattr(os, "geteuid", lambda: 4711)

    assert agent.verifier.step()
    assert orders == []
    assert counted(agent, "unreachable") == 1
    monkeypatch.undo()
    agent.close()


def test_a_checkpoint_that_is_too_large_is_not_read(tmp_path: Path, orders: list[ReadRequest]) -> None:
    agent = one_save(tmp_path, max_bytes=6)

    assert agent.verifier.step()
    assert orders == []
    assert counted(agent, "unverifiable") == 1
    agent.close()


def test_where_it_is_switched_off_nothing_is_read(tmp_path: Path, orders: list[ReadRequest]) -> None:
    agent = one_save(tmp_path, verify=False)

    assert not agent.verifier.step()
    assert agent.verifier.queue.jobs == {}
    agent.close()


def test_results_of_what_could_not_be_read_are_no_records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verify_queue, "SETTLE_SECONDS", 0.0)
    monkeypatch.setattr("tachoscope_node.checkpoints.verifier.in_a_process", lambda *_: ReadBack("unreachable", "x: not there"))
    agent = one_save(tmp_path)
    agent.verifier.step()
    agent.tick()
    agent.ship(everything=True)

    assert counted(agent, "unreachable") == 1
    assert verified(tmp_path) == []
    agent.close()


@each(("path", "here"), [("/a/b/c", "/y/c"), ("/a/x", "/x/x"), ("/a", "/x"), ("/ab", "/ab"), ("/other", "/other")])
def test_the_longest_prefix_decides_where_a_path_is_here(path: str, here: str) -> None:
    assert mapped(path, {"/a": "/x", "/a/b/": "/y"}) == here


@pytest.fixture
def users_folder() -> Iterator[Path]:
    """Yield a folder that other users can look into: pytest's own is closed to them."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)
