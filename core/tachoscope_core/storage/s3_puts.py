"""Writes objects to S3 with botocore's signature and connections, without its client, which takes most of a write's processor time.

The client writes the first objects. From one of its requests the rest is learned: address, region and checksum. Where that request
has anything that is not known here (other signatures, encryption, access rules), and after any failure, the client writes: its
retries and errors are those of the store.
"""

from __future__ import annotations

import base64
import contextlib
import os
import re
import time
import zlib
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

MOST_BYTES = 8 << 20
"""Of an object; the client writes larger ones, in parts."""
_LEARN_FROM = 4
"""Its first writes are the client's: a command that writes little does not load what this needs."""
_LEARN_AGAIN = 16
"""Writes after a failure."""
_CREDENTIALS_SECONDS = 60.0
"""Those that change are renewed minutes before they end."""
_SCOPE = re.compile(r"AWS4-HMAC-SHA256 Credential=[^/, ]+/\d{8}/(?P<region>[\w-]+)/s3/aws4_request,")
_CRC = "x-amz-checksum-crc32"
_SIGNED_ANEW = {"authorization", "x-amz-date", "x-amz-content-sha256", "x-amz-security-token", "content-length"}
_OF_CLIENT = {"expect", "amz-sdk-invocation-id", "amz-sdk-request"}
"""Say how the client sends, not what."""
_OF_TRAILER = {
    "x-amz-trailer": _CRC,
    "x-amz-decoded-content-length": "",
    "content-encoding": "aws-chunked",
    "transfer-encoding": "",
}
"""With these it sends the same checksum behind the object; empty: any value."""
_SENT_TOO = {"user-agent": "", _CRC: "", "x-amz-sdk-checksum-algorithm": "CRC32"}


@dataclass(frozen=True, slots=True)
class _Form:
    """What the client's requests have in common. address: what stands before the key, quoted."""

    address: str
    region: str
    headers: dict[str, str]
    has_checksum: bool


class SignedPuts:
    """Writes to an S3 file system of fsspec."""

    def __init__(self, files: Any) -> None:
        self._files = files
        self._pid = os.getpid()
        self._writes, self._learn_at = 0, _LEARN_FROM
        self._form: _Form | None = None
        self._connections: Any = None
        self._credentials: Any = None
        self._credentials_at = 0.0

    def put(self, path: str, data: bytes) -> bool:
        """Write an object and return True; False: it was not written, and the client is to write it."""
        if len(data) > MOST_BYTES or os.getpid() != self._pid:
            return False
        self._writes += 1
        form, done = self._form, False
        with contextlib.suppress(Exception):  # each layer has its own, and the client will tell
            if form is not None:
                done = self._send(form, path, data)
            elif self._writes >= self._learn_at:
                self._learn_from(path)
        if not done and (form is not None or self._writes >= self._learn_at):
            self._form, self._credentials, self._learn_at = None, None, self._writes + _LEARN_AGAIN
        return done

    def _learn_from(self, path: str) -> None:
        """Learn from the client's request for this object, which is the next."""
        _, key, _ = self._files.split_path(path)
        client, end = self._files.s3, _quoted(key)
        event, name = "before-send.s3.PutObject", f"tachoscope-{id(self)}"

        def learn(request: Any, **_: Any) -> None:
            with contextlib.suppress(Exception):
                if request.url.endswith(f"/{end}"):
                    client.meta.events.unregister(event, unique_id=name)
                    self._form = _form_of(request, end)

        client.meta.events.register(event, learn, unique_id=name)

    def _send(self, form: _Form, path: str, data: bytes) -> bool:
        from botocore.auth import S3SigV4Auth
        from botocore.awsrequest import AWSRequest

        _, key, _ = self._files.split_path(path)
        checksum = {_CRC: base64.b64encode(zlib.crc32(data).to_bytes(4, "big")).decode()} if form.has_checksum else {}
        request = AWSRequest("PUT", f"{form.address}{_quoted(key)}", headers=form.headers | checksum, data=data)
        S3SigV4Auth(self._frozen_credentials(), "s3", form.region).add_auth(request)
        if self._connections is None:
            self._connections = self._new_connections(form.address)
        return bool(self._connections.send(request.prepare()).status_code == 200)

    def _frozen_credentials(self) -> Any:
        """Return the client's credentials, which it renews."""
        from fsspec.asyn import sync

        now = time.monotonic()
        if self._credentials is None or now - self._credentials_at > _CREDENTIALS_SECONDS:
            found = self._files.s3._get_credentials()
            self._credentials, self._credentials_at = sync(self._files.loop, found.get_frozen_credentials), now
        return self._credentials

    def _new_connections(self, address: str) -> Any:
        from botocore.httpsession import URLLib3Session
        from botocore.utils import get_environ_proxies

        config, session = self._files.s3.meta.config, self._files.session
        return URLLib3Session(
            verify=session.get_config_variable("ca_bundle") or os.environ.get("REQUESTS_CA_BUNDLE", True),
            proxies=config.proxies if config.proxies is not None else get_environ_proxies(address),
            proxies_config=config.proxies_config,
            timeout=(config.connect_timeout, config.read_timeout),
            client_cert=config.client_cert,
        )


def _form_of(request: Any, end: str) -> _Form | None:
    """Return what a request of the client shows; None: something in it is not known here."""
    headers = {name.lower(): value.decode() if isinstance(value, bytes) else str(value) for name, value in request.headers.items()}
    scope = _SCOPE.match(headers.get("authorization", ""))
    known = _OF_TRAILER | _SENT_TOO
    is_known = all(
        name in _SIGNED_ANEW | _OF_CLIENT or (name in known and known[name] in {"", value}) for name, value in headers.items()
    )
    if scope is None or not is_known or "?" in request.url:
        return None
    sent = {name: value for name, value in headers.items() if name in _SENT_TOO and name != _CRC}
    return _Form(request.url.removesuffix(end), scope["region"], sent, _CRC in {*headers, headers.get("x-amz-trailer")})


def _quoted(key: str) -> str:
    return quote(key, safe="/~")
