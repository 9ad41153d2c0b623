"""Nothing of an address leads out of the store, nothing is written into it, and no page shows its credentials."""

from __future__ import annotations

import inspect
import itertools
from pathlib import Path

import pytest

from exploring import open_page, words
from making import job
from tachoscope_core.records import records
from tachoscope_core.storage.store import Store
from tachoscope_explorer.navigation import PAGES
from tachoscope_explorer.page.settings import Settings
from tachoscope_explorer.page.view import view_of
from trying import each

CANARY = "canary"
LEADING_OUT = [
    *("../outside", "..", ".", "../../outside", "%2e%2e/outside", "..%2foutside", "/etc", "{outside,a}", "s3://elsewhere/job"),
    *("file:///etc", "a/../../outside", "a\\..\\outside", "\0", "a\0b", "planted\n", "\u2024\u2024/outside", "．．／outside"),
    *("plan\u0442ed", "x" * 129, "x" * 600, "-rf", "~root", "*", "$__all", "planted/records", "<script>alert(1)</script>"),
    *("(traces)/..", "()"),
]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a store with a job, and a job of another store where `..` would lead."""
    folder = tmp_path_factory.mktemp("stores")
    lines = job([[{"forward": 0.03, "backward": 0.06, "optimizer": 0.01}] * 2 for _ in range(12)])
    writer = records.decode(lines.splitlines()[0]).writer
    for place, name, host in (("store", "planted", "node-1"), ("outside", CANARY, CANARY)):
        Store(str(folder / place)).write(name, host=host, writer=writer, attempt=0, offset=0, time=1.7e9, lines=lines)
    return folder / "store"


A_FILE_OF_A_RECORDING = ("trace", "planted/records")
"""Which is looked up in a list of those that there are."""


@each(("parameter", "name"), sorted(set(itertools.product(["job", "baseline", "trace"], LEADING_OUT)) - {A_FILE_OF_A_RECORDING}))
def test_a_name_that_leads_somewhere_is_refused_in_a_sentence(parameter: str, name: str) -> None:
    view = view_of({parameter: name})

    assert getattr(view, parameter) in ("", "outside")  # of several values the first is taken, which is a name
    assert view.wrong
    assert all(sentence.startswith((f"{parameter}=", f"{parameter} in the address", "the address")) for sentence in view.wrong)


@pytest.mark.parametrize("name", ["planted", "demo-none", "1.2_b", "(traces)", "x" * 128, "20261122T201500Z-steps-20-24"])
def test_what_is_called_as_things_in_stores_are_is_looked_at(name: str) -> None:
    assert view_of({"job": name, "trace": name}) == view_of({}).__class__(job=name, trace=name)


@pytest.mark.parametrize("page", [path for path, *_ in PAGES])
def test_no_page_shows_what_lies_beside_the_store(store: Path, page: str) -> None:
    job, baseline = "../outside", "../../outside/jobs"

    shown = open_page(page, store, job=job, baseline=baseline, trace="s3://elsewhere/trace")

    assert not shown.exception
    said = words(shown)
    assert said.count("in the address is not a ") == 3
    assert "node-1" not in said
    assert CANARY not in said


@pytest.mark.parametrize("page", [path for path, *_ in PAGES])
def test_looking_changes_nothing_in_the_store(store: Path, page: str) -> None:
    before = {path: path.lstat().st_mtime_ns for path in store.rglob("*")}

    shown = open_page(page, store, job="planted", baseline="planted")

    assert not shown.exception
    assert {path: path.lstat().st_mtime_ns for path in store.rglob("*")} == before


@pytest.mark.parametrize("page", [path for path, *_ in PAGES])
def test_credentials_of_the_store_or_of_prometheus_are_on_no_page(tmp_path: Path, page: str) -> None:
    started = Settings("http://user:secretword@127.0.0.1:9/store", prometheus_url="http://user:secretword@127.0.0.1:9")

    shown = open_page(page, tmp_path, started=started, job="planted", service="chat", slo="training-goodput")

    if _is_empty(page):
        pytest.skip("the page says as yet what it was started with, and nothing else")
    assert "secretword" not in words(shown)
    assert "secretword" not in str(shown)


def _is_empty(page: str) -> bool:
    (show,) = [show for path, _, _, show in PAGES if path == page]
    return "st.write(context.settings.store_url, context.view)" in inspect.getsource(inspect.getmodule(show) or show)
