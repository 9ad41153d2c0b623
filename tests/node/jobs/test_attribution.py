"""A step by state: whatever the numbers, they sum to the step."""

import contextlib
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from making import envelope
from tachoscope_core.metrics.training import TRAINING_STATES
from tachoscope_core.records.records import PHASES, MalformedRecordError, StepDone, decode, encode, plausible
from tachoscope_node.jobs.step_attribution import Clocks, StepStates, attribute
from trying import each

seconds = st.floats(0, 100)


def step(phases: dict[str, float], **fields: object) -> StepDone:
    return StepDone(**envelope(), step=1, wall_seconds=sum(phases.values()), phase_seconds=phases, **fields)  # type: ignore[arg-type]


def total(part: StepStates) -> float:
    return sum(part.states.values()) + part.waiting + part.exchange


@given(
    st.dictionaries(st.sampled_from(PHASES), seconds),
    st.dictionaries(st.sampled_from(PHASES), seconds),
    st.fixed_dictionaries({}, optional={"step": seconds, "backward": seconds}),
    st.dictionaries(st.sampled_from(["gap", "host_to_device", "forward", "backward", "optimizer"]), seconds),
    st.booleans(),
)
def test_states_sum_to_the_step_and_none_is_negative(
    phases: dict[str, float], cpu: dict[str, float], delay: dict[str, float], device: dict[str, float], together: bool
) -> None:
    record = step(phases, cpu_seconds=cpu, run_delay_seconds=delay, device_seconds=device)
    part = attribute(record, Clocks(), together=together)

    assert total(part) == pytest.approx(record.wall_seconds, abs=1e-9)
    assert min(*part.states.values(), part.waiting, part.exchange) >= 0
    assert set(part.states) <= set(TRAINING_STATES)


def test_a_device_that_has_no_work_while_the_host_compiles_compiles_too() -> None:
    record = step({"forward": 0.1, "compile": 3.0}, device_seconds={"gap": 3.0, "forward": 0.1})

    states = attribute(record, Clocks(), together=False).states
    assert states["compile"] == pytest.approx(3.0)
    assert states["compute"] == pytest.approx(0.1)


def test_backward_that_neither_computes_nor_lacks_a_core_is_waiting_in_a_job_of_several_ranks() -> None:
    record = step({"backward": 1.0}, cpu_seconds={"backward": 0.3}, run_delay_seconds={"step": 0.1, "backward": 0.1})

    assert attribute(record, Clocks(), together=True).waiting == pytest.approx(0.6)
    assert attribute(record, Clocks(), together=False).waiting == 0


def test_a_step_whose_clocks_were_not_read_is_split_as_the_last_one_in_which_they_were() -> None:
    clocks = Clocks()
    attribute(step({"backward": 1.0}, cpu_seconds={"backward": 0.4}), clocks, together=True)

    assert attribute(step({"backward": 2.0}), clocks, together=True).waiting == pytest.approx(1.6)


def test_before_any_clock_was_read_backward_is_computing_not_waiting() -> None:
    assert attribute(step({"backward": 1.0}), Clocks(), together=True).states["compute"] == 1.0


@each(
    "changes",
    [
        {"wall_seconds": math.nan},
        {"wall_seconds": -1.0},
        {"wall_seconds": 1e300},
        {"phase_seconds": {"forward": -1.0}},
        {"phase_seconds": {"forward": math.inf}},
        {"phase_seconds": {"forward": 5.0}},
        {"device_seconds": {"gap": math.nan}},
    ],
)
def test_numbers_that_cannot_be_make_no_record_or_an_implausible_one(changes: dict[str, object]) -> None:
    fields = {"step": 1, "wall_seconds": 1.0, "phase_seconds": {"forward": 1.0}} | changes
    found = None
    with contextlib.suppress(MalformedRecordError):
        found = decode(encode(StepDone(**envelope(), **fields)).rstrip())  # type: ignore[arg-type]

    assert not (isinstance(found, StepDone) and plausible(found))
    assert plausible(step({"forward": 1.0}))
