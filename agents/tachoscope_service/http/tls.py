"""TLS for the agent's pages: what of a web-config Python's ssl can do, and a session that works on bytes.

The session is OpenSSL between two memory buffers, not asyncio's: that one takes 256 KiB for each connection, which with 256 hostile
ones is more than the whole agent may use, and it knows no more of a client that stalls in the handshake than we do here.
"""

from __future__ import annotations

import contextlib
import ipaddress
import platform
import ssl
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tachoscope_core.errors import TachoscopeError

_NO_CALLBACK = "Python's ssl cannot take a client certificate without verifying it"
CLIENT_AUTH_TYPES: Mapping[str, str] = {
    "NoClientCert": "",
    "VerifyClientCertIfGiven": "",
    "RequireAndVerifyClientCert": "",
    "RequestClientCert": _NO_CALLBACK,
    "RequireAnyClientCert": _NO_CALLBACK,
    "RequireClientCert": _NO_CALLBACK,
}
"""Each policy, and why it is refused, or nothing."""
_OLD = "OpenSSL 3 no longer offers it with its default security level, and RFC 8996 retired it"
VERSIONS: Mapping[str, str] = {"TLS10": _OLD, "TLS11": _OLD, "TLS12": "", "TLS13": ""}
"""Each version of TLS, and why it is refused, or nothing."""
_VERSION_NUMBERS = {"TLS12": ssl.TLSVersion.TLSv1_2, "TLS13": ssl.TLSVersion.TLSv1_3}
CURVES: Mapping[str, str] = {"CurveP256": "prime256v1", "CurveP384": "secp384r1", "CurveP521": "secp521r1", "X25519": "X25519"}
"""Go's name and OpenSSL's name of each curve."""
CIPHERS: Mapping[str, str] = {
    f"TLS_ECDHE_{key}_WITH_{go}": f"ECDHE-{key}-{openssl}"
    for key in ("ECDSA", "RSA")
    for go, openssl in (
        ("AES_128_GCM_SHA256", "AES128-GCM-SHA256"),
        ("AES_256_GCM_SHA384", "AES256-GCM-SHA384"),
        ("CHACHA20_POLY1305_SHA256", "CHACHA20-POLY1305"),
        ("AES_128_CBC_SHA", "AES128-SHA"),
        ("AES_256_CBC_SHA", "AES256-SHA"),
    )
}
"""Go's name and OpenSSL's name of each suite of TLS 1.2 that Go holds for safe (tls.CipherSuites)."""
TLS13_CIPHERS = frozenset({"TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256"})

_RECORD = 16 * 1024
"""The most that one record of TLS holds."""


def server_context(cert_file: Path, key_file: Path) -> ssl.SSLContext:
    """Return a context that shows this certificate.

    Raises:
        TachoscopeError: when one of the two cannot be used, or the key belongs to another certificate.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.set_alpn_protocols(["http/1.1"])
    # A client that renegotiates again and again costs us more than itself; sessions kept for resumption are memory that clients
    # decide on, and a resumed one was verified by the CA of yesterday. Scrapers keep their connection anyway.
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_TICKET
    context.num_tickets = 0
    try:
        context.load_cert_chain(cert_file, key_file, password=_refuse_passphrase)
    except _EncryptedKeyError:
        fix = "decrypt it with `openssl pkey`; the agent starts without a terminal to ask for a passphrase"
        raise TachoscopeError(f"key_file {key_file} is encrypted", fix=fix) from None
    except OSError as error:  # SSLError is one
        raise TachoscopeError(_why_not(error, cert_file, key_file)) from None
    return context


def ask_for_client_certificates(context: ssl.SSLContext, policy: str, ca_file: Path | None, ca: str) -> None:
    """Set the policy for client certificates and the CA that they must come from.

    Raises:
        TachoscopeError: when the CA cannot be used.
    """
    if policy == "NoClientCert":
        return
    try:
        context.load_verify_locations(cafile=ca_file, cadata=ca or None)
    except (OSError, ValueError):
        name = f"client_ca_file {ca_file}" if ca_file else "client_ca"
        fix = "it must hold PEM certificates, from -----BEGIN CERTIFICATE----- on"
        raise TachoscopeError(f"{name} holds no CA certificate that OpenSSL can read; {fix}") from None
    # As in Go, each certificate in the file is trusted in itself, an intermediate too.
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    context.verify_mode = ssl.CERT_REQUIRED if policy == "RequireAndVerifyClientCert" else ssl.CERT_OPTIONAL


def narrow(
    context: ssl.SSLContext, versions: tuple[str, str], ciphers: Sequence[str], curves: Sequence[str], *, server_chooses: bool
) -> None:
    """Limit what the two sides may agree on: versions from and to, suites of TLS 1.2, and the curve.

    Raises:
        TachoscopeError: Python's OpenSSL has no such curve, as that of Python 3.11.2 has no X25519.
    """
    context.minimum_version, context.maximum_version = (_VERSION_NUMBERS[version] for version in versions)
    if ciphers:
        context.set_ciphers(":".join(CIPHERS[name] for name in ciphers))
    for name in curves:
        try:
            context.set_ecdh_curve(CURVES[name])
        except (ssl.SSLError, ValueError):
            fix = "leave curve_preferences out, or use CurveP256 or a newer Python"
            raise TachoscopeError(
                f"curve_preferences: this Python ({platform.python_version()}) cannot set {name}", fix=fix
            ) from None
    if server_chooses:
        context.options |= ssl.OP_CIPHER_SERVER_PREFERENCE
    else:
        context.options &= ~ssl.OP_CIPHER_SERVER_PREFERENCE


class TlsSession:
    """The server's side of one TLS connection, from bytes to bytes."""

    def __init__(self, context: ssl.SSLContext) -> None:
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._object = context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self.established = False
        self.ended = False
        """Whether the client said that it sends no more."""

    def feed(self, data: bytes) -> bytes:
        """Take what came from the client and return what it says.

        Raises:
            ssl.SSLError: when that is not TLS or its certificate is refused; `outgoing` then holds the alert.
        """
        self._incoming.write(data)
        said = bytearray()
        try:
            if not self.established:
                self._object.do_handshake()
                self.established = True
            while part := self._object.read(_RECORD):
                said += part
            self.ended = True
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLZeroReturnError:
            self.ended = True
        return bytes(said)

    def encrypt(self, data: bytes | memoryview) -> None:
        """Say something to the client; `outgoing` then holds it."""
        self._object.write(data)

    def outgoing(self) -> bytes:
        """Take what must go to the client."""
        return self._outgoing.read()

    def close(self) -> None:
        """Say that nothing more comes."""
        # The client has not said so yet, or the session broke: either way our word is in `outgoing` if it can be.
        with contextlib.suppress(ssl.SSLError):
            self._object.unwrap()

    def sans(self) -> frozenset[str]:
        """Return the subject alternative names of the client's verified certificate: DNS, IP, e-mail and URI."""
        certificate: dict[str, Any] = dict(self._object.getpeercert() or {})
        names = certificate.get("subjectAltName", ())
        kinds = ("DNS", "IP Address", "email", "URI")
        return frozenset(plain_san(str(name)) for kind, name in names if kind in kinds)


def plain_san(name: str) -> str:
    """Return a name in the one way of writing it: OpenSSL writes IPv6 addresses in full, people do not."""
    try:
        return ipaddress.ip_address(name.strip()).compressed
    except ValueError:
        return name


class _EncryptedKeyError(Exception):
    """The key asks for a passphrase."""


def _refuse_passphrase() -> str:
    raise _EncryptedKeyError


def _why_not(error: OSError, cert_file: Path, key_file: Path) -> str:
    if getattr(error, "reason", None) == "KEY_VALUES_MISMATCH":
        return f"key_file {key_file} does not belong to cert_file {cert_file}; name the key that this certificate was made for"
    certificate, key = (b"-----BEGIN CERTIFICATE-----", "certificate"), (b"PRIVATE KEY-----", "private key")
    for name, file, (marker, kind) in (("cert_file", cert_file, certificate), ("key_file", key_file, key)):
        try:
            if marker not in file.read_bytes():
                return f"{name} {file} holds no {kind}; it must be PEM text with {marker.decode()!r} in it"
        except OSError as missing:
            return f"{name} {file} cannot be read: {missing.strerror}; put it there for this user to read"
    reason = getattr(error, "reason", None) or error.strerror
    return f"cert_file {cert_file} and key_file {key_file} cannot be used: OpenSSL says {reason}; make them again"
