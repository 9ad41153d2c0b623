"""Which job and rank a process is: real processes, told by their environment."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from processes import wait_for
from tachoscope_node.profiling.clients import FORGET_SECONDS, ClientProcess, Clients, KnownProcess, UnknownError, identify
from tachoscope_node.profiling.endpoint import Sender
from trying import each

PROC = Path("/proc")
ME = os.geteuid()
SLEEP = [sys.executable, "-S", "-c", "import time; time.sleep(60)"]


@contextlib.contextmanager
def process(*command: str, **environ: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run a process with nothing in its environment but what is given."""
    with subprocess.Popen(command or SLEEP, env=environ) as made:
        words = list(map(os.fsencode, command or SLEEP))
        wait_for(lambda: (PROC / str(made.pid) / "cmdline").read_bytes().split(b"\0")[:-1] == words)  # no fork of this one any more
        try:
            yield made
        finally:
            made.kill()


def who(made: subprocess.Popen[bytes], known: dict[int, KnownProcess] | None = None) -> ClientProcess:
    return identify(PROC, Sender(made.pid, ME), known or {})


def test_a_rank_is_known_by_what_its_launcher_and_scheduler_say() -> None:
    with process(RANK="3", WORLD_SIZE="8", LOCAL_WORLD_SIZE="8", TORCHELASTIC_RUN_ID="resnet") as made:
        found = who(made)
    assert (found.job, found.rank, found.world_size, found.has_rank) == ("resnet", 3, 8, True)
    assert found.parent == os.getpid()

    with process(SLURM_JOB_ID="47", SLURM_PROCID="1", SLURM_STEP_NUM_TASKS="2") as made:
        assert (who(made).job, who(made).rank, who(made).world_size) == ("slurm-47", 1, 2)
    with process(RANK="0", WORLD_SIZE="2", TACHOSCOPE_JOB="named", TORCHELASTIC_RUN_ID="resnet") as made:
        assert who(made).job == "named"


def test_a_job_that_nobody_named_is_its_script_and_its_launchers_pid(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("import time; time.sleep(60)")
    with process(sys.executable, str(script), RANK="1", WORLD_SIZE="2") as made:
        assert who(made).job == f"train-{os.getpid()}"
    with process(sys.executable, str(script)) as made:
        alone = who(made)
        assert (alone.job, alone.rank, alone.world_size, alone.has_rank) == (f"train-{made.pid}", 0, 1, False)


@each(
    "environ",
    [
        {"RANK": "8", "WORLD_SIZE": "8"},
        {"RANK": "0", "WORLD_SIZE": "9999999"},
        {"RANK": "0", "WORLD_SIZE": "1", "TACHOSCOPE_JOB": "../../etc"},
        {"RANK": "0", "WORLD_SIZE": "16", "LOCAL_WORLD_SIZE": "8"},  # of two nodes, and no name that both know
    ],
)
def test_what_cannot_be_is_unknown_with_its_reason(environ: dict[str, str]) -> None:
    with process(**environ) as made, pytest.raises(UnknownError, match=r"\w"):
        who(made)


def test_a_process_that_cannot_be_seen_is_unknown() -> None:
    with pytest.raises(UnknownError, match="namespace"):
        identify(PROC, Sender(0, ME), {})
    with process() as made:
        pass
    with pytest.raises(UnknownError, match="could not read"):
        who(made)


def test_a_process_under_the_probe_is_what_its_own_user_says_it_is() -> None:
    with process() as made:
        assert (who(made, {made.pid: KnownProcess(ME, "resnet", 1, 2)}).job, who(made).has_rank) == ("resnet", False)
        assert who(made, {made.pid: KnownProcess(ME + 1, "stolen", 1, 2)}).job != "stolen"


def _environ_of(pid: int) -> bytes:
    return (PROC / str(pid) / "environ").read_bytes()


class _World:
    """Processes that ask, on a clock that stands still."""

    def __init__(self) -> None:
        self.now = 100.0
        self.clients = Clients(PROC, dict, lambda: self.now)

    def ranks(self, job: str) -> dict[int, int]:
        return {rank: who.pid for rank, who in self.clients.jobs().get(job, {}).items()}


def test_neither_the_launcher_nor_loader_workers_are_ranks() -> None:
    world = _World()
    rank = {"RANK": "0", "WORLD_SIZE": "1", "TORCHELASTIC_RUN_ID": "resnet"}
    worker = "import subprocess, sys; print(subprocess.Popen([*sys.argv[1:]]).pid, flush=True); import time; time.sleep(60)"
    with subprocess.Popen([sys.executable, "-S", "-c", worker, *SLEEP], env=rank, stdout=subprocess.PIPE) as made:
        assert made.stdout is not None
        child = int(made.stdout.readline())
        wait_for(lambda: b"sleep(60)\0" in (PROC / str(child) / "cmdline").read_bytes() and _environ_of(child))
        for pid in (child, os.getpid(), made.pid):
            world.clients.identify(Sender(pid, ME))

        assert world.ranks("resnet") == {0: made.pid}
        assert list(world.clients.jobs()) == ["resnet"]
        os.kill(child, 9)
        made.kill()


def test_a_job_is_one_users_and_another_cannot_take_a_rank_of_it() -> None:
    world = _World()
    with process(RANK="0", WORLD_SIZE="2", TORCHELASTIC_RUN_ID="resnet") as first:
        world.clients.identify(Sender(first.pid, ME))
        with process(RANK="1", WORLD_SIZE="2", TORCHELASTIC_RUN_ID="resnet") as other:
            world.clients.identify(Sender(other.pid, ME + 1))

            assert world.ranks("resnet") == {0: first.pid}


def test_a_process_that_asks_no_longer_is_forgotten() -> None:
    world = _World()
    with process(RANK="0", WORLD_SIZE="1", TORCHELASTIC_RUN_ID="resnet") as made:
        world.clients.identify(Sender(made.pid, ME))
        world.now += FORGET_SECONDS - 1
        assert world.ranks("resnet") == {0: made.pid}
        world.now += 2
        assert world.ranks("resnet") == {}


def test_why_a_process_is_not_profiled_is_told() -> None:
    world = _World()
    with process(RANK="2", WORLD_SIZE="2") as made:
        world.clients.identify(Sender(made.pid, ME))

        assert world.clients.unknown() == {made.pid: "it cannot be rank 2 of 2"}
        assert world.clients.jobs() == {}
