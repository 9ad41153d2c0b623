"""Switches the probe on in a Python process that `tachoscope run` started, as soon as that process imports torch.

Python imports `sitecustomize` at start-up from the first folder on its path; `tachoscope run` puts this folder there. A
`sitecustomize` of the user's that this one hides is imported as well.
"""

import contextlib
import importlib.util
import os
import sys
from types import ModuleType


def _import_the_hidden_one() -> None:
    here = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry or ".") != here]
    own = sys.modules.pop("sitecustomize", None)
    try:
        import sitecustomize  # type: ignore[import-not-found]  # noqa: F401
    except ImportError:
        if own is not None:
            sys.modules["sitecustomize"] = own


def _mark(loaded: str) -> None:
    """Note what a process of the run loaded, for runs in which no step is seen."""
    with contextlib.suppress(OSError):
        flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        os.close(os.open(os.path.join(os.environ["TACHOSCOPE_RUN_DIR"], f"loaded-{loaded}"), flags, 0o600))


def _switch_on() -> None:
    try:
        from tachoscope.process.import_hook import after_import
        from tachoscope_core.storage import spool
    except ImportError:
        _mark("python-without-tachoscope")  # `spool.FOREIGN_PYTHON`, which cannot be imported here
        if importlib.util.find_spec("torch") is not None:
            sys.stderr.write(
                f"tachoscope: not watching: {sys.executable} cannot import tachoscope (pip install tachoscope there)\n"
            )
        return

    def after_torch(torch: ModuleType) -> None:
        from tachoscope.start import start

        start(torch=torch)
        _mark("torch")

    def after_torchrun(module: ModuleType) -> None:
        from tachoscope.failures import torchrun

        torchrun.follow(module)

    _mark("python")
    with contextlib.suppress(ImportError):  # this interpreter may have another version of tachoscope
        from tachoscope.failures import hooks

        hooks.install(os.environ["TACHOSCOPE_RUN_DIR"])
        after_import("torch.distributed.elastic.multiprocessing.api", after_torchrun)
    after_import("torch", after_torch)
    for name in getattr(spool, "FRAMEWORKS", ())[1:]:
        after_import(name, lambda module: _mark(module.__name__))


_import_the_hidden_one()
if os.environ.get("TACHOSCOPE_RUN_DIR"):
    _switch_on()
