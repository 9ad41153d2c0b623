"""What scripts and other programs hold on to: exit codes, JSON, examples in each help, completion."""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer.core
import typer.main

from board_making import made, panel
from helpers import REPOSITORY, command
from making import job
from tachoscope_cli import app as app_module
from tachoscope_cli.app import app
from tachoscope_cli.common.answers import ANSWERS
from tachoscope_cli.drill import run as drill_run
from tachoscope_cli.drill.checks import Check, check_time
from tachoscope_cli.drill.walk import RunbookStep
from tachoscope_core.exit_codes import MEANINGS, OF_COMMANDS, ExitCode
from tachoscope_core.storage.store import Store, default_url

COMPLETION = """
eval "$(tachoscope --show-completion bash)"
COMP_WORDS=(tachoscope $1) COMP_CWORD=1
_tachoscope_completion tachoscope
echo "${COMPREPLY[@]}"
"""


def answer(*words: str, code: int = 0) -> Any:
    """Return what a command prints with --format json: one document, and nothing beside it on stdout."""
    done = command(*words, "--format", "json")

    assert done.returncode == code, done.stderr
    return json.loads(done.stdout)


def commands(group: typer.core.TyperGroup, *above: str) -> Iterator[tuple[str, Any]]:
    for name, one in group.commands.items():
        if isinstance(one, typer.core.TyperGroup):
            yield from commands(one, *above, name)
        else:
            yield " ".join((*above, name)), one


ALL = dict(commands(typer.main.get_command(app)))  # type: ignore[arg-type]


# --- exit codes ---------------------------------------------------------------------------------------------------------------


def test_commands_take_their_exit_codes_from_the_list() -> None:
    """A number, or what is made of a truth, would be a code that the documented table does not know."""
    found = []
    for path in sorted((REPOSITORY / "cli").rglob("*.py")):
        if path.name == "inference_server.py":  # no command: a server that a drill starts
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            given = [word.value for word in getattr(node, "keywords", []) if word.arg == "exit_code"]
            if isinstance(node, ast.Call) and ast.unparse(node.func) in {"typer.Exit", "sys.exit"}:
                given += node.args
            inner = [one for value in given for one in ast.walk(value)]
            numbers = [one for one in inner if isinstance(one, ast.Constant) and isinstance(one.value, int)]
            if numbers or any(isinstance(one, ast.Name) and one.id in {"int", "bool"} for one in inner):
                found.append(f"{path}:{node.lineno}")  # type: ignore[attr-defined]

    assert found == []
    assert set(MEANINGS) == set(ExitCode)
    assert {name for of in OF_COMMANDS.values() for name in of} <= set(ALL)


def test_without_a_command_the_help_is_printed_and_the_code_says_that_nothing_was_done() -> None:
    for words in ([], ["--verbose"], ["store"]):
        done = command(*words)
        assert (done.returncode, done.stderr) == (ExitCode.NOT_DONE, "")
        assert "Usage: tachoscope" in done.stdout
    assert all(f"\n{panel}:\n" in command("--help").stdout for panel in ("Begin here", "Record a job, and a node"))


def test_a_traceback_changes_no_exit_code_and_a_defect_has_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    assert command("store", "ls").returncode == command("--verbose", "store", "ls").returncode == ExitCode.NOT_DONE
    monkeypatch.setattr(Store, "job_times", lambda _: {}["planted"])

    done = command("store", "ls")

    assert done.returncode == ExitCode.DEFECT
    assert "KeyError: 'planted'" in done.stderr


def test_the_list_of_commands_says_of_each_what_its_own_help_begins_with() -> None:
    titles = {name: title for name, _, title in app_module.COMMANDS.titles()}

    helps = {name: " ".join(one.help.partition("\n\n")[0].split()) for name, one in app_module.COMMANDS.items()}
    assert titles == helps


def test_each_help_has_an_example_of_its_own_command() -> None:
    assert len(ALL) > 20
    assert [name for name, one in ALL.items() if f"tachoscope {name}" not in (one.epilog or "")] == []
    assert set(ANSWERS) - {"drill --list"} <= set(ALL)


# --- JSON ---------------------------------------------------------------------------------------------------------------------


def test_doctor_counts_what_is_is_bad(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("TACHOSCOPE_STORE", str(tmp_path / "file" / "store"))

    found = answer("doctor", code=1)

    assert found["schema"] == 1
    bad = {one["name"]: one["detail"] for one in found["checks"] if one["state"] == "bad"}  # a driver may be, too
    assert str(tmp_path / "file") in bad["store"]
    assert found["bad_checks"] == len(bad)


def test_jobs_of_a_store_are_listed_with_what_they_recorded_and_those_left_out_are_counted() -> None:
    store = Store(default_url())
    for number, name in enumerate(("older", "planted")):
        writer = f"{number:08d}-0000-4000-8000-000000000000"
        store.write(
            name, host="node-1", writer=writer, attempt=0, offset=0, time=1.7e9 + number, lines=job([[{"forward": 0.1}]] * 7)
        )

    found = answer("store", "ls", "--limit", "1")

    assert (found["schema"], found["store"], found["left_out_jobs"]) == (1, default_url(), 1)
    (one,) = found["jobs"]
    assert [one[key] for key in ("job", "kind", "ranks", "last_step", "attempts", "requests", "fault")] == [
        "planted",
        "training",
        1,
        7,
        1,
        None,
        None,
    ]
    assert one["last_record_unix_seconds"] == store.job_times()["planted"]
    assert command("store", "ls", "--store", f"{default_url()}-empty", "--format", "json").stdout == ""


def test_problems_of_objectives_name_file_and_line_and_those_of_unreadable_files_the_file(tmp_path: Path) -> None:
    text = (REPOSITORY / "alerts/slos/inference-admission.yaml").read_text()
    text = text.replace("name: inference-admission", "name: own-queue").replace("InferenceAdmissionBurn", "OwnQueueBurn")
    (tmp_path / "own.yaml").write_text(text.replace("value: 0.5", "value: 0.45"))
    (tmp_path / "runbooks").mkdir()
    (tmp_path / "runbooks/OwnQueueBurn.md").write_text("# OwnQueueBurn\n")
    (tmp_path / "broken.yaml").write_text("a: [\n")

    found = answer(
        "slo", "check", str(tmp_path / "own.yaml"), str(tmp_path / "broken.yaml"), "--runbooks", str(tmp_path / "runbooks"), code=1
    )

    assert [found[key] for key in ("schema", "objectives", "errors", "notes")] == [1, 1, 2, 0]
    broken, wrong = found["problems"]
    assert (broken["path"], broken["line"], broken["severity"]) == (str(tmp_path / "broken.yaml"), None, "error")
    assert (wrong["path"], wrong["severity"]) == (str(tmp_path / "own.yaml"), "error")
    assert "ends at 0.45" in wrong["what"]
    assert "value: 0.5" in text.splitlines()[wrong["line"] - 1]


def test_problems_of_boards_name_board_place_and_rule(tmp_path: Path) -> None:
    board = made()
    panel(board, "Nodes")["targets"][0]["expr"] = "sum(no_such_metric)"
    (tmp_path / "own.json").write_text(json.dumps(board))

    found = answer("dashboards", "check", str(tmp_path / "own.json"), code=1)

    assert (found["schema"], found["boards"]) == (1, 1)
    assert found["errors"] == sum(one["severity"] == "error" for one in found["problems"])
    assert any("no_such_metric" in one["what"] and "Nodes" in one["where"] and one["rule"] for one in found["problems"])


def test_a_drill_says_what_failed_and_its_times_in_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    def hold(*_: object, walk: bool, **__: object) -> drill_run.DrillOutcome:
        steps = [RunbookStep("during the fault", 1, "up", "right", "1")] if walk else []
        return drill_run.DrillOutcome(
            [check_time("fires", 12.5, 1.0, 10.0), Check("runbook", True, "there")], {"Other": "said"}, steps
        )

    monkeypatch.setattr(drill_run, "run_drill", hold)

    found = answer("drill", "agent_down", "--walk", code=1)

    assert [found[key] for key in ("schema", "class", "alert", "passed")] == [1, "agent_down", "AgentDown", False]
    fires, runbook = found["checks"]
    assert [fires[f"{name}_seconds"] for name in ("measured", "earliest", "latest")] == [12.5, 1.0, 10.0]
    assert (fires["passed"], runbook["passed"], runbook["measured_seconds"]) == (False, True, None)
    assert found["other_alerts"] == [{"alert": "Other", "summary": "said"}]
    assert found["steps"][0]["verdict"] == "right"
    assert "agent_down" in [one["class"] for one in answer("drill", "--list")["drills"]]
    text = command("drill", "agent_down", "--walk")
    assert text.returncode == ExitCode.NOT_WELL
    assert re.search(r"^fires +NO +12.5 s; computed: 1.0 to 10.0 s", text.stdout, re.MULTILINE)


# --- completion ---------------------------------------------------------------------------------------------------------------


def test_bash_completes_a_command(tmp_path: Path) -> None:
    tool = tmp_path / "tachoscope"
    tool.write_text(f'#!/bin/sh\nexec {sys.executable} -m tachoscope_cli.main "$@"\n')
    tool.chmod(0o755)
    env = os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}"}

    done = subprocess.run(["bash", "-c", COMPLETION, "bash", "sl"], capture_output=True, text=True, env=env, check=False)

    assert (done.stdout, done.stderr) == ("slo\n", "")


def test_completing_a_word_loads_neither_commands_nor_what_they_work_with() -> None:
    """Else each press of the key takes a second, and each command waits for the modules of all others."""
    code = "import sys, typer; from tachoscope_cli.app import app; typer.main.get_command(app); print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()

    ours = {name.partition(".")[0] for name in loaded if name.startswith("tachoscope")}
    assert ours == {"tachoscope_cli", "tachoscope_core", "tachoscope_show"}
    assert not {
        "tachoscope_cli.commands",
        "tachoscope_core.records.records",
        "tachoscope_core.storage.store",
        "rich",
        "urllib.request",
        "pandas",
        "yaml",
        "torch",
    } & set(loaded)
