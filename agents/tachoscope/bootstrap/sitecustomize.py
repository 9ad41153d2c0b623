"""Switches the probe on in a Python process that `tachoscope run` started, as soon as that process imports torch.

Python imports `sitecustomize` at start-up from the first folder on its path; `tachoscope run` puts this folder there. A
`sitecustomize` of the user's that this one hides is imported as well.
"""

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


def _switch_on() -> None:
    try:
        from tachoscope.importhook import after_import
    except ImportError:
        if importlib.util.find_spec("torch") is not None:
            sys.stderr.write(
                f"tachoscope: not watching: {sys.executable} cannot import tachoscope (pip install tachoscope there)\n"
            )
        return

    def after_torch(torch: ModuleType) -> None:
        from tachoscope.auto import start

        start(torch=torch)

    after_import("torch", after_torch)


_import_the_hidden_one()
if os.environ.get("TACHOSCOPE_RUN_DIR"):
    _switch_on()
