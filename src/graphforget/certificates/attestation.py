"""A certificate as an in-toto Statement in a DSSE envelope, signed with the same Ed25519 key.

The predicate is documented in docs/attestation.schema.json. The envelope is what other tools read: `securesystemslib`
verifies its signature without graphforget.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from graphforget.certificates.document import Certificate, canonical
from graphforget.certificates.signing import check_signature
from graphforget.errors import InputError, Mismatch
from graphforget.json_files import parse_json, read_json

PAYLOAD_TYPE = "application/vnd.in-toto+json"
STATEMENT = "https://in-toto.io/Statement/v1"
PREDICATE = "urn:graphforget:attestation:deletion:1"
WEIGHTS = "graphforget-weights"  # the digest `released` of a certificate, which is not that of a file
RELEASED = "released.safetensors"


@dataclass(frozen=True)
class Attested:
    """What a valid attestation says."""

    certificate: Certificate
    signer: str  # public key, hex
    released: str | None  # SHA-256 of the file with the released weights


def statement(certificate: Certificate, *, released: str | None) -> dict[str, Any]:
    """The in-toto Statement: these released weights have this certificate."""
    digest = {} if released is None else {"sha256": released}
    return {
        "_type": STATEMENT,
        "subject": [{"name": RELEASED, "digest": digest | {WEIGHTS: certificate.digests["released"]}}],
        "predicateType": PREDICATE,
        "predicate": {"certificate": certificate.to_dict(), "certificateDigest": {"sha256": certificate.digest}},
    }


def attestation(certificate: Certificate, key: Ed25519PrivateKey, *, released: str | None = None) -> dict[str, Any]:
    """The signed envelope of a certificate. `released` is the SHA-256 of the file with the released weights."""
    payload = canonical(statement(certificate, released=released))
    return envelope(payload, key)


def envelope(payload: bytes, key: Ed25519PrivateKey) -> dict[str, Any]:
    return {
        "payload": base64.b64encode(payload).decode(),
        "payloadType": PAYLOAD_TYPE,
        "signatures": [
            {
                "keyid": key_id(key.public_key()),
                "sig": base64.b64encode(key.sign(pre_authentication_encoding(payload))).decode(),
            }
        ],
    }


def pre_authentication_encoding(payload: bytes, payload_type: str = PAYLOAD_TYPE) -> bytes:
    """What a DSSE signature covers (DSSE 1.0.2)."""
    kind = payload_type.encode()
    return b"DSSEv1 %d %s %d %s" % (len(kind), kind, len(payload), payload)


def key_id(key: Ed25519PublicKey) -> str:
    """The id that securesystemslib gives to this key."""
    content = {"keytype": "ed25519", "keyval": {"public": key.public_bytes_raw().hex()}, "scheme": "ed25519"}
    return hashlib.sha256(canonical(content)).hexdigest()


def read_attestation(path: str | Path) -> Mapping[str, Any]:
    """The envelope in a JSON file. Raises `InputError` if it holds no envelope of an in-toto Statement."""
    try:
        content = read_json(Path(path), name=str(path))
    except OSError as error:
        raise InputError(f"{path} cannot be read") from error
    if not isinstance(content, dict) or content.get("payloadType") != PAYLOAD_TYPE:
        raise InputError(f"{path} is neither a run directory nor a DSSE envelope of type {PAYLOAD_TYPE}")
    return content


def verify_attestation(content: Mapping[str, Any], *, key: Ed25519PublicKey | None = None) -> Attested:
    """Checks an envelope, the statement in it and the certificate in that.

    Without a key, it must be signed by whoever signed the certificate.

    Raises:
        Mismatch: Something does not match. The message names the first such thing.
    """
    payload, signatures = _decoded(content)
    certificate, released = _read_statement(payload)
    signer = check_signature(certificate, key)
    public = key or Ed25519PublicKey.from_public_bytes(bytes.fromhex(signer))
    covered = pre_authentication_encoding(payload)
    if not any(_is_valid(public, signature, covered) for signature in signatures):
        raise Mismatch("the envelope is not signed with the key that signed the certificate")
    return Attested(certificate, signer, released)


def _decoded(content: Mapping[str, Any]) -> tuple[bytes, list[bytes]]:
    try:
        payload = _from_base64(content["payload"])
        return payload, [_from_base64(one["sig"]) for one in content["signatures"]]
    except (KeyError, TypeError, ValueError) as error:
        raise Mismatch(f"the envelope cannot be read: {type(error).__name__}") from error


def _from_base64(text: Any) -> bytes:
    """Both alphabets, as DSSE allows."""
    if not isinstance(text, str):
        raise TypeError("no text")
    try:
        return base64.b64decode(text.replace("-", "+").replace("_", "/"), validate=True)
    except binascii.Error as error:
        raise ValueError("no base64") from error


def _is_valid(key: Ed25519PublicKey, signature: bytes, covered: bytes) -> bool:
    try:
        key.verify(signature, covered)
    except InvalidSignature:
        return False
    return True


def _read_statement(payload: bytes) -> tuple[Certificate, str | None]:
    """The certificate in a statement, and the SHA-256 of its subject's file. They must agree with each other."""
    try:
        content = parse_json(payload, name="the statement")
        if (content["_type"], content["predicateType"]) != (STATEMENT, PREDICATE):
            raise Mismatch(f"the statement is not of type {STATEMENT} with a predicate of type {PREDICATE}")
        (subject,) = content["subject"]
        certificate = Certificate.from_dict(content["predicate"]["certificate"])
        stated = content["predicate"]["certificateDigest"]["sha256"], subject["digest"][WEIGHTS]
        released = subject["digest"].get("sha256")
    except (InputError, KeyError, TypeError, ValueError, AttributeError) as error:
        raise Mismatch(f"the statement cannot be read: {error}") from error
    if stated != (certificate.digest, certificate.digests["released"]):
        raise Mismatch("the digests of the statement are not those of its certificate")
    if released is not None and not re.fullmatch("[0-9a-f]{64}", str(released)):
        raise Mismatch("the subject of the statement has no SHA-256 that can be one")
    return certificate, released


def attestation_bytes(content: Mapping[str, Any]) -> bytes:
    """The envelope as a file."""
    return (json.dumps(content, indent=2) + "\n").encode()
