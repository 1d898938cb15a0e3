"""Releases in the database: what the ledger of a run directory holds, as it is shown and downloaded."""

from __future__ import annotations

import hashlib
from collections.abc import Set
from datetime import datetime
from pathlib import Path
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from graphforget.certificates.attestation import attestation
from graphforget.certificates.chain import REFUSED
from graphforget.certificates.document import Certificate
from graphforget.files import read_bytes
from graphforget.runs.history import History
from graphforget.runs.layout import CERTIFICATE, LIMITS, RELEASED, open_run
from graphforget.runs.verify import verify_run
from graphforget.service.identities import ledger_id
from graphforget.service.notices import enqueue
from graphforget.service.service import Service
from graphforget.service.tables import Model, Purge, Release, SubjectRequest


def ledger_id_of(service: Service, request: SubjectRequest, model_id: int) -> str:
    """The id of a request in the ledger of a model. It cannot be found any more after the retention time."""
    return ledger_id(service.secrets.identity, request.id, model_id, request.content_hash)


def record_releases(session: Session, model: Model, history: History, ledger_ids: Set[str]) -> dict[str, int]:
    """The releases that answered these requests, by the digests of their certificates. New ones are stored."""
    ids: dict[str, int] = {}
    groups = [group for group in history.groups if any(entry.request_id in ledger_ids for entry in group)]
    for group in groups:
        first = group[0]
        if first.level == REFUSED:
            continue
        known = session.scalar(
            select(Release.id).where(
                Release.model_id == model.id, Release.certificate_digest == first.certificate_digest
            )
        )
        if known is None:
            certificate = history.ledger.certificates[history.group_of(first)]
            assert certificate is not None
            known = _store(session, model, certificate)
        ids[first.certificate_digest] = known
    return ids


def _store(session: Session, model: Model, certificate: Certificate) -> int:
    document = certificate.to_dict()
    release = Release(
        model_id=model.id,
        round=int(datetime.fromisoformat(certificate.made).timestamp()),
        level=certificate.level,
        certificate_digest=certificate.digest,
        certificate=document,
        attestation={},  # until it is verified
    )
    session.add(release)
    session.flush()
    session.add_all(Purge(release_id=release.id, label=label) for label in model.purge_labels)
    return release.id


def publish_release(
    session: Session, service: Service, model: Model, release: Release, checks: list[dict[str, str]]
) -> None:
    """Attests a release that was verified, and tells the registry of models. Nothing is said of one that was not."""
    if release.checks is not None:
        return
    certificate = Certificate.from_dict(release.certificate)
    released = _released_file(model, certificate)
    release.checks = list(checks)
    release.attestation = attestation(certificate, service.secrets.signing, released=released)
    if service.settings.mlflow_url and model.mlflow_name and model.mlflow_version:
        enqueue(session, service, "mlflow", service.settings.mlflow_url, _tags(service, model, certificate))


def _released_file(model: Model, certificate: Certificate) -> str | None:
    """SHA-256 of the file with the released weights; None if the run directory has moved on."""
    with open_run(model.run) as place:
        if Certificate.read(place / CERTIFICATE).digest != certificate.digest:
            return None
        content = read_bytes(Path(place / RELEASED), largest=LIMITS[RELEASED])
    return hashlib.sha256(content).hexdigest()


def _tags(service: Service, model: Model, certificate: Certificate) -> dict[str, Any]:
    """What the registry of models gets to know of a release: public documents only."""
    return {
        "name": model.mlflow_name,
        "version": model.mlflow_version,
        "tags": {
            "graphforget.certificate_digest": certificate.digest,
            "graphforget.certificate_url": service.url(f"/v2/releases/{certificate.digest}/certificate"),
            "graphforget.level": certificate.level,
            "graphforget.round": certificate.made,
        },
    }


def verify_release(service: Service, model: Model) -> list[dict[str, str]]:
    """Verifies the run directory with the public key. Raises `Mismatch` or `InputError` if anything does not hold."""
    result = verify_run(model.run, key=service.secrets.signing.public_key())
    return [{"name": check.name, "result": check.result} for check in result.checks]
