"""`tachoscope run` on a node with a live agent: the agent ships, and the run still ends with its records in the store."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import forked
from helpers import command
from processes import AgentProcess, agent_process
from tachoscope_analyzers.records.load import from_store
from tachoscope_cli.common.output import console
from tachoscope_cli.demo.agent import DemoAgent
from tachoscope_cli.launcher.run import RunOutcome
from tachoscope_core.storage import spool
from tachoscope_core.storage.store import Store

WATCHED = """
import os, signal, sys, time, tachoscope
for step in range(23):
    with tachoscope.phase("data_wait"):
        time.sleep(0.002)
    tachoscope.step()
    if step == 16:
        exec(sys.argv[1] if len(sys.argv) > 1 else "")
"""


SERVED = 'tachoscope_steps_total{rank="0",training_job="job"}'
UNTIL_SERVED = f"""
from urllib.request import urlopen
end = time.monotonic() + 60
while {SERVED.encode()!r} not in urlopen("URL/metrics", timeout=60).read() and time.monotonic() < end: time.sleep(0.05)
"""


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.delenv("TACHOSCOPE_STORE")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    path = tmp_path / "train.py"
    path.write_text(WATCHED)
    return str(path)


def run(script: str, *arguments: str, store: Path | None = None, job: str = "job") -> subprocess.CompletedProcess[str]:
    where = ["--store", str(store)] if store else []
    words = ("run", "--job", job, *where, "--", sys.executable, script, *arguments)
    return forked.run(words, cwd=Path.cwd(), environ=dict(os.environ), outputs=Path(script).parent, seconds=400)


def steps(store: Path, job: str = "job") -> list[int]:
    return [step.step for step in from_store(Store(str(store)), job).steps]


def test_the_agent_ships_and_serves_each_attempt_and_the_run_says_where_it_is_or_that_it_saw_no_step(
    tmp_path: Path, script: str
) -> None:
    with agent_process(tmp_path) as agent:
        done = run(script)
        page = agent.get("/metrics")
        again = run(script, "sys.exit(3)")
        Path(script).write_text("print('nothing')")
        nothing = run(script, job="nothing")

    assert (done.returncode, again.returncode) == (0, 3)
    assert f"job job is in {tmp_path / 'store'} (by the node's agent); next: tachoscope analyze --store" in done.stderr
    shipped = sorted((step.attempt, step.step) for step in from_store(Store(str(tmp_path / "store")), "job").steps)
    assert shipped == [(0, step) for step in range(1, 24)] + [(1, step) for step in range(1, 18)]
    assert 'tachoscope_steps_total{rank="0",training_job="job"} 23.0' in page
    assert "no training step was seen" in nothing.stderr
    assert not (tmp_path / "data").exists()


def test_a_run_with_a_store_of_its_own_ships_there_itself_and_the_agent_only_serves_it(tmp_path: Path, script: str) -> None:
    with agent_process(tmp_path) as agent:
        done = run(script, UNTIL_SERVED.replace("URL", agent.url), store=tmp_path / "own")  # else it is over before the agent looks
        assert SERVED in agent.get("/metrics")

    assert "by the node's agent" not in done.stderr
    assert steps(tmp_path / "own") == list(range(1, 24))
    # Of a run that lasts longer than a window of the ledger, the agent's own seconds by state are in its store.
    assert not list((tmp_path / "store").glob("jobs/*/records"))


def test_an_agent_that_dies_during_the_run_leaves_the_shipping_to_the_run(tmp_path: Path, script: str) -> None:
    agent = AgentProcess(tmp_path)
    agent.start()
    assert agent.process is not None
    kill = f"time.sleep(1); os.kill({agent.process.pid}, signal.SIGKILL); time.sleep(0.2)"
    done = run(script, kill)
    agent.process.wait(timeout=120)

    assert done.returncode == 0
    assert sorted(steps(tmp_path / "store")) == list(range(1, 24))
    assert list(spool.segments(tmp_path / "spool")) == []


def test_a_run_says_that_it_waits_for_the_agent_and_why(tmp_path: Path, script: str) -> None:
    (tmp_path / "store").write_text("in the way")
    with agent_process(tmp_path):
        words = [sys.executable, "-m", "tachoscope_cli.main", "run", "--job", "job", "--", sys.executable, script]
        process = subprocess.Popen(words, stderr=subprocess.PIPE, text=True)
        assert process.stderr is not None
        waits = process.stderr.readline()
        (tmp_path / "store").unlink()
        done = process.stderr.readline()

        assert process.wait(timeout=60) == 0
    assert waits.startswith("tachoscope: waiting up to 30 s for the agent to ship the records: could not write ")
    assert "(by the node's agent)" in done
    assert steps(tmp_path / "store") == list(range(1, 24))


SHORT_DEMO = [sys.executable, "-m", "tachoscope_cli.main", "demo", "--fault", "comm_exposed", "--steps", "30"]
"""The fault with the shortest steps."""


def test_the_demo_runs_with_an_agent(tmp_path: Path) -> None:
    done = subprocess.run(
        SHORT_DEMO, capture_output=True, text=True, timeout=400, check=False, env=os.environ | {"OMP_NUM_THREADS": "1"}
    )
    assert done.returncode == 0, done.stdout + done.stderr

    found = re.search(r"agent: shipped all records, and served (\d+) series of the job to Prometheus", done.stdout)
    assert found is not None, done.stdout
    assert int(found[1]) > 40
    assert re.search(r"runbooks/\w+\.md", done.stdout), done.stdout
    assert "store: " in done.stdout
    assert "tachoscope run -- python train.py" in done.stdout.split("next:  ")[1]
    assert spool.live_agent(Path(os.environ["TACHOSCOPE_SPOOL"])) is None


@pytest.mark.bar
def test_the_demo_uses_the_live_agent_and_its_store_as_a_run_does(tmp_path: Path, script: str) -> None:
    with agent_process(tmp_path) as agent:
        done = subprocess.run(SHORT_DEMO, capture_output=True, text=True, timeout=400, check=True)
        assert 'training_job="demo-comm_exposed"' in agent.get("/metrics")

    assert re.search(r"agent: shipped all records, and served \d\d+ series of the job to Prometheus", done.stdout), done.stdout
    assert f"store: {tmp_path / 'store'}\n" in done.stdout
    assert steps(tmp_path / "store", "demo-comm_exposed")


def test_what_the_agent_did_for_the_demo_is_said_as_it_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    outcome = RunOutcome(0, "job", "/mine", by_agent=False, recorded=True, all_shipped=True)
    closed = spool.LiveAgent(1, "/theirs", "http://127.0.0.1:1")
    lines = [
        DemoAgent("/mine", None, "the agent needs h11 (pip install 'tachoscope[agent]')").summary_line("job", outcome),
        DemoAgent("/mine", closed).summary_line("job", outcome),
    ]
    console().print("\n".join(lines), soft_wrap=True)
    said = capsys.readouterr().out.splitlines()

    assert said[0] == "took no part: the agent needs h11 (pip install 'tachoscope[agent]')"
    assert said[1].startswith("ships to /theirs, so the demo shipped its records itself; its metrics at http://127.0.0.1:")
    assert said[1].endswith("could not be read from here: Connection refused")


def test_check_says_whether_the_configuration_is_sound(tmp_path: Path) -> None:
    (tmp_path / "agent.yaml").write_text("port: 70000\nstor: x\n")
    check = ("agent", "--check", "--config", tmp_path / "agent.yaml")
    bad = command(*check)
    (tmp_path / "agent.yaml").write_text("port: 7000\naddress: 0.0.0.0\n")
    good = command(*check)

    assert (bad.returncode, good.returncode) == (2, 0)
    assert "2 to fix" in bad.stderr
    assert good.stdout.startswith("sound: spool")
    assert "\nWARNING: address '0.0.0.0' is not loopback" in good.stdout
