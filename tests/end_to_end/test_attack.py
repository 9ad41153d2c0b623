"""An attacker on the same machine and store: `attacker.py` plants all it can, and nothing that is said of a victim's job changes.

Every program runs as a process of its own over the whole attack. Needs root, to be two users.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import test_neighbours
from test_neighbours import ATTACKER, COMMAND_LINE, VICTIM, interpreter, made_place, place, python

from attacker import FORGERIES, MUTATED_RECORDS, VICTIM_JOB
from helpers import MEASURED, environment
from processes import AgentProcess, wait_for
from tachoscope_core.owner import Owner
from tachoscope_core.storage.store import Store

__all__ = ["place"]

pytestmark = pytest.mark.bar  # test_neighbours.py has what one user can do to another, one by one

MOST_MEBIBYTES = 300
MOST_MEBIBYTES_OF_AGENT = 150
MOST_SECONDS = 120.0
"""Of a program, on a machine that is busy; a pipe that is waited for takes for ever."""
SEEN = re.compile(r'tachoscope_steps_total\{rank="0",training_job="bert"\} (\d+)')


class Attack:
    """The place of the attack, and what was said of the victim's job before it. `peaks`: MiB by program."""

    def __init__(self, place: Path) -> None:
        self.place, self.store = place, place / "store"
        self.peaks: dict[str, int] = {}
        self.planted: dict[str, Any] = {}
        self.before: dict[str, str] = {}

    def run(self, user: int, *words: str, code: int | None = 0, python: tuple[str, ...] = ("-c", COMMAND_LINE)) -> str:
        """Run tachoscope, or another program of Python's, as a user; return its output."""
        peak = Path(f"/tmp/peak-{os.getpid()}-{user}")
        peak.unlink(missing_ok=True)
        environ = environment(self.place, HOME=str(self.place / "home"), PYTHONPATH=os.pathsep.join(filter(None, sys.path)))
        environ |= {"COLUMNS": "150", "TACHOSCOPE_CACHE": str(self.place / "home" / "cache")}
        command = [interpreter(), "-S", "-c", MEASURED, str(peak), interpreter(), *python, *words]
        who: dict[str, Any] = {"user": user, "group": user, "extra_groups": []} if user else {}
        done = subprocess.run(
            command, cwd=self.place, env=environ, capture_output=True, text=True, timeout=MOST_SECONDS, check=False, **who
        )
        if user != ATTACKER:
            self.peaks[Path(words[0]).stem] = max(self.peaks.get(Path(words[0]).stem, 0), int(peak.read_text()) >> 10)
        peak.unlink()
        said = done.stdout + done.stderr
        assert "Traceback" not in said, said[-3000:]
        assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]", said), "signs that steer a terminal"
        assert code is None or done.returncode == code, said[-3000:]
        return done.stdout

    def said(self) -> dict[str, str]:
        """Return all that is said of the victim's job, as far as no clock is in it."""
        where = ("--store", str(self.store), "--job", VICTIM_JOB)
        objects = {path.path: Store(str(self.store)).read(path).hex() for path in Store(str(self.store)).segments(VICTIM_JOB)}
        report = json.loads(self.run(VICTIM, "analyze", *where, "--format", "json"))
        report.pop("provenance", None)
        return {
            "objects": json.dumps(objects),
            "owner": str(Store(str(self.store)).owner(VICTIM_JOB)),
            "verify": self.run(VICTIM, "verify", *where),
            "last": self.run(VICTIM, "verify", "--last", *where),
            "analyze": json.dumps(report, sort_keys=True),
            "goodput": self.run(VICTIM, "goodput", VICTIM_JOB, *where[:2], "--format", "json"),
        }


@pytest.fixture(scope="module")
def attack() -> Iterator[Attack]:
    with made_place() as place:
        os.chown(place / "store", 0, 0)  # a store of several users: root's, in which everybody may make jobs
        (place / "store" / "jobs").mkdir()
        (place / "store" / "jobs").chmod(0o1777)
        made = Attack(place)
        own = 'p = rank(f"{place}/spool/run-own"); p.step(); save(p, Path(f"{place}/victim/own.pt"), b"own", step=1); p.end()'
        python(VICTIM, place, own)
        assert test_neighbours.victim_trains(place).returncode == 0
        made.before = made.said()
        script = str(Path(__file__).parents[1] / "support" / "attacker.py")
        made.planted = json.loads(made.run(ATTACKER, script, str(place), python=()))
        yield made
        sys.stderr.write(f"\n{len(made.planted['planted'])} forgeries; MiB: {made.peaks}\n")


def test_the_attacker_has_at_least_forty_forgeries_and_ten_thousand_mutated_records(attack: Attack) -> None:
    assert len(FORGERIES) >= 40
    assert attack.planted["planted"] == list(FORGERIES)
    assert attack.planted["mutated"] == MUTATED_RECORDS


def test_nothing_that_is_said_of_the_victims_job_changes(attack: Attack) -> None:
    now = attack.said()

    assert {name for name in now if now[name] != attack.before[name]} == set()
    assert max(attack.peaks.values()) < MOST_MEBIBYTES, attack.peaks


def test_a_run_of_the_victims_is_as_it_would_be_alone(attack: Attack) -> None:
    (attack.place / "victim" / "train.py").write_text(test_neighbours.TRAIN)
    words = ("run", "--job", "alone", "--store", str(attack.store), "--", interpreter(), str(attack.place / "victim" / "train.py"))
    attack.run(VICTIM, *words)

    store = Store(str(attack.store))
    assert store.owner("alone") == Owner(VICTIM)
    kinds = [json.loads(line)["kind"] for one in store.segments("alone") for line in store.read(one).splitlines()]
    assert kinds.count("StepDone") == 5
    assert max(attack.peaks.values()) < MOST_MEBIBYTES, attack.peaks


@pytest.mark.parametrize(
    "words",
    [
        pytest.param(("store", "ls", "--limit", "1000"), id="store ls"),
        pytest.param(("store", "failures"), id="store failures"),
        pytest.param(("store", "quarantine", VICTIM_JOB), id="store quarantine"),
        pytest.param(("store", "traces", "documents"), id="store traces"),
        pytest.param(("watch", "--once"), id="watch"),
    ],
)
def test_who_looks_at_all_jobs_is_neither_stopped_nor_misled(attack: Attack, words: tuple[str, ...]) -> None:
    said = attack.run(VICTIM, *words, "--store", str(attack.store), code=None)

    if "ls" in words:
        assert re.search(rf"(?m)^{VICTIM_JOB} +completed +1 +5 +1 ", said)
    if "watch" in words:
        assert re.search(rf"(?m)^{VICTIM_JOB}: completed, 2 workers", said)
    if "quarantine" in words:
        assert said.strip() == f"no shard of job {VICTIM_JOB} is quarantined"
    assert max(attack.peaks.values()) < MOST_MEBIBYTES, attack.peaks


def test_every_analyzer_and_the_explorer_stand_all_jobs_of_the_attacker(attack: Attack) -> None:
    program = str(Path(__file__).parents[1] / "support" / "looking_at_all.py")
    assert "reports" in attack.run(VICTIM, program, "reports", str(attack.store), python=())
    said = attack.run(VICTIM, program, "pages", str(attack.store), VICTIM_JOB, python=())

    assert VICTIM_JOB in said
    assert "<script>" not in said
    assert max(attack.peaks.values()) < MOST_MEBIBYTES, attack.peaks


@contextlib.contextmanager
def agent_that_sees_the_victim(place: Path) -> Iterator[AgentProcess]:
    """Run root's agent over a spool, and a job `bert` of the victim's that it sees, and ships whole."""
    path = os.pathsep.join(filter(None, sys.path))
    agent = AgentProcess(place, {"PYTHONPATH": path}, limits={"bytes_per_second": 8 << 20})
    agent.start()
    try:
        python(VICTIM, place, 'p = rank(f"{place}/spool/run-bert", job="bert")\nfor _ in range(7): p.step()\np.end()')
        wait_for(lambda: (found := SEEN.search(agent.get("/metrics"))) and found[1] == "7")
        store = Store(str(place / "store"))
        wait_for(lambda: not (place / "spool" / "run-bert").exists())
        assert store.owner("bert") == Owner(VICTIM)
        lines = [json.loads(line) for one in store.segments("bert") for line in store.read(one).splitlines()]
        assert [line["kind"] for line in lines] == ["JobStarted", *["StepDone"] * 7, "JobEnded"]
        yield agent
        assert "Traceback" not in agent.log.read_text(errors="replace")
    finally:
        agent.kill()


def peak_of(agent: AgentProcess) -> int:
    """Return the most memory that an agent had so far, in MiB."""
    assert agent.process is not None
    found = re.search(r"VmHWM:\s+(\d+)", Path(f"/proc/{agent.process.pid}/status").read_text())
    assert found is not None
    return int(found[1]) >> 10


def test_the_agent_sees_and_ships_the_victims_job(attack: Attack) -> None:
    with agent_that_sees_the_victim(attack.place) as agent:
        attack.peaks["agent"] = peak_of(agent)

    now = attack.said()
    assert {name for name in now if now[name] != attack.before[name]} == set()
    assert attack.peaks["agent"] < MOST_MEBIBYTES_OF_AGENT, attack.peaks


FLOOD = r"""
    for number in range(8):
        p = rank(f"{place}/spool/run-flood-{number}", job=f"flood{number}")
        shards = [records.ShardSum(path="p" * 4000 + f"/{n}", bytes=1, checksum="x:0") for n in range(220)]
        for step in range(3):
            saved = {"step": step, "reference": f"{step}" + "r" * 4000}
            p.write(records.CheckpointManifest, shards=shards, **saved)
            p.write(records.CheckpointSaved, blocking_seconds=0.1, bytes=1, **saved)
        for n in range(10_000):
            p.write(records.ShardFailed, shard=f"{n}" + "\u4e16" * 600, error="\u4e16" * 250)
        p.end()
"""


def test_what_the_agent_keeps_of_long_texts_is_bounded(place: Path) -> None:
    python(ATTACKER, place, FLOOD)
    with agent_that_sees_the_victim(place) as agent:
        wait_for(lambda: not list((place / "spool").glob("run-flood-*")))
        assert SEEN.search(agent.get("/metrics"))
        assert peak_of(agent) < MOST_MEBIBYTES_OF_AGENT
