"""The secrets of a service: made once, read from files of mode 600 or from a command."""

from __future__ import annotations

import os
import secrets
import subprocess
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.x509.oid import NameOID

from graphforget.certificates.signing import make_keys, private_key
from graphforget.errors import InputError
from graphforget.files import error_reason, read_bytes
from graphforget.service.settings import IDENTITY_KEY, RESPONSE_CERTIFICATE, RESPONSE_KEY, SIGNING_KEY, Settings

LARGEST = 2**16  # bytes of a secret's file
PATIENCE = 30  # seconds that the command for the signing key may take


@dataclass(frozen=True)
class Secrets:
    """What the processes of a service know and nobody else."""

    signing: Ed25519PrivateKey
    identity: bytes
    response: rsa.RSAPrivateKey
    certificate: bytes  # of the response key, PEM: public

    def response_signature(self, body: bytes) -> bytes:
        return self.response.sign(body, padding.PKCS1v15(), hashes.SHA256())


def make_secrets(home: Path, settings: Settings) -> None:
    """Writes new secrets into the folder of a service. Existing files are left alone."""
    if not settings.signing_key_command and not (home / settings.signing_key).exists():
        make_keys(home / SIGNING_KEY)
    if not (home / IDENTITY_KEY).exists():
        write_secret(home / IDENTITY_KEY, secrets.token_hex(32).encode())
    if not (home / RESPONSE_KEY).exists():
        _make_response_key(home, settings.domain)


def read_secrets(home: Path, settings: Settings) -> Secrets:
    """Raises `InputError` if a secret is missing, damaged, or readable by others."""
    response = serialization.load_pem_private_key(read_secret(home / RESPONSE_KEY), password=None)
    if not isinstance(response, rsa.RSAPrivateKey):
        raise InputError(f"{home / RESPONSE_KEY} holds a {type(response).__name__}, an RSA private key is needed")
    return Secrets(
        signing=signing_key(home, settings),
        identity=read_secret(home / IDENTITY_KEY),
        response=response,
        certificate=read_bytes(home / RESPONSE_CERTIFICATE, largest=LARGEST, links=True),
    )


def signing_key(home: Path, settings: Settings) -> Ed25519PrivateKey:
    """The key that signs certificates, from its file or from the command that prints it."""
    if not settings.signing_key_command:
        return private_key(home / settings.signing_key)
    try:
        ran = subprocess.run(settings.signing_key_command, capture_output=True, timeout=PATIENCE, check=True, cwd=home)
        key = serialization.load_pem_private_key(ran.stdout, password=None)
    except (OSError, ValueError, TypeError, subprocess.SubprocessError) as error:
        message = f"the command {settings.signing_key_command[0]!r} printed no private key"
        raise InputError(f"{message}: {type(error).__name__}") from error
    if not isinstance(key, Ed25519PrivateKey):
        raise InputError(f"the command printed a {type(key).__name__}, an Ed25519 private key is needed")
    return key


def read_secret(path: Path) -> bytes:
    """The content of a file that its owner alone can read."""
    try:
        content = read_bytes(path, largest=LARGEST, links=True).strip()
        open_to_others = path.stat().st_mode & 0o077
    except OSError as error:
        raise InputError(f"{path} cannot be read as a secret: {error_reason(error)}") from error
    if open_to_others:
        raise InputError(f"{path} can be read by others, set its mode to 600 and consider a new secret")
    if len(content) < 16:
        raise InputError(f"{path} holds {len(content)} bytes, a secret needs at least 16")
    return content


def write_secret(path: Path, content: bytes) -> None:
    """Writes a file that is never readable by others. Never overwrites a file."""
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(content)


def _make_response_key(home: Path, domain: str) -> None:
    """An RSA key and a certificate that it signs itself, for a trial: controllers ask for one of a known issuer."""
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, domain[:64] or "graphforget")])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=825))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(domain or "localhost")]), critical=False)
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    private = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    write_secret(home / RESPONSE_KEY, private)
    (home / RESPONSE_CERTIFICATE).write_bytes(certificate.public_bytes(pem))
