"""A real job that hangs under `tachoscope run` leaves its evidence, and `tachoscope hang JOB` names the rank and its line."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from helpers import BIN, REPOSITORY, environment
from processes import wait_for
from tachoscope.sampling.unlocked_stacks import why_not
from tachoscope_analyzers.flight_recorder.read import dumps_in, read_all
from tachoscope_core.storage.hang_bundles import last_hang
from tachoscope_core.storage.store import Store

SCRIPT = REPOSITORY / "tests" / "watch" / "hanging_ddp.py"
pytestmark = pytest.mark.skipif(bool(why_not()), reason=f"stacks cannot be read here: {why_not()}")


@contextmanager
def hanging(folder: Path, how: str) -> Iterator[None]:
    """Run a job of two ranks without an agent, of which rank 1 stands still, until its evidence is stored."""
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "--no-python"]
    launch += ["sh", "-c", 'TORCH_WORKER_SERVER_SOCKET="$0$RANK" exec "$@"', str(folder / "rank")]
    launch += [sys.executable, str(SCRIPT), how]
    job = subprocess.Popen(
        [BIN / "tachoscope", "run", "--job", "stuck", "--", *launch],
        env=environment(folder, TACHOSCOPE_HANG_SECONDS="6", TORCH_FR_BUFFER_SIZE="200"),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        wait_for(lambda: list(last_hang(Store(str(folder / "store")), "stuck").bundles.values()), seconds=180, pause=0.5)
        yield
    finally:
        for process in [*psutil.Process(job.pid).children(recursive=True), job]:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        job.wait()


def shown(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [BIN / "tachoscope", "hang", "stuck", "--store", str(folder / "store"), *words]
    return subprocess.run(command, env=environment(folder), capture_output=True, text=True, timeout=120, check=False)


@pytest.mark.parametrize(
    ("how", "kind"),
    [
        ("worker", "loader_worker"),
        pytest.param("skip", "rank", marks=pytest.mark.bar),
        pytest.param("stop", "rank", marks=pytest.mark.bar),
        pytest.param("lock", "rank", marks=pytest.mark.bar),
        pytest.param("deadlock", "rank", marks=pytest.mark.bar),
    ],
)
def test_the_process_that_the_others_wait_for_is_shown_with_its_line_in_each_form(tmp_path: Path, how: str, kind: str) -> None:
    with hanging(tmp_path, how):
        text, page, document = shown(tmp_path), shown(tmp_path, "--format", "html"), shown(tmp_path, "--format", "json")

    assert not text.returncode, text.stderr
    # Gloo's flight recorder, by PyTorch's worker server, which answers also while its rank holds Python's lock.
    ((path, bundle),) = last_hang(Store(str(tmp_path / "store")), "stuck").bundles.items()
    assert bundle.dumps.keys() == ({"0"} if how == "stop" else {"0", "1"}), bundle.missing
    dumps = read_all(dumps_in([str(tmp_path / "store" / Path(path).parent)]))
    assert all(one.operations for one in dumps.values())
    report = json.loads(document.stdout)
    odd, *others = report["stacks"]
    assert (odd["kind"], odd["ranks"], odd["waits_for"]) == (kind, [1], "")
    assert odd["where"].endswith(f"stand_by_{how}")
    assert {rank for group in others for rank in group["ranks"]} >= {0}
    assert report["findings"][0]["ranks"] == [1]
    for shape in (text.stdout, page.stdout):
        assert odd["where"] in shape and "waits for other ranks" in shape


def test_a_job_without_a_hang_and_a_name_without_a_job_are_errors_with_a_way_out(tmp_path: Path) -> None:
    (tmp_path / "store" / "jobs" / "well").mkdir(parents=True)
    well = subprocess.run(
        [BIN / "tachoscope", "hang", "well", "--store", str(tmp_path / "store")],
        env=environment(tmp_path),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    none = shown(tmp_path)

    assert well.returncode and "no evidence of a hang" in well.stderr and "docs/guides/hangs.md" in well.stderr
    assert none.returncode and "neither a path 'stuck' nor a job" in none.stderr
