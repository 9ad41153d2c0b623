"""RDMA ports in bytes, whatever the adapter calls them; what it does not tell is left out and not zero.

The trees are written after the kernel's page of the layout, Documentation/ABI/stable/sysfs-class-infiniband, and after what
adapters that have less were reported to show.
"""

import errno
import shutil
from pathlib import Path

import pytest
from trees import collected, plant, points

from tachoscope_core.metrics.host import (
    INFINIBAND_BYTES,
    INFINIBAND_ERRORS,
    INFINIBAND_LINK_RATE,
    INFINIBAND_LINK_STATE,
    LINK_STATES,
)
from tachoscope_node.collectors import infiniband
from tachoscope_node.collectors.collector import NoDataError, NotSupportedError
from tachoscope_node.collectors.infiniband import InfinibandCollector
from tachoscope_node.common.kernel_files import MalformedError
from tachoscope_node.config.device_filter import DeviceFilter

_COUNTERS = {
    "symbol_error": "2\n",
    "link_error_recovery": "3\n",
    "link_downed": "5\n",
    "port_rcv_errors": "7\n",
    "port_xmit_discards": "11\n",
    "port_rcv_packets": "13\n",
    "VL15_dropped": "17\n",
}


def port(
    device: str, number: int = 1, *, state: str = "4: ACTIVE\n", rate: str = "400 Gb/sec (4X NDR)\n", **more: str
) -> dict[str, str]:
    """Return the files of a port with counters, as of a ConnectX."""
    folder = f"class/infiniband/{device}/ports/{number}"
    counters = {**_COUNTERS, "port_rcv_data": "23\n", "port_xmit_data": "29\n", **more}
    files = {f"{folder}/counters/{name}": content for name, content in counters.items()}
    return {**files, f"{folder}/state": state, f"{folder}/rate": rate, f"{folder}/link_layer": "InfiniBand\n"}


def state_of(families: list, device: str, number: str = "1") -> str:
    states = points(families, INFINIBAND_LINK_STATE)
    (current,) = [state for state in LINK_STATES if states[device, number, state] == 1]
    return current


def test_planted_data_is_times_four(tmp_path: Path) -> None:
    families = collected(InfinibandCollector(plant(tmp_path, port("mlx5_0"))))

    assert points(families, INFINIBAND_BYTES) == {("mlx5_0", "1", "receive"): 23 * 4, ("mlx5_0", "1", "transmit"): 29 * 4}


def test_errors_come_by_the_kernels_names_and_other_counters_are_no_errors(tmp_path: Path) -> None:
    families = collected(InfinibandCollector(plant(tmp_path, port("mlx5_0"))))

    kinds = {labels[2]: value for labels, value in points(families, INFINIBAND_ERRORS).items()}
    assert kinds == {"symbol_error": 2, "link_error_recovery": 3, "link_downed": 5, "port_rcv_errors": 7, "port_xmit_discards": 11}


@pytest.mark.parametrize(
    ("rate", "expected"),
    [
        ("400 Gb/sec (4X NDR)\n", 50e9),
        ("2.5 Gb/sec (1X SDR)\n", 312.5e6),
        ("25 Gb/sec (1X EDR)\n", 3.125e9),
        ("40 Gb/sec (4X QDR)\n", 5e9),
    ],
)
def test_the_rate_is_in_bytes_a_second(tmp_path: Path, rate: str, expected: float) -> None:
    families = collected(InfinibandCollector(plant(tmp_path, port("mlx5_0", rate=rate))))

    assert points(families, INFINIBAND_LINK_RATE) == {("mlx5_0", "1"): expected}


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        ("4: ACTIVE\n", "active"),
        ("1: DOWN\n", "down"),
        ("2: INIT\n", "init"),
        ("3: ARMED\n", "armed"),
        ("5: ACTIVE_DEFER\n", "active_defer"),
    ],
)
def test_a_port_is_in_one_state(tmp_path: Path, state: str, expected: str) -> None:
    families = collected(InfinibandCollector(plant(tmp_path, port("mlx5_0", state=state))))

    assert state_of(families, "mlx5_0") == expected


def test_all_ports_of_all_adapters_are_told_apart(tmp_path: Path) -> None:
    files = port("mlx5_0") | port("mlx5_0", 2, port_rcv_data="31\n", state="1: DOWN\n") | port("mlx5_bond_0")
    families = collected(InfinibandCollector(plant(tmp_path, files)))

    received = {labels[:2]: value for labels, value in points(families, INFINIBAND_BYTES).items() if labels[2] == "receive"}
    assert received == {("mlx5_0", "1"): 92, ("mlx5_0", "2"): 124, ("mlx5_bond_0", "1"): 92}
    assert [state_of(families, "mlx5_0", number) for number in "12"] == ["active", "down"]


def test_a_virtual_function_that_counts_nothing_still_shows_its_link(tmp_path: Path) -> None:
    nothing = dict.fromkeys((*_COUNTERS, "port_rcv_data", "port_xmit_data"), "N/A (no PMA)\n")
    families = collected(InfinibandCollector(plant(tmp_path, port("mlx4_0", **nothing))))

    assert points(families, INFINIBAND_BYTES) == points(families, INFINIBAND_ERRORS) == {}
    assert state_of(families, "mlx4_0") == "active"
    assert points(families, INFINIBAND_LINK_RATE) == {("mlx4_0", "1"): 50e9}


def test_roce_counts_in_four_bytes_too_and_tells_of_a_lossy_fabric(tmp_path: Path) -> None:
    folder = "class/infiniband/mlx5_2/ports/1"
    hardware = {"out_of_sequence": "2\n", "packet_seq_err": "3\n", "rx_write_requests": "5\n", "rx_bytes": "999\n"}
    files = port("mlx5_2", rate="100 Gb/sec (4X EDR)\n") | {f"{folder}/link_layer": "Ethernet\n"}
    families = collected(
        InfinibandCollector(plant(tmp_path, files | {f"{folder}/hw_counters/{name}": text for name, text in hardware.items()}))
    )

    errors = points(families, INFINIBAND_ERRORS)
    assert (errors["mlx5_2", "1", "out_of_sequence"], errors["mlx5_2", "1", "packet_seq_err"]) == (2, 3)
    assert points(families, INFINIBAND_BYTES)["mlx5_2", "1", "receive"] == 92


def test_adapters_that_have_only_hw_counters_count_plain_bytes_there(tmp_path: Path) -> None:
    folder = "class/infiniband/rdmap0s6/ports/1"
    files = {f"{folder}/hw_counters/rx_bytes": "23\n", f"{folder}/hw_counters/tx_bytes": "29\n", f"{folder}/state": "4: ACTIVE\n"}
    families = collected(InfinibandCollector(plant(tmp_path, files)))

    assert points(families, INFINIBAND_BYTES) == {("rdmap0s6", "1", "receive"): 23, ("rdmap0s6", "1", "transmit"): 29}
    assert points(families, INFINIBAND_LINK_RATE) == {}


def test_an_adapter_without_any_counter_shows_its_link(tmp_path: Path) -> None:
    folder = "class/infiniband/bnxt_re0/ports/1"
    files = {f"{folder}/state": "4: ACTIVE\n", f"{folder}/rate": "100 Gb/sec (4X EDR)\n"}
    families = collected(InfinibandCollector(plant(tmp_path, files)))

    assert points(families, INFINIBAND_BYTES) == {}
    assert state_of(families, "bnxt_re0") == "active"


@pytest.mark.parametrize("code", [errno.EINVAL, errno.ENODEV, errno.EOPNOTSUPP, errno.ENOENT])
def test_a_counter_that_the_driver_refuses_to_read_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    def refusing(path: str) -> bytes:
        if path.endswith("symbol_error"):
            raise OSError(code, "refused")
        return Path(path).read_bytes()

    monkeypatch.setattr(infiniband, "read", refusing)
    errors = points(collected(InfinibandCollector(plant(tmp_path, port("mlx5_0")))), INFINIBAND_ERRORS)

    assert {labels[2] for labels in errors} == {"link_error_recovery", "link_downed", "port_rcv_errors", "port_xmit_discards"}


def test_an_adapter_that_does_not_answer_is_a_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(path: str) -> bytes:
        raise OSError(errno.EIO, "Input/output error", path)

    collector = InfinibandCollector(plant(tmp_path, port("mlx5_0")))
    monkeypatch.setattr(infiniband, "read", broken)

    with pytest.raises(OSError, match="port_rcv_data"):
        collector.collect()


def test_adapters_may_come_and_go(tmp_path: Path) -> None:
    collector = InfinibandCollector(plant(tmp_path, port("mlx5_0") | port("mlx5_1")))
    assert {device for device, *_ in points(collected(collector), INFINIBAND_BYTES)} == {"mlx5_0", "mlx5_1"}

    shutil.rmtree(tmp_path / "class/infiniband/mlx5_0")
    assert {device for device, *_ in points(collected(collector), INFINIBAND_BYTES)} == {"mlx5_1"}

    plant(tmp_path, port("mlx5_0"))
    assert {device for device, *_ in points(collected(collector), INFINIBAND_BYTES)} == {"mlx5_0", "mlx5_1"}


def test_a_port_that_goes_while_its_adapter_stays_is_left_out(tmp_path: Path) -> None:
    collector = InfinibandCollector(plant(tmp_path, port("mlx5_0") | port("mlx5_0", 2)))
    collected(collector)

    shutil.rmtree(tmp_path / "class/infiniband/mlx5_0/ports/2")

    assert {number for _, number, _ in points(collected(collector), INFINIBAND_LINK_STATE)} == {"1"}


def test_a_filter_chooses_the_adapters(tmp_path: Path) -> None:
    collector = InfinibandCollector(plant(tmp_path, port("mlx5_0") | port("mlx5_1")), DeviceFilter(exclude="mlx5_0"))

    assert {device for device, *_ in points(collected(collector), INFINIBAND_BYTES)} == {"mlx5_1"}


def test_no_driver_is_not_supported_and_a_driver_without_adapter_is_no_data(tmp_path: Path) -> None:
    with pytest.raises(NotSupportedError, match="class/infiniband does not exist"):
        InfinibandCollector(str(tmp_path)).collect()
    (tmp_path / "class/infiniband").mkdir(parents=True)
    with pytest.raises(NoDataError):
        InfinibandCollector(str(tmp_path)).collect()


@pytest.mark.parametrize(
    ("file", "content"),
    [("counters/port_rcv_data", "many"), ("state", "9: LOST"), ("state", "up"), ("rate", "fast"), ("rate", "400 GB/sec")],
)
def test_content_that_is_not_the_kernels_is_named(tmp_path: Path, file: str, content: str) -> None:
    files = port("mlx5_0") | {f"class/infiniband/mlx5_0/ports/1/{file}": f"{content}\n"}

    with pytest.raises(MalformedError, match=f"mlx5_0/ports/1/{file}:1: cannot be read: '{content}'"):
        InfinibandCollector(plant(tmp_path, files)).collect()
