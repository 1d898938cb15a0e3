"""OpenDSR 2.0: discovery, requests, their status, their cancellation and their results."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from typing import Annotated, Any

from fastapi import APIRouter, Body, Depends, Path, Request, Response
from sqlalchemy.orm import Session, selectinload
from starlette.exceptions import HTTPException

from graphforget.service.api.errors import ERRORS
from graphforget.service.api.schemas import (
    ANY_UUID,
    SUPPORTED_FORMATS,
    Cancelled,
    Discovery,
    NewRequest,
    Received,
    Status,
)
from graphforget.service.connectors.opendsr import V2, Version, signature_headers
from graphforget.service.identities import TYPES
from graphforget.service.intake import Submission, accept_once, cancel
from graphforget.service.notices import controller_id, status_body
from graphforget.service.releases import ledger_id_of
from graphforget.service.security import OpenService, require
from graphforget.service.service import Service, as_time
from graphforget.service.states import COMPLETED
from graphforget.service.tables import Part, SubjectRequest, Token
from graphforget.service.tokens import APPROVE, READ, SUBMIT, allows

router = APIRouter(tags=["OpenDSR"], responses=ERRORS)
Submitter = Annotated[Token, Depends(require(SUBMIT))]
Reader = Annotated[Token, Depends(require(SUBMIT, READ))]
Id = Annotated[str, Path(description="The id of the request.", pattern=ANY_UUID)]


def signed_json(service: Service, content: Mapping[str, Any], code: int = 200, version: Version = V2) -> Response:
    """JSON with the headers that sign its bytes."""
    body = json.dumps(content).encode()
    return Response(body, code, signature_headers(service, body, version), media_type="application/json")


def found(session: Session, token: Token, id: str, *, to_change: bool = False) -> SubjectRequest:
    """A request that this caller may see: who only submits sees their own. `to_change` locks it."""
    parts = selectinload(SubjectRequest.parts).selectinload(Part.release)
    request = session.get(SubjectRequest, id, options=[parts], with_for_update=to_change)
    if request is None or not (allows(token, READ, APPROVE) or request.token_id == token.id):
        raise HTTPException(404, "there is no such request")
    return request


@router.get("/discovery", response_model=Discovery)
def discovery(service: OpenService) -> dict[str, Any]:
    """What this processor understands."""
    return {
        "api_version": V2.api_version,
        "supported_identities": [
            {"identity_type": kind, "identity_format": form} for kind in TYPES for form in SUPPORTED_FORMATS
        ],
        "supported_subject_request_types": ["erasure"],
        "processor_certificate": service.url("/v2/certificate.pem"),
    }


@router.get("/certificate.pem", response_class=Response, responses={200: {"content": {"application/x-pem-file": {}}}})
def processor_certificate(service: OpenService) -> Response:
    """The X.509 certificate of the key that signs responses and callbacks."""
    return Response(service.secrets.certificate, media_type="application/x-pem-file")


async def raw_body(request: Request) -> bytes:
    return await request.body()


@router.post("/requests", status_code=201, response_model=Received)
def submit(
    new: Annotated[NewRequest, Body()],
    raw: Annotated[bytes, Depends(raw_body)],
    service: OpenService,
    token: Submitter,
) -> Response:
    """Accepts a request. The same `subject_request_id` with the same content gets the same answer again."""
    return received(service, submission(new, V2.source), token, raw)


def received(service: Service, given: Submission, token: Token | None, raw: bytes, version: Version = V2) -> Response:
    """Stores a request, and the signed answer to it."""
    request = accept_once(service, given, token)
    content = {
        "controller_id": controller_id(request),
        "expected_completion_time": as_time(request.due),
        "received_time": as_time(request.received),
        "encoded_request": base64.b64encode(raw).decode(),
        "subject_request_id": request.id,
    }
    return signed_json(service, content, 201, version)


def submission(new: NewRequest, source: str) -> Submission:
    extension = new.extensions.graphforget
    models = [extension.model] if isinstance(extension.model, str) else extension.model
    scope = {
        "models": models,
        "edges": extension.edges,
        "attributes": extension.attributes,
        "columns": extension.columns,
    }
    return Submission(
        id=new.subject_request_id,
        source=source,
        regulation=new.regulation,
        identities=[one.model_dump() for one in new.subject_identities],
        scope={name: value for name, value in scope.items() if value},
        submitted=int(new.submitted_time.timestamp()),
        callback_urls=tuple(new.status_callback_urls),
        dry_run=extension.dry_run,
    )


@router.get("/requests/{id}", response_model=Status)
def status(id: Id, service: OpenService, token: Reader) -> Response:
    """The status of a request. A refused request is `cancelled`, with the reason in `extensions`."""
    return status_of(service, token, id)


def status_of(service: Service, token: Token, id: str, version: Version = V2) -> Response:
    with service.database.read() as session:
        return signed_json(service, status_body(service, found(session, token, id), version), version=version)


@router.delete("/requests/{id}", status_code=202, response_model=Cancelled)
def withdraw(id: Id, service: OpenService, token: Submitter) -> Response:
    """Cancels a request that is still pending."""
    return cancelled(service, token, id)


def cancelled(service: Service, token: Token, id: str, version: Version = V2) -> Response:
    with service.database.write() as session:
        request = found(session, token, id, to_change=True)
        cancel(session, service, request, token)
        content = {
            "controller_id": controller_id(request),
            "received_time": as_time(request.received),
            "subject_request_id": request.id,
            "api_version": version.api_version,
        }
    return signed_json(service, content, 202, version)


@router.get("/requests/{id}/results", response_model=dict[str, Any])
def results(id: Id, service: OpenService, token: Reader) -> Response:
    """The result of a completed request: the certificate and the attestation of each model that forgot."""
    with service.database.read() as session:
        request = found(session, token, id)
        if request.state != COMPLETED:
            raise HTTPException(409, "the request is not completed")
        content: dict[str, Any] = {
            "subject_request_id": request.id,
            "result": request.result,
            "certificates": [_release(service, part) for part in request.parts if part.release is not None],
        }
        if request.dry_run and allows(token, READ, APPROVE):  # a plan counts what is held of the person
            content["plans"] = [{"model": part.model.name, "plan": part.plan} for part in request.parts]
    return signed_json(service, content)


def _release(service: Service, part: Part) -> dict[str, Any]:
    assert part.release is not None
    release = part.release
    return {
        "model": part.model.name,
        "ledger_id": ledger_id_of(service, part.request, part.model_id) if part.request.content_hash else None,
        "round": as_time(release.round),
        "certificate": release.certificate,
        "attestation": release.attestation,
    }
