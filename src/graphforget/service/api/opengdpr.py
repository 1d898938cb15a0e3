"""The names of OpenGDPR 1.0, which section 10.1 of OpenDSR 2.0 asks to honour: other paths and headers, no regulation.

What they do is in `opendsr`.
"""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Body, Depends, Response

from graphforget.service.api.errors import ERRORS
from graphforget.service.api.opendsr import (
    Id,
    Reader,
    Submitter,
    cancelled,
    discovery,
    raw_body,
    received,
    status_of,
    submission,
)
from graphforget.service.api.schemas import Cancelled, Discovery, NewRequestV1, Received, Status
from graphforget.service.connectors.opendsr import V1
from graphforget.service.security import OpenService

router = APIRouter(tags=["OpenGDPR 1.0"], responses=ERRORS)
router.get("/discovery", response_model=Discovery)(discovery)


@router.post("/opengdpr_requests", status_code=201, response_model=Received)
def submit_v1(
    new: Annotated[NewRequestV1, Body()],
    raw: Annotated[bytes, Depends(raw_body)],
    service: OpenService,
    token: Submitter,
) -> Response:
    """As `POST /v2/requests`. The callbacks of the request have the headers of version 1."""
    return received(service, submission(new, V1.source), token, raw, V1)


@router.get("/opengdpr_requests/{id}", response_model=Status)
def status_v1(id: Id, service: OpenService, token: Reader) -> Response:
    """As `GET /v2/requests/{id}`."""
    return status_of(service, token, id, V1)


@router.delete("/opengdpr_requests/{id}", status_code=202, response_model=Cancelled)
def withdraw_v1(id: Id, service: OpenService, token: Submitter) -> Response:
    """As `DELETE /v2/requests/{id}`."""
    return cancelled(service, token, id, V1)
