"""Commands that the fork server forks are what a process of their own would be."""

from __future__ import annotations

import os
from pathlib import Path
from subprocess import CompletedProcess

import forked


def run(place: Path, *words: str, **environ: str) -> CompletedProcess[str]:
    return forked.run(words, cwd=place, environ=dict(os.environ) | environ, outputs=place, seconds=300)


def test_a_forked_command_has_its_own_folder_environment_output_and_exit_code(tmp_path: Path) -> None:
    store = str(tmp_path / "own")
    script = 'pwd; echo "$OF_THE_TEST" >&2; kill -9 $$'
    done = run(tmp_path, "run", "--job", "j", "--", "sh", "-c", script, OF_THE_TEST="given", TACHOSCOPE_STORE=store)

    assert (done.returncode, done.stdout) == (137, f"{tmp_path}\n")
    assert done.stderr.startswith("given\n")
    assert os.listdir(store)
    wrong = run(tmp_path, "explain", "--no-such-option")
    assert (wrong.returncode, wrong.stdout) == (2, "")
