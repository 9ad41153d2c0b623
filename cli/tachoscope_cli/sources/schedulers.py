"""The word behind `--scheduler`: files that schedulers wrote, or a live scheduler, which is only asked, never changed."""

from __future__ import annotations

from pathlib import Path

from tachoscope_analyzers import schedulers
from tachoscope_analyzers.schedulers.common.allocation import Allocation
from tachoscope_core.errors import TachoscopeError

WORDS = "slurm:JOBID, kubernetes:NAMESPACE/NAME, or a file or directory of what they wrote"


def allocations(words: list[str]) -> list[Allocation]:
    """Return the allocations of the jobs that the words name.

    Args:
        words: each `slurm:JOBID`, `kubernetes:NAMESPACE/NAME`, or the path of a file or directory.

    Raises:
        TachoscopeError: a word names nothing, or the scheduler does not answer.
    """
    found: list[Allocation] = []
    paths = []
    for word in words:
        scheduler, colon, name = word.partition(":")
        if colon and scheduler == "slurm":
            from tachoscope_cli.sources import slurm

            found += slurm.allocations(name)
        elif colon and scheduler == "kubernetes":
            from tachoscope_cli.sources import kubernetes as kubernetes_api

            found += kubernetes_api.allocations(name)
        elif Path(word).exists():
            paths.append(Path(word))
        else:
            raise TachoscopeError(f"{word!r} is neither a scheduler nor a file", fix=f"give {WORDS}")
    return found + schedulers.read(paths)
