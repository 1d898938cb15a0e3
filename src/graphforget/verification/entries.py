"""Whether the entries of a ledger hold together and say what their certificates do."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from graphforget.certificates.chain import REFUSED, START, Entry
from graphforget.certificates.chain import check_chain as check_chain
from graphforget.certificates.document import Certificate, canonical
from graphforget.certificates.signing import check_entry_signature, check_signature
from graphforget.errors import InputError, Mismatch, OtherVersion
from graphforget.json_files import parse_json

SETTLED = ("settings", "model", "objective")  # what no request may change


def check_entries(entries: Sequence[Entry], *, follows: str = START) -> list[Certificate | None]:
    """Raises `Mismatch` unless the chain holds and every entry says what its certificate does.

    Returns the certificates; None for a request that was refused after its noise was drawn.
    """
    try:
        check_chain(entries, follows=follows)
    except InputError as error:
        raise Mismatch(str(error)) from error
    certificates: list[Certificate | None] = []
    for entry in entries:
        answer = _answer(entry)
        certificate = None if entry.level == REFUSED else _certificate(entry, answer)
        check_entry_signature(entry, certificate)
        if certificate is None:
            if entry.certificate_digest != answer_digest(answer):
                raise Mismatch(f"entry {entry.number} of the ledger does not hold the refusal that it names")
        else:
            _check_entry(entry, certificate)
        certificates.append(certificate)
    signers = {c.signature["public_key"] for c in certificates if c is not None and c.signature is not None}
    for entry in entries:
        if entry.level == REFUSED and signers and entry.signer not in signers:
            raise Mismatch(f"entry {entry.number} of the ledger is not signed by whoever signed the certificates")
    _check_settled([certificate for certificate in certificates if certificate is not None])
    return certificates


def answer_digest(answer: Any) -> str:
    """SHA-256 of a public answer."""
    return hashlib.sha256(canonical(answer)).hexdigest()


def _answer(entry: Entry) -> dict[str, Any]:
    try:
        answer = parse_json(entry.answer, what=f"the answer of entry {entry.number}")
        if not isinstance(answer, dict):
            raise InputError("its answer is no object")
        return answer
    except InputError as error:
        raise Mismatch(f"entry {entry.number} of the ledger cannot be read: {error}") from error


def _certificate(entry: Entry, answer: Any) -> Certificate:
    try:
        return Certificate.from_dict(answer["certificate"])
    except OtherVersion:
        raise
    except (ValueError, KeyError, TypeError) as error:
        message = f"entry {entry.number} of the ledger holds no certificate that can be read"
        raise Mismatch(f"{message}: {error}") from error


def _check_entry(entry: Entry, certificate: Certificate) -> None:
    if certificate.signature is not None:
        check_signature(certificate)
    recorded = (entry.certificate_digest, entry.level, entry.request_digest, entry.ratio, entry.previous, entry.time)
    stated = (
        *(certificate.digest, certificate.level, certificate.digests["request"]),
        *(certificate.claim.ratio, certificate.follows, certificate.made),
    )
    if recorded != stated:
        raise Mismatch(f"entry {entry.number} of the ledger says something else than its certificate")


def _check_settled(certificates: Sequence[Certificate]) -> None:
    """Settings, model and objective were fixed by training: all certificates of a line of releases have the same."""
    for earlier, later in pairwise(certificates):
        for name in SETTLED:
            old, new = dict(getattr(earlier, name)), dict(getattr(later, name))
            changed = [part for part in {**old, **new} if old.get(part) != new.get(part)]
            if changed:
                values = f"{new.get(changed[0])} in one certificate and {old.get(changed[0])} in the one before"
                raise Mismatch(f"{changed[0]} is {values}")
