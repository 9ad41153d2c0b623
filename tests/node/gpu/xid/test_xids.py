"""An Xid error is counted once, whoever reports it, and stays counted over a restart; the catalogue has its text and action."""

import threading
from itertools import chain
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from gpu_readings import Lines, points, uuid
from tachoscope_core import yaml_text
from tachoscope_core.metrics.gpu import ACTIONS, GPU_XID_ERRORS, GPU_XID_LAST_SEEN
from tachoscope_node.gpu.xid import counter as xids
from tachoscope_node.gpu.xid.counter import MAX_CODES, MAX_GPUS, PAIR_SECONDS, Boot, XidCounter, about, catalogue
from trying import each

BOOT = Boot("boot-1", 1000.0)
GPU = uuid(3)


def counter(state: Path | None = None, boot: Boot = BOOT, lines: Lines | None = None) -> XidCounter:
    return XidCounter(state, boot, (lines or Lines()).log)


def count(of: XidCounter, xid: str, gpu: str = GPU) -> float | None:
    return {labels[1:]: value for labels, value in points(of.families(), GPU_XID_ERRORS).items()}.get((gpu, xid))


def test_the_catalogue_has_every_code_of_nvidias_document_once_with_a_sentence_an_action_and_a_source() -> None:
    entries = yaml_text.load(Path(xids.__file__).with_name("xids.yaml").read_text())["xids"]
    codes = list(chain.from_iterable(entry["codes"] for entry in entries))

    assert sorted(codes) == list(range(1, 173))
    for xid in catalogue().values():
        assert xid.means.endswith("."), xid
        assert xid.action in ACTIONS
        assert xid.source.startswith("https://docs.nvidia.com/")
        assert xid.severity == "none" or xid.action not in ("none", "check_application"), f"{xid}: bad, and nothing to do about it"


@each("code", [13, 31, 43, 45])
def test_an_error_of_the_application_says_nothing_against_the_gpu(code: int) -> None:
    assert (about(code).severity, about(code).action) == ("none", "check_application")


def test_a_code_that_the_catalogue_lacks_is_counted_and_somebody_must_look() -> None:
    counted = counter()
    counted.count_error(GPU, 9999, 2000.0, "nvml")

    assert count(counted, "9999") == 1
    (seen,) = counted.all()
    assert (seen.xid.name, seen.xid.severity, seen.xid.action) == ("unknown", "degraded", "inspect_hardware")


@given(st.lists(st.sampled_from(["nvml", "kernel_log"]), max_size=40))
def test_errors_that_both_sources_report_count_once_each(reports: list[str]) -> None:
    counted = counter()
    for number, source in enumerate(reports):
        counted.count_error(GPU, 31, 2000.0 + number * PAIR_SECONDS / 100, source)

    assert (count(counted, "31") or 0) == max(reports.count("nvml"), reports.count("kernel_log"))


def test_the_same_error_much_later_is_another_one() -> None:
    counted = counter()
    assert counted.count_error(GPU, 79, 2000.0, "nvml")
    assert counted.count_error(GPU, 79, 2000.0 + PAIR_SECONDS + 1, "kernel_log")
    assert count(counted, "79") == 2


def test_an_older_report_does_not_set_the_last_time_back() -> None:
    counted = counter()
    for seconds in (2000.0, 5000.0, 3000.0):
        counted.count_error(GPU, 79, seconds, "nvml")
    assert list(points(counted.families(), GPU_XID_LAST_SEEN).values()) == [5000.0]


def test_two_gpus_and_two_codes_are_never_taken_for_one_error() -> None:
    counted = counter()
    for gpu in (uuid(0), uuid(1)):
        for code in (48, 63):
            counted.count_error(gpu, code, 2000.0, "nvml")
            counted.count_error(gpu, code, 2001.0, "kernel_log")

    assert list(points(counted.families(), GPU_XID_ERRORS).values()) == [1, 1, 1, 1]


def test_counts_go_on_after_a_restart_and_a_report_from_before_is_still_paired(tmp_path: Path) -> None:
    before = counter(tmp_path)
    before.know(GPU, "3", 1999.0, None)
    for second in range(23):
        before.count_error(GPU, 48, 2000.0 + 100 * second, "nvml")
    before.families()

    after = counter(tmp_path)
    assert not after.count_error(GPU, 48, 2000.0 + 100 * 22 + 3, "kernel_log")
    assert points(after.families(), GPU_XID_ERRORS) == {("3", GPU, "48"): 23}
    assert points(after.families(), GPU_XID_LAST_SEEN) == {("3", GPU, "48"): 2000.0 + 100 * 22 + 3}


def test_what_was_shown_was_saved_before(tmp_path: Path) -> None:
    shown = counter(tmp_path)
    for number in range(5):
        shown.count_error(GPU, 31, 2000.0 + 100 * number, "nvml")
        assert count(shown, "31") == count(counter(tmp_path), "31") == number + 1


def test_a_broken_state_file_costs_the_counts_not_the_agent(tmp_path: Path) -> None:
    (tmp_path / "xids.json").write_text('{"gpus": 3')
    counted = counter(tmp_path)
    counted.count_error(GPU, 31, 2000.0, "nvml")
    assert count(counted, "31") == 1


def test_a_state_that_cannot_be_written_is_said_and_the_counts_are_shown(tmp_path: Path) -> None:
    blocked, said = tmp_path / "state", Lines()
    blocked.write_text("a file, no directory")
    counted = counter(blocked, lines=said)
    counted.count_error(GPU, 31, 2000.0, "nvml")

    assert count(counted, "31") == 1
    assert [line for line in said.lines if "could not write" in line and "xids.json" in line]
    blocked.unlink()
    blocked.mkdir()
    counted.families()
    assert count(counter(blocked), "31") == 1


def test_many_threads_lose_no_error() -> None:
    counted = counter()

    def report(code: int) -> None:
        for number in range(250):
            counted.count_error(GPU, code % 2, 2000.0 + number, "nvml")

    threads = [threading.Thread(target=report, args=(code,)) for code in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert count(counted, "0") == count(counted, "1") == 500


def test_codes_and_gpus_beyond_the_limits_are_counted_together() -> None:
    counted = counter()
    for code in range(MAX_CODES + 7):
        counted.count_error(GPU, 1000 + code, 2000.0, "nvml")
    assert count(counted, "other") == 7

    for index in range(100, 100 + MAX_GPUS + 10):
        counted.count_error(uuid(index), 31, 2000.0, "nvml")
    assert len({labels[1] for labels in points(counted.families(), GPU_XID_ERRORS)}) == MAX_GPUS + 1
    assert count(counted, "31", "other") == 11


def test_an_error_makes_one_line_with_its_text_and_action() -> None:
    said = Lines()
    counted = counter(lines=said)
    counted.know(GPU, "3", 1999.0, None)
    counted.count_error(GPU, 79, 2000.0, "nvml")
    counted.count_error(GPU, 79, 2001.0, "kernel_log")
    for second in range(100):
        counted.count_error(GPU, 79, 2100.0 + 20 * second, "nvml")

    (line,) = said.lines
    assert line.startswith(f"GPU 3 ({GPU}): Xid 79, GPU has fallen off the bus.")
    assert line.endswith("Action: reboot_node.")


def test_the_kernels_words_are_kept_short_and_printable() -> None:
    counted = counter()
    counted.count_error(GPU, 31, 2000.0, "kernel_log", "pid=1, name=\x1b[31m\n" + "x" * 10_000)
    (seen,) = counted.all()
    assert seen.detail.startswith("pid=1, name=[31mxxx")
    assert len(seen.detail) == 200


def test_a_reset_mends_what_was_before_it_and_not_what_comes_after() -> None:
    counted = counter()
    counted.know(GPU, "3", 1999.0, energy_joules=5e6)
    counted.count_error(GPU, 48, 2000.0, "nvml")
    counted.know(GPU, "3", 2001.0, energy_joules=5e6 + 300)
    assert not counted.all()[0].reset_since

    counted.know(GPU, "3", 2060.0, energy_joules=12.0)
    assert counted.all()[0].reset_since
    counted.count_error(GPU, 48, 2100.0, "nvml")
    assert not counted.all()[0].reset_since


def test_a_gpu_that_was_lost_and_is_back_was_reset() -> None:
    counted = counter()
    counted.count_error(GPU, 79, 2000.0, "nvml")
    counted.know(GPU, "3", 2100.0, None, back=True)
    assert counted.all()[0].reset_since


def test_a_reset_while_the_agent_was_away_is_seen_by_the_energy_counter(tmp_path: Path) -> None:
    before = counter(tmp_path)
    before.know(GPU, "3", 1999.0, energy_joules=5e6)
    before.count_error(GPU, 48, 2000.0, "nvml")
    before.save()

    after = counter(tmp_path)
    assert not after.all()[0].reset_since
    after.know(GPU, "3", 2500.0, energy_joules=700.0)
    assert after.all()[0].reset_since


def test_a_boot_mends_what_was_before_it(tmp_path: Path) -> None:
    before = counter(tmp_path)
    before.count_error(GPU, 79, 2000.0, "nvml")
    before.save()

    after = counter(tmp_path, Boot("boot-2", 5000.0))
    assert after.all()[0].reset_since
    after.count_error(GPU, 79, 5060.0, "kernel_log")  # printed before the agent started, after the boot
    assert not after.all()[0].reset_since
    assert count(after, "79") == 2
