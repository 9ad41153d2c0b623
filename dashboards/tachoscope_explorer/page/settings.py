"""What the explorer was started with."""

from __future__ import annotations

from dataclasses import dataclass

MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class Settings:
    """What `tachoscope explore` was asked for.

    Attributes:
        store_url: where jobs are. prometheus_url: empty for none.
        traces: profiler traces named on the command line, absolute paths of files, folders or patterns; they are one more job.
        most_upload_bytes: of a trace that somebody uploads. uploads: whether anybody may.
    """

    store_url: str
    prometheus_url: str = ""
    traces: tuple[str, ...] = ()
    most_upload_bytes: int = 512 * MIB
    uploads: bool = True


_chosen: list[Settings] = []


def choose(settings: Settings) -> None:
    """Set what this process's explorer works with; there is one a process."""
    _chosen[:] = [settings]


def chosen() -> Settings:
    """Return what `choose` was told.

    Raises:
        RuntimeError: nothing was chosen.
    """
    if not _chosen:
        raise RuntimeError("the explorer is started with `tachoscope explore`")
    return _chosen[0]
