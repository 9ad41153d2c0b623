"""The web-config file of Prometheus's exporters: TLS, client certificates and users for the agent's pages.

The format is exporter-toolkit's (docs/web-configuration.md there), with one key of ours: `bearer_token_files`, a list of files
that hold one token each. What Python's ssl cannot do is refused, never ignored: a setting that is silently off is a hole.
No message quotes a hash, a token or a key, nor a text that may be one in the wrong place.
"""

from __future__ import annotations

import functools
import logging
import re
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tachoscope_core import located_yaml
from tachoscope_core.errors import TachoscopeError
from tachoscope_service.http import tls as web_tls
from tachoscope_service.http.tls import CIPHERS, CURVES, VERSIONS
from tachoscope_service.http.yaml_faults import Reader, mask

_log = logging.getLogger(__name__)

HEADERS: Mapping[str, tuple[str, ...]] = {
    "Content-Security-Policy": (),
    "Strict-Transport-Security": (),
    "X-Content-Type-Options": ("nosniff",),
    "X-Frame-Options": ("deny", "sameorigin"),
    "X-XSS-Protection": (),
}
"""What may be added to each response, and the values that it may have where the list is closed."""
MAX_COST = 16
"""A bcrypt hash of this cost takes about 4 s to check; a scrape gives up after 10."""
_BCRYPT = re.compile(r"\$2[aby]\$(\d\d)\$[./A-Za-z0-9]{53}")
_TOKEN = re.compile(r"[!-~]+")


@dataclass(frozen=True, slots=True)
class WebConfig:
    """What a web-config file says, checked. Paths are absolute or relative to the working directory."""

    cert_file: Path | None = None
    key_file: Path | None = None
    client_auth_type: str = "NoClientCert"
    client_ca_file: Path | None = None
    client_ca: str = ""
    client_allowed_sans: tuple[str, ...] = ()
    min_version: str = "TLS12"
    max_version: str = "TLS13"
    cipher_suites: tuple[str, ...] = ()
    prefer_server_cipher_suites: bool = True
    curve_preferences: tuple[str, ...] = ()
    headers: tuple[tuple[str, str], ...] = ()
    users: Mapping[str, bytes] = field(default_factory=dict, repr=False)
    tokens: Mapping[str, bytes] = field(default_factory=dict, repr=False)
    """Token by its file, as it is written in the web-config file."""
    files: tuple[Path, ...] = ()
    """The file itself and all that it names: when one of them changes, load it again."""

    @property
    def client_names(self) -> frozenset[str]:
        """The names of clients with a password or a token, as a `Request` has them."""
        return frozenset([*(f"user:{name}" for name in self.users), *(f"token:{path}" for path in self.tokens)])

    @property
    def knows_clients(self) -> bool:
        """Whether only clients are served that have a password, a token or a certificate."""
        return bool(self.users or self.tokens) or self.client_auth_type == "RequireAndVerifyClientCert"


def ssl_context(config: WebConfig | None) -> ssl.SSLContext | None:
    """Return the server's side of TLS, or None where the configuration asks for none."""
    if config is None or config.cert_file is None or config.key_file is None:
        return None
    context = web_tls.server_context(config.cert_file, config.key_file)
    web_tls.ask_for_client_certificates(context, config.client_auth_type, config.client_ca_file, config.client_ca)
    versions = (config.min_version, config.max_version)
    chooses = config.prefer_server_cipher_suites
    web_tls.narrow(context, versions, config.cipher_suites, config.curve_preferences, server_chooses=chooses)
    return context


def load(path: Path | str) -> WebConfig:
    """Read a web-config file.

    Raises:
        TachoscopeError: with all faults at once, each with the file, the key, the offending value and the way out.
    """
    file = Path(path)
    document = located_yaml.read_plain(file, secret=True)
    reader = Reader(document)
    known = {"tls_server_config", "http_server_config", "basic_auth_users", "bearer_token_files", "rate_limit"}
    top = reader.section(document.data, "", known)
    if "rate_limit" in top:
        reader.fault("rate_limit", "is not offered: the agent limits connections and password checks itself", "remove it")
    config = WebConfig(
        **_tls(reader, top),
        headers=_headers(reader, top),
        users=_users(reader, top),
        tokens=_tokens(reader, top),
        files=(file, *reader.files),
    )
    if reader.faults:
        count = "1 fault" if len(reader.faults) == 1 else f"{len(reader.faults)} faults"
        raise TachoscopeError("\n  ".join([f"the web configuration {file} has {count}:", *reader.faults]))
    if config.users and config.cert_file is None:
        _log.warning("%s: passwords are sent unencrypted: basic_auth_users without tls_server_config", file)
    return config


def _tls(reader: Reader, top: Mapping[str, Any]) -> dict[str, Any]:
    name = "tls_server_config"
    known = {"cert_file", "key_file", "client_auth_type", "client_ca_file", "client_ca", "client_allowed_sans", "min_version",
             "max_version", "cipher_suites", "prefer_server_cipher_suites", "curve_preferences", "cert", "key"}  # fmt: skip
    section = reader.section(top.get(name), name, known)
    for inline in ("cert", "key"):
        if inline in section:
            problem = "cannot be honoured: Python's ssl reads certificates and keys from files only"
            reader.fault(f"{name}.{inline}", problem, f"put it into a file and name that as {inline}_file")
    text = functools.partial(reader.text, section, name)
    read: dict[str, Any] = {
        "client_auth_type": text("client_auth_type", "NoClientCert", web_tls.CLIENT_AUTH_TYPES),
        "client_ca": text("client_ca", ""),
        "client_allowed_sans": reader.texts(section, f"{name}.", "client_allowed_sans"),
        "min_version": text("min_version", "TLS12", VERSIONS),
        "max_version": text("max_version", "TLS13", VERSIONS),
        "cipher_suites": _names(reader, section, "cipher_suites", CIPHERS),
        "curve_preferences": _names(reader, section, "curve_preferences", CURVES),
        "prefer_server_cipher_suites": section.get("prefer_server_cipher_suites", True),
    }
    for key in ("cert_file", "key_file", "client_ca_file"):
        read[key] = _file(reader, section, key)
        missing = key not in section and key.removesuffix("_file") not in section
        if section and missing and key != "client_ca_file":
            reader.fault(f"{name}.{key}", "is missing", "name the file, or remove tls_server_config to serve without TLS")
    _agree(reader, section, read)
    _try_out(reader, read)
    return read


def _file(reader: Reader, section: Mapping[str, Any], key: str) -> Path | None:
    name = f"tls_server_config.{key}"
    value = reader.text(section, "tls_server_config", key, "")
    if key in section and value == "":
        reader.fault(name, "is empty", "name the file")
    if not value or reader.readable(name, value, shown=mask(value)) is None:
        return None
    if key == "key_file":
        reader.warn_if_open(name, reader.path(value))
    return reader.path(value)


def _try_out(reader: Reader, read: Mapping[str, Any]) -> None:
    """Note what only OpenSSL can tell: whether key and certificate fit, and whether the CA is one."""
    try:
        if read["cert_file"] and read["key_file"]:
            web_tls.server_context(read["cert_file"], read["key_file"])
    except TachoscopeError as error:
        reader.fault("tls_server_config", f"cannot be used: {error}", "no TLS without both")
    try:
        if read["client_ca_file"] or read["client_ca"]:
            verifying = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            web_tls.ask_for_client_certificates(verifying, "RequireAndVerifyClientCert", read["client_ca_file"], read["client_ca"])
    except TachoscopeError as error:
        reader.fault("tls_server_config", f"cannot be used: {error}", "no client certificate can be verified without")


def _names(reader: Reader, section: Mapping[str, Any], key: str, allowed: Mapping[str, str]) -> tuple[str, ...]:
    names = reader.texts(section, "tls_server_config.", key)
    for name in names:
        if name in web_tls.TLS13_CIPHERS:
            problem = f"{name} cannot be honoured: neither Python nor Prometheus chooses among the suites of TLS 1.3"
            reader.fault(f"tls_server_config.{key}", problem, "remove it: all of TLS 1.3's suites are on")
        elif name not in allowed:
            reader.fault(f"tls_server_config.{key}", f"{mask(name)} is unknown or unsafe", f"use some of {', '.join(allowed)}")
    return names


def _agree(reader: Reader, section: Mapping[str, Any], read: Mapping[str, Any]) -> None:
    name = "tls_server_config"
    policy = read["client_auth_type"]
    has_ca = "client_ca" in section or "client_ca_file" in section
    if policy in ("VerifyClientCertIfGiven", "RequireAndVerifyClientCert") and not has_ca:
        reader.fault(f"{name}.client_auth_type", f"{policy} has no CA to verify with", "name one as client_ca_file")
    if policy == "NoClientCert" and has_ca:
        fix = "set client_auth_type: RequireAndVerifyClientCert, or remove the CA"
        reader.fault(f"{name}.client_ca_file", "is set, but client_auth_type NoClientCert requests no certificate", fix)
    if "client_ca" in section and "client_ca_file" in section:
        reader.fault(f"{name}.client_ca", "and client_ca_file are both set", "keep one of them")
    if read["client_allowed_sans"] and policy != "RequireAndVerifyClientCert":
        problem = f"has no effect with client_auth_type {policy}: it lets in clients without a certificate"
        reader.fault(f"{name}.client_allowed_sans", problem, "set client_auth_type: RequireAndVerifyClientCert")
    if read["min_version"] > read["max_version"]:
        problem = f"{read['min_version']} is above max_version {read['max_version']}"
        reader.fault(f"{name}.min_version", problem, "lower the one or raise the other")
    if not isinstance(read["prefer_server_cipher_suites"], bool):
        problem = f"is {mask(read['prefer_server_cipher_suites'])}, neither true nor false"
        reader.fault(f"{name}.prefer_server_cipher_suites", problem, "write true or false")
    if len(read["curve_preferences"]) > 1:
        problem = f"names {len(read['curve_preferences'])} curves, and Python's ssl can be held to a single one only"
        reader.fault(f"{name}.curve_preferences", problem, "keep one, or remove it for OpenSSL's own order")


def _headers(reader: Reader, top: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    name = "http_server_config"
    section = reader.section(top.get(name), name, {"headers", "http2"})
    if section.get("http2", False) is not False:
        reader.fault(f"{name}.http2", f"{mask(section['http2'])} cannot be honoured: the agent speaks HTTP/1.1", "set it to false")
    headers = reader.section(section.get("headers"), f"{name}.headers", set(HEADERS))
    for key, value in headers.items():
        if not isinstance(value, str) or not value.isprintable() or not value.isascii():
            reader.fault(f"{name}.headers.{key}", f"is {mask(value)}, not a line of plain text", "put it in quotes")
        elif value and HEADERS[key] and value not in HEADERS[key]:
            reader.fault(f"{name}.headers.{key}", f"{mask(value)} is unknown", f"use one of {', '.join(HEADERS[key])}")
    return tuple((key, str(value)) for key, value in headers.items() if value)


def _users(reader: Reader, top: Mapping[str, Any]) -> dict[str, bytes]:
    users = top.get("basic_auth_users") or {}
    if not isinstance(users, dict):
        reader.fault("basic_auth_users", "is not a mapping", "write one `user: bcrypt hash` a line")
        return {}
    for user, hashed in users.items():
        key = f"basic_auth_users.{mask(user)}"
        match = _BCRYPT.fullmatch(hashed) if isinstance(hashed, str) else None
        if not isinstance(user, str) or not user or ":" in user:
            reader.fault(key, "is not a user name", "put it in quotes; a colon cannot be part of it")
        if match is None:
            reader.fault(key, "has a value that is not a bcrypt hash", "make one with `htpasswd -nBC 10 USER`")
        elif not 4 <= int(match[1]) <= MAX_COST:
            problem = f"has a hash of cost {int(match[1])}: not between 4 and {MAX_COST}, above which a scrape gives up waiting"
            reader.fault(key, problem, "make one with `htpasswd -nBC 10 USER`")
    return {str(user): str(hashed).encode() for user, hashed in users.items()}


def _tokens(reader: Reader, top: Mapping[str, Any]) -> dict[str, bytes]:
    tokens = {}
    for number, value in enumerate(reader.texts(top, "", "bearer_token_files")):
        key = f"bearer_token_files[{number}]"
        # A token in the place of its path must not reach the log: only what is surely a path is quoted.
        surely = value.startswith("/") and Path(value).parent != Path("/") and Path(value).parent.is_dir()
        content = reader.readable(key, value, shown=mask(value) if surely else "(not quoted: it may be a token)")
        if content is None:
            continue
        token = content.decode("utf-8", "replace").strip()
        if _TOKEN.fullmatch(token) is None:
            problem = f"{reader.path(value)} holds no token: it is empty, or has spaces, several lines or other than ASCII"
            reader.fault(key, problem, "write one token into it, such as from `openssl rand -hex 32`")
        reader.warn_if_open(key, reader.path(value))
        tokens[value] = token.encode()
    return tokens
