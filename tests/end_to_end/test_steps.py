"""What counts as a step, and to which phase time goes, in real training loops under the probe."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from helpers import assert_phases_sum, execute, records_of, run_watched, seconds_by_phase, steps_of
from once import made_once
from tachoscope.timing import procfs
from tachoscope_analyzers.job.report import analyze
from tachoscope_analyzers.records.load import JobRecords, status
from tachoscope_core.records.records import COMPILATIONS
from tachoscope_core.storage import spool
from training_loops import BATCHES, LOOPS, PAUSE

LOOPS_FILE = str(Path(__file__).parents[1] / "trainings" / "training_loops.py")


@pytest.fixture(scope="module")
def loops(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Run all loops, each watched as a job of its own, one after the other in one process."""

    def make(folder: Path) -> None:
        done = execute(folder, sys.executable, LOOPS_FILE)
        assert done.returncode == 0, done.stderr
        assert "tachoscope" not in done.stderr

    return made_once(tmp_path_factory, "loops", make)


def counted(loops: Path, name: str) -> int:
    return len(steps_of(records_of(loops, name)))


def phases(loops: Path, name: str) -> dict[str, float]:
    return seconds_by_phase(steps_of(records_of(loops, name)))


def script(tmp_path: Path, text: str) -> str:
    path = tmp_path / "script.py"
    path.write_text(textwrap.dedent(text))
    return str(path)


TRAINS = """
import sys
import torch
from torch.utils.data import DataLoader, TensorDataset

def train(updates=5):
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for (x,) in DataLoader(TensorDataset(torch.rand(updates, 4))):
        model(x).sum().backward()
        optimizer.step()
    return model
"""


@pytest.mark.parametrize("name", [function.__name__ for function in LOOPS])
def test_phases_of_every_step_sum_to_its_wall_time(loops: Path, name: str) -> None:
    job = records_of(loops, name)

    assert_phases_sum(steps_of(job))
    assert [step.step for step in steps_of(job)] == list(range(1, len(job.steps) + 1))


@pytest.mark.parametrize("name", ["plain", "two_optimizers", "two_optimizers_without_loader", "without_loader", "inner_updates"])
def test_a_step_is_an_update_of_the_model_not_of_each_optimizer(loops: Path, name: str) -> None:
    assert counted(loops, name) == BATCHES


def test_an_optimizer_for_each_parameter_that_steps_in_backward_counts_one_step_a_batch(loops: Path) -> None:
    assert counted(loops, "optimizers_in_backward") == BATCHES


def test_the_last_batch_of_a_loader_that_was_read_ahead_counts(loops: Path) -> None:
    assert counted(loops, "read_ahead") == 2 * BATCHES
    assert counted(loops, "accelerate_reads_ahead") == 2 * BATCHES
    assert sum(step.samples for step in records_of(loops, "accelerate_reads_ahead").steps) == 2 * 2 * BATCHES


def test_gradient_accumulation_counts_one_step_an_update(loops: Path) -> None:
    assert counted(loops, "accumulation") == BATCHES // 2


def test_samples_are_those_that_the_loader_gave(loops: Path) -> None:
    assert sum(step.samples for step in records_of(loops, "accumulation").steps) == 2 * BATCHES


@pytest.mark.parametrize("name", ["lbfgs", "lbfgs_over_a_loader"])
def test_an_optimizer_that_calls_its_closure_many_times_counts_one_step(loops: Path, name: str) -> None:
    assert counted(loops, name) == BATCHES


def test_what_a_closure_computes_is_forward_and_backward_and_not_optimizer(loops: Path) -> None:
    seconds, pauses = phases(loops, "lbfgs"), int((loops / "work" / "lbfgs_pauses").read_text())

    assert pauses > BATCHES
    assert seconds["forward"] + seconds["loss"] >= pauses * PAUSE  # all of them, so that none is in the optimizer's time
    assert seconds["backward"] > 0


def test_an_optimizer_that_calls_its_base_class_counts_one_step(loops: Path) -> None:
    assert counted(loops, "optimizer_on_a_base_class") == BATCHES


def test_training_on_the_one_batch_of_a_loader_counts_each_update(loops: Path) -> None:
    assert counted(loops, "one_full_batch") == 3 * BATCHES


def test_steps_go_on_when_what_drove_the_loop_is_out_of_use(loops: Path) -> None:
    assert counted(loops, "loader_then_none") == BATCHES + 300
    assert counted(loops, "persistent_loader_then_none") == BATCHES + 300
    assert 500 <= counted(loops, "new_optimizer_without_loader") <= 600


def test_a_step_whose_processor_time_is_read_says_how_long_it_waited_for_a_core(loops: Path) -> None:
    detailed = [step for step in records_of(loops, "loader_then_none").steps if step.cpu_seconds]

    assert len(detailed) >= 100
    if procfs.RunDelay().measured:
        assert all(step.run_delay_seconds for step in detailed)


def test_explicit_steps_count_alone_from_the_first_on(loops: Path) -> None:
    job = records_of(loops, "explicit_for_several_updates")

    assert counted(loops, "explicit") == len(job.steps) == BATCHES
    assert {step.tokens for step in steps_of(job)[1:]} == {7}


def test_a_step_that_raises_does_not_keep_the_phases_that_follow(loops: Path) -> None:
    seconds = phases(loops, "step_that_raises")

    assert counted(loops, "step_that_raises") == BATCHES // 2
    # The pauses up to the last step, also those after a step that raised: so none is in the optimizer's time.
    assert seconds["forward"] + seconds["preparation"] >= (BATCHES - 1) * PAUSE


@pytest.mark.parametrize(
    "name",
    ["evaluation_by_mode", "evaluation_by_mode_with_gradients", "evaluation_by_no_grad", "evaluation_mode_never_left"],
)
def test_evaluation_between_epochs_is_in_its_own_phase(loops: Path, name: str) -> None:
    steps = steps_of(records_of(loops, name))

    # What follows the last step belongs to no step.
    assert [step.step for step in steps if step.phase_seconds.get("evaluation", 0) >= 3 * PAUSE] == [
        BATCHES + 1,
        2 * BATCHES + 1,
    ]
    assert len(steps) == 3 * BATCHES
    assert sum(step.samples for step in steps) == 2 * len(steps)


def test_evaluation_before_the_first_step_is_evaluation(loops: Path) -> None:
    assert steps_of(records_of(loops, "evaluation_before_training"))[0].phase_seconds["evaluation"] >= 3 * PAUSE


def test_training_with_a_frozen_part_in_eval_mode_stays_training(loops: Path) -> None:
    seconds = phases(loops, "frozen_part")

    assert counted(loops, "frozen_part") == 2 * BATCHES
    assert seconds["forward"] + seconds["preparation"] >= 2 * BATCHES * PAUSE
    assert seconds["evaluation"] < PAUSE


def test_batches_taken_without_gradients_count_when_gradients_follow(loops: Path) -> None:
    assert counted(loops, "batches_without_gradients") == BATCHES
    assert phases(loops, "batches_without_gradients")["evaluation"] == 0


def test_a_checkpoint_is_a_phase_and_one_record_with_its_size(loops: Path) -> None:
    job = records_of(loops, "checkpoint")
    work = loops / "work"
    sizes = [(work / "by_keyword.pt").stat().st_size, (work / "by_file.pt").stat().st_size - len(b"header")]

    assert [saved.bytes for saved in job.checkpoints] == sizes  # none for the one that failed
    assert {saved.step for saved in job.checkpoints} == {BATCHES}
    assert [step.step for step in steps_of(job) if "checkpoint" in step.phase_seconds] == [BATCHES + 1]
    phases = steps_of(job)[BATCHES].phase_seconds
    # Garbage may be collected within a save: that is a phase of its own, and stands still all the same.
    still = phases["checkpoint"] + phases.get("gc", 0.0)
    assert still >= sum(saved.blocking_seconds for saved in job.checkpoints) * 0.9


@pytest.mark.parametrize(("name", "saves"), [("checkpoint_in_safetensors", 2), ("distributed_checkpoint", 1)])
def test_each_save_is_recorded_once(loops: Path, name: str, saves: int) -> None:
    assert len(records_of(loops, name).checkpoints) == saves


def test_loader_workers_write_nothing(loops: Path) -> None:
    job = records_of(loops, "worker_processes")

    assert counted(loops, "worker_processes") == 2 * BATCHES
    assert len({row.writer for row in (*job.starts, *job.steps, *job.heartbeats, *job.ends)}) == 1


def test_jobs_watched_one_after_the_other_in_one_process_do_not_mix(loops: Path) -> None:
    jobs = [records_of(loops, function.__name__) for function in LOOPS]

    assert all(len(job.starts) == len(job.ends) == 1 for job in jobs)
    assert len({job.starts[0].writer for job in jobs}) == len(jobs)
    assert len({job.starts[0].pid for job in jobs}) == 1


def test_a_block_that_raises_is_a_failed_job_and_an_orderly_exit_is_not(loops: Path) -> None:
    failed, left = records_of(loops, "raises"), records_of(loops, "exits_in_order")

    assert status(failed, now=0) == "failed"
    assert failed.ends[0].reason == "ValueError"
    assert status(left, now=0) == "completed"


@pytest.fixture(scope="module")
def failing(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, subprocess.CompletedProcess[str]]:
    """A watched training, by a script that looks for torch before it imports it, saves its whole model, and then fails."""
    look = "import importlib.util\nassert importlib.util.find_spec('torch')\n"
    end = "torch.save(train(), 'whole.pt')\nprint('trained')\nraise ValueError('a secret')\n"

    def make(folder: Path) -> None:
        done = run_watched(folder, sys.executable, script(folder, look + TRAINS + end))
        (folder / "work" / "whole.pt").rename(folder / "work" / "watched.pt")
        (folder / "done.json").write_text(json.dumps([done.args, done.returncode, done.stdout, done.stderr]))

    folder = made_once(tmp_path_factory, "failing", make)
    return folder, subprocess.CompletedProcess(*json.loads((folder / "done.json").read_text()))


def test_an_exception_in_training_is_a_failed_job_with_the_same_output_and_exit_code(
    failing: tuple[Path, subprocess.CompletedProcess[str]],
) -> None:
    tmp_path, watched = failing
    job = records_of(tmp_path)

    assert (watched.returncode, watched.stdout) == (1, "trained\n")
    path = tmp_path / "script.py"
    raised = f"  File \"{path}\", line {len(path.read_text().splitlines())}, in <module>\n    raise ValueError('a secret')\n"
    assert watched.stderr.startswith(f"Traceback (most recent call last):\n{raised}ValueError: a secret\n")
    assert status(job, now=0) == "failed"
    assert {end.reason for end in job.ends if end.status == "failed"} == {"ValueError", "exit code 1"}


def test_steps_need_no_torch(tmp_path: Path) -> None:
    file = script(
        tmp_path,
        """
        import sys
        import tachoscope

        for _ in range(4):
            with tachoscope.phase("data_wait"):
                pass
            tachoscope.step(samples=8, tokens=16)
        assert "torch" not in sys.modules
        """,
    )

    assert run_watched(tmp_path, sys.executable, file).returncode == 0
    steps = steps_of(records_of(tmp_path))
    assert [(step.samples, step.tokens) for step in steps] == 4 * [(8, 16)]
    assert_phases_sum(steps)


def test_where_nothing_is_compiled_recompilation_is_measured_and_not_found(
    failing: tuple[Path, subprocess.CompletedProcess[str]],
) -> None:
    job = records_of(failing[0])
    report = analyze(job)

    assert job.compilations == []
    assert job.heartbeats.has(COMPILATIONS).any()
    assert "recompilation" not in {one.class_ for one in report.findings}
    assert "recompilation" not in {row.class_ for row in report.not_measured}


def test_training_is_seen_though_a_library_looked_for_torch_before_its_import(
    failing: tuple[Path, subprocess.CompletedProcess[str]],
) -> None:
    assert len(steps_of(records_of(failing[0]))) == 5


RANKS = (
    TRAINS
    + """
import os
import torch.distributed as dist
import torch.multiprocessing as mp

def rank_main(rank, file):
    dist.init_process_group("gloo", init_method=f"file://{file}", rank=rank, world_size=2)
    train()
    dist.barrier()
    dist.destroy_process_group()

if __name__ == "__main__":
    method, file = sys.argv[1:]
    if method == "spawn":
        mp.spawn(rank_main, args=(file,), nprocs=2)
    else:
        mp.start_processes(rank_main, args=(file,), nprocs=2, start_method="fork")
"""
)


@pytest.mark.parametrize("method", ["spawn", pytest.param("fork", marks=pytest.mark.bar)])  # test_collectives.py forks its ranks
def test_ranks_that_the_script_starts_itself_are_told_apart(tmp_path: Path, method: str) -> None:
    done = run_watched(tmp_path, sys.executable, script(tmp_path, RANKS), method, str(tmp_path / "rendezvous"))
    job = records_of(tmp_path)

    assert done.returncode == 0, done.stderr
    assert sorted((start.rank, start.world_size) for start in job.starts if start.rank >= 0) == [(0, 2), (1, 2)]
    assert [len(steps_of(job, rank)) for rank in (0, 1)] == [5, 5]
    assert len({step.writer for step in job.steps}) == 2
    assert sorted(end.rank for end in job.ends if end.rank >= 0) == [0, 1]


def test_workers_of_every_kind_leave_the_spool_alone(tmp_path: Path) -> None:
    file = script(
        tmp_path,
        """
        import os
        import torch
        from pathlib import Path
        from torch.utils.data import DataLoader, Dataset

        class Data(Dataset):
            def __len__(self):
                return 8
            def __getitem__(self, index):
                torch.save(torch.ones(2), f"saved-{index}.pt")
                with open("flushed", "w") as file:
                    os.fsync(file.fileno())
                return torch.rand(4)

        if __name__ == "__main__":
            model = torch.nn.Linear(4, 1)
            optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
            for method in ("fork", "spawn"):
                for x in DataLoader(Data(), num_workers=1, multiprocessing_context=method):
                    model(x).sum().backward()
                    optimizer.step()
            print(len(list(Path(os.environ["TACHOSCOPE_RUN_DIR"]).glob("*.*"))))
        """,
    )
    done = run_watched(tmp_path, sys.executable, file)
    job = records_of(tmp_path)

    assert done.returncode == 0, done.stderr
    assert len(steps_of(job)) == 16
    assert len({row.writer for row in (*job.starts, *job.steps, *job.heartbeats, *job.checkpoints, *job.ends)}) == 2
    assert not list(spool.segments(tmp_path / "spool")), "all was shipped"


LOADS = """
import sys, torch
print(torch.load(sys.argv[1], weights_only=False)(torch.ones(1, 4)).shape)
assert not [name for name in sys.modules if name.startswith("tachoscope")]
"""


def test_a_model_saved_whole_loads_where_tachoscope_is_not_imported(
    failing: tuple[Path, subprocess.CompletedProcess[str]], tmp_path: Path
) -> None:
    loaded = execute(tmp_path, sys.executable, script(tmp_path, LOADS), str(failing[0] / "work" / "watched.pt"))

    assert loaded.stdout == "torch.Size([1, 1])\n", loaded.stderr


@pytest.mark.bar  # what compiling changes of a model, the test below compares
def test_a_compiled_model_saved_whole_does_so_too(tmp_path: Path) -> None:
    save = TRAINS + "model = train()\ntorch.save(torch.compile(model, backend='eager'), 'whole.pt')\n"
    assert run_watched(tmp_path, sys.executable, script(tmp_path, save)).returncode == 0

    loaded = execute(tmp_path, sys.executable, script(tmp_path, LOADS), "whole.pt")

    assert loaded.stdout == "torch.Size([1, 1])\n", loaded.stderr


@pytest.mark.bar  # compiles
def test_signatures_and_compiled_graphs_are_the_same_as_without_the_probe(tmp_path: Path) -> None:
    file = script(
        tmp_path,
        TRAINS
        + """
import inspect
import torch._dynamo

model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU(), torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
for function in (model.forward, model.train, optimizer.step, torch.save, torch.autograd.backward, DataLoader.__iter__):
    print(inspect.signature(function))
compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
for epoch in range(2):
    compiled.train()
    for (x,) in DataLoader(TensorDataset(torch.rand(8, 4)), batch_size=2):
        compiled(x).sum().backward()
        optimizer.step()
    compiled.eval()
    with torch.no_grad():
        compiled(x)
torch.compile(optimizer.step, backend="eager")()  # its steps are not seen, and it is left alone
counters = torch._dynamo.utils.counters
print(counters["stats"]["unique_graphs"], sum(counters["graph_break"].values()))
""",
    )
    alone = execute(tmp_path, sys.executable, file)
    watched = run_watched(tmp_path, sys.executable, file)

    assert alone.returncode == 0, alone.stderr
    assert (watched.returncode, watched.stdout) == (0, alone.stdout)
    assert len(steps_of(records_of(tmp_path))) == 8


def test_the_records_say_how_many_steps_each_rank_did(loops: Path) -> None:
    def steps_said(job: JobRecords) -> int:
        return job.ends[0].steps

    assert all(steps_said(job) == len(job.steps) for job in (records_of(loops, function.__name__) for function in LOOPS))
