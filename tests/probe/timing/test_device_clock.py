"""There is no GPU here: a fake device runs its queue when told to, and its events have the calls of `torch.cuda.Event`."""

import pytest

from tachoscope.timing.device_clock import HOST_TO_DEVICE, MAX_MARKS, MAX_PENDING_STEPS, DeviceClock


class FakeDevice:
    """Runs what is queued in order; an event passes when everything before it ran."""

    def __init__(self) -> None:
        self.queue: list[FakeEvent | float] = []
        self.now_ms = 0.0
        self.events = 0

    def new_event(self) -> "FakeEvent":
        self.events += 1
        return FakeEvent(self)

    def work(self, milliseconds: float) -> None:
        self.queue.append(milliseconds)

    def run(self) -> None:
        for item in self.queue:
            if isinstance(item, FakeEvent):
                item.passed_ms = self.now_ms
            else:
                self.now_ms += item
        self.queue.clear()


class FakeEvent:
    def __init__(self, device: FakeDevice) -> None:
        self.device = device
        self.passed_ms: float | None = None

    def record(self, stream: object) -> None:
        assert stream is self.device
        self.passed_ms = None
        self.device.queue.append(self)

    def query(self) -> bool:
        return self.passed_ms is not None

    def elapsed_time(self, other: "FakeEvent") -> float:
        assert self.passed_ms is not None and other.passed_ms is not None, "elapsed_time would wait for the device"
        return other.passed_ms - self.passed_ms


def clock_of(device: FakeDevice) -> DeviceClock[int]:
    return DeviceClock(device.new_event, lambda: device, bool)


def step(clock: DeviceClock[int], device: FakeDevice, number: int, *, idle_ms: float = 1.0) -> None:
    device.work(idle_ms)
    clock.begin(HOST_TO_DEVICE)
    device.work(2)
    clock.begin("forward")
    device.work(10)
    clock.begin("backward")
    device.work(20)
    clock.begin("optimizer")
    device.work(3)
    clock.finish(number)


def test_segments_of_a_step_sum_to_the_time_from_end_to_end() -> None:
    device = FakeDevice()
    clock = clock_of(device)
    for number in range(3):
        step(clock, device, number, idle_ms=5)
    device.run()

    done = clock.ready()

    assert [number for number, _ in done] == [0, 1, 2]
    assert done[0][1] == {}  # nothing marked the begin of the very first step: not measured
    assert done[1][1] == pytest.approx(
        {"gap": 0.005, "host_to_device": 0.002, "forward": 0.010, "backward": 0.020, "optimizer": 0.003}
    )
    assert sum(done[2][1].values()) == pytest.approx(0.040)


def test_a_device_that_is_behind_is_never_waited_for() -> None:
    device = FakeDevice()
    clock = clock_of(device)
    step(clock, device, 0)

    assert clock.ready() == []
    device.run()
    assert len(clock.ready()) == 1


def test_events_are_used_again_so_that_the_pool_stays_small() -> None:
    device = FakeDevice()
    clock = clock_of(device)
    for number in range(100):
        step(clock, device, number)
        device.run()
        clock.ready()

    assert device.events <= 20


def test_a_device_that_hangs_gives_steps_without_device_time_and_bounded_memory() -> None:
    device = FakeDevice()
    clock = clock_of(device)
    for number in range(MAX_PENDING_STEPS + 23):
        step(clock, device, number)

    done = clock.ready()

    assert [seconds for _, seconds in done] == [{}] * 23
    assert len(clock.ready(everything=True)) == MAX_PENDING_STEPS


def test_a_copy_takes_its_own_time_wherever_it_stands_in_a_step() -> None:
    device = FakeDevice()
    clock = clock_of(device)
    clock.finish(0)
    for segment, milliseconds in (("host_to_device", 4), ("forward", 6), ("host_to_device", 1), ("forward", 2), ("backward", 9)):
        clock.begin(segment)
        device.work(milliseconds)
    clock.finish(1)
    device.run()

    assert clock.ready()[1][1] == pytest.approx({"gap": 0.0, "host_to_device": 0.005, "forward": 0.008, "backward": 0.009})


def test_no_event_is_touched_while_a_graph_is_captured() -> None:
    device = FakeDevice()
    captures = [False]
    clock: DeviceClock[int] = DeviceClock(device.new_event, lambda: device, lambda: captures[0])
    step(clock, device, 0)
    step(clock, device, 1)
    captures[0] = True
    queued = len(device.queue)
    step(clock, device, 2)
    assert len(device.queue) == queued + 5  # the work alone
    device.run()
    assert clock.ready() == []
    captures[0] = False

    assert [(number, bool(seconds)) for number, seconds in clock.ready()] == [(0, False), (1, True), (2, False)]


def test_a_step_of_many_micro_batches_needs_a_bounded_number_of_events() -> None:
    device = FakeDevice()
    clock = clock_of(device)
    clock.finish(0)
    for _ in range(1000):
        for segment in ("gap", "host_to_device", "forward", "backward"):
            clock.begin(segment)
            device.work(1)
    clock.finish(1)
    device.run()

    seconds = clock.ready()[1][1]
    assert device.events <= MAX_MARKS + 3
    assert sum(seconds.values()) == pytest.approx(4.0)
    assert seconds["forward"] + seconds["backward"] > 3.9
