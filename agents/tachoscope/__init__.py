"""What users import in a job: `watch`, `step` and `phase`. Light: imports neither torch nor pandas.

import tachoscope

with tachoscope.watch(job="resnet"):
    train()
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version

from tachoscope_core.records import PHASES, Phase

try:
    __version__ = version("tachoscope")
except PackageNotFoundError:  # run from a source tree
    __version__ = "0"

__all__ = ["__version__", "phase", "step", "watch"]


@contextmanager
def watch(job: str | None = None, *, store: str | None = None) -> Iterator[None]:
    """Watch the training inside the block, explicitly instead of by `tachoscope run`.

    At the end of the block this process's records are put into the store, unless `tachoscope run` will do it. A failure of the
    probe is one line on stderr, never an exception; one of the block passes through.

    Args:
        job: name that all ranks and attempts of the job share; default: what the scheduler says.
        store: directory or URL; default: `$TACHOSCOPE_STORE`, else the user's data directory.
    """
    from tachoscope import auto

    started = auto.start(job)
    try:
        yield
    except BaseException as error:
        auto.PROBE.failed(error)
        raise
    finally:
        if started:
            auto.PROBE.close()
            if not os.environ.get("TACHOSCOPE_RUN_DIR"):
                from tachoscope.ship import ship_quietly

                ship_quietly(auto.PROBE.directory, store)


def step(*, samples: int = 0, tokens: int = 0) -> None:
    """Say that a training step ends here; works without torch. From the first call on, only these calls end steps.

    Args:
        samples: samples that the step consumed. tokens: tokens that it consumed. 0: not known.
    """
    from tachoscope import auto

    probe = auto.PROBE
    if not probe.on and os.environ.get("TACHOSCOPE_RUN_DIR"):
        auto.start()
    if probe.mine():
        probe.explicit_step(samples=samples, tokens=tokens)


@contextmanager
def phase(name: Phase) -> Iterator[None]:
    """Account the time inside the block to a phase of the step, such as `data_wait` for input that is no `DataLoader`.

    Raises:
        ValueError: no phase of that name; the message lists them.
    """
    from tachoscope import auto
    from tachoscope.timeline import INDEX

    if name not in INDEX:
        raise ValueError(f"no phase {name!r}; there are {', '.join(PHASES)}")
    if not auto.PROBE.on and os.environ.get("TACHOSCOPE_RUN_DIR"):
        auto.start()
    if not auto.PROBE.mine():
        yield
        return
    auto.PROBE.timeline.enter(INDEX[name])
    try:
        yield
    finally:
        auto.PROBE.timeline.leave()
