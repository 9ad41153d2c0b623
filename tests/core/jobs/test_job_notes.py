"""The lines on jobs of an unusual build; real ones are in tests/end_to_end/test_odd_jobs.py."""

from __future__ import annotations

import pytest

from making import envelope
from tachoscope_core.jobs.notes import Facts, first_failure, why_no_steps
from tachoscope_core.records import records


def launcher(status: str = "completed", **fields: object) -> records.JobEnded:
    who = envelope(records.LAUNCHER_RANK, 99, writer="f0000000-0000-4000-8000-000000000000")
    return records.JobEnded(**who, status=status, **fields)  # type: ignore[arg-type]


def started(rank: int) -> records.JobStarted:
    return records.JobStarted(**envelope(rank), world_size=2, pid=100 + rank)


def failed(rank: int, gone: float, reason: str, step: int) -> records.WorkerFailed:
    who = envelope(records.LAUNCHER_RANK, 50 + rank)
    return records.WorkerFailed(
        **who, reason=reason, failed_rank=rank, failed_writer=envelope(rank)["writer"], gone_time=gone, step=step
    )


def test_the_first_rank_that_failed_is_named_with_step_cause_and_how_the_command_ended() -> None:
    rows = [started(0), started(1), failed(0, 11.0, "killed", 8), failed(1, 10.0, "ValueError", 6)]

    assert first_failure(Facts([*rows, launcher("failed", reason="exit code 1")])) == (
        "rank 1 failed with ValueError in step 7; the command ended with exit code 1"
    )
    assert first_failure(Facts([*rows, launcher("failed", reason="killed by SIGKILL")])) == (
        "rank 1 failed with ValueError in step 7; the command was killed by SIGKILL"
    )
    killed = [started(0), failed(0, 11.0, "killed", 8), launcher("failed", reason="killed by SIGKILL")]
    assert first_failure(Facts(killed)) == "rank 0 was killed by SIGKILL in step 9"
    assert first_failure(Facts([*rows, launcher()])) == ""


@pytest.mark.parametrize(
    ("loaded", "way_out"),
    [
        ([], "tachoscope.watch()"),
        (["python-without-tachoscope"], "pip install tachoscope"),
        (["python"], "tachoscope.step()"),
        (["python", "jax"], "trains with jax"),
        (["python", "torch", "jax"], "torch.autograd.grad"),
        (None, "tachoscope.step()"),
    ],
)
def test_a_job_of_which_nothing_was_recorded_has_a_reason_and_a_way_out(loaded: list[str] | None, way_out: str) -> None:
    assert way_out in why_no_steps(Facts([launcher(loaded=loaded)]))


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("python -I train.py", "with -I, which ignores $PYTHONPATH"),
        ("env A=1 /usr/bin/python3.12 -u -Es train.py", "with -E, which ignores $PYTHONPATH"),
        ("python3 -X dev -Wignore -BS -m train", "leave -S out"),
        ("python train.py -I", "no Python under the probe was started"),
        ("python -m train -E", "no Python under the probe was started"),
        ("python -W -I train.py", "no Python under the probe was started"),
        ("./python.sh -I", "no Python under the probe was started"),
        ("python -c 'cut off ...", "no Python under the probe was started"),
    ],
)
def test_a_flag_that_keeps_the_probe_out_is_named_where_no_process_announced_itself(command: str, said: str) -> None:
    start = records.JobStarted(**envelope(records.LAUNCHER_RANK), world_size=0, pid=1, lineage={"launch_command": command})

    assert said in why_no_steps(Facts([start, launcher(loaded=[])]))
    assert "which ignores" not in why_no_steps(Facts([start, launcher(loaded=["python", "torch"])]))


def test_processes_that_computed_gradients_and_ended_no_step_have_no_optimizer_unless_they_failed() -> None:
    assert "no optimizer" in why_no_steps(Facts([started(0), launcher()]))
    crashed = why_no_steps(Facts([started(0), failed(0, 10.0, "ValueError", 0), launcher("failed", reason="exit code 1")]))
    assert crashed == "rank 0 failed with ValueError before its first step ended; the command ended with exit code 1"
