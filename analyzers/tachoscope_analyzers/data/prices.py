"""What a job's accelerators cost: hours by state times a price that somebody published, never a guessed one."""

from __future__ import annotations

import datetime
import re
from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path

import msgspec

from tachoscope_core.errors import TachoscopeError
from tachoscope_core.report.job_life import Cost

RANK = "rank"
"""The pattern of the entry that prices a rank without accelerator."""
_FORM = "a list of entries with name, pattern, per_hour, currency, provider, date, source"


class Price(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What an hour of one accelerator costs.

    Attributes:
        pattern: regular expression for the device's whole name. provider: whose price, and under which plan.
        date: on which `source`, a URL or in words, said so.
    """

    name: str
    pattern: str
    per_hour: float
    currency: str
    provider: str
    date: datetime.date
    source: str


def shipped_prices() -> list[Price]:
    """Return the table that comes with the package."""
    return _decoded((files("tachoscope_analyzers") / "data/prices.yaml").read_bytes(), "prices.yaml")


def read_prices(path: Path) -> list[Price]:
    """Read a table of one's own, which stands for the shipped one as a whole.

    Raises:
        TachoscopeError: it cannot be read, an entry lacks a field, a pattern is not a regular expression, or a price is below 0.
    """
    try:
        return _decoded(path.read_bytes(), str(path))
    except OSError as error:
        raise TachoscopeError(
            f"could not read the prices {path}: {error.strerror}", fix="give a file that exists to --prices"
        ) from None


def price_of(device_name: str, table: Sequence[Price]) -> Price | None:
    """Return the price of a device, by its product name or as the table names it; None: the table has none.

    Raises:
        TachoscopeError: two entries match the device.
    """
    of_devices = [price for price in table if price.pattern != RANK]
    found = [price for price in of_devices if re.fullmatch(price.pattern, device_name)]
    found = found or [price for price in of_devices if price.name == device_name]
    if len(found) > 1:
        raise TachoscopeError(
            f"two prices match the device {device_name!r}: {found[0].name!r} and {found[1].name!r}",
            fix="make the patterns of the file of prices narrower",
        )
    return found[0] if found else None


def cost(hours_by_state: Mapping[str, float], *, device_name: str, gpus: int, table: Sequence[Price]) -> Cost:
    """Return what the hours cost.

    Args:
        hours_by_state: hours of ranks by ledger state; `queued` is not paid for and is left out.
        device_name: the accelerator's product name. gpus: of the job, one a rank; 0: its ranks have none.
    """
    hours = {state: value for state, value in hours_by_state.items() if state != "queued"}
    total = sum(hours.values())
    price = price_of(device_name, table) if gpus else next((price for price in table if price.pattern == RANK), None)
    return Cost(
        unit="GPU" if gpus else "rank",
        device=device_name,
        hours=total,
        by_state=hours,
        price_per_hour=price.per_hour if price else None,
        currency=price.currency if price else "",
        money=price.per_hour * total if price else None,
        source=f"{price.provider}, {price.date}: {price.source}" if price else "",
    )


def _decoded(text: bytes, name: str) -> list[Price]:
    try:
        table = msgspec.yaml.decode(text, type=list[Price])
    except msgspec.MsgspecError as error:
        raise TachoscopeError(f"could not read the prices {name}: {error}", fix=f"the file is {_FORM}") from None
    for number, price in enumerate(table):
        try:
            re.compile(price.pattern)
        except re.error as error:
            raise TachoscopeError(
                f"{name}: pattern {price.pattern!r} of entry {number} ({price.name}) is not a regular expression: {error}",
                fix="put a backslash before characters such as ( and +",
            ) from None
        if not 0 <= price.per_hour < float("inf"):
            raise TachoscopeError(f"{name}: price {price.per_hour} of entry {number} ({price.name})", fix="give a number from 0")
    return table
