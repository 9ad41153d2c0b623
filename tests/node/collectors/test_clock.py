"""The kernel's own judgement of its clock, read and never set."""

import errno
from collections.abc import Callable

import pytest
from trees import collected, points

from tachoscope_core.metrics.host import CLOCK_ERROR, CLOCK_OFFSET, CLOCK_SYNCHRONISED
from tachoscope_node.collectors.clock import ClockCollector, KernelClock, read_kernel_clock
from tachoscope_node.collectors.collector import NotSupportedError

_OK, _ERROR, _PLL, _UNSYNC, _NANO = 0, 5, 0x1, 0x40, 0x2000


def shown(clock: KernelClock) -> tuple[float, float, float]:
    families = collected(ClockCollector(lambda: clock))
    return points(families, CLOCK_ERROR)[()], points(families, CLOCK_OFFSET)[()], points(families, CLOCK_SYNCHRONISED)[()]


def test_a_synchronised_clock_with_an_offset_in_microseconds() -> None:
    assert shown(KernelClock(_OK, _PLL, -2300, 5000)) == (0.005, -0.0023, 1)


def test_a_kernel_that_counts_in_nanoseconds_says_so() -> None:
    assert shown(KernelClock(_OK, _PLL | _NANO, 2300, 5000)) == (0.005, 2.3e-6, 1)


def test_a_clock_that_no_one_holds_is_not_synchronised() -> None:
    assert shown(KernelClock(_ERROR, _UNSYNC, 0, 16_000_000)) == (16, 0, 0)


def refusing(code: int) -> Callable[[], KernelClock]:
    def reader() -> KernelClock:
        raise OSError(code, "refused")

    return reader


@pytest.mark.parametrize("code", [errno.EPERM, errno.ENOSYS])
def test_a_sandbox_that_forbids_the_call_is_not_supported(code: int) -> None:
    with pytest.raises(NotSupportedError, match="refused"):
        ClockCollector(refusing(code)).collect()


def test_any_other_error_of_the_call_is_a_failure() -> None:
    with pytest.raises(OSError, match="refused"):
        ClockCollector(refusing(errno.EFAULT)).collect()


def test_the_real_kernel_answers_within_its_limits_and_is_left_as_it_was() -> None:
    before = read_kernel_clock()
    error, offset, synchronised = shown(before)

    assert 0 <= error <= 16
    assert abs(offset) <= 0.5
    assert synchronised == (before.state != _ERROR)
    assert bool(before.status & _UNSYNC) <= (synchronised == 0)
    assert read_kernel_clock().status == before.status
