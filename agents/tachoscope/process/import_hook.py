"""Calls a function once, right after a module was imported, and costs nothing until then."""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import sys
import threading
from collections.abc import Callable, Sequence
from types import ModuleType

from tachoscope import guard

Callback = Callable[[ModuleType], None]


class _AfterImport(importlib.abc.MetaPathFinder):
    """Finds nothing itself: lets the others find a waited-for module and adds the callback to its loader."""

    def __init__(self) -> None:
        self.callbacks: dict[str, Callback] = {}
        self._looking: set[tuple[str, int]] = set()

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        key = (fullname, threading.get_ident())
        if fullname not in self.callbacks or key in self._looking:
            return None
        self._looking.add(key)  # a finder may ask all finders again
        try:
            spec = self._find_in(fullname, path, target)
        finally:
            self._looking.discard(key)
        if spec is None or spec.loader is None or not hasattr(spec.loader, "exec_module"):
            return None
        loader = spec.loader
        run_module = loader.exec_module

        def exec_module(module: ModuleType) -> None:
            loader.exec_module = run_module  # type: ignore[method-assign]
            run_module(module)
            # Taken only now: many a library looks whether torch is there, with find_spec, long before it is imported.
            callback = self.callbacks.pop(fullname, None)
            if callback is not None:
                _call(callback, module)

        loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec

    def _find_in(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None
    ) -> importlib.machinery.ModuleSpec | None:
        for finder in sys.meta_path:
            find_spec = getattr(finder, "find_spec", None)
            if finder is not self and find_spec is not None and (spec := find_spec(fullname, path, target)) is not None:
                return spec  # type: ignore[no-any-return]
        return None


_finder = _AfterImport()


def _call(callback: Callback, module: ModuleType) -> None:
    try:
        callback(module)
    except Exception as error:  # never into the user's import
        if guard.is_of_the_job(error):
            raise
        guard.print_line(f"not watching {module.__name__}: {type(error).__name__}: {error}")


def after_import(name: str, callback: Callback) -> None:
    """Call `callback(module)` after `name` is imported, at once if it is. Its exceptions are reported, not raised."""
    module = sys.modules.get(name)
    if module is not None and not getattr(getattr(module, "__spec__", None), "_initializing", False):
        _call(callback, module)
        return
    _finder.callbacks[name] = callback
    if _finder not in sys.meta_path:
        sys.meta_path.insert(0, _finder)
