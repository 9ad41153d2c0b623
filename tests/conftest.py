"""Every test has its own spool and store; nothing lands in the user's."""

from __future__ import annotations

import gc
import itertools
import logging
import os
import re
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import pytest

# A shell starts background jobs with interrupts ignored, and children inherit that; tests that send one need them as they are.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


FOLDERS = itertools.count()
"""Numbers for the folders of tests."""

LIGHT_TORCH = str(Path(__file__).parent / "light_torch")
"""On the path of processes that tests start."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--bar-runs", type=int, default=1, help="how often each fault is caused; `make bars` asks for 10")


def pytest_configure(config: pytest.Config) -> None:
    """Let `make test` try fewer examples of each property, always the same; `make bars` looks further, and at all of PyTorch."""
    few = config.getoption("--bar-runs") < 10
    # No test is judged by a clock: what else runs on the machine makes any example slow once in a while.
    too_slow = [hypothesis.HealthCheck.too_slow]
    hypothesis.settings.register_profile(
        "ours", deadline=None, max_examples=25 if few else 200, derandomize=few, suppress_health_check=too_slow
    )
    hypothesis.settings.load_profile("ours")
    os.environ.setdefault("GOGC", "400")  # promtool and Prometheus would spend much of their time on garbage
    if few:
        others = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path and path != LIGHT_TORCH]
        os.environ["PYTHONPATH"] = os.pathsep.join([LIGHT_TORCH, *others])


@pytest.hookimpl(tryfirst=True)
def pytest_collection(session: pytest.Session) -> None:
    gc.disable()


def pytest_collection_finish(session: pytest.Session) -> None:
    """Let no collection of garbage go through the objects of ten thousand tests, again and again."""
    gc.freeze()
    gc.enable()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "bar_run" in metafunc.fixturenames:
        metafunc.parametrize("bar_run", range(metafunc.config.getoption("--bar-runs")))


TRACES_LIKE_OTHERS = (
    *("hta/v100_nccl_2rank_rank1.json.gz", "hta/diff_control_a100.json.gz", "hta/v100_ns_resolution.json.gz"),
    *("hta/diff_test_v100.json.gz", "hta/sampled_rank-1.json.gz", "kineto/resnet50_nw4_a.pt.trace.json.gz"),
    "kineto/resnet50_nw0_a.pt.trace.json.gz",  # a third of the time of all that are left
    *(f"dlrm8/rank-{rank}.json.gz" for rank in range(1, 8)),
)
"""Of tests that go through all recorded traces: these take most of their time, and others are of the same kinds."""


def _is_left_to_the_bars(item: pytest.Item) -> bool:
    call = getattr(item, "callspec", None)
    if call and call.params.get("name") in TRACES_LIKE_OTHERS:
        return True
    bar = item.get_closest_marker("bar")
    return bar is not None and not (call and call.id in bar.kwargs.get("but", ()))


SLOWEST = (
    *("test_shared_jobs", "test_supervisor", "test_actions"),
    *("test_gate", "test_steps", "test_journeys", "test_live", "test_agent_process", "test_neighbours", "test_odd_jobs"),
    *("test_run_with_agent", "test_promtests", "test_build", "test_hostile_pages", "test_probe_promise", "test_run", "test_wheel"),
    *("test_drill", "test_isolated_python", "test_serving_processes", "test_serving_example", "test_run_watch", "test_watch"),
    *("test_contained", "test_job_processes", "test_extras", "test_live_hang", "test_lines"),
)
"""Modules that wait for processes, the longest first. They begin first, so that at the end no processor is idle."""


@pytest.hookimpl(trylast=True)  # after -m and -k have chosen
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--bar-runs") < 10:
        left_out = [item for item in items if _is_left_to_the_bars(item)]
        items[:] = [item for item in items if not _is_left_to_the_bars(item)]
        config.hook.pytest_deselected(items=left_out)
    items[:] = _dealt(items, workers=getattr(config, "workerinput", {}).get("workercount", 1))


def _dealt(items: list[pytest.Item], workers: int) -> list[pytest.Item]:
    """Deal the slowest modules to the workers of xdist, each of which is given an equal part of all tests, in their order."""
    if workers == 1:
        return items
    slow: dict[str, list[pytest.Item]] = {name: [] for name in SLOWEST}
    rest: list[pytest.Item] = []
    for item in items:
        slow.get(item.path.stem, rest).append(item)
    parts = [[item for name in SLOWEST[first::workers] for item in slow[name]] for first in range(workers)]
    size = -(-len(items) // workers)
    for part in parts:
        missing = max(size - len(part), 0)
        part += rest[:missing]
        del rest[:missing]
    return [item for part in parts for item in part] + rest


@pytest.fixture
def tmp_path(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A new folder. pytest's own fixture also renews a link to the newest folder of each name, which costs more than most tests."""
    name = re.sub(r"\W", "_", request.node.name)[:27]
    path = tmp_path_factory.getbasetemp() / f"{name}{next(FOLDERS)}"
    path.mkdir(mode=0o700)
    return path


@pytest.fixture
def logged() -> Iterator[list[str]]:
    """Messages that are logged from now on. pytest's own fixture is not there: for it, handlers are added to all loggers of all
    packages six times a test, which took one thirtieth of the time of all tests.
    """
    messages: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: messages.append(record.getMessage())  # type: ignore[method-assign]
    root = logging.getLogger()
    level = root.level
    root.addHandler(handler)
    root.setLevel(logging.INFO)
    yield messages
    root.setLevel(level)
    root.removeHandler(handler)


@pytest.fixture(autouse=True)
def own_places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TACHOSCOPE_SPOOL", str(tmp_path / "spool"))
    monkeypatch.setenv("TACHOSCOPE_STORE", str(tmp_path / "store"))
    if "s3fs" in sys.modules:  # it keeps connections to the server of an earlier test, whose port the environment told
        sys.modules["s3fs"].S3FileSystem.clear_instance_cache()
    for name in ("TACHOSCOPE_JOB", "TACHOSCOPE_RUN_DIR", "TACHOSCOPE_ATTEMPT", "TACHOSCOPE_JOB_IS_DEFAULT", "SLURM_JOB_ID"):
        monkeypatch.delenv(name, raising=False)
