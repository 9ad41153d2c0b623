"""At which line of a training the time goes, and what for: samples of real loops under the probe."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

import pytest

from helpers import execute, records_of
from once import made_once

SCRIPT = """
import sys
import time
import torch
import tachoscope
from torch.utils.data import DataLoader, Dataset

CPU_SECONDS = float(sys.argv[1])  # of whoever does what is looked for: that is how often it is seen, however full the machine is
STEPS = 150
model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)

def tokenize():
    words = {}
    for number in range(20_000):
        words[str(number % 977)] = words.get(str(number % 977), 0) + 1
    return words

def get_batch():
    tokenize()
    return torch.stack([torch.rand(64) for _ in range(30)])

def in_the_loop():
    while True:
        yield get_batch()

class Slow(Dataset):
    def __len__(self):
        return 1_000_000
    def __getitem__(self, index):
        tokenize()
        return torch.rand(64), time.process_time()

def slow():
    for batch, cpu_seconds in DataLoader(Slow(), batch_size=4, num_workers=1):
        yield batch
        if cpu_seconds.max() > CPU_SECONDS:
            return

def train(batches, *, before_backward=0.0, validate_every=0, steps=None):
    begin, step = time.thread_time(), 0
    for batch in batches:
        if step and validate_every and step % validate_every == 0:
            validate()
        loss = model(batch).square().mean()
        if before_backward:
            time.sleep(before_backward)  # the stall
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        step += 1
        if step == steps or (steps is None and time.thread_time() - begin > CPU_SECONDS):
            return

def validate():
    with torch.no_grad():
        for _ in range(600):
            model(torch.rand(64, 64))

LOOPS = {
    "tokenizer": lambda: train(in_the_loop()),
    "worker": lambda: train(slow(), steps=1_000_000),
    "stall": lambda: train([torch.rand(8, 64)] * 1_000_000, before_backward=0.03, steps=STEPS),
    "evaluation": lambda: train([torch.rand(8, 64)] * 1_000_000, validate_every=2),
}

if __name__ == "__main__":
    for job in sys.argv[2:]:
        with tachoscope.watch(job=job):
            LOOPS[job]()
"""


@pytest.fixture(scope="module")
def jobs(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Path:
    """Train the loops of the tests that run, each watched as a job of its own, one after the other in one process."""
    bars = request.config.getoption("--bar-runs") >= 10
    cpu_seconds, names = ("3", ["stall", "evaluation", "tokenizer", "worker"]) if bars else ("1", ["stall", "evaluation"])

    def make(folder: Path) -> None:
        (folder / "work").mkdir(exist_ok=True)
        (folder / "work" / "train.py").write_text(SCRIPT)
        done = execute(folder, sys.executable, "train.py", cpu_seconds, *names)
        assert done.returncode == 0, done.stderr
        assert "tachoscope" not in done.stderr

    return made_once(tmp_path_factory, "lines", make)


def seen(jobs: Path, job: str, phase: str) -> Counter[str]:
    """Return the functions that were seen in a phase, with the numbers of samples."""
    found: Counter[str] = Counter()
    for beat in records_of(jobs, job).heartbeats:
        for line, count in beat.where.get(phase, {}).items():
            found[line.split()[-1]] += count
    return found


@pytest.mark.parametrize("job", ["tokenizer", "worker"])
@pytest.mark.bar  # the sampler is tested in a process, and measured in benchmarks/lines
def test_pure_python_that_makes_the_input_is_named_though_it_holds_the_interpreters_lock(jobs: Path, job: str) -> None:
    found = seen(jobs, job, "data_wait")

    assert found.total() >= 10
    assert found["tokenize"] >= 0.7 * found.total()


def test_a_sleep_between_model_and_backward_is_a_pause_at_its_line(jobs: Path) -> None:
    line = SCRIPT.splitlines().index("            time.sleep(before_backward)  # the stall") + 1
    pauses: Counter[str] = Counter()
    asleep: Counter[str] = Counter()
    for beat in records_of(jobs, "stall").heartbeats:
        pauses.update(beat.where.get("pause", {}))
        asleep.update(beat.activity.get("loss", {}))

    assert pauses.most_common(1)[0][0] == f"train.py:{line} train"
    assert asleep.most_common(1)[0][0] == "loss sleep"


def test_an_evaluation_is_named_by_the_function_that_evaluates(jobs: Path) -> None:
    assert seen(jobs, "evaluation", "evaluation").most_common(1)[0][0] == "validate"
