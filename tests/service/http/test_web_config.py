"""What a web-config file may say, and how its faults are told."""

from __future__ import annotations

import re
import ssl
from pathlib import Path

import bcrypt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec

from certificates import Authority, private_pem
from tachoscope_core.errors import TachoscopeError
from tachoscope_service.http.web_config import WebConfig, load, ssl_context

HASH = bcrypt.hashpw(b"secret", bcrypt.gensalt(4)).decode()


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    authority = Authority(tmp_path)
    authority.issue("server")
    return authority


@pytest.fixture
def config_file(tmp_path: Path, authority: Authority):
    def write(text: str) -> Path:
        file = tmp_path / "web.yml"
        file.write_text(text)
        return file

    return write


TLS = "tls_server_config:\n  cert_file: server.pem\n  key_file: server.key\n"


def faults(file: Path) -> list[str]:
    with pytest.raises(TachoscopeError) as caught:
        load(file)
    return str(caught.value).split("\n  ")


def test_an_empty_file_asks_for_nothing(config_file):
    config = load(config_file(""))
    assert config == WebConfig(files=config.files)
    assert ssl_context(config) is None
    assert ssl_context(None) is None


def test_every_option_that_can_be_honoured_is_read(config_file, tmp_path, authority):
    (tmp_path / "token").write_text("abc.def\n")
    (tmp_path / "token").chmod(0o600)
    text = f"""
tls_server_config:
  cert_file: server.pem
  key_file: {tmp_path}/server.key
  client_auth_type: RequireAndVerifyClientCert
  client_ca_file: ca.pem
  client_allowed_sans: [prometheus.example, 10.0.0.1]
  min_version: TLS12
  max_version: TLS12
  cipher_suites: [TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384, TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256]
  prefer_server_cipher_suites: false
  curve_preferences: [CurveP384]
http_server_config:
  http2: false
  headers:
    X-Frame-Options: deny
    Strict-Transport-Security: max-age=1
    X-XSS-Protection: ""
basic_auth_users:
  alice: {HASH}
bearer_token_files: [token]
"""
    config = load(config_file(text))
    assert config.headers == (("X-Frame-Options", "deny"), ("Strict-Transport-Security", "max-age=1"))
    assert config.users == {"alice": HASH.encode()}
    assert list(config.tokens.values()) == [b"abc.def"]
    assert {file.name for file in config.files} == {"web.yml", "server.pem", "server.key", "ca.pem", "token"}
    assert HASH not in repr(config)
    assert "abc.def" not in repr(config)
    context = ssl_context(config)
    assert context is not None
    assert context.verify_mode is ssl.CERT_REQUIRED
    assert (context.minimum_version, context.maximum_version) == (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_2)
    offered = {cipher["name"] for cipher in context.get_ciphers() if cipher["protocol"] == "TLSv1.2"}
    assert offered == {"ECDHE-ECDSA-AES256-GCM-SHA384", "ECDHE-RSA-CHACHA20-POLY1305"}
    assert not context.options & ssl.OP_CIPHER_SERVER_PREFERENCE


def test_without_more_than_a_certificate_tls_has_prometheus_defaults(config_file):
    context = ssl_context(load(config_file(TLS)))
    assert context is not None
    assert context.verify_mode is ssl.CERT_NONE
    assert context.minimum_version is ssl.TLSVersion.TLSv1_2
    assert context.options & ssl.OP_CIPHER_SERVER_PREFERENCE


def test_a_curve_that_this_python_cannot_set_is_an_error_with_a_way_out(config_file, monkeypatch):
    def refuse(context: ssl.SSLContext, name: str) -> None:
        raise ssl.SSLError("unknown group")  # as Python 3.11.2 does for X25519

    config = load(config_file(TLS + "  curve_preferences: [X25519]\n"))
    monkeypatch.setattr(ssl.SSLContext, "set_ecdh_curve", refuse)
    with pytest.raises(TachoscopeError, match=r"curve_preferences: .* cannot set X25519.*newer Python"):
        ssl_context(config)


def test_a_certificate_may_be_verified_only_if_it_is_given(config_file):
    context = ssl_context(load(config_file(TLS + "  client_auth_type: VerifyClientCertIfGiven\n  client_ca_file: ca.pem\n")))
    assert context is not None
    assert context.verify_mode is ssl.CERT_OPTIONAL


def test_the_ca_may_stand_in_the_file_itself(config_file, authority):
    inline = "".join(f"    {line}\n" for line in authority.ca_file.read_text().splitlines())
    text = TLS + "  client_auth_type: RequireAndVerifyClientCert\n  client_ca: |\n" + inline
    context = ssl_context(load(config_file(text)))
    assert context is not None
    assert context.cert_store_stats()["x509_ca"] == 1


def test_all_faults_are_told_at_once_each_with_file_key_value_and_way_out(config_file, tmp_path):
    text = """
tls_server_config:
  cert_file: nowhere.pem
  key_file: server.key
  client_auth_type: RequireSomething
  min_version: SSL3
  cipher_suites: [TLS_NULL, TLS_AES_128_GCM_SHA256]
  curve_preferences: [X25519, CurveP256]
  prefer_server_cipher_suites: maybe
  colour: red
http_server_config:
  http2: true
  headers:
    X-Frame-Options: perhaps
    Server: mine
basic_auth_users:
  alice: secret
  7: $2y$10$short
bearer_token_files: [no-such-token]
rate_limit: {interval: 1s, burst: 5}
extra: 1
"""
    file = config_file(text)
    first, *rest = faults(file)
    assert first == f"the web configuration {file} has {len(rest)} faults:"
    expected = [
        "extra' is an unknown key", "rate_limit is not offered", "colour' is an unknown key",
        "cert_file 'nowhere.pem' cannot be read: No such file", "client_auth_type 'RequireSomething' is unknown",
        "min_version 'SSL3' is unknown", "cipher_suites 'TLS_NULL' is unknown or unsafe",
        "cipher_suites TLS_AES_128_GCM_SHA256 cannot be honoured", "curve_preferences names 2 curves",
        "prefer_server_cipher_suites is 'maybe'", "http2 'True' cannot be honoured", "X-Frame-Options 'perhaps' is unknown",
        "Server' is an unknown key", "basic_auth_users.'alice' has a value that is not a bcrypt hash",
        "basic_auth_users.'7' is not a user name", "basic_auth_users.'7' has a value that is not",
        "bearer_token_files[0] (not quoted: it may be a token) cannot be read",
    ]  # fmt: skip
    for text in expected:
        assert any(text in line for line in rest), text
    assert len(rest) == len(expected)
    assert all(re.match(rf"{re.escape(str(file))}:\d+: ", line) and line.endswith(")") for line in rest)


@pytest.mark.parametrize(
    ("more", "fault"),
    [
        ("  client_auth_type: RequireAndVerifyClientCert\n", "RequireAndVerifyClientCert has no CA to verify with"),
        ("  client_auth_type: VerifyClientCertIfGiven\n", "VerifyClientCertIfGiven has no CA to verify with"),
        ("  client_auth_type: RequestClientCert\n", "RequestClientCert cannot be honoured: Python's ssl cannot take"),
        ("  client_auth_type: RequireAnyClientCert\n", "RequireAnyClientCert cannot be honoured"),
        ("  client_auth_type: RequireClientCert\n", "RequireClientCert cannot be honoured"),
        ("  client_ca_file: ca.pem\n", "NoClientCert requests no certificate"),
        ("  client_allowed_sans: [a]\n", "client_allowed_sans has no effect with client_auth_type NoClientCert"),
        ("  client_auth_type: RequireAndVerifyClientCert\n  client_ca_file: server.key\n", "holds no CA certificate"),
        ("  client_auth_type: RequireAndVerifyClientCert\n  client_ca: nonsense\n", "client_ca holds no CA certificate"),
        ("  min_version: TLS10\n", "min_version TLS10 cannot be honoured: OpenSSL 3"),
        ("  max_version: TLS11\n", "max_version TLS11 cannot be honoured"),
        ("  min_version: TLS13\n  max_version: TLS12\n", "min_version TLS13 is above max_version TLS12"),
        ("  min_version: 1.2\n", "min_version is '1.2', not a text"),
        ("  client_allowed_sans: prometheus\n", "client_allowed_sans is not a list of texts"),
    ],
)
def test_tls_settings_that_cannot_hold_are_refused_with_the_reason(config_file, more, fault):
    assert any(fault in line for line in faults(config_file(TLS + more))), faults(config_file(TLS + more))


def test_a_key_of_another_certificate_is_named_beside_other_faults(config_file, authority):
    authority.issue("other")
    told = faults(config_file("tls_server_config: {cert_file: server.pem, key_file: other.key}\nrate_limit: {}\n"))
    assert any("other.key does not belong to cert_file" in line for line in told)
    assert any("rate_limit" in line for line in told)


@pytest.mark.parametrize(
    ("tls", "fault"),
    [
        ("cert_file: server.key, key_file: server.key", "server.key holds no certificate"),
        ("cert_file: server.pem, key_file: server.pem", "server.pem holds no private key"),
        ("cert_file: server.pem", "key_file is missing"),
        ("key_file: server.key", "cert_file is missing"),
        ("min_version: TLS13", "cert_file is missing"),
        ("cert_file: '', key_file: server.key", "cert_file is empty"),
        ("cert_file: 5, key_file: server.key", "cert_file is '5', not a text"),
        ("cert: x, key_file: server.key", "cert cannot be honoured: Python's ssl reads certificates and keys from files only"),
    ],
)
def test_a_certificate_that_cannot_be_used_says_why(config_file, tls, fault):
    assert any(fault in line for line in faults(config_file(f"tls_server_config: {{{tls}}}\n")))


def test_an_encrypted_key_is_refused_and_asks_nobody(config_file, tmp_path):
    (tmp_path / "server.key").write_bytes(private_pem(ec.generate_private_key(ec.SECP256R1()), b"passphrase"))
    assert "server.key is encrypted" in faults(config_file(TLS))[1]


@pytest.mark.parametrize("cost", ["03", "17", "31"])
def test_a_hash_that_would_take_longer_than_a_scrape_or_is_too_cheap_is_refused(config_file, cost):
    assert f"cost {int(cost)}" in faults(config_file(f"basic_auth_users: {{alice: {HASH.replace('$04$', f'${cost}$')}}}"))[1]


@pytest.mark.parametrize(
    "text",
    [
        "basic_auth_users: [$SECRET]",
        "basic_auth_users: $SECRET",
        "basic_auth_users: {alice: $SECRETx}",
        "basic_auth_users: {alice: '!$SECRET'}",
        "basic_auth_users: {$SECRET: alice}",
        "bearer_token_files: $SECRET",
        "bearer_token_files: [$SECRET]",
        "bearer_token_files: [{$SECRET: 1}]",
        "tls_server_config: {key: $SECRET}",
        "$SECRET",
        "basic_auth_users: {alice: *$SECRET}",
        "basic_auth_users: {alice: '$SECRET}",
        "basic_auth_users: {alice: !$SECRET x}",
        "basic_auth_users: {alice: x, alice: $SECRET}",
    ],
)
@pytest.mark.parametrize("secret", [HASH, "tok3nTok3n"], ids=["hash", "token"])
def test_no_message_quotes_a_hash_or_a_token_wherever_it_stands(config_file, text, secret):
    told = "\n".join(faults(config_file(text.replace("$SECRET", secret))))
    allowed = secret == "tok3nTok3n" and "{$SECRET: alice}" in text  # a user name, as far as anyone can tell
    assert allowed or secret[4:] not in told, told


def test_what_is_not_yaml_is_told_with_its_place(config_file):
    assert "web.yml:2: this is not valid YAML (" in faults(config_file("basic_auth_users:\n  a: b: c\n"))[0]
    assert "a key is defined twice" in faults(config_file("rate_limit: 1\nrate_limit: 2\n"))[0]


def test_a_missing_file_is_told_with_the_way_out(tmp_path):
    assert "cannot be read: No such file or directory (name a file" in faults(tmp_path / "none.yml")[0]


@pytest.mark.parametrize("content", ["", "two words", "two\nlines", "\udcff".encode("utf-8", "surrogateescape")])
def test_a_token_file_holds_exactly_one_token(config_file, tmp_path, content):
    (tmp_path / "token").write_bytes(content if isinstance(content, bytes) else content.encode())
    told = faults(config_file("bearer_token_files: [token]"))[1]
    assert "token holds no token" in told
    assert "two" not in told


def test_secrets_that_everybody_may_read_are_a_warning(config_file, tmp_path, logged):
    (tmp_path / "token").write_text("abc")
    (tmp_path / "token").chmod(0o644)
    (tmp_path / "server.key").chmod(0o644)
    load(config_file(TLS + "bearer_token_files: [token]\n"))
    assert sum("is readable by all users" in line for line in logged) == 2


def test_passwords_without_tls_are_a_warning(config_file, logged):
    load(config_file(f"basic_auth_users: {{alice: {HASH}}}"))
    assert "passwords are sent unencrypted" in "\n".join(logged)
