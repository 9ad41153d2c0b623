"""`tachoscope preflight`: tests of a node, or of several together, before a job."""

from __future__ import annotations

import os
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from msgspec import structs

from tachoscope_cli.common.options import TEXT, JsonOption, StoreOption, needs_analysis, print_notice, store_url
from tachoscope_core.errors import TachoscopeError
from tachoscope_core.exit_codes import ExitCode

if TYPE_CHECKING:
    from tachoscope_core.report.preflight import PreflightReport, Verdict
    from tachoscope_core.storage.preflights import NodeResult
    from tachoscope_core.storage.store import Store
    from tachoscope_preflight.node import Wanted
    from tachoscope_preflight.together.places import Seat

Backend = StrEnum("Backend", ["gloo", "nccl"])
_CODES = {"fit": ExitCode.OK, "unfit": ExitCode.FOUND, "not judged": ExitCode.NOT_WELL}


def preflight(
    store: StoreOption = None,
    storage: Annotated[
        Path | None, typer.Option(metavar="DIRECTORY", help="Also test writing, reading and fsync there. Default: no storage.")
    ] = None,
    interface: Annotated[
        str | None, typer.Option(metavar="NAME", help="Network interface to test and to exchange over. Default: the host name's.")
    ] = None,
    least: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE", help="A lower rate is unfit, such as storage_fsyncs_per_second=500. Can be repeated."),
    ] = None,
    hosts: Annotated[
        str | None,
        typer.Option(
            metavar="A,B,...", help="Test these hosts together: start the command on each. Not needed under torchrun or srun."
        ),
    ] = None,
    port: Annotated[int, typer.Option(min=1, max=65535, help="Where the first host listens, unless $MASTER_PORT says.")] = 29531,
    wait: Annotated[float, typer.Option(metavar="SECONDS", min=1.0, help="How long to wait for the other hosts.")] = 60.0,
    backend: Annotated[
        Backend, typer.Option(help="What carries exchanges; nccl: between first GPUs (never run on GPUs so far).")
    ] = Backend.gloo,
    quick: Annotated[bool, typer.Option("--quick", help="Fewer and shorter repetitions; each host meets three others.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Also measure while other processes use the host or its GPUs.")] = False,
    format_: JsonOption = TEXT,
) -> None:
    """Test this node, or several together, before a job: is it as fast as the others?

    Measures matrix multiply, copies of memory and to GPUs, loopback and storage, and between hosts pairs and a ring. Compares
    with the results of at least five other hosts of the same hardware in the store, and with --least. Exits with 0 if all is fit, 3
    if something is unfit, and 1 if something could not be judged.
    """
    needs_analysis()
    from tachoscope_cli.common.output import console, write_json

    nominal = nominal_rates(least or ())
    from tachoscope_preflight.busy import Look, refuse_if_busy

    look = Look()
    torch = _torch()
    from tachoscope_preflight.node import Wanted
    from tachoscope_preflight.together.places import seat

    if not force:
        refuse_if_busy(look)
    wanted = Wanted(quick=quick, storage=str(storage) if storage else None, interface=interface, backend=backend.value)
    notes = [] if storage else ["storage was not tested: name a directory with --storage"]
    where = seat(os.environ, hosts, port)
    report: PreflightReport | None
    if where is None:
        report, verdict = _alone(torch, wanted, nominal, store_url(store), notes)
    else:
        report, verdict = _together(torch, wanted, nominal, store_url(store), notes, where, wait)
    if report is None:
        print_notice(f"preflight: this host is {verdict}; the first host, {where.master if where else ''}, has the report")
    elif format_.value == "json":
        write_json(report)
    else:
        from tachoscope_show.preflight import text

        text.render(report, console())
    raise typer.Exit(_CODES[verdict])


def nominal_rates(given: Sequence[str]) -> dict[str, float]:
    """Return the least rates by name.

    Raises:
        TachoscopeError: one is not NAME=VALUE, or the rate is unknown.
    """
    from tachoscope_preflight.names import NAMES

    found: dict[str, float] = {}
    for one in given:
        name, equals, value = one.partition("=")
        try:
            rate = float(value)
        except ValueError:
            rate = 0.0
        if not equals or not 0.0 < rate < float("inf"):
            raise TachoscopeError(f"--least {one}: not NAME=VALUE with a positive value", fix=f"such as {NAMES[0]}=1e12")
        if name not in NAMES:
            raise TachoscopeError(f"--least {one}: the rate {name!r} is unknown", fix=f"one of {', '.join(NAMES)}")
        found[name] = rate
    return found


def _torch() -> Any:
    try:
        import torch
    except ImportError as error:
        raise TachoscopeError(f"preflight needs PyTorch: {error}", fix="pip install torch") from None
    return torch


def _alone(torch: Any, wanted: Wanted, nominal: dict[str, float], url: str, notes: list[str]) -> tuple[PreflightReport, Verdict]:
    from tachoscope_analyzers.preflight.report import report
    from tachoscope_preflight import alone

    store, history = opened(url, notes)
    result = alone.result(torch, wanted, history, nominal)
    found = report([result], history, nominal, notes=notes)
    keep(store, structs.replace(result, verdict=found.verdict, why=found.hosts[0].why))
    return found, found.verdict


def _together(
    torch: Any, wanted: Wanted, nominal: dict[str, float], url: str, notes: list[str], where: Seat, wait_seconds: float
) -> tuple[PreflightReport | None, Verdict]:
    """Return the report, which only the first host has, and the verdict on this host; of the first host, on all of them."""
    from tachoscope_core.storage.store import Store
    from tachoscope_preflight.together.conductor import Conductor
    from tachoscope_preflight.together.meeting import Meeting
    from tachoscope_preflight.together.member import Member, follow

    meeting = Meeting(torch, where, wait_seconds)
    member = Member(torch, meeting, wanted)
    if where.rank:
        return None, follow(member, meeting, lambda result: keep(Store(url), result))
    store, history = opened(url, notes)
    conductor = Conductor(member, meeting, notes)
    found = conductor.conduct(history, nominal, wait_seconds, lambda result: keep(store, result))
    return found, found.verdict


def opened(url: str, notes: list[str]) -> tuple[Store | None, list[NodeResult]]:
    """Return the store, and what it has of all hosts; what cannot be read is a note, and leaves less to compare with."""
    from tachoscope_core.storage import preflights
    from tachoscope_core.storage.store import Store

    try:
        store = Store(url)
        return store, list(preflights.read_all(store, notes))
    except TachoscopeError as error:
        notes.append(str(error))
        return None, []


def keep(store: Store | None, result: NodeResult) -> None:
    """Put this host's result into the store; a failure to do so is not a fault of the node."""
    from tachoscope_core.storage import preflights

    try:
        if store is not None:
            preflights.write(store, result)
    except TachoscopeError as error:
        print_notice(str(error))
