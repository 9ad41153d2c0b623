"""`tachoscope runbook`: a page by name, with an alert's labels filled in."""

import pytest

from tachoscope_cli.commands import call
from tachoscope_cli.runbook import filled
from tachoscope_core.errors import TachoscopeError


def test_the_labels_of_the_alert_stand_in_queries_and_commands(capsys: pytest.CaptureFixture[str]) -> None:
    assert call(["runbook", "TrainingNoProgress", "training_job=resnet"]) == 0
    out, err = capsys.readouterr()

    assert 'tachoscope_steps_total{training_job="resnet"}' in out
    assert 'tachoscope analyze --goodput "resnet"' in out
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

    assert page == 'up{instance="node-1:9465"} ${gpu} ${instance%%:*} $x'
    assert left == ["gpu"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["trainingnoprogres"], "is it TrainingNoProgress"),
        (["../README"], "there are "),
        (["nothing-like-it"], "there are .*GpuLost"),
        (["GpuLost", "node-1"], "'node-1' is no label with a value .*label=value"),
    ],
)
def test_what_is_no_page_or_no_label_is_refused_with_the_way_out(words: list[str], said: str) -> None:
    with pytest.raises(TachoscopeError, match=said):
        call(["runbook", *words])
