"""Verdicts over time: a reason has a beginning, stays a while after it was last true, and each fault makes one line."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import count

import pytest

from gpu_readings import Lines, Value, lost, reading, uuid
from tachoscope_core.metrics import gpu as names
from tachoscope_node.gpu.health.rules import thresholds
from tachoscope_node.gpu.health.verdicts import Board
from tachoscope_node.gpu.reading import FAULTS, Gpu, Reading
from tachoscope_node.gpu.xid.counter import Boot, XidCounter

HOLD = thresholds().hold_seconds
ECC: Value = (names.GPU_ECC_ERRORS, ("uncorrected", "volatile"), 1.0)
PENDING: Value = (names.GPU_ROW_REMAP, ("pending",), 1.0)


class Node:
    """A board with its own clock: each look is one second after the last."""

    def __init__(self, gpus: int = 1, start_seconds: float | None = 0.0) -> None:
        self.said = Lines(clock=count(0, 1000).__next__)  # so that the log leaves nothing out
        self.counter = XidCounter(None, Boot("boot-1", 0.0), self.said.log)
        self.board = Board(self.counter, self.said.log, start_seconds=start_seconds)
        self.seconds = 0.0
        self.expected = gpus

    def look(self, *readings: Reading, seconds: float = 1.0) -> None:
        self.seconds += seconds
        self.board.update(readings, self.expected, 100.0 + self.seconds, 1_000_000.0 + self.seconds)

    def state(self, index: int = 0) -> str:
        return self.board.gpus[index].verdict.state

    def reasons(self, index: int = 0) -> list[str]:
        return [reason.what for reason in self.board.gpus[index].verdict.reasons]


@pytest.fixture
def node() -> Node:
    return Node()


def test_a_reason_stays_a_while_after_it_was_last_true_and_then_the_verdict_goes_back(node: Node) -> None:
    node.look(reading(PENDING))
    for _ in range(int(HOLD) - 1):
        node.look(reading())
        assert (node.state(), node.reasons()) == ("degraded", ["row_remap_pending"])
    node.look(reading())
    assert (node.state(), node.reasons(), node.board.node.state) == ("healthy", [], "healthy")


def test_a_value_that_comes_and_goes_is_one_reason_since_its_first_time(node: Node) -> None:
    for _ in range(50):
        node.look(reading(PENDING))
        assert node.state() == "degraded"
        node.look(reading(), seconds=HOLD - 2)
        assert node.state() == "degraded"
    assert node.board.gpus[0].since["row_remap_pending"] == 1_000_001.0
    assert len([line for line in node.said.lines if "row remap pending" in line]) == 1


def test_what_cannot_be_measured_any_more_has_not_recovered(node: Node) -> None:
    node.look(reading(ECC))
    silent = reading(fine=False, up=False, fault="no_answer")
    for _ in range(3 * int(HOLD)):
        node.look(silent)
    assert "ecc_uncorrected" in node.reasons()
    for _ in range(int(HOLD) + 1):
        node.look(reading())
    assert node.state() == "healthy"


def test_an_xid_error_does_not_outlive_the_reset_that_mends_it(node: Node) -> None:
    node.look(reading((names.GPU_ENERGY, (), 9e6)))
    node.counter.count_error(uuid(0), 48, 1_000_001.5, "nvml")
    node.look(reading((names.GPU_ENERGY, (), 9e6)))
    assert (node.state(), node.reasons()) == ("unhealthy", ["xid_48"])
    node.look(reading((names.GPU_ENERGY, (), 100.0)))
    assert node.state() == "healthy"


def test_a_lost_gpu_that_is_back_is_healthy_after_the_hold_and_its_xid_is_mended(node: Node) -> None:
    node.look(reading())
    node.counter.count_error(uuid(0), 79, 1_000_001.5, "nvml")
    for _ in range(5):
        node.look(lost())
    assert (node.state(), node.board.node.state) == ("unhealthy", "unhealthy")
    assert set(node.reasons()) == {"lost", "xid_79"}
    node.look(reading())
    assert node.reasons() == ["lost"]
    for _ in range(int(HOLD)):
        node.look(reading())
    assert node.state() == "healthy"


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        ([reading(ECC) for _ in range(90)], "ecc_uncorrected"),
        ([reading((names.GPU_THROTTLED, ("hardware_thermal",), 1.0)) for _ in range(90)], "hardware_thermal"),
        ([reading((names.GPU_RECOVERY_ACTION, (), 2.0)) for _ in range(90)], "recovery_action"),
    ],
)
def test_a_fault_makes_one_line_with_the_gpu_the_value_and_the_action_and_recovery_another(
    node: Node, bad: Sequence[Reading], reason: str
) -> None:
    node.look(reading())
    for each in bad:
        node.look(each)
    assert reason in node.reasons()
    (line,) = node.said.lines
    assert line.startswith(f"GPU 0 ({uuid(0)}): ")
    assert "Action: " in line
    for _ in range(int(HOLD) + 70):
        node.look(reading())
    assert node.said.lines == [line, f"GPU 0 ({uuid(0)}): healthy again"]


@pytest.mark.parametrize("fault", FAULTS)
def test_of_a_gpu_that_does_not_answer_its_collector_tells_first_and_the_verdict_has_a_line_once_it_is_bad(
    node: Node, fault: str
) -> None:
    silent = reading(fine=False, up=False, fault=fault)
    node.look(reading())
    node.look(silent)
    assert len(node.said.lines) == (fault == "lost")
    for _ in range(90):
        node.look(silent)
    assert node.reasons() == [fault]
    (line,) = node.said.lines
    assert line.startswith(f"GPU 0 ({uuid(0)}): unhealthy, ")
    assert line.endswith(f"Action: {node.board.gpus[0].verdict.reasons[0].action}.")


def test_a_gpu_is_unknown_until_a_whole_window_was_seen_unless_something_bad_is_known() -> None:
    node = Node(gpus=2, start_seconds=None)
    for _ in range(60):
        node.look(reading(), reading(ECC, index=1))
        assert (node.state(0), node.reasons(0), node.state(1)) == ("unknown", ["not_measured"], "unhealthy")
        assert node.board.gpus[0].since["not_measured"] == 1_000_001.0
    node.look(reading(), reading(ECC, index=1))
    assert node.state(0) == "healthy"
    assert len(node.said.lines) == 1, "a GPU that nobody said anything against is not healthy again"


def test_a_standing_fault_of_which_the_agent_learns_late_is_never_called_healthy_before() -> None:
    node, seen = Node(start_seconds=None), []
    for _ in range(60):
        node.look(reading((names.GPU_THROTTLED, ("hardware_thermal",), 1.0), (names.GPU_PCIE_LINK, ("width", "current"), 8.0)))
        seen.append(node.state())
    assert (set(seen), seen[-1]) == ({"unknown", "degraded"}, "degraded")


def test_gpus_that_are_missing_are_unknown_for_a_minute_and_their_coming_has_a_line() -> None:
    node = Node(gpus=2, start_seconds=None)
    for _ in range(60):
        node.look(reading())
        assert (node.board.node.reasons[0].severity, node.board.node.reasons[0].action) == ("unknown", "none")
        assert node.said.lines == []
    node.look(reading())
    assert node.board.node.state == "unhealthy"
    assert node.board.node_since == {"gpus_missing": 1_000_001.0}
    node.look(reading(), reading(index=1))
    assert node.board.node_since == {}
    assert [line.partition(":")[0] for line in node.said.lines] == ["GPUs that the node has", "GPUs of the node"]


def test_a_reason_that_is_true_no_longer_says_so(node: Node) -> None:
    node.look(reading(PENDING))
    assert node.board.gpus[0].held == frozenset()
    node.look(reading(), seconds=21.0)
    assert node.board.gpus[0].held == {"row_remap_pending"}
    assert node.board.gpus[0].verdict.reasons[0].text.startswith("21 s ago: row remap pending")


def test_an_xid_error_from_before_the_start_has_a_line_and_its_own_time(node: Node) -> None:
    node.counter.count_error(uuid(0), 79, 1_000_000.0 - 3600.0, "nvml")
    node.said.lines.clear()
    for _ in range(3):
        node.look(reading())
    (line,) = node.said.lines
    assert "Xid 79" in line
    assert "Action: reboot_node" in line
    assert node.board.gpus[0].since["xid_79"] == 1_000_000.0 - 3600.0


def test_gpus_that_could_not_be_identified_are_told_apart(node: Node) -> None:
    silent = [Reading(Gpu(index, ""), up=False, fault="no_answer") for index in range(3)]
    node.look(*silent)
    assert [(health.gpu.index, health.verdict.state) for health in node.board.gpus] == [
        (0, "unknown"),
        (1, "unknown"),
        (2, "unknown"),
    ]


def test_an_xid_error_makes_one_line_the_counters(node: Node) -> None:
    node.look(reading())
    node.counter.count_error(uuid(0), 79, 1_000_001.5, "nvml")
    for _ in range(5):
        node.look(reading())
    (line,) = node.said.lines
    assert "Xid 79" in line


def test_one_bad_gpu_leaves_the_others_as_they_are_and_makes_the_node_bad() -> None:
    node = Node(gpus=8)
    node.look(*(reading(index=index) for index in range(7)), lost(7))
    assert [node.state(index) for index in range(8)] == ["healthy"] * 7 + ["unhealthy"]
    assert node.board.node.state == "unhealthy"
    assert [reason.what for reason in node.board.node.reasons] == ["gpus_missing"]
    (line,) = node.said.lines
    assert "has lost it" in line, "the lost GPU and the missing one are one fault"


def test_a_gpu_that_was_never_there_is_missed_with_one_line() -> None:
    node = Node(gpus=8)
    for _ in range(70):
        node.look(*(reading(index=index) for index in range(7)))
    assert node.board.node.state == "unhealthy"
    assert node.said.lines == [
        "GPUs that the node has: 7 < 8 expected; the driver works and lists no more. Action: inspect_hardware."
    ]


def test_links_are_missed_only_where_another_gpu_of_the_model_has_more() -> None:
    def with_links(index: int, active: float, model: str) -> Reading:
        return reading((names.GPU_NVLINKS, ("active",), active), index=index, model=model)

    node = Node(gpus=4)
    for _ in range(15):
        node.look(with_links(0, 12, "A100"), with_links(1, 12, "A100"), with_links(2, 18, "H100"), with_links(3, 17, "H100"))
    assert [node.state(index) for index in range(4)] == ["healthy", "healthy", "healthy", "degraded"]
    assert node.reasons(3) == ["nvlinks_active"]


def test_mig_instances_are_judged_as_the_gpu_that_they_are_of(node: Node) -> None:
    whole = reading(ECC)
    instance = replace(reading(), gpu=Gpu(0, "MIG-1", mig="3", parent_uuid=uuid(0), model="H100"))
    node.look(whole, instance)
    assert [(health.gpu.uuid, health.verdict.state) for health in node.board.gpus] == [(uuid(0), "unhealthy")]
    node.look(instance)
    assert [(health.gpu.uuid, health.gpu.mig) for health in node.board.gpus] == [(uuid(0), "")]


def test_a_node_without_gpus_is_unknown(node: Node) -> None:
    node.expected = 0
    assert node.board.node.state == "unknown"
    node.look()
    assert (node.board.gpus, node.board.node.state) == ((), "unknown")
