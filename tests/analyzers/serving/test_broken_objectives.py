"""A service is compared with its own objectives: what is broken is said, with what explains it, however small its share is."""

from pathlib import Path

import pytest

from planted_server import Engine, Request, serve
from tachoscope_cli.inputs.live_server import judge_snapshots
from tachoscope_core.report.report import Report
from tachoscope_show.report.finding_words import nothing_found
from tachoscope_show.report.verdict_words import first_lines

SPEC = """
apiVersion: openslo/v1
kind: SLO
metadata:
  name: chat-speed
  annotations:
    tachoscope.dev/area: inference
    tachoscope.dev/owner: me
    tachoscope.dev/alert: ChatSpeedBurn
    tachoscope.dev/by: "service,model"
    tachoscope.dev/target-source: judgement
spec:
  service: inference
  description: Tokens that come soon.
  budgetingMethod: Occurrences
  timeWindow: [{duration: 28d, isRolling: true}]
  indicator:
    metadata: {name: speed}
    spec:
      thresholdMetric:
        metricSource: {type: tachoscope, spec: {metric: tachoscope_request_inter_token_seconds, labels: {service: SERVICE}}}
  objectives: [{op: lte, value: 0.01, target: 0.99}]
"""


def judged(each: int) -> Report:
    """Judge a server of eleven places that gets so many requests at once, again and again, when the earlier ones are done."""
    coming = [Request(4.0 * burst + 0.001 * number, 20, 180) for burst in range(15) for number in range(each)]
    return judge_snapshots(serve(Engine(most_running=11), coming, 60.0)[0], "made", "chat", "")


def test_a_broken_objective_is_a_warning_of_the_class_that_explains_it_though_its_share_is_small():
    found = judged(12)
    (queue,), states = found.findings, {one.name: one for one in found.serving.objectives}

    assert states["inference-ttft-p95"].state == "broken"
    assert states["inference-ttft-p95"].good == pytest.approx(11 / 12)
    assert states["inference-ttft-p95"].explained_by == queue.class_ == "queue_saturation"
    assert states["inference-inter-token"].state == "met"
    assert (queue.severity, queue.small, queue.share < 0.1) == ("warning", False, True)
    assert "inference-ttft-p95 (91.66 % within 500.0 ms, target 95 %; queue_saturation)" in first_lines(found).verdict
    assert not nothing_found(found)


def test_a_server_within_its_objectives_has_no_bottleneck():
    found = judged(11)

    assert {one.state for one in found.serving.objectives} == {"met"}
    assert nothing_found(found)


@pytest.mark.parametrize(("service", "state"), [("chat", "broken"), ("other", "not_measured")])
def test_the_objectives_of_the_working_directory_are_those_of_the_service(
    service: str, state: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    (tmp_path / "alerts/slos").mkdir(parents=True)
    (tmp_path / "alerts/slos/chat.yaml").write_text(SPEC.replace("SERVICE", service))
    monkeypatch.chdir(tmp_path)
    found = judged(11)
    (one,) = found.serving.objectives

    assert (one.name, one.state, one.explained_by) == ("chat-speed", state, "")
    if state == "broken":
        assert first_lines(found).verdict.startswith("Broken objectives: chat-speed (")
        assert "most of it is decode" in first_lines(found).verdict
