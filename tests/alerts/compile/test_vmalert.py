"""VictoriaMetrics' vmalert in place of Prometheus: it writes what it records to another server, a moment after the evaluation."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import threading
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from helpers import REPOSITORY
from processes import free_port, wait_for
from tachoscope_alerts.compile.planted_series import PlantedStretch, of_events, of_slices
from tachoscope_alerts.compile.sli_expressions import ERROR_RATIO, MOMENTS
from tachoscope_alerts.spec import slo_files
from tachoscope_alerts.spec.slo import Slices, Slo

SLOS = {slo.name: slo for slo in slo_files.load([REPOSITORY / "alerts" / "slos"])}
SCRAPE_SECONDS = 15.0
HISTORY = 480
"""Scrapes before the test begins: two hours, as gates look back one."""
LINE = re.compile(r"(?P<first>-?[\d.e]+)(?:\+(?P<step>-?[\d.e]+))?x\d+$")


def planted(slo: Slo) -> Iterator[tuple[str, float, float]]:
    """Yield series, each with its first value and how much it grows from scrape to scrape: a tenth of the events is bad."""
    if isinstance(slo.indicator, Slices):
        series = of_slices(slo, HISTORY, SCRAPE_SECONDS, bad=True)
    else:
        series = of_events(slo, [PlantedStretch(HISTORY, 1000, 100)])
    for one in series:
        last = LINE.search(one["values"])
        assert last is not None, one
        yield one["series"], float(last["first"]), float(last["step"] or 0.0)


@contextmanager
def scraped(url: str) -> Iterator[None]:
    """Write two hours of samples, and go on every 15 s while the block runs."""
    every = [series for slo in SLOS.values() for series in planted(slo)]
    begin = time.time() - HISTORY * SCRAPE_SECONDS

    def write(scrapes: range) -> None:
        lines = (
            f"{name} {first + step * n} {round((begin + n * SCRAPE_SECONDS) * 1000)}"
            for name, first, step in every
            for n in scrapes
        )
        request = urllib.request.Request(f"{url}/api/v1/import/prometheus", "\n".join(lines).encode(), method="POST")
        urllib.request.urlopen(request, timeout=60).close()

    def go_on() -> None:
        for n in range(HISTORY, HISTORY + 1000):
            if done.wait(max(begin + n * SCRAPE_SECONDS - time.time(), 0)):
                return
            write(range(n, n + 1))

    done = threading.Event()
    write(range(HISTORY))
    thread = threading.Thread(target=go_on)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


@contextmanager
def running(*command: str, log: Path) -> Iterator[None]:
    with log.open("wb") as file, subprocess.Popen(command, stdout=file, stderr=file) as process:
        try:
            yield
        finally:
            process.kill()


def without_keep_firing_for(folder: Path) -> Path:
    """Write the generated rules without the field that Debian's vmalert, of 2022, does not know, and refuses."""
    folder.mkdir()
    for path in (REPOSITORY / "alerts" / "generated" / "prometheus").glob("*.rules.yaml"):
        (folder / path.name).write_text(re.sub(r"\n +keep_firing_for: \w+", "", path.read_text()))
    return folder


@contextmanager
def victoria_metrics(folder: Path) -> Iterator[str]:
    """Run VictoriaMetrics and a vmalert that evaluates the generated rules; yield the address of the former."""
    store, alert = f"127.0.0.1:{free_port()}", f"127.0.0.1:{free_port()}"
    url = f"http://{store}"
    places = [f"-storageDataPath={folder / 'data'}", f"-httpListenAddr={store}"]
    with running("victoria-metrics", *places, log=folder / "victoria-metrics.log"):
        wait_for(lambda: urllib.request.urlopen(f"{url}/health", timeout=5).status == 200)
        rules = f"-rule={without_keep_firing_for(folder / 'rules')}/*.yaml"
        ways = [f"-datasource.url={url}", f"-remoteWrite.url={url}", f"-remoteRead.url={url}", "-notifier.url=http://127.0.0.1:9"]
        with running("vmalert", rules, *ways, f"-httpListenAddr={alert}", log=folder / "vmalert.log"), scraped(url):
            yield url


def ask(url: str, query: str) -> dict[str, float]:
    """Return the values of the instant query by objective."""
    with urllib.request.urlopen(f"{url}/api/v1/query?{urllib.parse.urlencode({'query': query})}", timeout=60) as answer:
        found = json.load(answer)["data"]["result"]
    return {one["metric"]["slo"]: float(one["value"][1]) for one in found}


@pytest.mark.bar
@pytest.mark.skipif(shutil.which("vmalert") is None, reason="vmalert is not installed (Debian: victoria-metrics)")
def test_each_objective_gets_its_events_and_their_true_ratio(tmp_path: Path) -> None:
    with victoria_metrics(tmp_path) as url:
        window = f'{ERROR_RATIO}{{window="5m"}}'
        wait_for(lambda: ask(url, window).keys() == SLOS.keys(), seconds=400)
        total, bad, ratio = (ask(url, name) for name in (MOMENTS.total, MOMENTS.bad, window))

    assert "no such function" not in (tmp_path / "vmalert.log").read_text()
    for name, slo in SLOS.items():
        truth = 1.0 if isinstance(slo.indicator, Slices) else 0.1
        assert total[name] > 0
        assert (bad[name] / total[name], ratio[name]) == pytest.approx((truth, truth), rel=0.02), name
