"""YAML as libyaml reads it: the same as Python's reader, and no document ends the process."""

from __future__ import annotations

import pytest
import yaml

from helpers import REPOSITORY
from tachoscope_core import yaml_text
from tachoscope_core.errors import TachoscopeError
from tachoscope_core.located_yaml import documents

SHIPPED = sorted((REPOSITORY / "alerts").glob("slos/*.yaml"))


def test_what_is_read_is_what_pythons_own_reader_gives() -> None:
    assert SHIPPED
    for path in SHIPPED:
        assert yaml_text.load_all(path.read_bytes()) == list(yaml.safe_load_all(path.read_text()))


@pytest.mark.parametrize("deep", [b"[" * 1_000_000, b"- " * 100_000, b"{a: " * 100_000, b"[" * 201 + b"]" * 201])
def test_what_is_nested_too_deeply_is_refused_and_its_place_is_named(deep: bytes, tmp_path) -> None:
    with pytest.raises(yaml.YAMLError, match="nested more than 200 deep"):
        yaml_text.load(deep)

    file = tmp_path / "deep.yaml"
    file.write_bytes(b"a:\n " + deep)
    with pytest.raises(TachoscopeError, match=r"deep.yaml:2: this is not valid YAML: it is nested more than 200 deep"):
        documents(file)


def test_no_tag_makes_an_object() -> None:
    with pytest.raises(yaml.YAMLError, match="could not determine a constructor"):
        yaml_text.load("!!python/object/apply:os.getcwd []")
