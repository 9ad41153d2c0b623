"""The checksum sees every changed bit, in every layout; what is not finite is named; and a check never disturbs the job."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tachoscope.training.integrity import Checks, checksum, from_environment, not_finite

DTYPES = (torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.int8, torch.complex64)


def model(seed: int = 0) -> torch.nn.Module:
    torch.manual_seed(seed)
    return torch.nn.Sequential(torch.nn.Linear(5, 7), torch.nn.Conv2d(3, 5, 3).to(memory_format=torch.channels_last))


@given(
    dtype=st.sampled_from(DTYPES),
    shape=st.tuples(st.integers(1, 5), st.integers(1, 7)),
    transposed=st.booleans(),
    bit=st.integers(0, 10**6),
)
def test_any_single_flipped_bit_changes_the_checksum(
    dtype: torch.dtype, shape: tuple[int, int], transposed: bool, bit: int
) -> None:
    tensor = torch.randint(-9, 9, shape).to(dtype)
    tensor = tensor.T if transposed else tensor
    before = checksum([torch.ones(3), tensor])
    raw = tensor.untyped_storage()
    position = bit % (8 * raw.nbytes())
    raw[position // 8] = raw[position // 8] ^ (1 << position % 8)

    assert checksum([torch.ones(3), tensor]) != before


def test_equal_models_have_equal_checksums_and_order_matters() -> None:
    assert checksum(model().parameters()) == checksum(model().parameters()) != checksum(model(1).parameters())
    assert checksum([torch.ones(4), torch.zeros(4)]) != checksum([torch.zeros(4), torch.ones(4)])
    assert checksum([]) == "0" * 16


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_tensors_that_hold_what_is_no_number_are_counted(value: float, dtype: torch.dtype) -> None:
    bad = torch.zeros(5, dtype=dtype)
    bad[3] = value
    largest = torch.full((4,), torch.finfo(dtype).max, dtype=dtype)

    assert not_finite([torch.zeros(3), bad, torch.empty(0), torch.arange(3), largest]) == 1


def test_a_check_says_what_is_not_finite_and_leaves_the_model_as_it_was() -> None:
    checks, net = Checks(10), model()
    checks.add(net, [0, 1])
    before = {name: value.clone() for name, value in net.state_dict().items()}
    checks.loss_seen((torch.tensor(float("nan"), requires_grad=True),))
    net[0].weight.grad = torch.full_like(net[0].weight, float("inf"))

    fields = checks.run()

    assert fields is not None
    assert fields["not_finite"] == ["loss", "gradients"]
    assert fields["replicas"] == [0, 1]
    assert fields["checksum"] == checksum(net.parameters())
    assert all(torch.equal(before[name], value) for name, value in net.state_dict().items())


def test_checks_are_due_every_so_many_steps_and_at_the_first_loss_that_is_not_finite() -> None:
    checks = Checks(10)
    assert [step for step in range(1, 31) if checks.due(step)] == [10, 20, 30]

    checks.loss_seen([torch.tensor(1.0)])
    assert not checks.due(33)
    checks.loss_seen([torch.tensor(float("inf"))])
    assert checks.due(34)
    checks.loss_seen([torch.tensor(float("inf"))])
    assert not checks.due(35)


def test_without_a_model_the_optimizers_parameters_are_checked_and_without_both_nothing_is() -> None:
    checks, net = Checks(1), model()
    assert checks.run() is None

    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    checks.optimizer_stepped(optimizer)
    fields = checks.run()

    assert fields is not None
    assert (fields["checksum"], fields["replicas"]) == (checksum(net.parameters()), [])


def test_a_model_that_is_out_of_use_is_forgotten() -> None:
    checks = Checks(1)
    checks.add(model())

    assert checks.run() is None


def test_a_fault_of_a_check_is_one_line_and_the_last_check(capsys: pytest.CaptureFixture[str]) -> None:
    class Broken(torch.nn.Module):
        def parameters(self, recurse: bool = True) -> object:
            raise RuntimeError("planted")

    checks, net = Checks(1), Broken()
    checks.add(net)

    assert [checks.run(), checks.run()] == [None, None]
    assert capsys.readouterr().err == "tachoscope: no more integrity checks: RuntimeError: planted\n"


@pytest.mark.parametrize(("text", "every"), [("", None), ("50", 50), ("0", None), ("often", None), ("-3", None)])
def test_the_environment_says_every_how_many_steps(text: str, every: int | None, capsys: pytest.CaptureFixture[str]) -> None:
    checks = from_environment({"TACHOSCOPE_INTEGRITY_EVERY": text})

    assert (checks.every if checks else None) == every
    assert ("not a number of steps" in capsys.readouterr().err) is (bool(text) and every is None)
