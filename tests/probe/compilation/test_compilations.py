"""The compilations of a process: whose time they are, how many are recorded, and what is known where torch lacks something."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Iterator
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from tachoscope.compilation import compilations
from tachoscope.compilation.compilations import Compilations
from tachoscope.patches import torch_compile
from tachoscope.timing import phases
from tachoscope.timing.phases import Timeline
from tachoscope.training.step_machine import StepMachine
from tachoscope_core.records import records


class Outbox:
    def __init__(self) -> None:
        self.rows: list[tuple[type[records.Record], int, dict[str, Any]]] = []

    def write_all(self, rows: Any) -> None:
        self.rows += rows


class Handler:
    """As torch's, of a version that gives the trigger."""

    @contextlib.contextmanager
    def install_callbacks(self, trigger: object, compile_id: str) -> Iterator[None]:
        yield


class Probe:
    """As much of the probe as is used."""

    def __init__(self) -> None:
        self.on = True
        self.machine = StepMachine(Timeline())
        self.timeline = self.machine.timeline
        self.compilations = Compilations(Outbox(), self.machine, timed=False)  # type: ignore[arg-type]
        self.thread = self.machine.thread_ident = threading.get_ident()
        self.timed = False

    def in_watched_thread(self) -> bool:
        return threading.get_ident() == self.thread

    def compilations_timed(self) -> None:
        self.timed = True

    def stop_after_fault(self, error: Exception) -> None:
        raise error


LAZY, DYNAMO = SimpleNamespace(name="LAZY_BACKWARD"), SimpleNamespace(name="DYNAMO")


@pytest.fixture
def probe() -> Probe:
    return Probe()


@pytest.fixture
def handler(probe: Probe) -> Handler:
    handler = Handler()
    module = ModuleType("callback")
    module.callback_handler = handler  # type: ignore[attr-defined]
    torch_compile._wrap_callbacks(probe, module)  # type: ignore[arg-type]
    return handler


def compile_on_a_thread(handler: Handler, trigger: object) -> None:
    def run() -> None:
        with handler.install_callbacks(trigger, "0/0"):
            pass

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()


def test_on_the_training_thread_compiling_is_a_phase_also_where_it_fails(probe: Probe, handler: Handler) -> None:
    assert probe.timed
    with pytest.raises(ValueError, match="no graph"), handler.install_callbacks(DYNAMO, "0/0"):
        assert probe.timeline.phase == phases.COMPILE
        raise ValueError("no graph")

    assert probe.timeline.phase != phases.COMPILE
    assert probe.timeline.wall[phases.COMPILE] > 0


def test_a_backward_that_autograd_compiles_on_its_own_thread_is_compiling_of_the_step(probe: Probe, handler: Handler) -> None:
    probe.machine.backward_begin()
    compile_on_a_thread(handler, LAZY)
    probe.machine.backward_end()

    assert probe.timeline.wall[phases.COMPILE] > 0
    assert probe.timeline.wall[phases.BACKWARD] > 0
    assert not probe.compilations.elsewhere


@pytest.mark.parametrize(("trigger", "backward"), [(DYNAMO, True), (LAZY, False)])
def test_what_other_threads_compile_for_themselves_is_not_the_steps(
    probe: Probe, handler: Handler, trigger: object, backward: bool
) -> None:
    if backward:
        probe.machine.backward_begin()
    compile_on_a_thread(handler, trigger)

    assert probe.timeline.wall[phases.COMPILE] == 0


def test_torch_without_the_function_is_said_and_not_measured(probe: Probe, capsys: pytest.CaptureFixture[str]) -> None:
    torch_compile._wrap_callbacks(probe, ModuleType("callback"))  # type: ignore[arg-type]

    assert not probe.timed
    assert "compilations are not measured" in capsys.readouterr().err


def test_two_threads_of_autograd_that_compile_at_once_take_the_time_of_the_step_once(probe: Probe) -> None:
    probe.machine.backward_begin()
    opened = [probe.compilations.begin(watched=False) for _ in range(2)]
    until = time.monotonic_ns() + 1_000_000
    while time.monotonic_ns() < until:
        assert probe.compilations.elsewhere
    for one in opened:
        assert one is not None
        probe.compilations.end(one)
    probe.machine.backward_end()

    assert not probe.compilations.elsewhere
    assert probe.timeline.wall[phases.COMPILE] >= 1_000_000
    assert probe.timeline.wall[phases.BACKWARD] >= 0


def test_a_training_thread_that_left_its_backward_does_not_wait_for_a_compilation(probe: Probe) -> None:
    probe.machine.backward_begin()
    opened = probe.compilations.begin(watched=False)
    probe.machine.backward_end()

    assert opened is not None
    assert not probe.compilations.elsewhere
    probe.compilations.end(opened)
    assert probe.timeline.wall[phases.COMPILE] == 0


def test_a_thread_that_is_no_longer_watched_ends_no_phase_of_the_one_that_is(probe: Probe) -> None:
    opened = probe.compilations.begin(watched=True)
    assert opened is not None
    probe.machine.thread_ident += 1
    probe.machine.restart(None)
    probe.timeline.enter(phases.FORWARD)
    probe.compilations.end(opened)

    assert (probe.timeline.phase, probe.timeline.nested) == (phases.FORWARD, [phases.OTHER])


def of_process_with(monkeypatch: pytest.MonkeyPatch, probe: Probe, kept: list[Any]) -> tuple[Compilations, Outbox]:
    outbox = Outbox()
    monkeypatch.setitem(sys.modules, "torch", ModuleType("torch"))
    utils = SimpleNamespace(_compilation_metrics=kept, graph_break_reasons=[])
    monkeypatch.setitem(sys.modules, "torch._dynamo.utils", utils)
    return Compilations(outbox, probe.machine, timed=True), outbox  # type: ignore[arg-type]


def a_compilation(number: int) -> SimpleNamespace:
    return SimpleNamespace(compile_id=f"0/{number}", co_filename="/a.py", co_firstlineno=1, co_name="f")


def test_a_process_that_compiles_without_end_records_so_many_at_once_then_some_and_counts_all(
    monkeypatch: pytest.MonkeyPatch, probe: Probe
) -> None:
    monkeypatch.setattr(compilations, "MOST_AT_ONCE", 3)
    kept: list[Any] = []
    of_process, outbox = of_process_with(monkeypatch, probe, kept)
    for number in range(5):
        kept.append(a_compilation(number))
        of_process.write_new()
    assert (len(outbox.rows), of_process.count) == (3, 5)

    of_process._allowed_at -= 1 / compilations.RECORDS_PER_SECOND
    kept.append(a_compilation(5))
    of_process.write_new()
    assert (len(outbox.rows), of_process.count) == (4, 6)


def test_what_was_compiled_before_the_process_was_watched_as_by_the_parent_of_a_forked_one_is_not_its_own(
    monkeypatch: pytest.MonkeyPatch, probe: Probe
) -> None:
    kept = [a_compilation(0)]
    of_process, outbox = of_process_with(monkeypatch, probe, kept)
    of_process.write_new()
    assert (outbox.rows, of_process.count) == ([], 0)

    kept.append(SimpleNamespace(compile_id="0/0", is_forward=False))  # whose forward the parent compiled
    of_process.write_new()
    assert [row[2]["place"] for row in outbox.rows] == ["a.py:1 f"]


def test_where_torch_dropped_what_was_not_read_yet_the_number_is_not_known(monkeypatch: pytest.MonkeyPatch, probe: Probe) -> None:
    kept = [a_compilation(0)]
    of_process, outbox = of_process_with(monkeypatch, probe, kept)
    kept[:] = [a_compilation(1)]
    of_process.write_new()

    assert len(outbox.rows) == 1
    assert of_process.count is None


def test_what_cannot_be_read_is_said_once_and_then_not_known(
    monkeypatch: pytest.MonkeyPatch, probe: Probe, capsys: pytest.CaptureFixture[str]
) -> None:
    of_process, _ = of_process_with(monkeypatch, probe, [SimpleNamespace(start_time="yesterday")])
    of_process.write_new()
    of_process.write_new()

    assert of_process.count is None
    assert capsys.readouterr().err.count("not recorded") == 1


def test_without_torch_it_is_not_known_and_without_dynamo_nothing_was_compiled(
    monkeypatch: pytest.MonkeyPatch, probe: Probe
) -> None:
    monkeypatch.delitem(sys.modules, "torch._dynamo.utils", raising=False)
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    assert probe.compilations.count is None
    monkeypatch.setitem(sys.modules, "torch", ModuleType("torch"))
    assert probe.compilations.count == 0
