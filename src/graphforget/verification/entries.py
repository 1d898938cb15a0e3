"""Whether the entries of a ledger form a chain and agree with their certificates."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from graphforget.certificates.annex import digest_of_all
from graphforget.certificates.chain import REFUSED, START, BrokenChain, Chain, Entry, answered_together
from graphforget.certificates.document import Certificate, canonical
from graphforget.certificates.signing import check_entry_signature, check_signature
from graphforget.errors import InputError, Mismatch, OtherVersion
from graphforget.json_files import parse_json

FIXED = ("settings", "model", "objective")  # no request may change them


@dataclass(frozen=True)
class CheckedLedger:
    """A chain whose entries agree with their certificates. Making one checks it, so nobody has to check it again.

    Requests that were answered together have an entry each, and one answer and certificate.

    Raises:
        Mismatch: An entry does not agree with its certificate, a signature does not fit, or two certificates differ
            in what training has fixed.
    """

    chain: Chain
    releases: tuple[Entry, ...] = field(init=False, repr=False)  # the first entry of each release or refusal
    answers: tuple[Mapping[str, Any], ...] = field(init=False, repr=False)  # one for each of these
    certificates: tuple[Certificate | None, ...] = field(init=False, repr=False)  # None: the request was refused

    def __post_init__(self) -> None:
        answers, certificates = [], []
        groups = answered_together(self.chain.entries)
        for group in groups:
            answer = _answer(group[0])
            answers.append(answer)
            certificates.append(_checked_certificate(group, answer))
        _check_signers(self.chain.entries, certificates)
        _check_fixed([certificate for certificate in certificates if certificate is not None])
        object.__setattr__(self, "releases", tuple(group[0] for group in groups))
        object.__setattr__(self, "answers", tuple(answers))
        object.__setattr__(self, "certificates", tuple(certificates))

    @property
    def entries(self) -> tuple[Entry, ...]:
        return self.chain.entries

    @property
    def last_release(self) -> int | None:
        """The index of the last release that was not refused, or None."""
        return max((i for i, certificate in enumerate(self.certificates) if certificate is not None), default=None)

    @property
    def annex_digests(self) -> tuple[Any, ...]:
        """The digest of its annex that each release states, in its certificate or in its refusal."""
        stated = zip(self.answers, self.certificates, strict=True)
        return tuple(_stated_digest("annex", answer, certificate) for answer, certificate in stated)


def check_entries(entries: Sequence[Entry], *, follows: str = START) -> CheckedLedger:
    """Raises `Mismatch` unless the chain holds and every entry agrees with its certificate."""
    try:
        chain = Chain(tuple(entries), follows)
    except BrokenChain as error:
        raise Mismatch(str(error)) from error
    return CheckedLedger(chain)


def answer_digest(answer: Any) -> str:
    """SHA-256 of a public answer."""
    return hashlib.sha256(canonical(answer)).hexdigest()


def _answer(entry: Entry) -> dict[str, Any]:
    try:
        answer = parse_json(entry.answer, name=f"the answer of entry {entry.number}")
        if not isinstance(answer, dict):
            raise InputError("its answer is no object")
        return answer
    except InputError as error:
        raise Mismatch(f"entry {entry.number} of the ledger cannot be read: {error}") from error


def _checked_certificate(group: Sequence[Entry], answer: Mapping[str, Any]) -> Certificate | None:
    """The certificate of entries that agree with it, or None for a refusal that is the one that the entries name."""
    first = group[0]
    certificate = None if first.level == REFUSED else _certificate(first, answer)
    for entry in group:
        check_entry_signature(entry, certificate)
    if certificate is not None:
        _check_entry(first, certificate)
    elif first.certificate_digest != answer_digest(answer):
        raise Mismatch(f"entry {first.number} of the ledger does not hold the refusal that it names")
    for entry in group[1:]:
        if _shared(entry) != _shared(first):
            raise Mismatch(f"entry {entry.number} of the ledger does not agree with the one it was answered with")
    if _stated_digest("request", answer, certificate) != digest_of_all([entry.request_digest for entry in group]):
        raise Mismatch(f"entry {first.number} of the ledger is not about the requests that its certificate is about")
    return certificate


def _shared(entry: Entry) -> tuple[Any, ...]:
    """What the entries of requests that were answered together have in common."""
    return entry.time, entry.certificate_digest, entry.level, entry.ratio, entry.answer


def _stated_digest(name: str, answer: Mapping[str, Any], certificate: Certificate | None) -> Any:
    """The digest of the requests or of the annex that a certificate or a refusal states."""
    digests = answer.get("digests") if certificate is None else certificate.digests
    return digests.get(name) if isinstance(digests, Mapping) else None


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
    recorded = (entry.certificate_digest, entry.level, entry.ratio, entry.previous, entry.time)
    stated = (certificate.digest, certificate.level, certificate.claim.ratio, certificate.follows, certificate.made)
    if recorded != stated:
        raise Mismatch(f"entry {entry.number} of the ledger does not agree with its certificate")


def _check_signers(entries: Sequence[Entry], certificates: Sequence[Certificate | None]) -> None:
    """A refusal has no certificate: it must be signed by somebody who signed one of the certificates."""
    signers = {c.signature["public_key"] for c in certificates if c is not None and c.signature is not None}
    for entry in entries:
        if entry.level == REFUSED and signers and entry.signer not in signers:
            raise Mismatch(f"entry {entry.number} of the ledger is not signed by whoever signed the certificates")


def _check_fixed(certificates: Sequence[Certificate]) -> None:
    """Settings, model and objective were fixed by training: all certificates of one ledger have the same."""
    for earlier, later in pairwise(certificates):
        for name in FIXED:
            old, new = dict(getattr(earlier, name)), dict(getattr(later, name))
            changed = [part for part in {**old, **new} if old.get(part) != new.get(part)]
            if changed:
                values = f"{new.get(changed[0])} in one certificate and {old.get(changed[0])} in the one before"
                raise Mismatch(f"{changed[0]} is {values}")
