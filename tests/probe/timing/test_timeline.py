from hypothesis import given
from hypothesis import strategies as st

from tachoscope.timing import phases
from tachoscope.timing.phases import Timeline


class Clock:
    def __init__(self) -> None:
        self.now = 0

    def __call__(self) -> int:
        return self.now


def make() -> tuple[Timeline, Clock]:
    clock = Clock()
    return Timeline(clock, clock), clock


EVENTS = st.lists(
    st.tuples(
        st.integers(0, 1000),
        st.sampled_from(["enter", "leave", "base", "begin_evaluation", "end_evaluation", "cancel_evaluation"]),
        st.integers(0, 9),
    ),
    max_size=60,
)


@given(EVENTS, st.integers(0, 1000))
def test_every_nanosecond_belongs_to_exactly_one_phase_whatever_happens(events: list[tuple[int, str, int]], rest: int) -> None:
    timeline, clock = make()
    for passed, event, phase in events:
        clock.now += passed
        if event == "enter":
            timeline.enter(phase)
        elif event == "leave":
            timeline.leave()
        elif event == "base":
            timeline.leave_to(phases.FORWARD)
        else:
            getattr(timeline, event)()
    clock.now += rest

    end, total, wall, cpu = timeline.end_step()

    assert (end, total) == (clock.now, clock.now)
    assert sum(wall) == total
    assert cpu is not None
    assert sum(cpu) == total
    assert min(wall) >= 0


def test_time_goes_to_the_innermost_phase() -> None:
    timeline, clock = make()
    timeline.enter(phases.FORWARD)
    clock.now = 10
    timeline.enter(phases.GC)
    clock.now = 13
    timeline.leave()
    clock.now = 20
    _, _, wall, _ = timeline.end_step()

    assert wall[phases.FORWARD] == 17
    assert wall[phases.GC] == 3


def test_evaluation_takes_its_data_loading_but_not_its_checkpoint() -> None:
    timeline, clock = make()
    timeline.begin_evaluation()
    for phase, length in ((phases.DATA_WAIT, 5), (phases.CHECKPOINT, 7)):
        timeline.enter(phase)
        clock.now += length
        timeline.leave()
    clock.now += 11
    timeline.end_evaluation()
    _, _, wall, _ = timeline.end_step()

    assert wall[phases.EVALUATION] == 16
    assert wall[phases.CHECKPOINT] == 7


def test_what_turned_out_to_be_training_keeps_its_phases() -> None:
    timeline, clock = make()
    timeline.begin_evaluation()
    timeline.enter(phases.DATA_WAIT)
    clock.now = 5
    timeline.leave()
    timeline.cancel_evaluation()
    timeline.end_evaluation()
    _, _, wall, _ = timeline.end_step()

    assert wall[phases.DATA_WAIT] == 5
    assert wall[phases.EVALUATION] == 0


def test_what_may_be_evaluation_is_told_as_that_while_it_lasts_and_a_checkpoint_in_it_as_a_checkpoint() -> None:
    timeline, _ = make()
    timeline.begin_evaluation()
    seen = [timeline.phase_now]
    for phase in (phases.FORWARD, phases.COLLECTIVE, phases.CHECKPOINT):
        timeline.enter(phase)
        seen.append(timeline.phase_now)
    timeline.end_evaluation()
    timeline.unwind(0)

    assert seen == [phases.EVALUATION, phases.EVALUATION, phases.EVALUATION, phases.CHECKPOINT]
    assert timeline.phase_now == timeline.phase == phases.OTHER


def test_once_a_part_in_eval_mode_was_training_only_batches_without_gradients_are_told_as_evaluation() -> None:
    timeline, _ = make()
    timeline.begin_evaluation()
    timeline.cancel_evaluation()
    timeline.enter(phases.FORWARD)
    timeline.begin_evaluation()
    frozen = timeline.phase_now
    timeline.begin_evaluation(no_grad=True)

    assert (frozen, timeline.phase_now) == (phases.FORWARD, phases.EVALUATION)


def test_a_step_whose_cpu_clock_is_not_read_says_so_and_the_next_starts_from_its_own_begin() -> None:
    wall_clock, cpu_clock = Clock(), Clock()
    timeline = Timeline(wall_clock, cpu_clock)
    timeline.end_step(read_cpu=False)
    wall_clock.now = cpu_clock.now = 100
    assert timeline.end_step(read_cpu=True)[3] is None
    wall_clock.now, cpu_clock.now = 110, 107

    _, total, _, cpu = timeline.end_step()

    assert total == 10
    assert cpu is not None
    assert sum(cpu) == 7
