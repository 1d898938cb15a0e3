"""Checks an attestation without the model: its signatures, its digests, and the released weights if they are given."""

from __future__ import annotations

import hashlib
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from graphforget.certificates.attestation import RELEASED, read_attestation, verify_attestation
from graphforget.errors import InputError, Mismatch
from graphforget.files import error_reason, open_regular
from graphforget.verification.verify import Check, Verification

LARGEST = 2**34  # bytes of a file with released weights
MODEL = "the claim itself, for which the run directory is needed"
SIGNER = "who signed it: give the public key as --key"
FILE = "that a file with released weights is the one that it is about: give it as --released"


def verify_attestation_file(
    path: Path, *, key: Ed25519PublicKey | None = None, released: Path | None = None
) -> Verification:
    """Checks the attestation in a file.

    Raises:
        Mismatch: Something does not match. The message names the first such thing.
        InputError: A file cannot be read, or is no attestation.
    """
    attested = verify_attestation(read_attestation(path), key=key)
    certificate = attested.certificate
    checks = [
        Check("envelope", f"the in-toto statement is signed by {attested.signer[:16]}..."),
        Check("certificate", f"level {certificate.level!r}, signed with the same key, {certificate.made}"),
        Check("digests", "those of the certificate and of the released weights are the statement's"),
    ]
    unchecked = [MODEL] if key is not None else [MODEL, SIGNER]
    if released is None:
        unchecked.append(FILE)
    elif attested.released is None:
        raise InputError(f"{path} does not state the SHA-256 of {RELEASED}, so --released cannot be compared")
    elif _sha256(released) != attested.released:
        raise Mismatch(f"{released} is not the file with the released weights that the attestation is about")
    else:
        checks.append(Check("released weights", "the file is the one that the attestation is about"))
    return Verification(tuple(checks), tuple(unchecked))


def _sha256(path: Path) -> str:
    try:
        with open_regular(path, largest=LARGEST, links=True) as file:
            return hashlib.file_digest(file, "sha256").hexdigest()  # type: ignore[arg-type]
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error_reason(error)}") from error
