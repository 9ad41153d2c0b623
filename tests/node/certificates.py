"""Certificates made for one test: a CA of its own, and what it signs."""

from __future__ import annotations

import datetime
import ipaddress
import ssl
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

_KEY_USAGE_OF_AN_AUTHORITY = x509.KeyUsage(
    digital_signature=True,
    content_commitment=False,
    key_encipherment=False,
    data_encipherment=False,
    key_agreement=False,
    key_cert_sign=True,
    crl_sign=True,
    encipher_only=False,
    decipher_only=False,
)


class Authority:
    """Signs certificates and writes them into a folder."""

    def __init__(self, folder: Path, name: str = "ca") -> None:
        self.folder = folder
        self.ca_file = folder / f"{name}.pem"
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _named(name)
        certificate = self._builder(self._name, self._key).add_extension(x509.BasicConstraints(True, None), True)
        certificate = certificate.add_extension(_KEY_USAGE_OF_AN_AUTHORITY, True)
        self.ca_file.write_bytes(_pem(certificate.sign(self._key, hashes.SHA256())))

    def issue(self, name: str, *sans: str) -> tuple[Path, Path]:
        """Return the files of a certificate and its key."""
        key = ec.generate_private_key(ec.SECP256R1())
        names = [_san(san) for san in sans or ("localhost", "127.0.0.1")]
        certificate = self._builder(_named(name), key).add_extension(x509.SubjectAlternativeName(names), False)
        cert_file, key_file = self.folder / f"{name}.pem", self.folder / f"{name}.key"
        cert_file.write_bytes(_pem(certificate.sign(self._key, hashes.SHA256())))
        key_file.write_bytes(private_pem(key))
        key_file.chmod(0o600)
        return cert_file, key_file

    def client(self, files: tuple[Path, Path] | None = None) -> ssl.SSLContext:
        """Return the client's side of TLS: it trusts this CA and shows this certificate."""
        context = ssl.create_default_context(cafile=self.ca_file)
        if files is not None:
            context.load_cert_chain(*files)
        return context

    def _builder(self, subject: x509.Name, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
        now = datetime.datetime.now(datetime.UTC)
        builder = x509.CertificateBuilder().subject_name(subject).issuer_name(self._name).public_key(key.public_key())
        builder = builder.serial_number(x509.random_serial_number()).not_valid_before(now - datetime.timedelta(hours=1))
        builder = builder.not_valid_after(now + datetime.timedelta(days=1))
        # Python 3.13 and newer verify strictly, and want to know whose key it is.
        builder = builder.add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), False)
        return builder.add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), False)


def private_pem(key: ec.EllipticCurvePrivateKey, passphrase: bytes | None = None) -> bytes:
    lock = serialization.BestAvailableEncryption(passphrase) if passphrase else serialization.NoEncryption()
    return key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, lock)


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _san(san: str) -> x509.GeneralName:
    if "://" in san:
        return x509.UniformResourceIdentifier(san)
    try:
        return x509.IPAddress(ipaddress.ip_address(san))
    except ValueError:
        return x509.DNSName(san)
