"""A command a kind of thing: each judges its own and names the command of another's; `analyze` says what it is and goes on."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from course_making import lines, nothing, planted, slower
from helpers import REPOSITORY
from recorder_dumps import standing
from tachoscope_cli.app import call
from tachoscope_core.errors import TachoscopeError
from tachoscope_core.storage.store import Store

RECORDING = REPOSITORY / "tests" / "fixtures" / "serving" / "moderate.serving.gz"


def trace(folder: Path) -> str:
    events = [{"ph": "X", "cat": "cpu_op", "name": f"aten::op{n}", "ts": n * 10, "dur": 9, "pid": 1, "tid": 1} for n in range(50)]
    path = folder / "trace.json"
    path.write_text(json.dumps({"traceEvents": events}))
    return str(path)


def recording(folder: Path) -> str:
    return str(shutil.copy(RECORDING, folder / "chat.serving.gz"))


@pytest.mark.parametrize(("make", "command", "what"), [
    (trace, "trace", "a profiler trace"),
    (lambda folder: str(standing(folder / "dumps")), "hang", "dumps of a flight recorder"),
    (recording, "serving", "a recording of an inference server"),
])  # fmt: skip
def test_analyze_says_what_a_path_is_and_gives_the_report_of_its_command(
    tmp_path: Path, make, command: str, what: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = make(tmp_path)

    assert call([command, path]) == 0
    own = capsys.readouterr()
    assert call(["analyze", path]) == 0
    of_analyze = capsys.readouterr()

    assert of_analyze.out == own.out
    assert f"{path} is {what}: continuing as `tachoscope {command}`" in of_analyze.err
    assert "going on" not in own.err


def test_a_command_refuses_what_is_anothers_and_names_the_way(tmp_path: Path) -> None:
    records = str(planted(tmp_path / "job", nothing))
    for words, said in (
        (["trace", records], "is not a profiler trace but records"),
        (["hang", records], "contains no flight recorder dumps"),
        (["serving", trace(tmp_path)], "is not a recording of an inference server"),
        (["hang", str(tmp_path / "nothing")], "nothing does not exist"),
        (["trace", ""], "a path is empty"),
        (["serving", 'job="x"'], "selects series of a Prometheus .add --prometheus URL"),
        (["serving", str(tmp_path / "gone.gz")], "does not exist"),
        (["compare", "", records], "the name of a run is empty"),
        (
            ["compare", "other", records, "--store", str(tmp_path / "empty")],
            "'other' is not a file or folder, and store .* is empty",
        ),
        (["serving"], "name a server, a recording, or the --job of a service"),
    ):
        with pytest.raises(TachoscopeError, match=said):
            call(words)


def test_two_jobs_of_a_store_are_compared_by_their_names_as_analyze_does(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = Store(str(tmp_path / "store"))
    for number, (name, extra) in enumerate((("old", nothing), ("new", slower(1)))):
        found = lines(extra, name=name, seed=number)
        writer = f"{number:08d}-0000-4000-8000-000000000000"
        store.write(name, host="node-1", writer=writer, attempt=0, offset=0, time=1.7e9, lines=found)

    assert call(["compare", "new", "old", "--store", store.url]) == 0
    by_name = capsys.readouterr().out
    assert call(["analyze", "--store", store.url, "--job", "new", "--baseline-job", "old"]) == 0
    assert by_name == capsys.readouterr().out
    assert "slower: the step takes" in by_name
    assert call(["compare", f"{tmp_path}/store/jobs/new", f"{tmp_path}/store/jobs/old", "--fail-on", "regression"]) == 3


def test_an_old_form_gives_the_same_report_and_says_the_new_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    records, traces = str(planted(tmp_path / "job", nothing)), trace(tmp_path)
    for new, old, said in (
        (
            ["goodput", "planted", records],
            [records, "--goodput", "planted"],
            "`tachoscope analyze --goodput` is `tachoscope goodput` now",
        ),
        (["trace", traces, "--no-replay"], [traces, "--no-replay"], "--no-replay is an option of `tachoscope trace` now"),
        (
            ["serving", recording(tmp_path), "--device", "NVIDIA H100"],
            [recording(tmp_path), "--device", "NVIDIA H100"],
            "--device is an option of `tachoscope serving` now",
        ),
        (
            ["goodput", "planted", records, "--format", "json"],
            [records, "--goodput=planted", "--format", "json"],
            "`tachoscope analyze --goodput` is `tachoscope goodput` now",
        ),
    ):
        assert call(new) == 0
        own = capsys.readouterr()
        assert call(["analyze", *old]) == 0
        of_analyze = capsys.readouterr()

        assert of_analyze.out == own.out
        assert said in of_analyze.err and " now; " not in own.err
