"""Messages that say the same, apart from numbers, addresses and directories, have one template."""

import pytest

from tachoscope_analyzers.failures.error_template import template_of
from tachoscope_analyzers.failures.secondary_errors import is_secondary


def test_numbers_addresses_and_directories_do_not_tell_messages_apart() -> None:
    one = template_of("rank 3: cannot read /data/a/shard-0007.tar at 0x7f3a, 12.5 s, id 123e4567-e89b-12d3-a456-426614174000")
    other = template_of(
        "rank 12: cannot read /scratch/job/shard-0815.tar at 0x55aa90, 7 s, id 00000000-e89b-12d3-a456-426614174999"
    )

    assert one == other == "rank #: cannot read shard-#.tar at #, # s, id #"


def test_different_words_are_different_templates() -> None:
    assert template_of("no label") != template_of("no image")


@pytest.mark.parametrize(
    ("exception", "message"),
    [
        ("RuntimeError", "Connection closed by peer [127.0.0.1]:36127"),
        ("RuntimeError", "Timed out waiting 6000ms for recv operation to complete"),
        (
            "DistBackendError",
            "[Rank 1] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=7) ran for 600000 milliseconds",
        ),
        ("DistStoreError", "Timed out after 61 seconds waiting for clients. 1/2 clients joined."),
        ("DistNetworkError", "failed to recv, got 0 bytes"),
        ("RendezvousClosedError", "the rendezvous is closed"),
        ("KeyboardInterrupt", ""),
    ],
)
def test_errors_about_another_rank_are_known_by_what_the_libraries_say(exception: str, message: str) -> None:
    assert is_secondary(exception, message)


@pytest.mark.parametrize(
    ("exception", "message"),
    [
        ("ConnectionResetError", "[Errno 104] Connection reset by peer"),
        ("DistNetworkError", "The server socket has failed to listen on any local network address. EADDRINUSE"),
        ("RuntimeError", "mat1 and mat2 shapes cannot be multiplied (4x17 and 16x16)"),
        ("TimeoutError", "the data server did not answer"),
        ("ValueError", "Connection closed by peer"),
    ],
)
def test_errors_of_the_rank_itself_are_none_of_them(exception: str, message: str) -> None:
    assert not is_secondary(exception, message)
