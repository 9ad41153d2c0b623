"""Prices: cited, unambiguous, and never guessed."""

import datetime
import re
from pathlib import Path

import pytest

from tachoscope_analyzers.data.prices import cost, price_of, read_prices, shipped_prices
from tachoscope_core.errors import TachoscopeError

# As torch.cuda.get_device_name() gives them, by the name of the price that fits; with older drivers without `NVIDIA`.
NAMES = {
    "NVIDIA A100-SXM4-40GB": "A100 40GB SXM",
    "A100-SXM4-40GB": "A100 40GB SXM",
    "NVIDIA A100-SXM4-80GB": "A100 80GB SXM",
    "A100-SXM-80GB": "A100 80GB SXM",
    "NVIDIA A100 80GB PCIe": "A100 80GB PCIe",
    "NVIDIA H100 80GB HBM3": "H100 SXM",
    "NVIDIA H100 PCIe": "H100 PCIe",
    "NVIDIA H100 NVL": "H100 NVL",
    "NVIDIA H200": "H200 SXM",
    "NVIDIA B200": "B200",
    "NVIDIA B300 SXM6 AC": "B300",
    "NVIDIA L4": "L4",
    "NVIDIA L40S": "L40S",
    "NVIDIA A10": "A10",
    "Tesla T4": "T4",
    "AMD Instinct MI300X": "MI300X",
    "AMD Instinct MI300X OAM": "MI300X",
}
WITHOUT = [
    "NVIDIA L40",
    "NVIDIA A100-PCIE-40GB",
    "NVIDIA A10G",
    "NVIDIA GH200 480GB",
    "NVIDIA H200 NVL",
    "NVIDIA GB200",
    "NVIDIA GeForce RTX 4090",
    "AMD Instinct MI300A",
    "AMD Instinct MI250X / MI250",
    "NVIDIA A100-SXM4-40GB MIG 1g.5gb",
    "NVIDIA H100 80GB HBM3 MIG 3g.40gb",
    "",
]
ROW = "- {name: ours, pattern: 'NVIDIA H100.*', per_hour: 2.0, currency: EUR, provider: own, date: 2026-01-02, source: finance}\n"


def test_each_shipped_price_names_its_provider_its_day_and_a_url() -> None:
    table = shipped_prices()

    assert len(table) >= 12
    for price in table:
        assert re.match(r"https://\S+$", price.source)
        assert datetime.date(2026, 1, 1) <= price.date
        assert price.provider
        assert price.currency == "USD"
        assert 0.1 < price.per_hour < 20


@pytest.mark.parametrize(("device", "name"), NAMES.items())
def test_real_device_names_find_one_price_each(device: str, name: str) -> None:
    price = price_of(device, shipped_prices())

    assert price is not None
    assert price.name == name


def test_every_shipped_price_is_found_by_a_real_device_name() -> None:
    assert {price.name for price in shipped_prices()} == set(NAMES.values())


@pytest.mark.parametrize("device", WITHOUT)
def test_other_devices_and_slices_of_a_device_have_no_price(device: str) -> None:
    assert price_of(device, shipped_prices()) is None


def test_the_cost_is_hours_times_price_and_waiting_in_the_queue_is_free() -> None:
    hours = {"compute": 80.0, "lost_work": 12.0, "queued": 1000.0}

    result = cost(hours, device_name="NVIDIA H100 80GB HBM3", gpus=8, table=shipped_prices())

    assert result.unit == "GPU"
    assert result.hours == 92.0
    assert result.by_state == {"compute": 80.0, "lost_work": 12.0}
    assert result.price_per_hour is not None
    assert result.money == pytest.approx(92.0 * result.price_per_hour)
    assert "https://" in result.source


def test_a_device_without_a_price_has_hours_and_no_money() -> None:
    result = cost({"compute": 5.0}, device_name="NVIDIA GeForce RTX 4090", gpus=1, table=shipped_prices())

    assert (result.hours, result.price_per_hour, result.money, result.currency, result.source) == (5.0, None, None, "", "")


def test_ranks_without_accelerator_cost_money_only_if_the_file_says_so(tmp_path: Path) -> None:
    own = tmp_path / "prices.yaml"
    own.write_text(ROW + ROW.replace("ours", "cores").replace("NVIDIA H100.*", "rank").replace("2.0", "0.1"))

    free = cost({"compute": 5.0}, device_name="", gpus=0, table=shipped_prices())
    paid = cost({"compute": 5.0}, device_name="", gpus=0, table=read_prices(own))

    assert (free.unit, free.money) == ("rank", None)
    assert (paid.unit, paid.money, paid.currency) == ("rank", 0.5, "EUR")
    assert paid.source == "own, 2026-01-02: finance"


def test_a_file_of_ones_own_stands_for_the_shipped_table(tmp_path: Path) -> None:
    own = tmp_path / "prices.yaml"
    own.write_text(ROW)

    mine = read_prices(own)

    assert cost({"compute": 3.0}, device_name="NVIDIA H100 PCIe", gpus=1, table=mine).money == 6.0
    assert price_of("Tesla T4", mine) is None


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (ROW.replace("currency: EUR, ", ""), r"missing required field `currency` - at `\$\[0\]`"),
        (ROW.replace("2.0", "'two'"), "per_hour"),
        (ROW.replace("2.0", "-2.0"), r"price -2.0 of entry 0 \(ours\)"),
        (ROW.replace("2.0", ".nan"), "price nan of entry 0"),
        (ROW.replace("H100.*", "H100("), "is not a regular expression"),
        (ROW.replace("source:", "url:"), "url|source"),
        ("{a: [}", "could not read the prices"),
    ],
)
def test_a_faulty_file_is_refused_with_the_place(tmp_path: Path, text: str, said: str) -> None:
    own = tmp_path / "prices.yaml"
    own.write_text(text)

    with pytest.raises(TachoscopeError, match=said) as raised:
        read_prices(own)
    assert "prices.yaml" in str(raised.value)


def test_a_file_that_is_not_there_and_two_prices_for_one_device_are_errors(tmp_path: Path) -> None:
    own = tmp_path / "prices.yaml"
    with pytest.raises(TachoscopeError, match="No such file"):
        read_prices(own)
    own.write_text(ROW + ROW.replace("ours", "theirs"))

    with pytest.raises(TachoscopeError, match="two prices match the device 'NVIDIA H100 NVL': 'ours' and 'theirs'"):
        price_of("NVIDIA H100 NVL", read_prices(own))
