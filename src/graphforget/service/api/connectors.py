"""Requests that come from other systems: by a signed webhook, and from Fides."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Annotated, Any

from fastapi import APIRouter, Body, Depends, Header, Request, Response
from pydantic import ValidationError
from sqlalchemy.orm import Session
from starlette.exceptions import HTTPException

from graphforget.errors import InputError
from graphforget.service.api.errors import ERRORS
from graphforget.service.api.opendsr import Submitter, raw_body, received, submission
from graphforget.service.api.schemas import FidesErasure, NewRequest, Received
from graphforget.service.connectors.fides import check_reply, request_id
from graphforget.service.connectors.webhook import check_signature
from graphforget.service.intake import Submission, accept_once
from graphforget.service.notices import enqueue, renew_secret
from graphforget.service.secret_files import read_secret
from graphforget.service.security import OpenService, address_of
from graphforget.service.tables import SubjectRequest

router = APIRouter(tags=["connectors"], responses=ERRORS)
_SCHEMA = {"schema": {"$ref": "#/components/schemas/NewRequest"}}
SIGNED_BODY = {"requestBody": {"required": True, "content": {"application/json": _SCHEMA}}}  # read after its signature
log = logging.getLogger(__name__)
TokenHeader = Annotated[str | None, Header(max_length=4000)]


@router.post("/webhook", status_code=201, response_model=Received, openapi_extra=SIGNED_BODY)
def webhook(
    request: Request,
    raw: Annotated[bytes, Depends(raw_body)],
    service: OpenService,
    x_graphforget_timestamp: Annotated[str | None, Header(max_length=40)] = None,
    x_graphforget_signature: Annotated[str | None, Header(max_length=200)] = None,
) -> Response:
    """A request as in OpenDSR, signed with the secret of the webhook instead of a token."""
    name = service.settings.incoming_webhook_secret_file
    if name is None:
        raise HTTPException(404, "this service has no incoming webhook")
    try:
        secret = _webhook_secret(service.home / name)
        check_signature(secret, x_graphforget_timestamp, x_graphforget_signature, raw, now=service.now)
    except InputError as error:
        request.app.state.failures.check(address_of(request))
        raise HTTPException(401, "the signature of the webhook is not valid") from error
    request.app.state.requests.check("webhook")
    try:
        new = NewRequest.model_validate_json(raw)
    except ValidationError as error:
        raise InputError("the body is no request of OpenDSR 2.0") from error
    return received(service, submission(new, "webhook"), None, raw)


def _webhook_secret(path: Path) -> bytes:
    """The secret. If it cannot be read, callers learn no more than from a wrong signature, and the operator does."""
    try:
        return read_secret(path)
    except InputError:
        log.error("the secret of the incoming webhook cannot be read, is too short, or is open to others")
        raise


@router.post("/fides/erasures", status_code=202, response_model=dict[str, Any])
def fides(
    given: Annotated[FidesErasure, Body()],
    service: OpenService,
    token: Submitter,
    reply_to: TokenHeader = None,
    reply_to_token: TokenHeader = None,
) -> dict[str, Any]:
    """An erasure of Fides. It is called back at `reply-to` when the erasure is done."""
    if reply_to is None or not reply_to_token or not (reply_to_token.isascii() and reply_to_token.isprintable()):
        raise InputError("the headers reply-to and reply-to-token are needed")
    url = check_reply(service, reply_to)
    identity = {"identity_type": given.identity_type, "identity_value": given.identity_value, "identity_format": "raw"}
    erasure = Submission(
        id=request_id(given.request),
        source="fides",
        regulation="gdpr",
        identities=[identity],
        scope={},
        submitted=service.now,
    )

    def call_back(session: Session, request: SubjectRequest) -> None:  # held back until the erasure is done
        enqueue(session, service, "fides", url, {}, request_id=request.id, secret=reply_to_token, held=True)

    def renew(session: Session, request: SubjectRequest) -> None:
        renew_secret(session, service, request, reply_to_token)

    return {"subject_request_id": accept_once(service, erasure, token, if_new=call_back, if_known=renew).id}
