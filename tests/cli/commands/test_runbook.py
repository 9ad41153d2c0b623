"""`tachoscope runbook`: a page by name, with an alert's labels filled in."""

import re
import subprocess

import pytest

from tachoscope_cli.app import call
from tachoscope_cli.runbooks.pages import filled
from tachoscope_core.errors import TachoscopeError
from tachoscope_show.text.runbook_pages import names


def test_the_labels_of_the_alert_stand_in_queries_and_commands(capsys: pytest.CaptureFixture[str]) -> None:
    assert call(["runbook", "TrainingNoProgress", "training_job=resnet"]) == 0
    out, err = capsys.readouterr()

    assert 'tachoscope_steps_total{training_job="resnet",cluster="",workload_namespace=""}' in out
    assert "assumed empty: cluster, workload_namespace; set those that the alert has" in err
    assert 'tachoscope goodput "resnet"' in out
    assert "${training_job}" not in out
    assert "not filled in:" in err
    assert "pid" in err


def test_the_page_of_a_class_is_printed_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    assert call(["runbook", "input_workers.md"]) == 0
    out, err = capsys.readouterr()

    assert out.startswith("# input_workers: ")
    assert err == ""


def test_of_a_placeholder_only_its_own_label_is_taken() -> None:
    page, left = filled('up{instance="${instance}"} ${gpu} ${instance%%:*} $x', {"instance": "node-1:9465", "rank": "3"})

    assert page == 'up{instance="node-1:9465"} ${gpu} node-1 $x'
    assert left == ["gpu"]


NASTY = ['a"b', "a\\b", "$(touch /tmp/x)", "`id`", "a b; id", "-rf", "it's", "${HOME}"]


@pytest.mark.parametrize("value", NASTY)
def test_a_value_cannot_leave_the_string_of_a_query_that_it_stands_in(value: str) -> None:
    page, _ = filled('```promql\nup{job="${job}"}\n```\n', {"job": value})
    literal = re.fullmatch(r'```promql\nup\{job="((?:[^"\\]|\\.)*)"\}\n```\n', page)

    assert literal is not None
    assert re.sub(r"\\(.)", r"\1", literal[1]) == value


@pytest.mark.parametrize("value", [*NASTY, "resnet-50", "/data/day=1/part-3.tar", "meta-llama/Llama-3.1-8B"])
def test_a_command_gets_a_value_as_it_is_whatever_stands_in_it(value: str, capsys: pytest.CaptureFixture[str]) -> None:
    call(["runbook", "TrainingNoProgress", f"training_job={value}"])
    out, err = capsys.readouterr()
    (command,) = re.findall(r"^tachoscope (goodput .*?)(?:    #.*)?$", out, flags=re.MULTILINE)
    export = re.search(r"export .*$", err, flags=re.MULTILINE)
    script = f"{export[0] if export else ''}\nprintf '%s\\n' {command}"
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True)

    assert done.stdout.splitlines() == ["goodput", value]


def test_a_value_of_two_lines_is_refused_since_it_would_end_a_comment() -> None:
    with pytest.raises(TachoscopeError, match="the value of training_job holds a line break"):
        call(["runbook", "TrainingNoProgress", "training_job=a\nid"])


def test_a_label_that_the_page_does_not_take_is_named_with_those_that_it_takes(capsys: pytest.CaptureFixture[str]) -> None:
    assert call(["runbook", "TrainingGoodputBurn", "trainingjob=resnet", "host=node-1"]) == 0
    err = capsys.readouterr().err

    assert "not used by this page: trainingjob; it takes cluster, training_job, host" in err
    assert "not filled in: training_job;" in err


def test_marks_of_generated_parts_are_not_printed(capsys: pytest.CaptureFixture[str]) -> None:
    call(["runbook", "TrainingNoProgress"])

    assert "<!--" not in capsys.readouterr().out


def test_without_a_name_all_are_listed_one_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert call(["runbook"]) == 0

    assert capsys.readouterr().out.splitlines() == names()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["trainingnoprogres"], "is it TrainingNoProgress"),
        (["progress"], "is it TrainingNoProgress"),
        (["../README"], r"unknown runbook '../README' \(All of them: tachoscope runbook\)"),
        (["nothing-like-it"], r"\(All of them: tachoscope runbook\)"),
        (["GpuLost", "node-1"], "'node-1' is not a label with a value .*label=value"),
    ],
)
def test_what_is_no_page_or_no_label_is_refused_with_the_way_out(words: list[str], said: str) -> None:
    with pytest.raises(TachoscopeError, match=said):
        call(["runbook", *words])
