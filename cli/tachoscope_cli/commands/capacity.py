"""`tachoscope capacity`: how much traffic a server takes within its objectives, from a recording, and what would move that."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tachoscope_cli.common.options import TEXT_OF_THREE, FormatOption, PricesOption, StoreOption, needs_analysis, store_url
from tachoscope_cli.common.output import draw, progress, write, write_json
from tachoscope_cli.common.verdict import OutputOption
from tachoscope_core.errors import TachoscopeError

if TYPE_CHECKING:
    from tachoscope_analyzers.data.prices import Price
    from tachoscope_analyzers.serving.capacity.engine_model import Model
    from tachoscope_core.records.records import EngineWindow, RequestDone
    from tachoscope_core.servers.snapshot import Snapshot
    from tachoscope_core.storage.store import Store

_FAR_BACK = "10m"


def capacity(
    source: Annotated[
        str,
        typer.Argument(
            metavar="RECORDING|JOB|SELECTOR",
            help="A recording of a server's metrics, a service in the store, or, with --prometheus, series, such as "
            "'job=\"vllm\"'.",
        ),
    ],
    objective: Annotated[
        list[str] | None,
        typer.Option(
            help="Latency objective in seconds, such as ttft_p95=0.5; of ttft, itl, tpot, e2e, queue. Can be given several times. "
            "Default: ttft_p99=2.5, ttft_p95=0.5, itl_p99=0.1."
        ),
    ] = None,
    forecast_rate: Annotated[
        float | None, typer.Option(min=0.0, help="Expected requests per second, to compute the number of replicas.")
    ] = None,
    max_running: Annotated[
        int | None, typer.Option(min=1, help="Maximum number of concurrent requests of a replica. Default: as recorded, else 256.")
    ] = None,
    prometheus: Annotated[
        str | None, typer.Option(metavar="URL", help="Read the server's metrics from this Prometheus instead.")
    ] = None,
    for_: Annotated[
        str | None,
        typer.Option("--for", metavar="TIME", help="The last part to use. Default: all of a recording; otherwise 10m."),
    ] = None,
    device: Annotated[str | None, typer.Option(help="Name of the accelerator, for the cost: NVIDIA H100 80GB HBM3.")] = None,
    devices: Annotated[int, typer.Option(min=1, help="Accelerators per replica.")] = 1,
    prices: PricesOption = None,
    format_: FormatOption = TEXT_OF_THREE,
    output: OutputOption = None,
    store: StoreOption = None,
) -> None:
    """Show at which request rate a server no longer meets its objectives, and what would change that.

    The recorded traffic is replayed, faster and slower, on a model of the engine whose costs the recording tells. See
    docs/guides/capacity.md.
    """
    needs_analysis()
    from tachoscope_analyzers.serving.capacity import capacity as capacity_module
    from tachoscope_analyzers.serving.capacity.objectives import DEFAULTS
    from tachoscope_analyzers.serving.capacity.objectives import objective as parsed
    from tachoscope_show.capacity import html as capacity_html
    from tachoscope_show.capacity import text as capacity_text

    objectives = [parsed(text) for text in objective] if objective else list(DEFAULTS)
    price = _price(device, prices)
    with progress() as bar:
        task = bar.add_task("finding the engine's costs", total=capacity_module.STEPS)
        model = _model(source, store, prometheus, for_, max_running)
        bar.update(task, description="replaying the traffic")
        found = capacity_module.capacity(
            model, objectives, forecast_rate=forecast_rate, price=price, devices=devices, on_step=lambda: bar.advance(task)
        )
    name = Path(source).name
    if format_.value == "json":
        write_json(capacity_text.facts(found), output)
    elif format_.value == "html":
        write(capacity_html.render(found, name), output)
    else:
        draw(lambda out: capacity_text.render(found, name, out), output)


def _model(source: str, store: str | None, prometheus: str | None, for_: str | None, max_running: int | None) -> Model:
    from tachoscope_analyzers.serving.capacity import engine_model
    from tachoscope_cli.sources.prometheus import read
    from tachoscope_core.storage.store import Store
    from tachoscope_show.text.units import seconds_of

    path, seconds = Path(source), seconds_of(for_ or _FAR_BACK)
    if prometheus is not None:
        return _of_looks(read(prometheus, source, seconds), f"{prometheus} {source}", max_running)
    if path.is_file():
        return _of_looks(_recorded(path, seconds if for_ else None), str(path), max_running)
    if path.suffix or "/" in source:
        raise TachoscopeError(f"file {path} does not exist", fix="name a recording, or a service in the store: tachoscope store ls")
    requests, windows = _records(Store(store_url(store)), source, seconds)
    return engine_model.of_records(requests, windows, max_running=max_running)


def _recorded(path: Path, seconds: float | None) -> list[Snapshot]:
    """Return the samples of a recording, or of its last part."""
    from tachoscope_analyzers.serving.capacity import engine_model
    from tachoscope_core.servers import recording as serving_recording

    if not serving_recording.is_recording(path):
        raise TachoscopeError(f"{path} is not a recording of a server's metrics", fix=engine_model.RECORD)
    looks = serving_recording.read(path)
    return looks if seconds is None else [look for look in looks if look.time >= looks[-1].time - seconds]


def _of_looks(looks: list[Snapshot], where: str, max_running: int | None) -> Model:
    from tachoscope_analyzers.serving.capacity import engine_model
    from tachoscope_analyzers.serving.records.traffic import traffic

    if len(looks) < 2 or all(look.fault for look in looks):
        raise TachoscopeError(f"{where} has fewer than two answered samples of a server", fix=engine_model.RECORD)
    return engine_model.of_traffic(traffic(looks), max_running=max_running)


def _records(store: Store, job: str, seconds: float) -> tuple[list[RequestDone], list[EngineWindow]]:
    """Return a service's last requests, by its servers if they recorded any, and its engines' windows."""
    from tachoscope_analyzers.records.load import from_store
    from tachoscope_analyzers.serving.records.from_records import last_seconds

    found = last_seconds(from_store(store, job), seconds)
    return [row for row in found.requests if row.side == "server"] or found.requests, found.engine_windows


def _price(device: str | None, prices: Path | None) -> Price | None:
    from tachoscope_analyzers.data.prices import RANK, price_of, read_prices, shipped_prices

    if device is None:
        if prices is not None:
            raise TachoscopeError("--prices requires --device", fix="add --device NAME")
        return None
    table = read_prices(prices) if prices else shipped_prices()
    price = price_of(device, table)
    if price is None:
        known = ", ".join(one.name for one in table if one.pattern != RANK)
        raise TachoscopeError(f"no price is known for {device!r}", fix=f"give one with --prices FILE; known devices: {known}")
    return price
