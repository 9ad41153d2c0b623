import pytest

from tachoscope.process import identity
from tachoscope_core.errors import TachoscopeError
from trying import each


def test_a_name_given_wins_over_all_others() -> None:
    environ = {"TACHOSCOPE_JOB": "from-run", "SLURM_JOB_ID": "7"}

    assert identity.resolve(environ, job="mine").job == "mine"
    assert identity.resolve(environ).job == "from-run"


@each(
    ("environ", "job"),
    [
        ({"SLURM_JOB_ID": "7"}, "slurm-7"),
        ({"TORCHELASTIC_RUN_ID": "exp-3"}, "exp-3"),
        ({"JOB_NAME": "train", "JOB_COMPLETION_INDEX": "1"}, "train"),
    ],
)
def test_the_schedulers_id_names_the_job(environ: dict[str, str], job: str) -> None:
    assert identity.resolve(environ).job == job


def test_a_job_of_several_nodes_without_a_name_is_refused_with_the_way_out() -> None:
    environ = {"WORLD_SIZE": "16", "LOCAL_WORLD_SIZE": "8", "TACHOSCOPE_JOB": "train-1", "TACHOSCOPE_JOB_IS_DEFAULT": "1"}

    with pytest.raises(TachoscopeError, match="more than one node needs a name.*--job NAME"):
        identity.resolve(environ)
    assert identity.resolve(environ | {"TORCHELASTIC_RUN_ID": "exp-3"}).job == "exp-3"


def test_a_default_name_holds_on_one_node() -> None:
    environ = {"WORLD_SIZE": "8", "LOCAL_WORLD_SIZE": "8", "TACHOSCOPE_JOB": "train-1", "TACHOSCOPE_JOB_IS_DEFAULT": "1"}

    assert identity.resolve(environ | {"TORCHELASTIC_RUN_ID": "0b5e"}).job == "train-1"


def test_restarts_count_the_attempts_up() -> None:
    environ = {"TACHOSCOPE_JOB": "x", "TACHOSCOPE_ATTEMPT": "3", "TORCHELASTIC_RESTART_COUNT": "2"}

    assert identity.resolve(environ).attempt == 5


def test_nonsense_in_the_environment_is_no_reason_to_fail() -> None:
    assert identity.resolve({"TACHOSCOPE_JOB": "x", "TACHOSCOPE_ATTEMPT": "many", "WORLD_SIZE": ""}).attempt == 0


@each(
    ("environ", "place"),
    [
        ({}, None),
        ({"RANK": "3", "LOCAL_RANK": "1", "WORLD_SIZE": "4"}, (3, 1, 4)),
        ({"RANK": "3"}, (3, 3, 1)),
        # As Slurm 22.05 sets them: for a task of srun, for a batch script, for torchrun's rank within a task.
        ({"SLURM_PROCID": "5", "SLURM_LOCALID": "1", "SLURM_NTASKS": "8", "SLURM_STEP_NUM_TASKS": "8"}, (5, 1, 8)),
        ({"SLURM_PROCID": "0", "SLURM_LOCALID": "0", "SLURM_NTASKS": "8"}, None),
        ({"RANK": "9", "LOCAL_RANK": "1", "WORLD_SIZE": "16", "SLURM_PROCID": "1", "SLURM_STEP_NUM_TASKS": "2"}, (9, 1, 16)),
        ({"OMPI_COMM_WORLD_RANK": "2", "OMPI_COMM_WORLD_LOCAL_RANK": "0", "OMPI_COMM_WORLD_SIZE": "4"}, (2, 0, 4)),
        ({"PMI_RANK": "2", "PMI_SIZE": "4"}, (2, 2, 4)),
        ({"RANK": "two", "WORLD_SIZE": "4"}, None),
    ],
)
def test_a_process_is_the_rank_that_its_launcher_says(environ: dict[str, str], place: tuple[int, int, int] | None) -> None:
    assert identity.place(environ) == place


def test_a_local_rank_is_of_the_rank_that_the_process_group_has() -> None:
    task = {"SLURM_PROCID": "0", "SLURM_LOCALID": "0", "SLURM_STEP_NUM_TASKS": "1"}

    assert identity.local_rank({"LOCAL_RANK": "2"}, 6) == 2
    assert identity.local_rank(task, 0) == 0
    assert identity.local_rank(task, 3) == 3, "the task started this process: it is not the task"
