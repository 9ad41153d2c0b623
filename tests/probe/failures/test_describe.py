"""Errors as they are described: those of other processes by the traceback that came with them, stacks by their main thread."""

import time
from pathlib import Path

from tachoscope.failures import fault_stack
from tachoscope.failures.describe import describe
from tachoscope.failures.last_lines import KEPT_LINES, LastLines
from tachoscope.failures.texts import MOST_TEXT, short, short_lines

WORKER = """Caught ValueError in DataLoader worker process 0.
Original Traceback (most recent call last):
  File "/usr/lib/python3/dist-packages/torch/utils/data/_utils/worker.py", line 351, in _worker_loop
    data = fetcher.fetch(index)
  File "/home/me/project/data.py", line 40, in __getitem__
    raise ValueError(f"sample {index} has no label")
ValueError: sample 17 has no label
"""

DUMP = """Fatal Python error: Segmentation fault

Thread 0x00007f1 (most recent call first):
  File "/usr/lib/python3.11/threading.py", line 320 in wait
  File "/usr/lib/python3.11/threading.py", line 975 in _bootstrap

Current thread 0x00007f2 (most recent call first):
  File "/home/me/project/ops.py", line 12 in crash
  File "/home/me/project/train.py", line 80 in main
  File "/home/me/project/train.py", line 90 in <module>

Extension modules: numpy.core._multiarray_umath (total: 1)
"""


def test_an_error_of_a_loader_worker_is_where_it_was_raised_in_the_worker() -> None:
    found = describe(ValueError(WORKER))

    assert (found.exception, found.message) == ("ValueError", "sample 17 has no label")
    assert found.place == ("data.py:40", "__getitem__")


def test_an_error_of_torchelastic_in_its_handling_of_another_is_where_the_other_was_raised() -> None:
    handler = "def handle():\n    try:\n        raise KeyError('input_ids')\n    except KeyError:\n        write()\n"
    found: dict[str, object] = {}
    exec(compile("def write():\n    raise OSError('disk full')\n", "/x/torch/distributed/elastic/error_handler.py", "exec"), found)
    exec(compile(handler, "/home/me/train.py", "exec"), found)
    try:
        found["handle"]()  # type: ignore[operator]
    except OSError as error:
        described = describe(error)

    assert described.place.location.endswith("train.py:3")
    assert described.message == "disk full (caused by KeyError: 'input_ids')"


def test_a_message_that_cannot_be_made_is_empty() -> None:
    class BrokenError(Exception):
        def __str__(self) -> str:
            raise RuntimeError

    assert describe(BrokenError()) == ("BrokenError", "", ("", ""))


def test_a_circle_of_causes_ends() -> None:
    one, other = ValueError("one"), ValueError("other")
    one.__cause__, other.__cause__ = other, one

    assert describe(one).exception == "ValueError"


def test_a_long_message_keeps_its_beginning_and_its_end() -> None:
    found = describe(ValueError("begin " + "x" * 50_000 + " end")).message

    assert len(found) <= 1000
    assert (found[:5], found[-3:]) == ("begin", "end")


def test_the_time_for_a_message_is_linear_in_its_length() -> None:
    began = time.process_time()
    describe(ValueError("Traceback (most recent call last):" + "\n" * MOST_TEXT))

    assert time.process_time() - began < 2  # quadratic it was 9 s


def test_an_error_within_a_compiled_function_is_at_the_line_of_the_function() -> None:
    user_code = 'failed\n\nfrom user code:\n   File "/home/me/train.py", line 64, in scaled\n    return batch @ weight\n'
    kind = type("TorchRuntimeError", (RuntimeError,), {"__module__": "torch._dynamo.exc"})

    assert describe(kind(user_code)).place == ("train.py:64", "scaled")
    assert describe(RuntimeError(user_code)).place == ("", "")


def test_a_group_of_exceptions_is_where_its_first_one_was_raised() -> None:
    found = describe(ExceptionGroup("unhandled errors in a TaskGroup", [ValueError("sample 17 has no label"), OSError("gone")]))

    assert found.message == "unhandled errors in a TaskGroup (2 sub-exceptions) (caused by ValueError: sample 17 has no label)"


def test_code_of_the_job_is_not_run_for_an_error_that_another_thread_has_in_its_hands() -> None:
    class Waits:
        def __str__(self) -> str:
            raise AssertionError

        __repr__ = __str__

    assert describe(ValueError(Waits()), runs_code=False).message == ""
    assert describe(OSError(2, "no such file", Waits()), runs_code=False).message == ""


def test_no_part_of_a_secret_is_left_where_a_text_is_cut() -> None:
    token = "hf_" + "a1B2" * 9
    lines = LastLines()
    lines.add("x" * 280 + " " + token + "\n")
    lines.add("x " * 2040 + token + "\n")

    assert "a1B2" not in short("x " * (MOST_TEXT // 2 - 9) + token) + "".join(short_lines(lines.last()))


def test_of_a_fault_the_thread_counts_in_which_it_struck_if_it_ran_code_of_the_user() -> None:
    fault = fault_stack.parse(DUMP)
    other = DUMP.replace("Current thread", "Thread").replace("Thread 0x00007f1", "Current thread 0x00007f1")
    of_user = other.replace("/usr/lib/python3.11/threading.py", "/home/me/project/prefetch.py")

    assert (fault.message, fault.place) == ("Fatal Python error: Segmentation fault", ("ops.py:12", "crash"))
    assert fault_stack.parse(other).place == ("ops.py:12", "crash")
    assert fault_stack.parse(of_user).place == ("prefetch.py:320", "wait")
    assert fault_stack.parse(of_user.removeprefix("Fatal Python error")).place == ("ops.py:12", "crash")  # of a SIGTERM


def test_of_a_log_of_stderr_the_fault_counts_and_else_the_last_line_without_its_secrets(tmp_path: Path) -> None:
    log = tmp_path / "stderr.log"
    log.write_text("x" * 100_000 + "\n" + DUMP)
    assert fault_stack.in_log(log).place == ("ops.py:12", "crash")
    log.write_text("loading\nNCCL WARN key=hf_" + "a1B2" * 9 + "\n\n")
    assert fault_stack.in_log(log)[:2] == ("NCCL WARN key=***", ("", ""))
    assert fault_stack.in_log(tmp_path / "none") == fault_stack.Fault()


def test_a_file_without_a_stack_says_nothing() -> None:
    assert fault_stack.parse("") == fault_stack.parse("garbage\nFile x") == fault_stack.Fault()


def test_the_last_lines_are_kept_as_a_terminal_shows_them() -> None:
    lines = LastLines()
    for number in range(100):
        lines.add(f"line {number}\n")
    lines.add("10%\r20%\r30%")

    assert len(lines.last()) == KEPT_LINES
    assert lines.last()[-2:] == ["line 99", "30%"]
