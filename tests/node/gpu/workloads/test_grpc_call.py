"""One call by HTTP/2, against a real gRPC server and against servers that are none: an answer or a CallError, and never a wait."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from concurrent import futures
from pathlib import Path

import grpc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tachoscope_node.gpu.workloads.grpc_unary import CallError, call

METHOD = "/test.Echo/Twice"


@contextlib.contextmanager
def grpc_server(path: Path, answer: object, **options: object) -> Iterator[None]:
    """A server by grpcio whose one method gives the request to `answer` (bytes in, bytes out)."""
    server = grpc.server(futures.ThreadPoolExecutor(2), **options)
    handler = grpc.unary_unary_rpc_method_handler(answer)
    server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler("test.Echo", {"Twice": handler})])
    server.add_insecure_port(f"unix:{path}")
    server.start()
    try:
        yield
    finally:
        server.stop(None).wait()


@contextlib.contextmanager
def raw_server(path: Path, *parts: bytes, pause_seconds: float = 0.0, stay: bool = False) -> Iterator[None]:
    """Whoever connects is sent these bytes, whatever he says."""
    done = threading.Event()
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(path))
    listener.listen()

    def serve() -> None:
        with contextlib.suppress(OSError):
            while not done.is_set():
                connection, _ = listener.accept()
                with connection, contextlib.suppress(OSError):
                    for part in parts:
                        connection.sendall(part)
                        done.wait(pause_seconds)
                    if stay:
                        done.wait()
                    else:
                        connection.shutdown(socket.SHUT_WR)
                        connection.settimeout(1.0)
                        while connection.recv(65536):
                            pass

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield
    finally:
        done.set()
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as last:
            last.connect(str(path))
        thread.join()
        listener.close()
        path.unlink()


def ask(path: Path, request: bytes = b"", *, deadline_seconds: float = 60.0, max_bytes: int = 16 << 20) -> bytes:
    return call(str(path), METHOD, request, deadline_seconds=deadline_seconds, max_bytes=max_bytes)


@pytest.mark.parametrize("request_", [b"", b"abc", bytes(range(256))])
def test_a_request_and_its_answer_arrive_as_they_were_sent(tmp_path: Path, request_: bytes) -> None:
    with grpc_server(tmp_path / "s", lambda request, _: request * 2):
        assert ask(tmp_path / "s", request_) == request_ * 2
        assert ask(tmp_path / "s", request_) == request_ * 2


def test_an_answer_of_megabytes_arrives_whole_and_one_beyond_the_limit_is_refused(tmp_path: Path) -> None:
    content = bytes(range(256)) * 4096 * 5
    with grpc_server(tmp_path / "s", lambda *_: content):
        assert ask(tmp_path / "s") == content
        assert ask(tmp_path / "s", max_bytes=len(content)) == content
        with pytest.raises(CallError, match=f"an answer of more than {len(content) - 1} bytes"):
            ask(tmp_path / "s", max_bytes=len(content) - 1)


def test_a_refusal_is_told_with_status_and_words(tmp_path: Path) -> None:
    def refuse(_: bytes, context: grpc.ServicerContext) -> bytes:
        context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "rejected by rate limit: 100 %")

    with grpc_server(tmp_path / "s", refuse):
        with pytest.raises(CallError, match="s: gRPC status 8: rejected by rate limit: 100 %"):
            ask(tmp_path / "s")
        with pytest.raises(CallError, match="gRPC status 12"):
            call(str(tmp_path / "s"), "/test.Echo/Thrice", b"", deadline_seconds=60.0, max_bytes=100)


def test_a_server_that_hangs_is_left_at_the_deadline(tmp_path: Path) -> None:
    release = threading.Event()

    def hang(*_: object) -> bytes:
        release.wait()
        return b""

    with grpc_server(tmp_path / "s", hang):
        with pytest.raises(CallError, match="no answer within 0.3 s"):
            ask(tmp_path / "s", deadline_seconds=0.3)
        release.set()


def test_a_server_that_notices_the_deadline_itself_is_no_other_case(tmp_path: Path) -> None:
    def stop_after_fault(_: bytes, context: grpc.ServicerContext) -> bytes:
        context.abort(grpc.StatusCode.DEADLINE_EXCEEDED, "too late")

    with grpc_server(tmp_path / "s", stop_after_fault), pytest.raises(CallError, match="no answer within 60 s"):
        ask(tmp_path / "s")


def test_a_server_that_never_takes_the_connection_is_left_at_the_deadline(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener, socket.socket(socket.AF_UNIX) as waiting:
        listener.bind(str(tmp_path / "s"))
        listener.listen(0)
        waiting.connect(str(tmp_path / "s"))
        with pytest.raises(CallError, match=r"no answer within 0\.2 s|temporarily unavailable"):
            ask(tmp_path / "s", deadline_seconds=0.2)


def test_a_server_that_sends_byte_after_byte_is_left_at_the_deadline(tmp_path: Path) -> None:
    settings_frames = bytes.fromhex("000000040000000000") * 100
    with (
        raw_server(tmp_path / "s", *(bytes([byte]) for byte in settings_frames), pause_seconds=0.02, stay=True),
        pytest.raises(CallError, match="no answer within 0.3 s"),
    ):
        ask(tmp_path / "s", deadline_seconds=0.3)


def test_where_no_server_is_the_error_names_the_socket(tmp_path: Path) -> None:
    with pytest.raises(CallError, match=f"{tmp_path}/s: No such file or directory"):
        ask(tmp_path / "s")
    (tmp_path / "s").write_text("")
    with pytest.raises(CallError, match="Connection refused"):
        ask(tmp_path / "s")
    with pytest.raises(CallError, match="too long"):
        ask(tmp_path / ("s" * 200))


@pytest.mark.parametrize(
    ("said", "error"),
    [
        (b"", "closed before the answer"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "closed before the answer"),
        (b"\0" * 100_000, "answers not gRPC"),
        # SETTINGS, then HEADERS of one response: index 8 is ":status: 200", 13 is ":status: 404".
        (bytes.fromhex("00000004000000000000000101050000000188"), "gRPC status absent"),
        (bytes.fromhex("0000000400000000000000010105000000018d"), "HTTP status 404"),
        # RST_STREAM with code 8, and GOAWAY with code 11.
        (bytes.fromhex("00000004000000000000000403000000000100000008"), "aborted the call"),
        (bytes.fromhex("000000040000000000000008070000000000000000000000000b"), "aborted the call"),
        # PUSH_PROMISE, which was forbidden.
        (bytes.fromhex("0000000400000000000000050504000000010000000282"), "answers not gRPC"),
    ],
)
def test_what_is_no_answer_of_grpc_is_an_error(tmp_path: Path, said: bytes, error: str) -> None:
    with raw_server(tmp_path / "s", said), pytest.raises(CallError, match=error):
        ask(tmp_path / "s")


def test_a_server_that_sends_without_end_and_no_answer_is_left(tmp_path: Path) -> None:
    pings = bytes.fromhex("0000080600000000000000000000000000") * 4000
    with (
        raw_server(tmp_path / "s", *[pings] * 100),
        pytest.raises(CallError, match="bytes received without an answer|no answer within"),
    ):
        ask(tmp_path / "s", max_bytes=1000, deadline_seconds=5.0)


def test_an_answer_that_is_not_one_message_is_an_error(tmp_path: Path) -> None:
    # HEADERS ":status: 200", DATA, then trailers "grpc-status: 0" as a literal that ends the stream.
    head = bytes.fromhex("00000004000000000000000101040000000188")
    trailer = b"\x00\x0bgrpc-status\x010"
    tail = len(trailer).to_bytes(3, "big") + bytes.fromhex("010500000001") + trailer
    for body, error in [(b"\0\0\0\0\2a", "not one message"), (b"\1\0\0\0\1a", "compressed"), (b"\0\0", "not one message")]:
        data = len(body).to_bytes(3, "big") + bytes.fromhex("000000000001") + body
        with raw_server(tmp_path / "s", head + data + tail), pytest.raises(CallError, match=error):
            ask(tmp_path / "s")
    good = b"\0\0\0\0\1a"
    data = len(good).to_bytes(3, "big") + bytes.fromhex("000000000001") + good
    with raw_server(tmp_path / "s", head + data + tail):
        assert ask(tmp_path / "s") == b"a"


@given(
    frames=st.lists(
        st.tuples(st.integers(0, 12), st.integers(0, 255), st.sampled_from([0, 1, 2, 3, 2**31 - 1]), st.binary(max_size=60)),
        max_size=6,
    )
)
def test_no_frames_whatever_raise_anything_else(tmp_path_factory: pytest.TempPathFactory, frames: list[tuple[int, ...]]) -> None:
    said = bytes.fromhex("000000040000000000")
    for kind, flags, stream, content in frames:
        said += len(content).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + content
    path = tmp_path_factory.mktemp("s") / "s"
    with raw_server(path, said), contextlib.suppress(CallError):
        ask(path, deadline_seconds=0.5)


def test_a_server_started_again_answers_again(tmp_path: Path) -> None:
    for number in (b"1", b"2"):
        with grpc_server(tmp_path / "s", lambda *_: number):  # noqa: B023  # called within the loop
            assert ask(tmp_path / "s") == number
        with pytest.raises(CallError):
            ask(tmp_path / "s", deadline_seconds=1.0)
