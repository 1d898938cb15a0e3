"""What the operator's own people and machines do: decide, look at models and releases, tick off purges."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Body, Depends, Path, Query, Response
from sqlalchemy import func, select
from sqlalchemy.orm import Session
from starlette.exceptions import HTTPException

from graphforget.certificates.attestation import attestation_bytes
from graphforget.certificates.document import Certificate
from graphforget.errors import InputError
from graphforget.runs.save import public_json
from graphforget.service.api.errors import ERRORS
from graphforget.service.api.opendsr import Id, found, signed_json
from graphforget.service.api.schemas import Decision
from graphforget.service.notices import status_body
from graphforget.service.planning import approve, refuse
from graphforget.service.purging import tick_off
from graphforget.service.queue import queue_rows
from graphforget.service.security import OpenService, require
from graphforget.service.service import Service
from graphforget.service.states import OPEN
from graphforget.service.tables import Delivery, Model, Release, SubjectRequest, Token
from graphforget.service.tokens import APPROVE, READ

router = APIRouter(tags=["operations"], responses=ERRORS)
Approver = Annotated[Token, Depends(require(APPROVE))]
Reader = Annotated[Token, Depends(require(READ))]
Planner = Annotated[Token, Depends(require(READ, APPROVE))]
Digest = Annotated[str, Path(description="The digest of a certificate.", pattern="^[0-9a-f]{64}$")]


@router.get("/health", response_model=dict[str, Any])
def health(service: OpenService) -> dict[str, Any]:
    """Whether the service works. It needs no token, so it does not say how much waits: that tells when people ask."""
    with service.database.read() as session:
        return {"ok": not _stopped_models(session)}


def _stopped_models(session: Session) -> int:
    return session.scalar(select(func.count()).select_from(Model).where(Model.alarm.is_not(None))) or 0


def health_of(session: Session, service: Service) -> dict[str, Any]:
    waiting, stopped = SubjectRequest.state.in_(OPEN), _stopped_models(session)
    stuck = select(func.count()).select_from(Delivery).where(Delivery.delivered.is_(None), Delivery.attempts > 0)
    overdue = select(func.count()).select_from(SubjectRequest).where(waiting, SubjectRequest.due < service.now)
    return {
        "ok": not stopped,
        "open_requests": session.scalar(select(func.count()).select_from(SubjectRequest).where(waiting)) or 0,
        "overdue_requests": session.scalar(overdue) or 0,
        "stopped_models": stopped,
        "deliveries_retried": session.scalar(stuck) or 0,
        "next_round": service.next_round,
    }


@router.get("/queue", response_model=dict[str, Any])
def queue(
    service: OpenService,
    _token: Reader,
    state: Annotated[str | None, Query(max_length=20)] = None,
    first: Annotated[int, Query(ge=0, le=10**9)] = 0,
) -> dict[str, Any]:
    """The open requests, overdue ones first. It names nobody."""
    with service.database.read() as session:
        return {
            "requests": queue_rows(session, service, state=state, first=first),
            "health": health_of(session, service),
        }


@router.get("/requests/{id}/plan", response_model=dict[str, Any])
def plan_of(id: Id, service: OpenService, token: Planner) -> dict[str, Any]:
    """What answering the request would do in each model. Private: it depends on the data to delete."""
    with service.database.read() as session:
        parts = found(session, token, id).parts
        return {
            "audience": "private",
            "models": [{"model": part.model.name, "state": part.state, "plan": part.plan} for part in parts],
        }


@router.post("/requests/{id}/decision", response_model=dict[str, Any])
def decide(id: Id, decision: Annotated[Decision, Body()], service: OpenService, token: Approver) -> Response:
    """Approves a planned request, or refuses it with a reason."""
    with service.database.write() as session:
        request = session.get(SubjectRequest, id, with_for_update=True)
        if request is None:
            raise HTTPException(404, "there is no such request")
        if decision.decision == "approve":
            approve(session, service, request, token.name)
        elif decision.reason is None:
            raise InputError("a refusal needs a reason")
        else:
            refuse(session, service, request, token.name, decision.reason)
        return signed_json(service, status_body(service, request))


@router.get("/models", response_model=dict[str, Any])
def models(service: OpenService, _token: Reader) -> dict[str, Any]:
    """The registered models."""
    with service.database.read() as session:
        listed = session.scalars(select(Model).order_by(Model.name))
        return {
            "models": [
                {"name": one.name, "identity_type": one.identity_type, "alarm": one.alarm, "purge": one.purge_labels}
                for one in listed
            ]
        }


@router.get("/releases/{digest}/certificate", response_model=dict[str, Any])
def certificate(digest: Digest, service: OpenService, _token: Reader) -> Response:
    """A certificate, as `certificate.json` of its run directory was. It is public."""
    with service.database.read() as session:
        return certificate_file(release_of(session, digest))


@router.get("/releases/{digest}/attestation", response_model=dict[str, Any])
def attestation(digest: Digest, service: OpenService, _token: Reader) -> Response:
    """The certificate as an in-toto Statement in a DSSE envelope. It is public."""
    with service.database.read() as session:
        return attestation_file(release_of(session, digest, verified=True))


def certificate_file(release: Release) -> Response:
    document = Certificate.from_dict(release.certificate).to_dict()
    return _download("certificate", release, public_json(document))


def attestation_file(release: Release) -> Response:
    return _download("attestation", release, attestation_bytes(release.attestation))


def _download(name: str, release: Release, content: bytes) -> Response:
    headers = {"Content-Disposition": f'attachment; filename="{name}-{release.certificate_digest[:12]}.json"'}
    return Response(content, headers=headers, media_type="application/json")


def release_of(session: Session, digest: str, *, verified: bool = False) -> Release:
    release = session.scalar(select(Release).where(Release.certificate_digest == digest))
    if release is None:
        raise HTTPException(404, "there is no such release")
    if verified and release.checks is None:
        raise HTTPException(404, "the release is not verified yet, so nothing attests it")
    return release


@router.post("/purges/{number}/done", response_model=dict[str, Any])
def purge_done(number: Annotated[int, Path(ge=1, le=2**53)], service: OpenService, token: Approver) -> dict[str, Any]:
    """Records that a person has purged something that the model cannot forget by itself."""
    with service.database.write() as session:
        purge = tick_off(session, service, number, token.name)
        return {"label": purge.label, "done_by": purge.done_by}
