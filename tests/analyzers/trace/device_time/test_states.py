"""The ledger: every nanosecond of every step in exactly one state."""

import random
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from planting import BACKWARD, Planted
from recorded import ALL, recorded
from tachoscope_analyzers.trace.device_time.idle import CAUSES
from tachoscope_analyzers.trace.device_time.ledger import HOST, STATE_OF_CAUSE, STATES, device_states, host_states, step_states
from tachoscope_analyzers.trace.events.intervals import intersection
from tachoscope_analyzers.trace.events.view import TraceView
from tachoscope_analyzers.trace.reading.read import read

US = 1_000
T = 1_000_000 * US


def ledger(trace: Planted, folder: Path) -> dict[str, int]:
    table = step_states(TraceView(trace.read(folder)))
    return {state: int(total) for state in STATES if (total := table[f"{state}_ns"].sum())}


@pytest.mark.parametrize("name", ALL or ["dlrm8/rank-0.json.gz"])
def test_states_are_disjoint_and_sum_to_every_step_of_every_sample_trace(name: str) -> None:
    view = TraceView(read(recorded(name)))
    table = step_states(view)
    assert (table[[f"{state}_ns" for state in STATES]].sum(axis=1) == table["duration_ns"]).all()
    for sets in [device_states(view, device) for device in view.devices] or [host_states(view)]:
        found = list(sets.values())
        for place, one in enumerate(found):
            assert all(intersection(one, other).total == 0 for other in found[place + 1 :])


def test_the_input_bound_sample_waits_for_data_for_a_third_of_the_step_and_its_twin_below_two_percent() -> None:
    share = {}
    for name in ("nw0", "nw4"):
        table = step_states(TraceView(read(recorded(f"kineto/resnet50_{name}_a.pt.trace"))))
        share[name] = table["data_wait_ns"].sum() / table["duration_ns"].sum()
    assert 0.30 < share["nw0"] < 0.36
    assert share["nw4"] < 0.02


def test_the_gpu_bound_samples_compute() -> None:
    for name, least in (("hta/v100_ns_resolution", 0.98), ("tracelens/vllm_decode_full", 0.99)):
        table = step_states(TraceView(read(recorded(name))))
        assert table["compute_ns"].sum() / table["duration_ns"].sum() > least


def test_exposed_copies_between_host_and_device_are_a_state_and_those_within_the_device_compute(tmp_path: Path) -> None:
    trace = Planted()
    trace.kernel("sgemm", T, 100 * US)
    trace.device("gpu_memcpy", "Memcpy HtoD (Pageable -> Device)", T + 50 * US, 100 * US, stream=8)
    trace.device("gpu_memcpy", "Memcpy DtoD (Device -> Device)", T + 150 * US, 30 * US, stream=8)
    trace.device("gpu_memset", "Memset (Device)", T + 180 * US, 20 * US, stream=8)
    assert ledger(trace, tmp_path) == {"compute": 150 * US, "host_to_device": 50 * US}


def test_only_exposed_communication_is_communication(tmp_path: Path) -> None:
    trace = Planted()
    trace.kernel("sgemm", T, 100 * US)
    trace.device("kernel", "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgs)", T + 40 * US, 100 * US, stream=8)
    assert ledger(trace, tmp_path) == {"compute": 100 * US, "communication": 40 * US}


def test_what_runs_during_an_evaluation_is_evaluation_busy_or_not(tmp_path: Path) -> None:
    trace = Planted()
    trace.step(1, T, 1_000 * US)
    trace.step(2, T + 1_000 * US, 1_000 * US)
    trace.annotation("evaluate", T + 600 * US, 400 * US)
    for start in (20, 700, 1_020):
        trace.kernel("sgemm", T + start * US, 200 * US, launched=T + start * US - 10 * US)
    table = step_states(TraceView(trace.read(tmp_path))).set_index("step")
    assert table.loc[1, "evaluation_ns"] == 400 * US
    assert table.loc[1, "compute_ns"] == 200 * US
    assert table.loc[2, "evaluation_ns"] == 0


def test_a_trace_of_the_host_alone_has_the_ledger_of_its_threads(tmp_path: Path) -> None:
    trace = Planted()
    trace.step(0, T, 1_000 * US)
    trace.annotation("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", T, 200 * US)
    trace.op("aten::stack", T + 50 * US, 100 * US)  # the loader collates a batch: that is not the model's compute
    trace.op("aten::linear", T + 200 * US, 300 * US)
    trace.op("autograd::engine::evaluate_function: AddmmBackward0", T + 500 * US, 100 * US, tid=BACKWARD)
    trace.annotation("gloo:all_reduce", T + 550 * US, 250 * US)
    trace.annotation("torch.save", T + 800 * US, 150 * US)
    table = step_states(TraceView(trace.read(tmp_path)))
    assert table["device"].tolist() == [HOST]
    found = {state: int(table[f"{state}_ns"].sum()) // US for state in STATES if table[f"{state}_ns"].sum()}
    assert found == {"data_wait": 200, "compute": 400, "communication": 200, "checkpoint": 150, "host_wait": 50}


def test_a_trace_without_any_event_has_an_empty_ledger(tmp_path: Path) -> None:
    assert step_states(TraceView(Planted().read(tmp_path))).empty


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(0, 10_000), st.integers(1, 60))
def test_whatever_a_trace_holds_its_ledger_adds_up(tmp_path: Path, seed: int, count: int) -> None:
    dice = random.Random(seed)
    trace = Planted()
    for number in range(dice.randrange(4)):
        trace.step(number + dice.randrange(3), T + number * 3_000 * US, dice.randrange(1, 4_000) * US)
    for _ in range(count):
        at, length = T + dice.randrange(-2_000, 12_000) * US + dice.randrange(1_000), dice.randrange(0, 2_000_000)
        what = dice.randrange(8)
        if what == 0:
            trace.kernel("sgemm", at, length, launched=at + dice.randrange(-3_000, 300) * US, stream=dice.randrange(3))
        elif what == 1:
            trace.device("kernel", "ncclKernel_x", at, length, device=dice.randrange(2), stream=9)
        elif what == 2:
            trace.device("gpu_memcpy", dice.choice(["Memcpy HtoD", "Memcpy DtoD"]), at, length, stream=dice.randrange(9, 12))
        elif what == 3:
            trace.call(dice.choice(["cudaDeviceSynchronize", "cudaMalloc", "cudaEventRecord"]), at, length)
        elif what == 4:
            trace.annotation(
                dice.choice(["evaluate", "torch.save", "gloo:broadcast", "enumerate(DataLoader)#x.__next__"]), at, length
            )
        else:
            trace.op(dice.choice(["aten::add", "c10d::allreduce_"]), at, length, tid=dice.choice([100, 101]))
    view = TraceView(trace.read(tmp_path))
    table = step_states(view)
    assert (table[[f"{state}_ns" for state in STATES]].sum(axis=1) == table["duration_ns"]).all()
    assert (table[[f"{state}_ns" for state in STATES]] >= 0).all().all()
    steps = view.device_steps
    assert (steps.end >= steps.start).all()
    assert (steps.start[1:] >= steps.end[:-1]).all()


def test_every_cause_of_idle_time_has_a_state() -> None:
    assert set(STATE_OF_CAUSE) == set(CAUSES)
    assert set(STATE_OF_CAUSE.values()) <= set(STATES)
