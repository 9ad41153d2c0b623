from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from exploring import open_page, words
from tachoscope_explorer.navigation import PAGES
from tachoscope_explorer.server.run import APP


@pytest.mark.parametrize("page", [path for path, *_ in PAGES])
def test_every_page_opens_by_its_address_and_says_what_it_is(tmp_path: Path, page: str) -> None:
    (title,) = [title for path, title, *_ in PAGES if path == page]

    shown = open_page(page, tmp_path / "store")

    assert not shown.exception
    assert [one.value for one in shown.title] == [title]


def test_what_an_address_gets_wrong_is_said_and_the_page_is_shown(tmp_path: Path) -> None:
    shown = open_page("jobs", tmp_path / "store", rank="first", from_="yesterday")

    assert "rank 'first' in the address is not a whole number" in words(shown)
    assert "from='yesterday' in the address is not a moment" in words(shown)
    assert shown.title


def test_processes_that_analyze_traces_do_not_begin_with_all_pages() -> None:
    script = "import runpy, sys; runpy.run_path(sys.argv[1], run_name='__mp_main__'); print('streamlit' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", script, str(APP)], capture_output=True, text=True, check=True)

    assert done.stdout == "False\n"
