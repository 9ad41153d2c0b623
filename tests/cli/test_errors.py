"""Each bad input is one clear line on stderr that names the offender and the way out, and an exit code that says so."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from fake_nvml import Driver
from helpers import command, without_rights_to_others_files
from making import job

STEP = {"forward": 0.1, "backward": 0.2}
NAME = "00000000-0000-4000-8000-000000000000-000000.jsonl"


def tachoscope(*words: str, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """Run the command in this process, or in a new one with this environment beside its own."""
    if env is None:
        return command(*words)
    return subprocess.run(
        [sys.executable, "-m", "tachoscope_cli.main", *words], capture_output=True, text=True, env=os.environ | env
    )


def one_line(done: subprocess.CompletedProcess[str], code: int, *parts: str) -> None:
    assert done.returncode == code, done.stderr
    assert done.stderr.count("\n") == 1, done.stderr
    assert "Traceback" not in done.stderr
    for part in parts:
        assert part in done.stderr


def test_an_unknown_command_after_the_dashes() -> None:
    one_line(tachoscope("run", "--", "pyhton", "train.py"), 127, "command not found after '--': 'pyhton'")


def test_a_command_without_execute_permission(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("")

    one_line(tachoscope("run", "--", str(script)), 126, "no permission to execute", "chmod +x")


def test_no_command_at_all() -> None:
    one_line(tachoscope("run"), 2, "no command given", "tachoscope run -- python train.py")


@pytest.mark.parametrize("words", [["--nnodes", "2"], ["--nnodes=1:4"], ["--num_machines", "8"]])
def test_a_multi_node_job_without_a_name(words: list[str]) -> None:
    one_line(tachoscope("run", "--", sys.executable, *words, "train.py"), 2, "more than one node needs a name", "--job NAME")


def test_a_job_name_with_a_slash() -> None:
    one_line(tachoscope("run", "--job", "a/b", "--", sys.executable, "-V"), 2, "job name 'a/b' is not usable")


@pytest.mark.parametrize("command", [["analyze"], ["store", "ls"]])
def test_an_empty_store(command: list[str]) -> None:
    one_line(tachoscope(*command), 2, "is empty", "tachoscope run -- python train.py")


def test_a_path_that_does_not_exist(tmp_path: Path) -> None:
    one_line(tachoscope("analyze", str(tmp_path / "nowhere")), 2, "nowhere does not exist")


def test_garbage_lines_alone(tmp_path: Path) -> None:
    (tmp_path / NAME).write_bytes(b"garbage\n" * 23)

    one_line(tachoscope("analyze", str(tmp_path)), 2, "no records in", "23 lines there are not records")


def test_a_cut_line_and_garbage_among_records_are_counted_in_one_line_and_the_rest_is_judged(tmp_path: Path) -> None:
    (tmp_path / NAME).write_bytes(b"garbage\n" * 3 + job([[STEP, STEP]] * 30)[:-20])

    done = tachoscope("analyze", str(tmp_path))

    assert done.returncode == 0, done.stderr
    assert [line for line in done.stdout.splitlines() if "cut lines" in line and "3 lines that are not records" in line]


def test_a_report_of_a_newer_schema(tmp_path: Path) -> None:
    (tmp_path / "report.json").write_text('{"schema": 7}')

    one_line(tachoscope("analyze", str(tmp_path / "report.json")), 2, "schema 7, newer", "pip install --upgrade")


def test_a_job_without_steps(tmp_path: Path) -> None:
    (tmp_path / NAME).write_bytes(job([[STEP]] * 5).splitlines(keepends=True)[0])

    one_line(tachoscope("analyze", str(tmp_path)), 2, "no training step", "tachoscope.step()")


def test_an_output_file_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / NAME).write_bytes(job([[STEP]] * 30))

    one_line(tachoscope("analyze", str(tmp_path), "--output", str(tmp_path / "no" / "r.txt")), 2, "could not write")


@pytest.mark.skipif(os.geteuid() != 0, reason="drops root's rights to see what others see")
def test_no_permission_to_read_the_spool(tmp_path: Path) -> None:
    spool = tmp_path / "closed"
    spool.mkdir()
    (spool / NAME).write_bytes(job([[STEP]] * 30))
    (spool / NAME).chmod(0)

    done = without_rights_to_others_files("analyze", str(spool))

    one_line(done, 2, "could not read", "Permission denied")


@pytest.mark.parametrize(
    "words", [["demo", "--fault", "nonsense"], ["analyze", "--nonsense"], ["nonsense"], ["analyze", "--format", "xml"]]
)
def test_a_mistyped_option_or_value_is_named_without_a_traceback(words: list[str]) -> None:
    done = tachoscope(*words)

    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert words[-1] in done.stderr


def test_verbose_adds_the_traceback() -> None:
    assert "Traceback" in tachoscope("--verbose", "run").stderr


def test_a_reader_that_goes_away_is_no_error(tmp_path: Path) -> None:
    (tmp_path / NAME).write_bytes(job([[STEP]] * 30))
    script = f"{sys.executable} -m tachoscope_cli.main analyze {tmp_path} --format json | head -c 1"

    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True)

    assert done.stdout == "{"
    assert done.stderr == ""


def test_fail_on_gives_three_and_json_is_exactly_the_schema(tmp_path: Path) -> None:
    slow = [{"forward": 0.1, "backward": 0.2, "checkpoint": 0.3}] * 2
    (tmp_path / NAME).write_bytes(job([slow] * 30))

    done = tachoscope("analyze", str(tmp_path), "--format", "json", "--fail-on", "critical")

    assert done.returncode == 3
    report = json.loads(done.stdout)
    parts = "schema job window ranks sources step_seconds ledgers goodput findings not_measured quality baseline changes"
    more = "lineage review failures life serving course earlier memory stacks comparison"
    assert set(report) == {*parts.split(), *more.split()}
    finding = "class severity seconds_per_step share share_ci ranks confidence runner_up evidence speedup_if_fixed action runbook"
    of_finding = "where cause every_steps condition small"
    # `advice` where there is something to set, as how often to save.
    assert set(report["findings"][0]) == {*finding.split(), *of_finding.split(), "advice"}


def test_a_saved_report_can_be_shown_again_in_every_format(tmp_path: Path) -> None:
    (tmp_path / NAME).write_bytes(job([[STEP]] * 30))
    saved = str(tmp_path / "report.json")
    tachoscope("analyze", str(tmp_path), "--format", "json", "--output", saved)

    assert "job planted" in tachoscope("analyze", saved).stdout
    assert tachoscope("analyze", saved, "--format", "html").stdout.startswith("<!doctype html>")
    assert tachoscope("analyze", saved, "--format", "json").stdout == Path(saved).read_text()


def test_a_report_in_a_file_or_a_pipe_has_no_line_that_is_padded(tmp_path: Path) -> None:
    (tmp_path / NAME).write_bytes(job([[STEP | {"checkpoint": 0.3}] * 2] * 30))
    tachoscope("analyze", str(tmp_path), "--output", str(tmp_path / "report.txt"))
    written = (tmp_path / "report.txt").read_text()

    assert "checkpoint_stall" in written
    assert written == tachoscope("analyze", str(tmp_path)).stdout
    assert [line for line in written.splitlines() if line != line.rstrip()] == []


def test_doctor_says_what_is_missing_and_fails_only_for_what_must_be_mended(tmp_path: Path) -> None:
    assert tachoscope("doctor", env={}).returncode == 0, "in a process into which no other test has loaded a driver"
    (tmp_path / "file").write_text("")

    done = tachoscope("doctor", env={"TACHOSCOPE_STORE": str(tmp_path / "file" / "store")})

    assert done.returncode in {0, 1}
    assert "store" in done.stdout


def test_doctor_says_which_gpus_the_driver_tells_and_that_a_driver_does_not_work(tmp_path: Path) -> None:
    driver = Driver(tmp_path / "driver", "h100x8")
    assert "8 GPUs by NVML (NVIDIA H100 80GB HBM3), driver " in " ".join(
        tachoscope("doctor", env=driver.environment()).stdout.split()
    )

    driver.set(**{"driver.init_error": 999})
    done = tachoscope("doctor", env=driver.environment())
    assert done.returncode == 1
    assert "the NVIDIA driver does not work" in " ".join(done.stdout.split())


def test_a_small_loss_is_in_the_document_and_fails_on_nothing(tmp_path: Path) -> None:
    slow = [{"forward": 0.1, "backward": 0.2, "checkpoint": 0.022}] * 2
    (tmp_path / NAME).write_bytes(job([slow] * 30))

    done = tachoscope("analyze", str(tmp_path), "--format", "json", "--fail-on", "warning")

    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)["findings"]
    assert [(one["class"], one["severity"], one["small"]) for one in found][-1] == ("checkpoint_stall", "info", True)
