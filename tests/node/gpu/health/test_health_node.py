"""The node is as its worst GPU; GPUs that are missing are named with what to do, which is never a reboot."""

from tachoscope_core.metrics.gpu import ACTIONS
from tachoscope_node.gpu.health.verdicts import judge_node
from tachoscope_node.gpu.reading import DRIVERS
from trying import each


def test_the_node_is_as_its_worst_gpu() -> None:
    assert judge_node(["healthy"] * 8, 8, 8).state == "healthy"
    assert judge_node(["healthy"] * 7 + ["degraded"], 8, 8).state == "degraded"
    assert judge_node(["degraded", "unknown"], 2, 2).state == "unknown"
    assert judge_node(["unhealthy", "unknown", "healthy"], 3, 3).state == "unhealthy"


def test_a_gpu_too_few_makes_the_node_unhealthy_and_none_at_all_unknown() -> None:
    (reason,) = judge_node(["healthy"] * 7, 7, 8).reasons
    assert judge_node(["healthy"] * 7, 7, 8).state == "unhealthy"
    assert (reason.what, reason.value, reason.threshold, reason.action) == ("gpus_missing", 7, 8, "inspect_hardware")
    assert judge_node([], 0, 0).state == "unknown"
    assert judge_node([], 0, 8).state == "unhealthy"


@each(
    ("driver", "state", "action"),
    [
        ("works", "unhealthy", "inspect_hardware"),
        ("starting", "unknown", "none"),
        ("absent", "unhealthy", "check_configuration"),
        ("error", "unhealthy", "drain_node"),
    ],
)
def test_what_to_do_about_missing_gpus_follows_from_how_the_driver_is(driver: str, state: str, action: str) -> None:
    verdict = judge_node([], 0, 8, driver=driver)
    assert (verdict.state, verdict.reasons[0].action) == (state, action)
    assert action in ACTIONS
    started = judge_node([], 0, 8, driver=driver, starting=True)
    assert (started.state, started.reasons[0].action) == ("unknown", "none")


def test_each_condition_of_a_driver_has_a_text() -> None:
    assert len({judge_node([], 0, 1, driver=driver).reasons[0].text for driver in DRIVERS}) == len(DRIVERS)
