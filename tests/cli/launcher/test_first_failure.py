"""`tachoscope run` names the first failure of real jobs, and whether another attempt is worth it."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from benchmarks.first_failure.cases import CASES, SCRIPT, line_of

from helpers import answer, environment, tachoscope

FAILING = "import sys\nprint('reading', file=sys.stderr)\nraise ValueError(f'sample {len(sys.argv)} has no label')\n"


def failing(tmp_path: Path, *options: str, script: str = FAILING) -> subprocess.CompletedProcess[str]:
    (tmp_path / "train.py").write_text(script)
    return tachoscope(tmp_path, "run", "--job", "j", *options, "--", sys.executable, str(tmp_path / "train.py"))


def test_a_failure_before_the_first_step_says_where_and_twice_gives_the_exit_code_that_was_asked_for(tmp_path: Path) -> None:
    first, second = [failing(tmp_path, "--stop-code", "42") for _ in range(2)]
    other = failing(tmp_path, "--stop-code", "42", script="import no_such_module\n")

    assert "first failure: rank 0 on " in first.stderr
    assert "failed with ValueError: sample 1 has no label, at train.py:3, before its first step ended" in first.stderr
    assert (first.returncode, second.returncode, other.returncode) == (1, 42, 1)
    report = json.loads(answer(tmp_path, "goodput", "j", "--format", "json").stdout)
    assert [(one["attempt"], one["policy"], one["repeats_attempt"]) for one in report["failures"]] == [
        (0, "restart", None),
        (1, "stop", 0),
        (2, "restart", None),
    ]


def test_a_store_that_cannot_be_used_changes_no_exit_code_and_an_earlier_failure_is_not_taken_for_this_one(tmp_path: Path) -> None:
    failing(tmp_path)
    next((tmp_path / "store").rglob("owner.json")).write_bytes(b"of somebody else")
    done = failing(tmp_path, "--stop-code", "42", script="import os\nos._exit(7)\n")

    assert (done.returncode, "first failure" in done.stderr, "Traceback" in done.stderr) == (7, False, False)
    assert done.stderr.count("why the command failed is not known: not all of its records are in the store") == 1


def test_a_defect_in_the_judge_changes_no_exit_code(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("import sys\nsys.exit(7)\n")
    code = (
        "from tachoscope_analyzers.failures import report\nfrom tachoscope_cli.main import main\n"
        "def judge(*_):\n    raise KeyError('attempt')\nreport.failures_in_store = judge\nmain()\n"
    )
    words = ["run", "--job", "j", "--", sys.executable, str(tmp_path / "train.py")]
    done = subprocess.run(
        [sys.executable, "-c", code, *words], env=environment(tmp_path), capture_output=True, text=True, timeout=100, check=False
    )

    assert done.returncode == 7
    assert "why the command failed is not known, its records cannot be judged: KeyError: 'attempt'" in done.stderr


def test_a_reader_of_stderr_that_goes_away_changes_no_exit_code(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("import os\nos._exit(7)\n")
    command = [sys.executable, "-m", "tachoscope_cli.main", "run", "--job", "j", "--", sys.executable, str(tmp_path / "train.py")]
    reads, writes = os.pipe()
    os.close(reads)
    done = subprocess.run(command, env=environment(tmp_path), stderr=writes, timeout=100, check=False)
    os.close(writes)

    assert done.returncode == 7


def test_nothing_is_said_of_a_command_that_ends_well(tmp_path: Path) -> None:
    done = failing(tmp_path, script="print('trained')\n")

    assert (done.returncode, done.stdout) == (0, "trained\n")
    assert "failure" not in done.stderr
    assert not list((tmp_path / "spool").rglob("*"))


@pytest.mark.parametrize("fault", ["sleeps", "loader_worker_raises", "slow_clean_up"])
@pytest.mark.bar(but=("sleeps",))  # planted in tests/probe/failures/test_describe.py and tests/analyzers/failures/test_root.py
def test_of_a_real_torchrun_job_rank_and_line_are_named(tmp_path: Path, fault: str) -> None:
    case = next(one for one in CASES if one.fault == fault)
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={case.ranks}"]
    done = tachoscope(tmp_path, "run", "--job", "j", "--", *torchrun, str(SCRIPT), fault, str(tmp_path))
    report = json.loads(answer(tmp_path, "goodput", "j", "--format", "json").stdout)

    (root,) = report["failures"]
    assert (root["rank"], root["location"], root["cause"]) == (*case.truth, f"rank.py:{line_of(fault)}", case.cause), done.stderr
    assert f"first failure: rank {root['rank']} on " in done.stderr
    assert not list((tmp_path / "spool").rglob("*")), os.listdir(tmp_path / "spool")
