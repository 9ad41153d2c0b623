"""A preflight as text: the verdict, each rate beside its limit, and the matrix of what hosts exchanged."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from rich.console import Console
from rich.table import Table
from rich.text import Text

from tachoscope_core.report.preflight import Exchange, JudgedMeasurement, PreflightReport, Verdict

_STYLES: dict[Verdict, str] = {"fit": "green", "unfit": "bold red", "not judged": "yellow"}
_MOST_COLUMNS = 16
"""Hosts in a matrix; of more, only the bad pairs are listed."""


def render(report: PreflightReport, out: Console) -> None:
    """Print a report."""
    out.print(Text("verdict: ").append(report.verdict, style=_STYLES[report.verdict]))
    for host in report.hosts:
        line = Text(f"  {host.host}: ").append(host.verdict, style=_STYLES[host.verdict])
        out.print(line.append(f": {host.why}" if host.why else ""), soft_wrap=True)
    for link in report.links:
        out.print(Text("  bad link: ", style=_STYLES["unfit"]).append(f"{link.one} – {link.other}"))
    out.print()
    out.print(_rates(report))
    if report.exchanges:
        _exchanges(report, out)
    for note in report.notes:
        out.print(f"note: {note}", soft_wrap=True)


def _rates(report: PreflightReport) -> Table:
    titles = ("host", "rate", "device", "median", "spread", "rounds", "least", "usual", "verdict")
    table = Table(*titles, box=None, padding=(0, 2, 0, 0))
    for one in report.measurements:
        table.add_row(*_row(one), Text(one.verdict, style=_STYLES[one.verdict]))
    return table


def _row(one: JudgedMeasurement) -> Iterator[str]:
    yield from (one.host, one.name, one.device, _number(one.median), f"{one.spread_ratio:.1%}" if one.median else "-")
    yield from (str(one.rounds), _number(one.least), _number(one.usual))


def _number(rate: float | None) -> str:
    """Return a rate with a prefix of thousands, as hardware is advertised."""
    if rate is None:
        return "-"
    for size, prefix in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if rate >= size:
            return f"{rate / size:.3g} {prefix}"
    return f"{rate:.3g}"


def _exchanges(report: PreflightReport, out: Console) -> None:
    hosts = sorted({one.sender for one in report.exchanges} | {one.receiver for one in report.exchanges})
    if len(hosts) <= _MOST_COLUMNS:
        _matrix(report, hosts, "bytes per second, from row to column", lambda one: one.bytes_per_second, out)
        _matrix(report, hosts, "round trips per second, from row to column", lambda one: one.round_trips_per_second, out)
    for one in report.exchanges:
        if one.bad:
            what = one.error or f"{_number(one.bytes_per_second)} bytes/s, {_number(one.round_trips_per_second)} round trips/s"
            out.print(f"bad: {one.sender} to {one.receiver}: {what} ({one.rounds} rounds)", soft_wrap=True)
    if report.ring_bytes_per_second is not None:
        out.print(f"ring all-reduce: {_number(report.ring_bytes_per_second)} bytes/s")
    out.print(f"decided by: {report.decided_by}", soft_wrap=True)


def _matrix(report: PreflightReport, hosts: list[str], title: str, rate: Callable[[Exchange], float | None], out: Console) -> None:
    cells = {(one.sender, one.receiver): one for one in report.exchanges}
    table = Table("", *hosts, title=title, title_justify="left", box=None, padding=(0, 2, 0, 0))
    for sender in hosts:
        row = (cells.get((sender, receiver)) for receiver in hosts)
        table.add_row(sender, *(Text(_number(rate(one)), style=_STYLES["unfit"] if one.bad else "") if one else "" for one in row))
    out.print()
    out.print(table)
