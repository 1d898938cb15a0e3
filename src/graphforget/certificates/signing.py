"""Ed25519 keys and signatures for certificates."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path
from typing import Any

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from graphforget.certificates.chain import Entry, signed_bytes
from graphforget.certificates.document import Certificate
from graphforget.certificates.ledger import Sign
from graphforget.errors import InputError, Mismatch
from graphforget.files import error_reason, read_bytes

ALGORITHM = "Ed25519"
LARGEST_KEY = 2**16  # bytes of a key's file


def make_keys(path: str | Path) -> tuple[Path, Path]:
    """Makes an Ed25519 key pair and writes it in PEM format.

    Args:
        path: Where to write the private key, readable by its owner alone. The public key goes to `path` + `.pub`.

    Returns:
        The paths of the private and of the public key.

    Raises:
        InputError: One of the two files exists already, or cannot be written.
    """
    private, public = Path(path), Path(f"{path}.pub")
    for place in (private, public):
        if place.exists():
            raise InputError(f"{place} exists already, and a key is never overwritten")
    key = Ed25519PrivateKey.generate()
    private_pem = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    public_pem = key.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    try:
        private.parent.mkdir(parents=True, exist_ok=True)
        _write_new(private, private_pem, mode=0o600)
        _write_new(public, public_pem, mode=0o644)
    except OSError as error:
        raise InputError(f"the keys cannot be written: {error_reason(error)}") from error
    return private, public


def private_key(path: str | Path) -> Ed25519PrivateKey:
    """Reads an Ed25519 private key from a PEM file.

    Raises:
        InputError: The file cannot be read as such a key, or others than its owner can read it.
    """
    try:
        open_to_others = Path(path).stat().st_mode & 0o077
        content = _pem(path)
    except (OSError, ValueError) as error:
        raise InputError(f"{path} cannot be read as a private key: {error_reason(error)}") from error
    try:
        key = serialization.load_pem_private_key(content, password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:  # its message speaks of PEM and passwords
        hint = "it has a password or is not such a key, 'graphforget keygen' makes one"
        raise InputError(f"{path} cannot be read as a private key: {hint}") from error
    if not isinstance(key, Ed25519PrivateKey):
        raise InputError(f"{path} holds a {type(key).__name__}, an {ALGORITHM} private key is needed")
    if open_to_others:
        raise InputError(f"{path} can be read by others, set its mode to 600 and consider making a new key")
    return key


def public_key(path: str | Path) -> Ed25519PublicKey:
    """Reads an Ed25519 public key from a PEM file.

    Raises:
        InputError: The file cannot be read as such a key.
    """
    try:
        content = _pem(path)
    except (OSError, ValueError) as error:
        raise InputError(f"{path} cannot be read as a public key: {error_reason(error)}") from error
    try:
        key = serialization.load_pem_public_key(content)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        hint = "it is not such a key; 'graphforget keygen' writes it beside the private key, with the ending .pub"
        raise InputError(f"{path} cannot be read as a public key: {hint}") from error
    if not isinstance(key, Ed25519PublicKey):
        raise InputError(f"{path} holds a {type(key).__name__}, an {ALGORITHM} public key is needed")
    return key


def check_private_key(key: Any) -> None:
    """Raises `InputError` for anything but an Ed25519 private key, such as the path of one."""
    if not isinstance(key, Ed25519PrivateKey):
        raise InputError(f"the key is a {type(key).__name__}, a private key is needed as gf.private_key(path) reads it")


def check_public_key(key: Any) -> None:
    """Raises `InputError` for anything but an Ed25519 public key, such as the path of one."""
    if not isinstance(key, Ed25519PublicKey):
        raise InputError(f"the key is a {type(key).__name__}, a public key is needed as gf.public_key(path) reads it")


def signed(certificate: Certificate, key: Ed25519PrivateKey) -> Certificate:
    """Signs a certificate.

    Args:
        certificate: The certificate. A signature that it has is replaced.
        key: The private key to sign with.

    Returns:
        The certificate with a signature over everything else in it.
    """
    check_private_key(key)
    bare = dataclasses.replace(certificate, signature=None)
    signature = {
        "algorithm": ALGORITHM,
        "public_key": key.public_key().public_bytes_raw().hex(),
        "value": key.sign(bare.signed_bytes()).hex(),
    }
    return dataclasses.replace(bare, signature=signature)


def entry_signer(key: Ed25519PrivateKey) -> Sign:
    """Signs entries of a ledger with `key`."""
    return lambda content: (key.public_key().public_bytes_raw().hex(), key.sign(content).hex())


def check_entry_signature(entry: Entry, certificate: Certificate | None) -> None:
    """Raises `Mismatch` unless the entry is signed by whoever signed its certificate.

    An unsigned certificate needs an unsigned entry.
    """
    signer = None if certificate is None or certificate.signature is None else certificate.signature.get("public_key")
    if certificate is not None and entry.signer != signer:
        raise Mismatch(f"entry {entry.number} of the ledger is not signed by whoever signed its certificate")
    if entry.signer is None:
        return
    try:
        public = Ed25519PublicKey.from_public_bytes(bytes.fromhex(entry.signer))
        public.verify(bytes.fromhex(entry.signature or ""), signed_bytes(entry))
    except (TypeError, ValueError, InvalidSignature) as error:
        raise Mismatch(f"the signature of entry {entry.number} of the ledger does not fit") from error


def check_signature(certificate: Certificate, key: Ed25519PublicKey | None = None) -> str:
    """Raises `Mismatch` unless the signature is valid, and by `key` if one is given. Returns the public key, in hex.

    Without a key, a valid signature shows only that nothing changed since somebody signed it.
    """
    if key is not None:
        check_public_key(key)
    signature = certificate.signature
    if signature is None:
        raise Mismatch("the certificate is not signed")
    if set(signature) != {"algorithm", "public_key", "value"}:
        raise Mismatch("the signature does not have the three fields that it must have, and no others")
    try:
        given = bytes.fromhex(signature["public_key"])
        value = bytes.fromhex(signature["value"])
        if signature["algorithm"] != ALGORITHM:
            raise Mismatch(f"the signature is of kind {signature['algorithm']!r}, not {ALGORITHM}")
        if key is not None and key.public_bytes_raw() != given:
            raise Mismatch("the certificate was signed with another key")
        Ed25519PublicKey.from_public_bytes(given).verify(value, certificate.signed_bytes())
    except (KeyError, TypeError, ValueError) as error:
        raise Mismatch(f"the signature cannot be read: {error!r}") from error
    except InvalidSignature as error:
        raise Mismatch("the signature does not fit, so the certificate was changed after it was signed") from error
    return given.hex()


def _pem(path: str | Path) -> bytes:
    return read_bytes(Path(path), largest=LARGEST_KEY, links=True)


def _write_new(path: Path, content: bytes, *, mode: int) -> None:
    """Writes a file that is never readable by others, not even for a moment. Never overwrites a file."""
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
        file.write(content)
