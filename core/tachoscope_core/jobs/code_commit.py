"""Whether a folder has the commit of git that a training job names."""

from __future__ import annotations

import subprocess

SECONDS = 30.0


def refusal(directory: str, commit: str) -> str | None:
    """Return why the code in a folder is not the commit; empty: it is; None: not known, such as in an image without .git."""
    head = _git(directory, "rev-parse", "HEAD")
    if head is None:
        return None
    if not head.startswith(commit):
        return f"{directory} has commit {head[:12]}, and the job names {commit}"
    changed = _git(directory, "status", "--porcelain", "--untracked-files=no")
    if changed is None:
        return None
    files = [line[3:] for line in changed.splitlines()]
    return f"{directory} has changes that are not in commit {commit}: {', '.join(files[:3])}" if files else ""


def _git(directory: str, *words: str) -> str | None:
    command = ["git", "-C", directory, "-c", "core.fsmonitor=false", *words]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False, stdin=subprocess.DEVNULL)
    except (OSError, subprocess.TimeoutExpired, UnicodeDecodeError):
        return None
    return done.stdout.rstrip("\n") if done.returncode == 0 else None
