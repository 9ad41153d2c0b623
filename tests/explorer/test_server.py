"""The explorer as it is started: what it says, what it refuses, and how it ends."""

from __future__ import annotations

import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from served import Served, begin, served
from tachoscope_cli.main import main
from trying import each

CANARY = "canary-of-a-file-outside"
OPEN = """
[server]
enableCORS = false
enableXsrfProtection = false
enableStaticServing = true
enableAgentApi = true
scriptHealthCheckEnabled = true
baseUrlPath = "elsewhere"
[client]
showErrorDetails = "full"
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a configuration of Streamlit that opens whatever can be opened."""
    folder = tmp_path_factory.mktemp("place")
    for name in (".streamlit", "static"):
        (folder / name).mkdir()
    (folder / ".streamlit/config.toml").write_text(OPEN)
    (folder / "static/secret.txt").write_text(CANARY)
    return folder


@pytest.fixture(scope="module")
def open_(place: Path) -> Iterator[Served]:
    """Serve all who reach it."""
    with served("--store", str(place / "store"), folder=place) as running:
        yield running


@pytest.fixture(scope="module")
def closed(place: Path) -> Iterator[Served]:
    """Serve those whom a proxy names."""
    with served("--store", str(place / "store"), "--proxy-header", "X-User", folder=place) as running:
        yield running


def test_it_says_where_the_pages_are_and_an_interrupt_ends_it_cleanly_while_somebody_looks(place: Path) -> None:
    with served("--store", "http://user:secretword@127.0.0.1/store", folder=place) as running:
        assert running.ask("/_stcore/health")[0] == 200
        with socket.create_connection(("127.0.0.1", running.port)) as looking:
            looking.sendall(
                b"GET /_stcore/stream HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
                b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n" % running.port
            )
            assert b" 101 " in looking.recv(4096)
            running.process.send_signal(signal.SIGINT)
            out, err = running.process.communicate(timeout=60)

    assert (running.process.returncode, out) == (0, "")
    assert running.url == f"http://127.0.0.1:{running.port}/"
    assert err.splitlines()[0].endswith("; Ctrl-C ends it")
    assert err.splitlines()[1:] == ["tachoscope: ended"]
    assert "secretword" not in err


def test_a_port_that_is_taken_is_told_with_the_way_out(open_: Served, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["explore", "--store", "/tmp", "--port", str(open_.port)])

    said = capsys.readouterr()
    assert (ended.value.code, said.out) == (2, "")
    assert said.err == (
        f"tachoscope: could not serve on 127.0.0.1 port {open_.port}: Address already in use (--port 0 takes a free one)\n"
    )


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--password-file", "p"], "the explorer has no login"),
        (["--proxy-header", "X User"], "'X User' is not a header name"),
        (["--proxy-header", ""], "is not a header name"),
        (["--trusted-proxy", "proxy.example.com"], "'proxy.example.com' is neither an address nor a network"),
        (["--host", "192.0.2.7", "--port", "0"], "could not serve on 192.0.2.7 port 0: Cannot assign requested address"),
        (["--host", "no such name", "--port", "0"], "could not serve on no such name port 0"),
    ],
)
def test_what_cannot_be_is_told_in_one_line(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["explore", "--store", "/tmp", *words])

    err = capsys.readouterr().err
    assert ended.value.code == 2
    assert said in err
    assert err.count("\n") == 1


def test_other_machines_without_a_proxy_are_warned_of(place: Path) -> None:
    process = begin(["--store", str(place / "store"), "--port", "0", "--host", "0.0.0.0"], place)
    assert process.stdout is not None
    url = process.stdout.readline()
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)

    assert url.startswith("http://localhost:")
    assert "address '0.0.0.0' is not loopback" in err
    assert "anyone who can reach port" in err


@pytest.mark.parametrize(
    "path",
    [
        *(
            "/",
            "/job?job=a",
            "/index.html",
            "/favicon.png",
            "/static/js/x.js",
            "/media/x",
            "/component/x/y",
            "/_stcore/host-config",
        ),
        *("/_stcore/metrics", "/_stcore/upload_file/a/b", "/_stcore/agent/openapi.json", "/_stcore/script-health-check"),
        *("/_stcore/host-config", "/auth/login", "/oauth2callback", "/_stcore/bidi-components/x/y"),
        *("/_stcore%2fhealth/", "//_stcore/health", "/_stcore/health%00"),
    ],
)
def test_with_a_proxy_nothing_is_served_to_those_whom_it_does_not_name(closed: Served, path: str) -> None:
    status, _, body = closed.ask(path, Accept="*/*")

    assert (status, body) == (403, b"the proxy does not say who asks: one header X-User is needed\n")


def test_the_socket_opens_for_those_whom_the_proxy_names_and_for_our_own_page_alone(closed: Served) -> None:
    own, other = f"http://127.0.0.1:{closed.port}", "http://evil.example.com"

    assert closed.handshake(Origin=own) == 403
    assert closed.handshake(Origin=own, X_User=" ") == 403
    assert closed.handshake(Origin=other, X_User="ada") == 403
    assert closed.handshake(Origin=own, X_User="ada", Host="evil.example.com") == 403
    assert closed.handshake(Origin=own, X_User="ada") == 101
    assert closed.ask("/job", X_User="ada")[0] == 200


def test_a_probe_needs_no_name(closed: Served) -> None:
    assert closed.ask("/_stcore/health", Host="10.0.0.3")[0] == 200


def test_a_configuration_that_lies_around_opens_nothing(open_: Served) -> None:
    assert open_.handshake(Origin="http://evil.example.com") == 403
    assert open_.ask("/_stcore/host-config", Origin="http://evil.example.com")[0] == 403
    assert "access-control-allow-origin" not in open_.ask("/_stcore/health")[1]
    for path in ("/app/static/secret.txt", "/elsewhere/_stcore/health", "/_stcore/script-health-check"):
        assert CANARY.encode() not in open_.ask(path)[2]
    status, _, body = open_.ask("/_stcore/agent/interact", "POST", b"{}")
    assert status != 200 and b"does not serve the agent API" in body
    assert open_.ask("/_stcore/upload_file/a/b", "PUT", b"x", Content_Type="multipart/form-data; boundary=x")[0] in (400, 403)


ROOTS = ("/", "/static/", "/media/", "/component/", "/component/x/", "/app/static/", "/_stcore/bidi-components/x/")


@each("root", ROOTS)
@each(
    "way",
    [
        *("../../../../../../../../etc/passwd", "..%2f..%2f..%2f..%2f..%2f..%2f..%2fetc%2fpasswd"),
        *("%2e%2e/%2e%2e/%2e%2e/%2e%2e/%2e%2e/%2e%2e/etc/passwd", "..%252f..%252f..%252f..%252fetc%252fpasswd"),
        *("....//....//....//etc/passwd", "..%5c..%5c..%5cetc%5cpasswd", "%2fetc%2fpasswd", "//etc/passwd", "file:///etc/passwd"),
        *("%00/etc/passwd", "..%c0%af..%c0%af..%c0%afetc/passwd", "%e2%80%a4%e2%80%a4/etc/passwd", "x" * 9000),
    ],
)
def test_no_path_leads_to_a_file_of_the_machine(open_: Served, root: str, way: str) -> None:
    status, _, body = open_.ask(f"{root}{way}")

    assert b"root:" not in body
    # A path that is not a file is a page of Streamlit's: its program in the browser says that there is none.
    assert status in (400, 403, 404) or b'<div id="root">' in body, (status, body[:200])


def test_the_page_has_a_policy_and_answers_in_all_its_files(open_: Served) -> None:
    _, headers, page = open_.ask("/job")
    script = page.split(b'type="module" crossorigin src=".')[1].split(b'"')[0].decode()
    status, of_script, text = open_.ask(script)

    assert headers["content-security-policy"] == of_script["content-security-policy"]
    assert (status, len(text) > 1000) == (200, True)
    assert b"eval(" not in page
