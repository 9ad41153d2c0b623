"""The probe's promise: whatever goes wrong in it, the job's exit code, output and numbers are those without it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from helpers import REPOSITORY, execute, records_of, run_watched, steps_of

FAULTY = REPOSITORY / "tests" / "trainings" / "faulty_training.py"
SAMPLED_LINES, SEED = "8", "22"
"""All 1,500 take an hour: `python tests/trainings/faulty_training.py all`."""


def test_a_fault_in_any_line_of_the_probe_changes_neither_output_nor_exit_code(tmp_path: Path) -> None:
    done = execute(tmp_path, sys.executable, str(FAULTY), "some", SAMPLED_LINES, SEED)

    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


NUMBERS = """
import os, numpy, torch, tachoscope
for number in range(12):
    tachoscope.step(samples=numpy.float64(3), tokens=numpy.int64(7) if number % 2 else torch.tensor(7))
tachoscope.step(samples="many", tokens=float("nan"))
tachoscope.saved(seconds=numpy.float32(0.5), size_bytes=numpy.int64(5), reference="/ckpt/1")
tachoscope.saved(reference="a\\0b")
tachoscope.saved(reference=b"/ckpt/\\xff")
tachoscope.restored(step=numpy.int64(3), reference="/ckpt/1")
tachoscope.parameters_read(numpy.int64(1))
tachoscope.parameters_applied(numpy.int64(3), bound=torch.tensor(4))
class Odd(os.PathLike):
    def __fspath__(self): raise KeyError("odd")
    def __str__(self): raise KeyError("odd")
tachoscope.saved(reference=Odd(), seconds=float("nan"), size_bytes=-1)
tachoscope.restored(reference="/\\ud800", seconds="a\\0b", step=float("inf"))
tachoscope.describe(hyperparameters={"a": Odd()}, image=Odd(), data_snapshot=Odd(), parents=[Odd()])
with tachoscope.shard(Odd(), size_bytes=-1):
    pass
tachoscope.describe(hyperparameters={"lr": numpy.float32(0.1), 1: object()}, parents=[b"/ckpt/\\xff"])
with tachoscope.shard("a\\0b", size_bytes=numpy.int64(3)):
    pass
service = tachoscope.service("chat")
with service.request(tokens_in=numpy.int64(5)) as request:
    request.token(numpy.int64(2))
with service.engine().batch(decode_tokens=numpy.int64(1), kv_used=numpy.float32(0.5)):
    pass
print("done")
"""


NOT_RECORDED = {
    "step(samples)": "str",
    "step(tokens)": "float",
    "saved(reference)": "str",
    "saved(seconds)": "float",
    "saved(size_bytes)": "int",
    "restored(reference)": "str",
    "restored(seconds)": "str",
    "restored(step)": "float",
    "describe(hyperparameters)": "dict",
    "describe(image)": "Odd",
    "describe(data_snapshot)": "Odd",
    "describe(parents)": "list",
    "shard(name)": "Odd",
    "shard(size_bytes)": "int",
}
"""Arguments of `NUMBERS`, and the type of the first value that cannot be recorded."""


def test_numbers_of_numpy_and_torch_are_recorded_and_what_is_no_number_costs_a_line(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "train.py").write_text(NUMBERS)
    done = run_watched(tmp_path, sys.executable, "train.py")

    assert (done.returncode, done.stdout.splitlines()[0]) == (0, "done")
    assert [name for name, kind in NOT_RECORDED.items() if f"{name} of type {kind} is not recorded: " not in done.stderr] == []
    assert "Traceback" not in done.stderr
    assert "fault of the probe" not in done.stderr
    job = records_of(tmp_path)
    assert [(step.samples, step.tokens) for step in steps_of(job)] == [(3, 7)] * 12 + [(0, 0)]
    assert [(row.blocking_seconds, row.bytes, row.reference) for row in job.checkpoints][:2] == [(0.5, 5, "/ckpt/1"), (0.0, 0, "")]
    assert [row.step for row in job.restores] == [3, -1]
    assert job.source.dropped == 0
    served = records_of(tmp_path, "chat")
    assert [(row.tokens_in, row.tokens_out) for row in served.requests] == [(5, 2)]


SIGNALS = """
import gc, random, signal
import tachoscope
gc.disable()
raised = caught = 0
def handler(number, frame):
    global raised
    raised += 1
    raise RuntimeError("a worker died")
def again():
    signal.setitimer(signal.ITIMER_REAL, random.uniform(1e-6, 2e-4))
def step():
    with tachoscope.phase("data_wait"):
        pass
    with tachoscope.shard("/data/1"):
        pass
    tachoscope.step(tokens=1)
    tachoscope.preempted()
    tachoscope.checkpoint_due(1, every=10)
    tachoscope.parameters_read(1)
for _ in range(30):
    step()  # what is imported late may swallow what is raised meanwhile
signal.signal(signal.SIGALRM, handler)
for _ in range(1000):
    try:
        again()
        step()
        signal.setitimer(signal.ITIMER_REAL, 0)  # within the block: at its very end nothing would catch
    except RuntimeError as error:
        assert str(error) == "a worker died", error
        caught += 1
print(raised, caught)
"""


def test_what_a_signal_handler_of_the_jobs_raises_within_the_probe_reaches_the_job(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "train.py").write_text(SIGNALS)
    done = run_watched(tmp_path, sys.executable, "train.py")

    assert done.returncode == 0, done.stderr
    raised, caught = map(int, done.stdout.split()[:2])
    assert raised == caught > 50
    assert "not watching" not in done.stderr


@pytest.mark.parametrize("closed", ["sys.stderr = None", "sys.stderr.close()", "os.close(2)"])
@pytest.mark.bar(but=("os.close(2)",))
def test_a_job_without_stderr_goes_on(tmp_path: Path, closed: str) -> None:
    script = (
        f"import os, sys, tachoscope\n{closed}\ntachoscope.step(tokens='x')\nfor _ in range(3): tachoscope.step()\nprint('done')"
    )
    done = run_watched(tmp_path, sys.executable, "-c", script)

    assert (done.returncode, done.stdout.splitlines()[0]) == (0, "done")
    assert len(steps_of(records_of(tmp_path))) == 4
