"""Writes to S3 that are signed here: as the client's in all that a server sees, and the client's wherever something is unusual."""

from __future__ import annotations

import hashlib
import hmac
import os
import threading
import zlib
from base64 import b64decode
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace
from typing import Any

import pytest

from tachoscope_core.storage import s3_puts
from tachoscope_core.storage.s3_puts import SignedPuts

s3fs = pytest.importorskip("s3fs")
WRITES = 8


class Server(ThreadingHTTPServer):
    """Takes objects, and refuses those that are not signed with `secret` or have another checksum than they say."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.begin()
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def begin(self) -> None:
        self.secret = "secret"
        self.objects: dict[str, bytes] = {}
        self.of_client: list[bool] = []
        self.tokens: list[str | None] = []
        self.fails = 0


class Handler(BaseHTTPRequestHandler):
    server: Server
    protocol_version = "HTTP/1.1"

    def do_PUT(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.of_client.append("amz-sdk-invocation-id" in self.headers)
        self.server.tokens.append(self.headers["x-amz-security-token"])
        code = 403 if self.signature() not in self.headers["Authorization"] else 400 if not self.is_whole(body) else 200
        if self.server.fails:
            self.server.fails, code = self.server.fails - 1, 503
        if code == 200:
            self.server.objects[self.path] = body
        self.send_response(code)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def is_whole(self, body: bytes) -> bool:
        said = int.from_bytes(b64decode(self.headers["x-amz-checksum-crc32"]), "big")
        return said == zlib.crc32(body) and self.headers["x-amz-content-sha256"] == hashlib.sha256(body).hexdigest()

    def signature(self) -> str:
        """https://docs.aws.amazon.com/AmazonS3/latest/API/sig-v4-header-based-auth.html"""
        scope, signed, _ = (part.partition("=")[2] for part in self.headers["Authorization"].split(", "))
        names = signed.split(";")
        lines = [f"{name}:{self.headers[name].strip()}" for name in names]
        whole = "\n".join(["PUT", self.path, "", *lines, "", signed, self.headers["x-amz-content-sha256"]])
        parts, key = scope.split("/")[1:], f"AWS4{self.server.secret}".encode()
        for part in parts:
            key = hmac.digest(key, part.encode(), "sha256")
        date, digest = self.headers["x-amz-date"], hashlib.sha256(whole.encode()).hexdigest()
        return hmac.new(key, "\n".join(["AWS4-HMAC-SHA256", date, "/".join(parts), digest]).encode(), "sha256").hexdigest()

    def log_message(self, *_: Any) -> None: ...


@pytest.fixture(scope="module")
def made() -> Iterator[tuple[Server, Any]]:
    """A server and its file system, whose client takes a second to make."""
    server = Server()
    yield server, files_of(server)
    server.shutdown()
    server.server_close()


@pytest.fixture
def server(made: tuple[Server, Any]) -> Server:
    made[0].begin()
    return made[0]


@pytest.fixture
def files(made: tuple[Server, Any]) -> Iterator[Any]:
    yield made[1]
    made[1].s3._get_credentials().secret_key = "secret"


def files_of(server: Server, **settings: Any) -> Any:
    return s3fs.S3FileSystem(
        endpoint_url=f"http://127.0.0.1:{server.server_port}",
        key="id",
        secret=server.secret,
        token="token",
        client_kwargs={"region_name": "eu-central-1"},
        config_kwargs={"retries": {"max_attempts": 0}},
        skip_instance_cache=True,
        **settings,
    )


def write(files: Any, puts: SignedPuts, count: int = WRITES, begin: int = 0) -> dict[str, bytes]:
    written = {}
    for number in range(begin, begin + count):
        path, data = f"bucket/jobs/date=2026-11-29/é +{number}.gz", b"lines" * number
        if not puts.put(path, data):
            files.pipe_file(path, data)
        written[f"/bucket/jobs/date%3D2026-11-29/%C3%A9%20%2B{number}.gz"] = data
    return written


def test_after_the_clients_first_writes_the_same_is_written_without_it(server: Server, files: Any) -> None:
    assert write(files, SignedPuts(files)) == server.objects
    assert server.of_client == [True] * 4 + [False] * (WRITES - 4)
    assert set(server.tokens) == {"token"}


@pytest.mark.parametrize("why", ["it fails", "its credentials are no longer valid"])
def test_a_write_that_fails_is_the_clients_and_so_are_those_after_it_for_a_while(server: Server, files: Any, why: str) -> None:
    puts = SignedPuts(files)
    written = write(files, puts)
    if why == "it fails":
        server.fails = 1
    else:  # the client renewed them
        server.secret = files.s3._get_credentials().secret_key = "new"
    written |= write(files, puts, 20, begin=WRITES)

    assert written == server.objects
    assert server.of_client[WRITES:] == [False, *[True] * 17, False, False, False]


def test_credentials_that_the_client_renewed_are_used_in_time(server: Server, files: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(s3_puts, "_CREDENTIALS_SECONDS", 0.0)
    puts = SignedPuts(files)
    write(files, puts)
    server.secret = files.s3._get_credentials().secret_key = "new"

    assert write(files, puts, begin=WRITES).items() <= server.objects.items()
    assert not any(server.of_client[WRITES:])


def test_what_is_unusual_is_left_to_the_client(server: Server, files: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    encrypting = files_of(server, s3_additional_kwargs={"ServerSideEncryption": "AES256"})
    assert write(encrypting, SignedPuts(encrypting)) == server.objects
    assert all(server.of_client)

    puts = SignedPuts(files)
    write(files, puts)
    assert not puts.put("bucket/large", bytes(s3_puts.MOST_BYTES + 1)), "it is written in parts"
    monkeypatch.setattr(os, "getpid", lambda: 1)
    assert not puts.put("bucket/key", b""), "a fork has the connections of another process"


HEADERS = {
    "Authorization": "AWS4-HMAC-SHA256 Credential=id/20261129/us-west-2/s3/aws4_request, SignedHeaders=host, Signature=0",
    "X-Amz-Trailer": "x-amz-checksum-crc32",
    "Content-Encoding": "aws-chunked",
    "User-Agent": "tachoscope",
}
UNKNOWN: list[dict[str, str]] = [
    {"x-amz-acl": "public-read"},
    {"Content-Encoding": "gzip"},
    {"X-Amz-Trailer": "x-amz-checksum-sha256"},
    {"If-None-Match": "*"},
    {"Authorization": HEADERS["Authorization"].replace("/s3/", "/s3-object-lambda/")},
    {"Authorization": HEADERS["Authorization"].replace("HMAC", "ECDSA-P256")},
]


def test_the_form_of_a_request_is_learned_only_if_all_in_it_is_known() -> None:
    def learned(url: str = "https://bucket.s3.us-west-2.amazonaws.com/a/key", **headers: str) -> Any:
        return s3_puts._form_of(SimpleNamespace(url=url, headers=HEADERS | headers), "a/key")

    found = learned()
    assert (found.address, found.region) == ("https://bucket.s3.us-west-2.amazonaws.com/", "us-west-2")
    assert found.has_checksum and found.headers == {"user-agent": "tachoscope"}
    assert [headers for headers in UNKNOWN if learned(**headers)] == []
    assert learned(url="https://host/a/key?x-id=1") is None
