from hypothesis import given
from hypothesis import strategies as st
from tachoscope import timeline as tl
from tachoscope.timeline import Timeline


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
            timeline.leave_to(tl.FORWARD)
        else:
            getattr(timeline, event)()
    clock.now += rest

    end, wall = timeline.cut()

    assert (end, wall) == (clock.now, clock.now)
    assert sum(timeline.wall) == wall
    assert sum(timeline.cpu) == wall
    assert min(timeline.wall) >= 0


def test_time_goes_to_the_innermost_phase() -> None:
    timeline, clock = make()
    timeline.enter(tl.FORWARD)
    clock.now = 10
    timeline.enter(tl.GC)
    clock.now = 13
    timeline.leave()
    clock.now = 20
    timeline.cut()

    assert timeline.wall[tl.FORWARD] == 17
    assert timeline.wall[tl.GC] == 3


def test_evaluation_takes_its_data_loading_but_not_its_checkpoint() -> None:
    timeline, clock = make()
    timeline.begin_evaluation()
    for phase, length in ((tl.DATA_WAIT, 5), (tl.CHECKPOINT, 7)):
        timeline.enter(phase)
        clock.now += length
        timeline.leave()
    clock.now += 11
    timeline.end_evaluation()
    timeline.cut()

    assert timeline.wall[tl.EVALUATION] == 16
    assert timeline.wall[tl.CHECKPOINT] == 7


def test_what_turned_out_to_be_training_keeps_its_phases() -> None:
    timeline, clock = make()
    timeline.begin_evaluation()
    timeline.enter(tl.DATA_WAIT)
    clock.now = 5
    timeline.leave()
    timeline.cancel_evaluation()
    timeline.end_evaluation()
    timeline.cut()

    assert timeline.wall[tl.DATA_WAIT] == 5
    assert timeline.wall[tl.EVALUATION] == 0
