from __future__ import annotations

from pathlib import Path

import pytest

from tachoscope_core.report.taxonomy import BY_SLUG
from tachoscope_show.text.runbook_pages import path_of, text_of
from trying import each


@each("slug", BY_SLUG)
def test_every_class_has_its_runbook(slug: str) -> None:
    assert text_of(BY_SLUG[slug].runbook).startswith("# ")


@pytest.mark.parametrize(
    "name", ["runbooks/../pyproject.toml", "pyproject.toml", "/etc/passwd", "runbooks/../runbooks/hang.md", ""]
)
def test_a_report_that_names_another_file_gets_nothing_of_it(name: str, tmp_path: Path) -> None:
    assert text_of(name) == ""
    assert path_of(name) == name
    assert text_of(str(tmp_path)) == ""
