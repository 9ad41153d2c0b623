"""What a process leaves of its own end, in real processes under the probe's bootstrap; and that it ends as it would without."""

import faulthandler
import os
import subprocess
import sys
from pathlib import Path

import pytest

import tachoscope
from processes import wait_for
from tachoscope.failures import exit_timer, fault_stack
from tachoscope_core.native import native
from tachoscope_core.records import records
from tachoscope_core.storage import spool

THREAD = "import threading\ndef work():\n    raise OSError('gone')\none = threading.Thread(target=work)\none.start()\none.join()\n"
BOOTSTRAP = Path(tachoscope.__file__).parent / "bootstrap"


class Ended:
    """How a script ended, and what it left in the directory of its run."""

    def __init__(self, done: subprocess.CompletedProcess[str], directory: Path) -> None:
        self.code, self.stdout, self.stderr = done.returncode, done.stdout, done.stderr
        lines = [line for path in spool.segments(directory) for line in path.read_bytes().splitlines()]
        found = [row for row in map(records.decode, lines) if isinstance(row, records.ProcessFailed)]
        self.failures = sorted(found, key=lambda row: row.monotonic_ns)
        self.left = sorted(path.name for path in directory.iterdir() if path.name.startswith(spool.FAULT_PREFIX))

    @property
    def failure(self) -> records.ProcessFailed:
        (found,) = self.failures
        return found


def run(folder: Path, script: str, *options: str, **environ: str) -> Ended:
    directory, path = folder / "run", folder / "script.py"
    directory.mkdir(exist_ok=True)
    path.write_text(script)
    own = {"PYTHONPATH": os.pathsep.join([str(BOOTSTRAP), os.environ.get("PYTHONPATH", "")])}
    own |= {"TACHOSCOPE_RUN_DIR": str(directory), "TACHOSCOPE_JOB": "j", "RANK": "1"} | environ
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("_TACHOSCOPE")}
    done = subprocess.run(
        [sys.executable, *options, str(path)], env=inherited | own, capture_output=True, text=True, timeout=60, check=False
    )
    return Ended(done, directory)


def test_an_exception_leaves_its_type_its_message_and_the_line_of_the_users_code(tmp_path: Path) -> None:
    ended = run(tmp_path, "import json\ndef load():\n    return json.loads('{broken')\nload()\n")

    failure = ended.failure
    assert (ended.code, failure.how, failure.failed_rank, failure.exception) == (1, "exception", 1, "JSONDecodeError")
    assert (failure.location, failure.function) == ("script.py:3", "load")
    assert failure.message.startswith("Expecting property name")
    assert "JSONDecodeError" in ended.stderr


def test_a_module_that_is_missing_is_reported_before_anything_else_was_imported(tmp_path: Path) -> None:
    assert run(tmp_path, "\nimport no_such_module\n").failure.location == "script.py:2"


def test_a_process_that_has_opened_all_files_that_it_may_still_reports_its_line(tmp_path: Path) -> None:
    script = "import os, resource\nresource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))\nopened = []\nwhile True:\n"
    failure = run(tmp_path, f"{script}    opened.append(os.open('/dev/null', os.O_RDONLY))\n").failure

    assert (failure.exception, failure.location) == ("OSError", "script.py:5")


def test_secrets_in_messages_and_on_stderr_are_hidden(tmp_path: Path) -> None:
    token = "hf_" + "a1B2" * 9
    ended = run(tmp_path, f"import sys\nprint('using {token}', file=sys.stderr)\nraise ValueError('bad key {token}')\n")

    assert token in ended.stderr
    assert token not in ended.failure.message + "".join(ended.failure.said)
    assert ended.failure.said == ["using ***"]


def test_the_cause_of_a_wrapped_error_is_where_it_comes_from(tmp_path: Path) -> None:
    script = "try:\n    int('seven')\nexcept ValueError as error:\n    raise RuntimeError('the training failed') from error\n"
    failure = run(tmp_path, script).failure

    assert (failure.exception, failure.location) == ("RuntimeError", "script.py:2")
    assert "caused by ValueError: invalid literal" in failure.message


def test_an_error_that_was_caught_before_sys_exit_is_what_the_process_failed_of(tmp_path: Path) -> None:
    script = "import sys\ntry:\n    {}['lr']\nexcept KeyError:\n    print('no lr', file=sys.stderr)\n    sys.exit(3)\n"
    ended = run(tmp_path, script)

    failure = ended.failure
    assert (ended.code, failure.how, failure.exit_code, failure.exception, failure.location) == (
        3,
        "exit",
        3,
        "KeyError",
        "script.py:3",
    )
    assert failure.said == ["no lr"]


def test_what_sys_exit_says_is_kept(tmp_path: Path) -> None:
    ended = run(tmp_path, "import sys\nsys.exit('no data under /data')\n")

    assert (ended.code, ended.failure.exit_code, ended.failure.message) == (1, 1, "no data under /data")


def test_an_exit_that_the_program_caught_is_no_end(tmp_path: Path) -> None:
    script = "import sys\ntry:\n    sys.exit(2)\nexcept SystemExit:\n    pass\nraise ValueError('later')\n"

    assert [failure.exception for failure in run(tmp_path, script).failures] == ["ValueError"]


def test_an_exit_that_was_caught_is_not_how_a_program_ended_that_then_ran_to_its_end(tmp_path: Path) -> None:
    script = "import sys\ndef parse():\n    sys.exit(2)\ntry:\n    parse()\nexcept SystemExit:\n    pass\n"

    assert run(tmp_path, script).failures == []


def test_an_exit_in_order_that_a_decorator_catches_is_where_the_rank_left(tmp_path: Path) -> None:
    script = "import sys\ndef main():\n    sys.exit(0)\ntry:\n    main()\nexcept SystemExit:\n    pass\n"
    failure = run(tmp_path, script).failure

    assert (failure.exit_code, failure.location) == (0, "script.py:3")


def test_an_exit_code_may_be_any_object(tmp_path: Path) -> None:
    ended = run(tmp_path, "import sys\nsys.exit([1])\n")

    assert (ended.code, ended.stderr, ended.failure.exit_code, ended.failure.location) == (1, "[1]\n", 1, "script.py:2")


def test_a_thread_that_failed_before_does_not_hide_how_the_process_ended(tmp_path: Path) -> None:
    script = THREAD + "import sys\nsys.exit(3)\n"

    assert [(one.how, one.location) for one in run(tmp_path, script).failures] == [
        ("thread", "script.py:3"),
        ("exit", "script.py:8"),
    ]


def test_a_thread_that_calls_sys_exit_is_reported_although_python_says_nothing(tmp_path: Path) -> None:
    ended = run(tmp_path, THREAD.replace("raise OSError('gone')", "__import__('sys').exit(3)"))

    assert (ended.code, ended.stderr, ended.failure.how, ended.failure.location) == (0, "", "thread", "script.py:3")
    assert (ended.failure.exception, ended.failure.message) == ("SystemExit", "exit code 3")


def test_threads_that_fail_all_the_time_are_reported_once_and_also_through_the_hook_of_the_main_thread(tmp_path: Path) -> None:
    hook = "import sys\nthreading.excepthook = lambda args: sys.excepthook(args.exc_type, args.exc_value, args.exc_traceback)\n"
    again = "for _ in range(20):\n    one = threading.Thread(target=work)\n    one.start()\n    one.join()\n"
    ended = run(tmp_path, THREAD + hook + again)

    assert (ended.failure.how, ended.stderr.count("OSError: gone")) == ("thread", 21)


@pytest.mark.parametrize("text", ["__import__('sys').exit(0)", "__import__('threading').Event().wait()"])
def test_an_exception_whose_text_does_not_come_ends_the_process_as_ever(tmp_path: Path, text: str) -> None:
    script = f"import sys\nclass Broken(Exception):\n    def __str__(self):\n        return {text}\n"
    ended = run(tmp_path, script + "sys.excepthook = lambda kind, *_: print(kind.__name__)\nraise Broken\n")

    assert (ended.code, ended.stdout, ended.failure.message, ended.failure.location) == (1, "Broken\n", "", "script.py:6")


def test_a_hook_of_the_job_that_ends_the_process_at_once_does_not_keep_the_error_away(tmp_path: Path) -> None:
    script = "import os, sys\nsys.excepthook = lambda *_: os._exit(9)\ndef load():\n    raise ValueError('x')\nload()\n"
    ended = run(tmp_path, script)

    assert (ended.code, ended.failure.exit_code, ended.failure.exception, ended.failure.location) == (
        9,
        9,
        "ValueError",
        "script.py:4",
    )


def test_an_error_that_the_job_prints_and_goes_on_is_no_end(tmp_path: Path) -> None:
    assert (
        run(tmp_path, "import sys\ntry:\n    1 // 0\nexcept ZeroDivisionError:\n    sys.excepthook(*sys.exc_info())\n").failures
        == []
    )


def test_functions_that_the_job_registered_run_before_the_last_look_and_in_its_order(tmp_path: Path) -> None:
    script = "import atexit\natexit.register(print, 'second')\natexit.register(print, 'first')\nraise ValueError\n"
    ended = run(tmp_path, script)

    assert (ended.stdout, ended.failure.exception) == ("first\nsecond\n", "ValueError")


def test_a_private_key_on_stderr_is_hidden_as_a_whole(tmp_path: Path) -> None:
    key = [
        "-----BEGIN RSA PRIVATE KEY-----",
        *(f"MIIEowIBAAKCAQEA{number:04}" for number in range(30)),
        "-----END RSA PRIVATE KEY-----",
    ]
    script = f"import sys\nfor line in {['before', *key, 'after']!r}:\n    print(line, file=sys.stderr)\nraise ValueError\n"

    assert run(tmp_path, script).failure.said == ["before", "after"]


def test_os_exit_says_from_where(tmp_path: Path) -> None:
    ended = run(tmp_path, "import os\ndef leave():\n    os._exit(7)\nleave()\n")

    assert (ended.code, ended.failure.exit_code, ended.failure.location, ended.left) == (7, 7, "script.py:3", [])


def test_an_exit_of_a_watchdogs_thread_says_where_the_main_thread_was_and_whether_it_waits_for_ranks(tmp_path: Path) -> None:
    folder = tmp_path / "torch" / "distributed"
    folder.mkdir(parents=True)
    (folder / "waiting.py").write_text("def wait(lock):\n    lock.acquire()\n")
    script = f"""
import os, sys, threading, time
sys.path.append({str(folder)!r})
import waiting
def watch():
    main = threading.main_thread().ident
    while sys._current_frames()[main].f_lineno != 2:
        time.sleep(0.01)
    os._exit(7)
lock = threading.Lock()
lock.acquire()
threading.Thread(target=watch).start()
waiting.wait(lock)
"""
    failure = run(tmp_path, script).failure

    assert (failure.location, failure.main_location, failure.main_waits) == ("script.py:9", "waiting.py:2", True)


def test_a_hook_of_the_job_that_calls_no_other_does_not_keep_the_error_away(tmp_path: Path) -> None:
    ended = run(tmp_path, "import sys\nsys.excepthook = lambda *_: print('mine')\nraise ValueError('x')\n")

    assert (ended.stdout, ended.failure.exception, ended.failure.location) == ("mine\n", "ValueError", "script.py:3")


def test_the_exception_of_a_thread_is_reported_as_one(tmp_path: Path) -> None:
    ended = run(tmp_path, THREAD)

    assert (ended.code, ended.failure.how, ended.failure.location) == (0, "thread", "script.py:3")


def test_an_ordered_end_leaves_nothing(tmp_path: Path) -> None:
    ended = run(tmp_path, "print('trained')\n")

    assert (ended.code, ended.stdout, ended.stderr, ended.failures, ended.left) == (0, "trained\n", "", [], [])


def test_a_process_that_a_rank_starts_is_not_the_rank(tmp_path: Path) -> None:
    script = "import subprocess, sys\nsubprocess.run([sys.executable, '-c', 'raise ValueError(1)'])\n"

    assert run(tmp_path, script).failures == []


def test_forked_processes_of_the_job_report_nothing_as_the_rank(tmp_path: Path) -> None:
    script = "import os\nif os.fork() == 0:\n    os._exit(5)\nos.wait()\n"

    assert run(tmp_path, script).failures == []


@pytest.mark.parametrize("name", ["SIGTERM", "SIGSEGV", "SIGABRT"])
def test_a_signal_ends_the_process_as_ever_and_leaves_where_it_was(tmp_path: Path, name: str) -> None:
    ended = run(tmp_path, f"import os, signal\ndef stuck():\n    os.kill(os.getpid(), signal.{name})\nstuck()\n")

    ((_, fault),) = fault_stack.take_all(tmp_path / "run")
    assert ended.code == -getattr(__import__("signal"), name)
    assert (ended.stdout, ended.stderr, fault.place) == ("", "", ("script.py:3", "stuck"))


def test_a_handler_of_the_job_for_sigterm_is_called_as_ever(tmp_path: Path) -> None:
    script = "import os, signal\nsignal.signal(signal.SIGTERM, lambda *_: print('saved'))\nos.kill(os.getpid(), signal.SIGTERM)\n"
    ended = run(tmp_path, script)

    assert (ended.code, ended.stdout, ended.left) == (0, "saved\n", [])


NEEDS_NATIVE = pytest.mark.skipif(
    native("tachoscope.failures.native_faults").module is None, reason="only the native module does it"
)


@NEEDS_NATIVE
@pytest.mark.parametrize("use", ["-X", "faulthandler.enable()", "faulthandler.enable(open('own', 'w'))"])
def test_a_faulthandler_of_the_job_writes_as_ever_and_the_line_is_known_too(tmp_path: Path, use: str) -> None:
    script = f"import ctypes, faulthandler, os\nos.chdir({str(tmp_path)!r})\nprint(faulthandler.is_enabled())\n"
    script += ("" if use == "-X" else use) + "\ndef crash():\n    ctypes.string_at(0)\ncrash()\n"
    ended = run(tmp_path, script, "-u", *(["-X", "faulthandler"] if use == "-X" else []))

    own = (tmp_path / "own").read_text() if "own" in use else ended.stderr
    assert (ended.code, ended.stdout) == (-11, f"{use == '-X'}\n")
    assert "Fatal Python error: Segmentation fault" in own and "script.py" in own
    ((_, fault),) = fault_stack.take_all(tmp_path / "run")
    assert (fault.message, fault.place) == ("Fatal Python error: Segmentation fault", ("script.py:6", "crash"))


def test_a_timer_of_faulthandler_that_ends_a_process_leaves_where_it_was(tmp_path: Path) -> None:
    script = "import faulthandler, time\ndef wait():\n    time.sleep(600)\nfor seconds in (600, 60, 2):\n"
    ended = run(tmp_path, f"{script}    faulthandler.dump_traceback_later(seconds, exit=True)\nwait()\n")

    ((_, fault),) = fault_stack.take_all(tmp_path / "run")
    assert (ended.code, fault.message, fault.place) == (1, "Timeout (0:00:02)!", ("script.py:3", "wait"))
    assert "Timeout (0:00:02)!" in ended.stderr, "as ever"


@pytest.mark.parametrize("again", [False, True], ids=["it is cancelled", "it begins anew"])
def test_a_timer_that_does_not_end_the_process_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, again: bool) -> None:
    path = tmp_path / "dump"
    for name in ("dump_traceback_later", "cancel_dump_traceback_later"):
        monkeypatch.setattr(faulthandler, name, lambda *_, **__: None)
    with path.open("ab", buffering=0) as file:
        exit_timer.ExitTimer(file).install()
        monkeypatch.setattr(exit_timer, "_MARGIN_SHARE", 2.0)
        monkeypatch.setattr(exit_timer, "_MARGIN_SECONDS", 1000.0)
        faulthandler.dump_traceback_later(600.0, exit=True)
        wait_for(lambda: "most recent call first" in path.read_text())
        monkeypatch.setattr(exit_timer, "_MARGIN_SHARE", 0.0)
        if again:
            faulthandler.dump_traceback_later(600.0, exit=True)
        else:
            faulthandler.cancel_dump_traceback_later()
        assert path.read_text() == ""
        monkeypatch.setattr(exit_timer, "_MARGIN_SHARE", 2.0)
        faulthandler.dump_traceback_later(600.0, exit=True)
        wait_for(lambda: "most recent call first" in path.read_text())


def test_the_line_of_os_exit_in_a_loader_worker_is_that_of_the_error_that_torch_raises(tmp_path: Path) -> None:
    script = (
        "import os\ndef sample():\n    os._exit(4)\ndef _worker_loop():\n    sample()\n"
        "if not (pid := os.fork()):\n    _worker_loop()\nos.wait()\n"
        "raise RuntimeError(f'DataLoader worker (pid(s) {pid}) exited unexpectedly with exit code 4')\n"
    )
    ended = run(tmp_path, script)

    assert (ended.failure.location, ended.failure.function, ended.left) == ("script.py:3", "sample", [])


def test_a_handler_of_the_job_for_faults_is_called_as_ever(tmp_path: Path) -> None:
    script = "import os, signal\nsignal.signal(signal.SIGABRT, lambda *_: print('mine'))\nos.kill(os.getpid(), signal.SIGABRT)\n"
    ended = run(tmp_path, script)

    assert (ended.code, ended.stdout, ended.left) == (0, "mine\n", [])


def test_an_overflow_of_the_stack_leaves_where_it_was(tmp_path: Path) -> None:
    deep = "class Deep:\n    def __getattr__(self, name):\n        return getattr(self, name + name[:0])\nDeep().x\n"
    ended = run(tmp_path, f"import sys\nsys.setrecursionlimit(10**6)\n{deep}")

    ((_, fault),) = fault_stack.take_all(tmp_path / "run")
    assert (ended.code, fault.place.location) == (-11, "script.py:5")


@NEEDS_NATIVE
def test_a_fault_of_a_forked_process_is_not_the_ranks(tmp_path: Path) -> None:
    script = "import os, signal\nif os.fork() == 0:\n    os.kill(os.getpid(), signal.SIGSEGV)\nos.wait()\n"
    run(tmp_path, script + "os.kill(os.getpid(), signal.SIGKILL)\n")

    assert [fault for _, fault in fault_stack.take_all(tmp_path / "run")] == [fault_stack.Fault()]


def test_stderr_stays_the_stream_that_it_was(tmp_path: Path) -> None:
    script = "import io, sys\nprint(type(sys.stderr) is io.TextIOWrapper, sys.stderr.fileno(), sys.stderr.write('a\\n'))\n"

    assert run(tmp_path, script).stdout == "True 2 2\n"


def test_the_functions_that_exit_are_pickled_and_called_as_ever(tmp_path: Path) -> None:
    script = (
        "import multiprocessing, os, pickle, sys\n"
        "if __name__ == '__main__':\n"
        "    print(pickle.loads(pickle.dumps(sys.exit)) is sys.exit, pickle.loads(pickle.dumps(os._exit)) is os._exit)\n"
        "    one = multiprocessing.get_context('spawn').Process(target=sys.exit, args=(4,))\n"
        "    one.start()\n"
        "    one.join()\n"
        "    print(one.exitcode)\n"
        "    os._exit(status=6)\n"
    )
    ended = run(tmp_path, script, "-u")

    assert (ended.stdout, ended.code, ended.failure.location) == ("True True\n4\n", 6, "script.py:8")
