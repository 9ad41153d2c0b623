"""A page of the explorer without a browser: Streamlit's own test runner on the real application."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import streamlit as st
from streamlit import config
from streamlit.testing.v1 import AppTest
from streamlit.util import calc_hash as page_hash

from tachoscope_core.storage.store import Store
from tachoscope_explorer.page import settings
from tachoscope_explorer.page.settings import Settings
from tachoscope_explorer.server.run import APP

WRITER = "00000000-0000-4000-8000-000000000000"


def open_page(page: str, store: Path, *, started: Settings | None = None, **parameters: str) -> AppTest:
    """Return a page after its first run; `parameters` are its address's, such as `job`, `rank`, `from_`, `to`.

    Args:
        started: what the explorer was started with; default: the store and nothing else.
    """
    config.set_option("runner.magicEnabled", False)  # as the server has it
    st.cache_data.clear()
    st.cache_resource.clear()
    settings.choose(started or Settings(str(store)))
    test = AppTest.from_file(str(APP), default_timeout=240)
    for name, value in parameters.items():
        test.query_params[name.rstrip("_")] = value
    test._page_hash = page_hash(page)  # as a browser asks for /page: the runner has no word for pages that are functions
    return test.run()


def filled(store: Path, jobs: Mapping[str, bytes]) -> Path:
    """Write the records of jobs, as `making.job` makes them for a job named `planted`, into a store under these names."""
    for name, lines in jobs.items():
        named = lines.replace(b'"job":"planted"', f'"job":"{name}"'.encode())
        Store(str(store)).write(name, host="node-1", writer=WRITER, attempt=0, offset=0, time=1.7e9, lines=named)
    return store


def words(test: AppTest) -> str:
    """Return all text of a page, kind by kind: titles, paragraphs, captions, messages, numbers and raw HTML."""
    kinds = ("title", "header", "subheader", "markdown", "caption", "info", "warning", "error", "success", "html")
    found = [
        str(element.value if hasattr(element, "value") else element.proto.body) for kind in kinds for element in test.get(kind)
    ]
    found += [f"{metric.label} {metric.value}" for metric in test.metric]
    return "\n".join(found).replace(":small[]", "")  # which keeps Streamlit from taking two signs for one, see `widgets.plain`


def facts(test: AppTest) -> dict[str, str]:
    """Return the numbers at the top of a job's page by their names."""
    return dict(re.findall(r"<dt>(.*?)</dt><dd>(.*?)</dd>", words(test)))
