"""Where what was read once is kept."""

from pathlib import Path

import pytest

from tachoscope_core.storage import cache_dir


def test_the_place_is_the_users_unless_another_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TACHOSCOPE_CACHE", str(tmp_path / "named"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache_dir.folder("samples") == tmp_path / "named" / "samples"
    monkeypatch.delenv("TACHOSCOPE_CACHE")
    assert cache_dir.folder("samples") == tmp_path / "xdg" / "tachoscope" / "samples"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert cache_dir.folder("samples") == tmp_path / "home" / ".cache" / "tachoscope" / "samples"
