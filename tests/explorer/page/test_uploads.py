"""Uploaded traces: bounded, seen by one session, and gone with it; and what Streamlit's own address for uploads refuses."""

from __future__ import annotations

import contextlib
import fcntl
import gzip
import json
import os
import random
import select
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
import zstandard
from streamlit.proto.BackMsg_pb2 import BackMsg
from streamlit.proto.ClientState_pb2 import ClientState
from streamlit.proto.ForwardMsg_pb2 import ForwardMsg
from websockets.sync.client import connect
from websockets.typing import Subprotocol

from exploring import open_page, words
from processes import free_port, wait_for
from tachoscope_analyzers.trace.reading import cache
from tachoscope_core.errors import TachoscopeError
from tachoscope_explorer.page import uploads
from tachoscope_explorer.page.settings import MIB, Settings
from tachoscope_explorer.page.uploads import Uploads
from tachoscope_explorer.server.run import configuration


@pytest.fixture(autouse=True)
def own_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TACHOSCOPE_CACHE", str(tmp_path / "cache"))
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))


def text(name: str = "aten::mm") -> bytes:
    event = {"ph": "X", "cat": "cpu_op", "name": name, "pid": 1, "tid": 1, "ts": 1.0, "dur": 2.0}
    return json.dumps({"traceEvents": [event]}).encode()


def add(kept: Uploads, *files: tuple[str, bytes], most_bytes: int = MIB) -> str:
    return kept.add(list(files), most_bytes=most_bytes, progress=lambda _: None)


@contextlib.contextmanager
def session(port: int) -> Iterator[tuple[str, str]]:
    """Open a session as a browser does; give its name, and the token against forged requests."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/_stcore/health") as answer:
        token = answer.headers["Set-Cookie"].split("=", 1)[1].split(";")[0]
    address = f"ws://127.0.0.1:{port}/_stcore/stream"
    with connect(
        address, subprotocols=[Subprotocol("streamlit")], max_size=None, open_timeout=120, ping_timeout=None
    ) as connection:
        connection.send(BackMsg(rerun_script=ClientState(query_string="")).SerializeToString())
        message = ForwardMsg()
        while not message.HasField("new_session"):
            message = ForwardMsg.FromString(connection.recv(timeout=120))
        yield message.new_session.initialize.session_id, token


def put(port: int, name: str, token: str, size: int, *, sized: bool) -> tuple[int, int]:
    """Send an upload of `size` bytes, with or without saying so before; return the answer's status and how much could be sent."""
    head = [
        f"PUT /_stcore/upload_file/{name}/file HTTP/1.1",
        f"Host: 127.0.0.1:{port}",
        f"Cookie: _streamlit_xsrf={token}",
        f"X-Xsrftoken: {token}",
        "Content-Type: multipart/form-data; boundary=edge",
        f"Content-Length: {size}" if sized else "Transfer-Encoding: chunked",
    ]
    begin = b'--edge\r\nContent-Disposition: form-data; name="file"; filename="a.json"\r\n\r\n'
    sent = 0
    with socket.create_connection(("127.0.0.1", port), timeout=120) as connection:
        connection.sendall("\r\n".join([*head, "", ""]).encode())
        piece = begin
        while sent < size and not select.select([connection], [], [], 0)[0]:
            try:
                connection.sendall(piece if sized else b"%x\r\n%b\r\n" % (len(piece), piece))
            except OSError:  # it was hung up on us
                break
            sent += len(piece)
            piece = bytes(MIB)
        return int(connection.recv(64).split()[1]), sent


def columns() -> list[Path]:
    return [entry for entry in cache.folder().iterdir() if len(entry.name) == 64] if cache.folder().is_dir() else []


def test_uploaded_traces_are_a_recording_in_a_folder_for_this_user_only(tmp_path: Path) -> None:
    kept = Uploads()
    add(kept, ("b.json.gz", gzip.compress(text("b"))), ("a.json.zst", zstandard.compress(text("a"))))
    add(kept, ("c.json", text("c")))

    assert [(name, [file.name for file in files]) for name, files in kept.recordings] == [
        ("upload-1", ["a.json.zst", "b.json.gz"]),
        ("upload-2", ["c.json"]),
    ]
    (folder,) = (tmp_path / "temporary").iterdir()
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    kept.close()


def test_files_and_columns_go_when_the_session_ends(tmp_path: Path) -> None:
    kept = Uploads()
    add(kept, ("a.json", text("only here")))
    assert len(columns()) == 1

    kept.close()

    assert columns() == []
    assert not list((tmp_path / "temporary").iterdir())
    assert kept.closed


def test_columns_that_were_there_before_stay(tmp_path: Path) -> None:
    first, second = Uploads(), Uploads()
    add(first, ("a.json", text()))
    add(second, ("same.json", text()))

    second.close()
    assert len(columns()) == 1
    first.close()
    assert columns() == []


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("a.json", b'{"a": 1}', r"a\.json is not a trace that tachoscope can read"),
        ("a.json", b"", r"a\.json is not a trace that tachoscope can read"),
        ("a.json.gz", gzip.compress(random.Random(1).randbytes(99), mtime=0), r"a\.json\.gz is not a trace"),
        ("a.json.gz", b"\x1f\x8b" + bytes(99), r"could not read a\.json\.gz"),
        ("a.sqlite", b"SQLite format 3\0", r"a\.sqlite does not have the name of a trace"),
        ("../../etc/passwd", text(), "passwd does not have the name of a trace"),
        ("a.json.gz", gzip.compress(bytes(21 * MIB)), r"a\.json\.gz inflates to more than 20 MiB"),
        ("a.json.zst", zstandard.compress(bytes(21 * MIB)), r"a\.json\.zst inflates to more than 20 MiB"),
        ("a.json", bytes(MIB + 1), r"1\.0 MiB are more than the 1 MiB"),
    ],
)
def test_what_is_no_trace_or_too_much_is_refused_and_nothing_of_it_stays(
    tmp_path: Path, name: str, content: bytes, said: str
) -> None:
    kept = Uploads()

    with pytest.raises(TachoscopeError, match=said) as error:
        add(kept, ("good.json", text()), (name, content))

    assert str(tmp_path) not in str(error.value)
    assert kept.recordings == []
    assert [path.name for path in (tmp_path / "temporary").rglob("*.json*")] == []
    kept.close()
    assert columns() == []


def test_a_name_that_is_a_path_stays_in_the_folder(tmp_path: Path) -> None:
    kept = Uploads()
    add(kept, ("../../../evil.json", text()))

    ((_, (file,)),) = kept.recordings
    assert file.is_relative_to(tmp_path / "temporary")
    kept.close()


def test_all_uploads_of_a_session_together_are_bounded() -> None:
    kept = Uploads()
    add(kept, ("a.json", text() + b" " * 700_000))
    with pytest.raises(TachoscopeError, match="more than the 1 MiB that a session may upload"):
        add(kept, ("b.json", text() + b" " * 700_000))

    kept.remove()
    assert add(kept, ("b.json", text() + b" " * 700_000)) == "upload-1"
    kept.close()


def test_what_a_killed_process_left_is_removed_and_what_a_living_one_has_is_not(tmp_path: Path) -> None:
    killed, alive = Uploads(), Uploads()
    add(killed, ("a.json", text("killed")))
    add(alive, ("b.json", text("alive")))
    fcntl.flock(killed._lock, fcntl.LOCK_UN)  # as the system does when a process dies

    uploads.sweep()

    assert [path.name for path in (tmp_path / "temporary").rglob("*.json")] == ["b.json"]
    assert len(columns()) == 1
    alive.close()


def test_a_session_that_nobody_looks_at_any_more_is_closed_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = Uploads()
    monkeypatch.setattr(uploads, "_open", {"gone": kept})

    assert uploads.close_gone(100.0) == 1
    assert uploads.close_gone(100.0 + uploads.GONE_SECONDS) == 1
    assert not kept.closed
    assert uploads.close_gone(101.0 + uploads.GONE_SECONDS) == 0
    assert kept.closed


def test_the_page_says_what_may_be_uploaded_and_what_becomes_of_it(tmp_path: Path) -> None:
    shown = open_page("upload", tmp_path, started=Settings(str(tmp_path), most_upload_bytes=7 * MIB))

    assert not shown.exception
    assert "At most **7 MiB** in all" in words(shown)
    assert "never get into the store" in words(shown)


def test_an_upload_is_judged_and_links_to_the_page_trace(tmp_path: Path) -> None:
    shown = open_page("upload", tmp_path)
    shown.file_uploader[0].set_value([("<b>a</b>.json", text(), "application/json")]).run()

    assert not shown.exception
    said = words(shown)
    assert "upload\\-1" in said
    assert "<b>" not in said
    (link,) = [one.proto for one in shown.get("page_link") if "Trace" in one.proto.label]
    assert "trace" in link.page
    assert list((tmp_path / "temporary").rglob("*.json"))
    shown.button[-1].click().run()
    assert not list((tmp_path / "temporary").rglob("*.json"))


def test_what_is_no_trace_is_told_on_the_page(tmp_path: Path) -> None:
    shown = open_page("upload", tmp_path)
    shown.file_uploader[0].set_value([("a.json", b"{}", "application/json")]).run()

    assert not shown.exception
    assert "is not a trace that tachoscope can read" in words(shown).replace("\\", "")


def test_without_uploads_there_is_no_page_and_the_server_takes_no_byte(tmp_path: Path) -> None:
    nothing = Settings(str(tmp_path), uploads=False)

    assert open_page("upload", tmp_path, started=nothing).title[0].value != "Open a trace"
    assert configuration(nothing, "127.0.0.1", 0)["server.maxUploadSize"] == 0


def test_too_large_a_request_is_refused_before_it_was_sent_and_a_terminated_server_leaves_nothing(tmp_path: Path) -> None:
    port = free_port()
    options = ["--store", str(tmp_path), "--port", str(port), "--max-upload", "2"]
    command = [sys.executable, "-m", "tachoscope_cli.main", "explore", *options]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "TMPDIR": str(tmp_path / "temporary")}
    server = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_for(lambda: urllib.request.urlopen(f"http://127.0.0.1:{port}/_stcore/health").status == 200, 120)
        with session(port) as (name, token):
            for sized in (True, False):
                status, sent = put(port, name, token, 2 << 30, sized=sized)
                assert status == 413
                assert sent < 64 * MIB
        held = int(next(line for line in Path(f"/proc/{server.pid}/status").read_text().splitlines() if "VmHWM" in line).split()[1])
        assert held < 600 << 10
    finally:
        server.send_signal(signal.SIGTERM)
        server.wait(120)
    assert [path.name for path in (tmp_path / "temporary").iterdir()] == []
