"""`tachoscope run` with real commands: what it may never do to them, and what must be in the store afterwards."""

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import forked
from processes import wait_for
from tachoscope_analyzers.records.load import JobRecords, from_store, status
from tachoscope_cli.launcher.run import AGENT_SHIPS_SECONDS, GRACE_SECONDS
from tachoscope_core.records.records import LAUNCHER_RANK
from tachoscope_core.storage.store import Store

TRAIN = """
import os, signal, sys, time
import torch
torch.set_num_threads(1)
model, steps = torch.nn.Linear(8, 2), int(sys.argv[1])
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
data = torch.utils.data.TensorDataset(torch.randn(steps * 4, 8), torch.randint(0, 2, (steps * 4,)))
for number, (x, y) in enumerate(torch.utils.data.DataLoader(data, batch_size=4)):
    optimizer.zero_grad()
    torch.nn.functional.cross_entropy(model(x), y).backward()
    optimizer.step()
    exec(sys.argv[2] if len(sys.argv) > 2 else "")
print("trained", flush=True)
"""


COUNT = """
import os, sys, time
import tachoscope
for number in range(int(sys.argv[1])):
    tachoscope.step()
    exec(sys.argv[2] if len(sys.argv) > 2 else "")
print("trained", flush=True)
"""
"""Steps without torch, whose import takes longer than the steps. For tests about records, which do not depend on torch."""


@pytest.fixture
def train(tmp_path: Path) -> str:
    path = tmp_path / "train.py"
    path.write_text(TRAIN)
    return str(path)


@pytest.fixture
def count(tmp_path: Path) -> str:
    path = tmp_path / "count.py"
    path.write_text(COUNT)
    return str(path)


def run(*command: str, options: tuple[str, ...] = ("--job", "j")) -> subprocess.CompletedProcess[str]:
    place = Path(os.environ["TACHOSCOPE_STORE"]).parent
    return forked.run(("run", *options, "--", *command), cwd=Path.cwd(), environ=dict(os.environ), outputs=place, seconds=500)


def records(job: str = "j") -> JobRecords:
    return from_store(Store(os.environ["TACHOSCOPE_STORE"]), job)


def left_in_spool() -> list[Path]:
    return list(Path(os.environ["TACHOSCOPE_SPOOL"]).rglob("*"))


def test_the_command_is_unchanged_and_every_step_is_in_the_store(train: str) -> None:
    command = [sys.executable, "-m", "tachoscope_cli.main", "run", "--job", "j", "--", sys.executable, train, "23"]
    done = subprocess.run(command, capture_output=True, text=True)

    assert (done.returncode, done.stdout) == (0, "trained\n")
    assert "next: tachoscope analyze" in done.stderr
    assert [step.step for step in records().steps] == list(range(1, 24))
    assert status(records(), now=time.time()) == "completed"
    assert left_in_spool() == []


@pytest.mark.parametrize(
    ("code", "exit_code", "reason"),
    [pytest.param("sys.exit(7)", 7, "exit code 7", marks=pytest.mark.bar), ("os.kill(os.getpid(), 9)", 137, "killed by SIGKILL")],
)
def test_exit_codes_and_signals_pass_through_and_the_job_shows_as_failed(
    count: str, code: str, exit_code: int, reason: str
) -> None:
    done = run(sys.executable, count, "23", f"number == 16 and {code}")

    assert done.returncode == exit_code
    assert len(records().steps) == 17
    assert status(records(), now=time.time()) == "failed"
    assert next(end for end in records().ends if end.rank == LAUNCHER_RANK).reason == reason


KILL_RANK_1 = """
time.sleep(0.01)
if number == 12 and os.environ["RANK"] == "0":
    open("rank-0-trains", "w").close()
if number == 22 and os.environ["RANK"] == "1":
    while not os.path.exists("rank-0-trains"): time.sleep(0.01)
    os.kill(os.getpid(), 9)
"""


@pytest.mark.bar  # test_run_watch.py kills one, too
def test_kill_9_of_one_rank_keeps_all_records_up_to_then(train: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    torchrun = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
    done = run(sys.executable, *torchrun, train, "2000", KILL_RANK_1)

    assert done.returncode != 0
    assert max(step.step for step in records().steps if step.rank == 1) == 23
    assert max(step.step for step in records().steps if step.rank == 0) >= 12
    assert status(records(), now=time.time()) == "failed"


@pytest.mark.bar
def test_kill_9_late_in_a_run_of_short_steps_loses_at_most_a_tenth_of_a_second(train: str) -> None:
    run(sys.executable, train, "1000", "time.sleep(0.005); number == 399 and os.kill(os.getpid(), 9)")

    assert 400 - 0.15 / 0.005 <= max(step.step for step in records().steps) <= 400


@pytest.mark.bar  # test_run_with_agent shows it through an agent
def test_a_second_run_of_a_job_is_its_next_attempt(train: str) -> None:
    run(sys.executable, train, "5")
    run(sys.executable, train, "7")

    assert sorted({step.attempt for step in records().steps}) == [0, 1]
    assert len(records().steps) == 12


@pytest.mark.bar  # tests/probe/spool/test_outbox.py ships what was left
def test_what_a_killed_run_left_behind_is_shipped_by_the_next(train: str) -> None:
    command = [sys.executable, "-m", "tachoscope_cli.main", "run", "--job", "killed", "--"]
    process = subprocess.Popen([*command, sys.executable, train, "100000", "time.sleep(0.01)"], start_new_session=True)
    end = time.monotonic() + 60
    while not any(path.stat().st_size > 5000 for path in left_in_spool() if path.suffix == ".jsonl") and time.monotonic() < end:
        time.sleep(0.1)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()

    run(sys.executable, train, "3")

    assert len(records("killed").steps) > 3
    assert left_in_spool() == []


def test_a_stop_signal_reaches_the_command_and_its_records_are_kept(count: str) -> None:
    command = [sys.executable, "-m", "tachoscope_cli.main", "run", "--job", "j", "--"]
    process = subprocess.Popen([*command, sys.executable, count, "100000", "time.sleep(0.01)"])
    end = time.monotonic() + 60
    while not any(path.stat().st_size > 5000 for path in left_in_spool() if path.suffix == ".jsonl") and time.monotonic() < end:
        time.sleep(0.1)
    process.terminate()

    assert process.wait(timeout=120) == 143
    assert len(records().steps) > 3


COUNTS_INTERRUPTS = """
import signal, sys, time
got = []
signal.signal(signal.SIGINT, lambda *_: got.append(1))
print("ready", flush=True)
while not got: time.sleep(0.01)
time.sleep(1)
print("interrupts:", len(got), flush=True)
sys.exit(7)
"""
IN_A_TERMINAL = "import os, pty, sys; sys.exit(os.waitstatus_to_exitcode(pty.spawn(sys.argv[1:])))"


@pytest.mark.parametrize("how", ["sent to the run alone", "typed into its terminal"])
def test_an_interrupt_reaches_the_command_once_and_its_exit_code_is_ours(how: str) -> None:
    typed = how.startswith("typed")
    words = [sys.executable, "-m", "tachoscope_cli.main", "run", "--job", "j", "--", sys.executable, "-c", COUNTS_INTERRUPTS]
    terminal = [sys.executable, "-c", IN_A_TERMINAL] if typed else []
    process = subprocess.Popen([*terminal, *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdin is not None and process.stdout is not None
    assert process.stdout.readline().strip() == b"ready"
    if typed:
        process.stdin.write(b"\x03")
        process.stdin.flush()
    else:
        process.send_signal(signal.SIGINT)
    said = process.stdout.read()

    assert process.wait(timeout=120) == 7
    assert b"interrupts: 1" in said
    assert left_in_spool() == []


def processes_of_this_test() -> list[str]:
    mark = f"TACHOSCOPE_STORE={os.environ['TACHOSCOPE_STORE']}".encode()  # the demo gives its jobs a spool of its own
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if path.name != str(os.getpid()) and mark in (path / "environ").read_bytes():
                found.append((path / "cmdline").read_text())
    return found


@pytest.mark.parametrize("moment", ["before the agent lives", "in the training"])
@pytest.mark.bar(but=("in the training",))
def test_ctrl_c_in_the_demo_is_one_line_and_ends_all_its_processes_at_once(moment: str) -> None:
    command = [sys.executable, "-m", "tachoscope_cli.main", "demo", "--steps", "10000"]
    demo = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True)
    wanted = "demo_training" if moment == "in the training" else "tachoscope_cli.main\0agent"
    end = time.monotonic() + 60
    while not any(wanted in line for line in processes_of_this_test()) and time.monotonic() < end:
        time.sleep(0.1)
    time.sleep(2.0 if moment == "in the training" else 0.0)
    began = time.monotonic()
    os.killpg(demo.pid, signal.SIGINT)
    _, said = demo.communicate(timeout=120)
    wait_for(lambda: not processes_of_this_test(), 120)

    assert time.monotonic() - began < min(AGENT_SHIPS_SECONDS, GRACE_SECONDS), "it waited for nothing that it might wait for"
    assert (demo.returncode, said) == (130, "tachoscope: interrupted\n")


def test_a_command_without_torch_is_not_disturbed() -> None:
    done = run("sh", "-c", "echo out; echo err >&2; exit 3")

    assert (done.returncode, done.stdout) == (3, "out\n")
    assert "err\n" in done.stderr
    assert "no training step was seen" in done.stderr


@pytest.mark.bar  # as the next, with a real file system
def test_a_spool_that_cannot_be_written_lets_the_training_finish_and_counts(
    train: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("TACHOSCOPE_SPOOL", str(tmp_path / "file" / "spool"))

    done = run(sys.executable, train, "23")

    assert (done.returncode, done.stdout) == (0, "trained\n")
    # With start, end, and a heartbeat; on a slow machine more of these.
    assert re.search(r"tachoscope: rank 0: 2[6-9] records dropped, the training was not affected", done.stderr), done.stderr


def test_a_store_that_cannot_be_written_keeps_the_records_in_the_spool(count: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    done = run(sys.executable, count, "23", options=("--job", "j", "--store", str(tmp_path / "file" / "store")))

    assert (done.returncode, done.stdout) == (0, "trained\n")
    assert "the records stay in" in done.stderr
    assert any(path.suffix == ".jsonl" for path in left_in_spool())


_UNDER_MOUNT = 'mount -t tmpfs -o "$1" tmpfs "$TACHOSCOPE_SPOOL" || exit 99; shift; exec "$@"'


@pytest.mark.skipif(os.geteuid() != 0 or shutil.which("unshare") is None, reason="needs root and unshare to mount a small tmpfs")
@pytest.mark.parametrize("options", ["size=256k", pytest.param("ro", marks=pytest.mark.bar)])
def test_with_a_real_full_or_read_only_spool_the_training_finishes_and_the_counter_says_how_many(count: str, options: str) -> None:
    Path(os.environ["TACHOSCOPE_SPOOL"]).mkdir()
    command = [sys.executable, "-m", "tachoscope_cli.main", "run", "--job", "j", "--", sys.executable, count, "1000"]

    done = subprocess.run(["unshare", "-m", "sh", "-c", _UNDER_MOUNT, "sh", options, *command], capture_output=True, text=True)
    if done.returncode == 99:
        pytest.skip("cannot mount here")

    assert (done.returncode, done.stdout) == (0, "trained\n")
    line = next(line for line in done.stderr.splitlines() if "records dropped" in line)
    dropped = int(line.split("rank 0: ")[1].split()[0])
    kept = len(records().steps) if options.startswith("size") else 0
    assert dropped + kept == pytest.approx(1003, abs=3)  # with start, heartbeats and end
    assert dropped > 0
