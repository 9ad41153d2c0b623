"""The live source against a fake `sacct`: a program that knows the options of one version of Slurm and gives the documents here."""

import os
import sys
from pathlib import Path

import pytest

from tachoscope_cli.sources.schedulers import allocations
from tachoscope_core.errors import TachoscopeError

DOCUMENTS = Path(__file__).parent / "documents"

FAKE = """#!{python}
import json, os, pathlib, sys
pathlib.Path({log!r}).open("a").write(json.dumps([sys.argv[1:], os.environ.get("SLURM_TIME_FORMAT")]) + "\\n")
if "--json" in sys.argv and not {json}:
    sys.exit("sacct: unrecognized option '--json'")
if any("Restarts" in word for word in sys.argv) and not {restarts}:
    sys.exit('sacct: error: Invalid field requested: "Restarts"')
if "--json" in sys.argv and os.environ.get("SLURM_TIME_FORMAT"):  # as 22.05 does, with exit code 0
    sys.stdout.write('{{"errors": [{{"description": "Unable to parse time format", "error_number": 9000, "source": "end_time"}}]}}')
    sys.exit()
sys.stdout.write(pathlib.Path({document!r}).read_text())
"""


@pytest.fixture
def sacct(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Puts the fake on the path; returns its log."""

    def put(document: str, *, json: bool = True, restarts: bool = True) -> Path:
        program, content, log = tmp_path / "bin" / "sacct", tmp_path / "document", tmp_path / "log"
        program.parent.mkdir()
        content.write_text(document)
        program.write_text(FAKE.format(python=sys.executable, log=str(log), json=json, restarts=restarts, document=str(content)))
        program.chmod(0o755)
        monkeypatch.setenv("PATH", f"{program.parent}{os.pathsep}{os.environ['PATH']}")
        return log

    return put


def test_a_job_is_asked_for_with_its_requeues_in_json(sacct) -> None:
    log = sacct((DOCUMENTS / "sacct_21_08.json").read_text())

    found = allocations(["slurm:4711"])

    assert [one.state for one in found if one.name == "4711"] == ["preempted", "completed"]
    assert log.read_text().count("\n") == 1
    assert '"--jobs", "4711", "--duplicates", "--allocations", "--json"' in log.read_text()


def test_a_slurm_without_json_is_asked_for_the_table_with_times_that_need_no_zone(sacct) -> None:
    log = sacct("JobID|Submit|Start|End|State\n7|1000|1010|1020|COMPLETED\n", json=False, restarts=False)

    (found,) = allocations(["slurm:7"])

    assert (found.submitted, found.started) == (1000, 1010)
    assert [line.endswith('"%s"]') for line in log.read_text().splitlines()] == [False, True, True]


def test_a_job_that_slurm_does_not_know_is_an_error(sacct) -> None:
    sacct('{"jobs": [], "errors": [{"description": "Nothing found", "error_number": 9003}]}')

    with pytest.raises(TachoscopeError, match="sacct has no job 7"):
        allocations(["slurm:7"])


def test_an_error_in_the_document_of_a_sacct_that_exits_with_0_is_reported(sacct) -> None:
    sacct('{"errors": [{"description": "Slurm connection failure", "error_number": 2000, "source": "slurmdb_jobs_get"}]}')

    with pytest.raises(TachoscopeError, match="sacct failed: slurmdb_jobs_get: Slurm connection failure"):
        allocations(["slurm:7"])


def test_what_sacct_says_when_it_fails_is_passed_on(sacct) -> None:
    sacct("", json=False, restarts=False)

    with pytest.raises(TachoscopeError, match="sacct failed: it wrote nothing"):
        allocations(["slurm:7"])


@pytest.mark.parametrize("job", ["", "7;ls", "--help", "train"])
def test_only_a_job_id_reaches_sacct(job: str, sacct) -> None:
    log = sacct("{}")

    with pytest.raises(TachoscopeError, match="is not a Slurm job id"):
        allocations([f"slurm:{job}"])
    assert not log.exists()


def test_without_sacct_its_output_can_be_given_as_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))

    with pytest.raises(TachoscopeError, match="sacct is not installed on this machine"):
        allocations(["slurm:7"])
    assert len(allocations([str(DOCUMENTS / "sacct_21_08.json")])) == 3


def test_a_word_that_names_nothing_is_refused() -> None:
    with pytest.raises(TachoscopeError, match=r"'slrum:7' is neither a scheduler nor a file \(give slurm:JOBID, kubernetes:NAME"):
        allocations(["slrum:7"])
