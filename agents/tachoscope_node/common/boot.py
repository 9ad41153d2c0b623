"""Which boot of the host this is: monotonic times hold within one."""

from __future__ import annotations

from pathlib import Path


def boot_id(proc: str) -> str:
    """Return what tells this boot of the host from others, or nothing where the kernel does not say."""
    try:
        return (Path(proc) / "sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""
