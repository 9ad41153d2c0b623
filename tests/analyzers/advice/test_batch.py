"""How large the batch should be: by activity and memory of the device, and where the device waits for launches."""

from tachoscope_analyzers.advice import batch

GB = 1e9


def test_a_small_batch_on_a_device_with_room_is_raised_by_the_lesser_of_what_fills_and_what_fits() -> None:
    fits = batch.for_activity(0.25, 24 * GB, 80 * GB)
    fills = batch.for_activity(0.4, 24 * GB, 80 * GB)

    assert fits == (
        "raise the batch per device 3 times: 0.8 / 0.25 = 3.2 times the batch fill the device, and as 24 GB of 80 GB are in use, "
        "0.9 x 80 / 24 = 3 times fit for sure"
    )
    assert fills.startswith("raise the batch per device 2 times: 0.8 / 0.4 = 2 times")


def test_memory_that_is_full_leaves_other_ways() -> None:
    words = batch.for_activity(0.25, 75 * GB, 80 * GB)

    assert "3.2 times the batch fill the device, but 75 GB of 80 GB are in use" in words
    assert "raise the batch" not in words


def test_memory_that_was_not_measured_is_said_to_be() -> None:
    assert batch.for_activity(0.25, None, None).endswith("if memory allows (not measured)")
    assert batch.for_activity(0.0, 24 * GB, 80 * GB) == ""


def test_kernels_of_few_blocks_are_given_as_many_as_there_are_multiprocessors() -> None:
    assert batch.for_blocks(0.25).startswith("raise the batch per device up to 1 / 0.25 = 4 times")
    assert batch.for_blocks(1.5) == batch.for_blocks(0.0) == ""


def test_a_device_that_waits_for_launches_takes_a_larger_batch_in_the_same_time() -> None:
    words = batch.for_launches(0.1, 0.05, 0.06)

    assert "expected step: 60 ms instead of 100 ms" in words
    assert "100 ms / 50 ms = 2 times the batch" in words


def test_a_step_that_is_all_idle_gives_no_advice() -> None:
    assert batch.for_launches(0.1, 0.1, 0.05) == ""
    assert batch.for_launches(0.1, 0.05, 0.0) == batch.for_launches(0.1, 0.05, 0.1) == ""
