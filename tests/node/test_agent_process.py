"""The agent as a real process: killed, stopped, without its store, without space; every record is in the store once."""

from __future__ import annotations

import os
import random
import re
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from processes import BIN, AgentProcess, agent_process, free_port, s3_environment, s3_server, store_of, wait_for
from spool_writing import Process
from spooling import assert_once, stored
from tachoscope_core.storage import spool
from tachoscope_core.storage.store import Store

RANKS = 8


class Load:
    """Eight ranks that write steps from a thread until they are stopped."""

    def __init__(self, directory: Path, steps_per_second: float = 50.0, segment_bytes: int = 64 << 10) -> None:
        self.ranks = [Process(directory, rank=rank, world_size=RANKS, segment_bytes=segment_bytes) for rank in range(RANKS)]
        self._pause = 1.0 / steps_per_second
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)  # that of a test that fails is not waited for
        for rank in self.ranks:
            rank.start()
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.wait(self._pause):
            for rank in self.ranks:
                rank.step(data_wait=0.001, forward=0.004, backward=0.005)

    def end(self) -> list[Process]:
        self._stop.set()
        self._thread.join()
        for rank in self.ranks:
            rank.end()
        return self.ranks


@pytest.fixture
def load(tmp_path: Path) -> Iterator[Load]:
    made = Load(tmp_path / "spool" / "run")
    yield made
    made._stop.set()


def shipped(folder: Path) -> bool:
    return not list(spool.segments(folder / "spool"))


@pytest.mark.parametrize("kind", ["directory", pytest.param("S3", marks=pytest.mark.bar)])
def test_killed_at_random_moments_under_load_every_record_is_in_the_store_once(
    kind: str, tmp_path: Path, load: Load, pytestconfig: pytest.Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    chance = random.Random(7)
    with store_of(kind, tmp_path, monkeypatch) as store:
        agent = AgentProcess(tmp_path, forked=True, store=store)
        for number in range(2 * pytestconfig.getoption("--bar-runs")):
            agent.start(wait=number % 2 == 0)  # on a busy machine it would else never come to its work
            time.sleep(chance.uniform(0.3, 2.0))
            agent.kill()
        agent.start()
        ranks = load.end()
        wait_for(lambda: shipped(tmp_path))
        steps = f'tachoscope_steps_total{{rank="0",training_job="job"}} {float(ranks[0].step_number)}\n'
        wait_for(lambda: steps in agent.get("/metrics"))
        assert agent.stop() == 0

        assert_once(Store(store), ranks)
    assert list((tmp_path / "state" / "samples").iterdir()) == []


def test_sigterm_ships_what_is_there_and_leaves_live_processes_their_files(tmp_path: Path, load: Load) -> None:
    agent = AgentProcess(tmp_path, forked=True, flush={"seconds": 1000.0})
    agent.start()
    wait_for(lambda: 'rank="7"' in agent.get("/metrics"))
    assert agent.stop() == 0
    before = sum(stored(tmp_path / "store").values())
    assert before > 0
    assert "stopped; everything is in the store" in agent.log.read_text()
    ranks = load.end()
    with agent_process(tmp_path):
        wait_for(lambda: shipped(tmp_path))

    assert_once(tmp_path / "store", ranks)


def test_a_store_that_is_away_and_comes_back_has_everything_once(tmp_path: Path, load: Load) -> None:
    (tmp_path / "store").write_text("in the way")
    with agent_process(tmp_path) as agent:
        wait_for(lambda: re.search(r'tachoscope_agent_errors_total{part="store"} ([2-9]|\d\d)', agent.get("/metrics")))
        assert "the store is behind" in agent.get("/readyz")
        (tmp_path / "store").unlink()
        ranks = load.end()
        wait_for(lambda: shipped(tmp_path))

    assert_once(tmp_path / "store", ranks)


@pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("unshare"), reason="needs root to mount a small file system")
@pytest.mark.parametrize("full", ["store", "state"])
@pytest.mark.bar(but=("store",))
def test_a_full_disk_loses_nothing_once_there_is_space_again(tmp_path: Path, full: str) -> None:
    (tmp_path / full).mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(tmp_path / full)], check=True)
    try:
        ballast = tmp_path / full / "ballast"
        with agent_process(tmp_path) as agent:
            _fill(ballast)
            load = Load(tmp_path / "spool" / "run")
            part = "store" if full == "store" else "(journal|state)"
            wait_for(lambda: re.search(rf'tachoscope_agent_errors_total{{part="{part}"}} [1-9]', agent.get("/metrics")))
            ballast.unlink()
            ranks = load.end()
            wait_for(lambda: shipped(tmp_path))
        assert_once(tmp_path / "store", ranks)
        assert not list((tmp_path / "store").rglob("*.partial"))
    finally:
        subprocess.run(["umount", "-l", str(tmp_path / full)], check=True)


def _fill(path: Path) -> None:
    with path.open("wb", buffering=0) as file:
        for size in (64 << 10, 512):
            try:
                while True:
                    file.write(b"x" * size)
            except OSError:
                continue


def test_a_spool_removed_and_made_again_under_load_loses_nothing_that_the_agent_could_see(tmp_path: Path) -> None:
    load = Load(tmp_path / "spool" / "run", segment_bytes=64 << 20)  # else some rank may have begun one that no agent has seen yet
    with agent_process(tmp_path) as agent:
        wait_for(lambda: 'rank="7"' in agent.get("/metrics"))
        before = agent.url
        (tmp_path / "spool").rename(tmp_path / "removed")  # at once: nothing new comes into a folder that is being removed
        shutil.rmtree(tmp_path / "removed", ignore_errors=True)  # the agent may remove a file of its own first
        wait_for(lambda: spool.live_agent(tmp_path / "spool"))
        assert agent.url == before
        wait_for(lambda: len(list(spool.segments(tmp_path / "spool"))) >= RANKS)
        ranks = load.end()
        wait_for(lambda: shipped(tmp_path))
        wait_for(lambda: "tachoscope_agent_backlog_bytes 0" in agent.get("/metrics"))

    assert_once(tmp_path / "store", ranks)


def test_records_reach_a_real_s3_server_once_also_when_it_comes_late(
    tmp_path: Path, load: Load, monkeypatch: pytest.MonkeyPatch
) -> None:
    port = free_port()
    for name, value in s3_environment(port).items():
        monkeypatch.setenv(name, value)
    agent = AgentProcess(tmp_path, forked=True, store="s3://bucket/tachoscope")
    agent.start()
    wait_for(lambda: re.search(r'tachoscope_agent_errors_total{part="store"} [1-9]', agent.get("/metrics")))
    with s3_server(port):
        wait_for(lambda: re.search(r"tachoscope_agent_shipped_objects_total [1-9]", agent.get("/metrics")))
        ranks = load.end()
        wait_for(lambda: shipped(tmp_path))
        assert agent.stop() == 0

        assert_once(Store("s3://bucket/tachoscope"), ranks)


def test_two_agents_never_serve_one_spool(tmp_path: Path) -> None:
    with agent_process(tmp_path) as agent:
        command = [str(BIN / "tachoscope"), "agent", "--config", str(agent.config)]
        second = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)

    assert second.returncode == 2
    assert "another agent uses the spool" in second.stderr
    assert str(agent.process.pid) in second.stderr  # type: ignore[union-attr]


def test_two_agents_never_share_a_state_directory_and_an_agent_that_was_killed_leaves_it_free(tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    with agent_process(tmp_path) as agent:
        second = AgentProcess(other, forked=True, state=str(tmp_path / "state"))
        second.start(wait=False)
        assert second.process is not None and second.process.wait(timeout=300) == 2
        refused = f"another agent uses the state directory {tmp_path / 'state'}, process {agent.process.pid}"  # type: ignore[union-attr]
        assert refused in second.log.read_text()
        assert spool.live_agent(other / "spool") is None
        agent.kill()
        second.start()
        second.stop()


def test_an_address_that_others_reach_is_warned_of_at_the_start(tmp_path: Path) -> None:
    with agent_process(tmp_path, address="0.0.0.0") as agent:
        warning = "WARNING address '0.0.0.0' is not loopback and no web_config is set"
        wait_for(lambda: warning in agent.log.read_text())  # it is serving a moment before


def test_a_stop_says_which_metric_samples_the_store_lacks(tmp_path: Path) -> None:
    (tmp_path / "store").mkdir()
    (tmp_path / "store" / "metrics").write_text("in the way")
    agent = AgentProcess(tmp_path, forked=True, sample_seconds=0.2)
    agent.start()
    wait_for(lambda: list((tmp_path / "state" / "samples").iterdir()))
    assert agent.stop() == 0
    last = agent.log.read_text().splitlines()[-1]

    assert "WARNING stopped; not in the store: 1 file of metric samples in " in last
    assert "could not write" in last
    assert "everything" not in last


def test_sighup_reads_the_configuration_again_and_a_fault_in_it_changes_nothing(tmp_path: Path, load: Load) -> None:
    with agent_process(tmp_path) as agent:
        agent.write_config(retention_seconds=1.0, store=str(tmp_path / "elsewhere"))
        agent.signal(signal.SIGHUP)
        wait_for(lambda: "reloaded; a restart is needed for store" in agent.log.read_text())
        agent.config.write_text("retention_seconds: forever\nflsh: 1\n")
        agent.signal(signal.SIGHUP)
        wait_for(lambda: "not reloaded" in agent.log.read_text())
        assert "2 to fix" in agent.log.read_text()
        assert "WARNING configuration not reloaded" in agent.log.read_text()
        wait_for(lambda: "tachoscope_agent_config_reload_success 0.0" in agent.get("/metrics"))
        agent.write_config()
        agent.signal(signal.SIGHUP)
        wait_for(lambda: "tachoscope_agent_config_reload_success 1.0" in agent.get("/metrics"))
        ranks = load.end()
        wait_for(lambda: "tachoscope_steps_total{" not in agent.get("/metrics"))

    assert_once(tmp_path / "store", ranks)


def test_ctrl_c_is_a_clean_stop(tmp_path: Path) -> None:
    agent = AgentProcess(tmp_path)
    agent.start()
    agent.signal(signal.SIGINT)
    assert agent.process is not None

    assert agent.process.wait(timeout=120) == 0
    assert "Traceback" not in agent.log.read_text()
    assert spool.live_agent(tmp_path / "spool") is None


def test_the_agent_never_imports_torch_or_pandas(tmp_path: Path) -> None:
    with agent_process(tmp_path, forked=False) as agent:
        assert agent.process is not None
        maps = Path(f"/proc/{agent.process.pid}/maps").read_text()

    assert "torch" not in maps
    assert "pandas" not in maps
    assert "numpy" not in maps
