"""Native modules: used where they are there, and where not, it is known why."""

from __future__ import annotations

import pytest

from tachoscope_core import native


def test_one_switch_turns_all_native_modules_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(native.SWITCH, "0")
    native.native.cache_clear()
    try:
        found = native.all_native()
    finally:
        native.native.cache_clear()

    assert [one.module for one in found] == [None] * len(native.MODULES)
    assert {one.reason for one in found} == {"switched off by TACHOSCOPE_NATIVE=0"}


def test_a_module_that_is_not_there_is_told_as_not_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(native.SWITCH, raising=False)
    monkeypatch.setitem(native.MODULES, "tachoscope_core.no_such_module", "nothing")

    found = native.native("tachoscope_core.no_such_module")

    assert found.module is None
    assert found.reason.startswith("not compiled")


def test_a_module_that_another_thread_is_importing_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(native.SWITCH, raising=False)
    monkeypatch.setitem(native.MODULES, "colorsys", "stands for a module")

    def halfway(name: str) -> None:
        raise ValueError(f"{name}.__spec__ is None")  # as `find_spec` says while the import is not over

    monkeypatch.setattr(native, "find_spec", halfway)
    assert native.native("colorsys").module is not None
