"""Whether the entries of a ledger hold together and say what their certificates do."""

from __future__ import annotations

import json
from collections.abc import Sequence

from graphforget.certificates.document import Certificate
from graphforget.certificates.ledger import Entry
from graphforget.certificates.ledger import check as check_chain
from graphforget.certificates.signing import check_signature
from graphforget.errors import InputError, Mismatch, OtherVersion


def check_entries(entries: Sequence[Entry]) -> list[str]:
    """Raises `Mismatch` unless the chain holds and every entry says what its certificate does. The annexes' digests."""
    try:
        check_chain(entries)
    except InputError as error:
        raise Mismatch(str(error)) from error
    annexes = []
    for entry in entries:
        try:
            certificate = Certificate.from_dict(json.loads(entry.answer)["certificate"])
        except OtherVersion:
            raise
        except (ValueError, KeyError, TypeError) as error:
            told = f"entry {entry.number} of the ledger holds no certificate that can be read"
            raise Mismatch(f"{told}: {error}") from error
        if certificate.signature is not None:
            check_signature(certificate)
        said = (entry.certificate_digest, entry.level, entry.request_digest, entry.ratio, entry.previous)
        meant = (
            *(certificate.digest, certificate.level, certificate.digests["request"]),
            *(release_ratio(certificate), certificate.follows),
        )
        if said != meant:
            raise Mismatch(f"entry {entry.number} of the ledger says something else than its certificate")
        annexes.append(certificate.digests["annex"])
    return annexes


def release_ratio(certificate: Certificate) -> float | None:
    """`zeta / sigma` of a release: what it adds to those before it. None where nothing is proven."""
    if certificate.level == "exact":
        return 0.0
    if certificate.level == "certified" and certificate.sigma:
        return (certificate.distance or 0.0) / certificate.sigma
    return None
