"""What the page shows."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response
from sqlalchemy import select
from sqlalchemy.orm import selectinload
from starlette.exceptions import HTTPException

from graphforget.certificates.chain import Entry
from graphforget.certificates.document import Certificate
from graphforget.errors import InputError, Mismatch
from graphforget.runs.history import read_history
from graphforget.service.api.opendsr import Id
from graphforget.service.api.operations import Digest, attestation_file, certificate_file, health_of, release_of
from graphforget.service.api.schemas import ANY_UUID
from graphforget.service.queue import PAGE, queue_rows
from graphforget.service.releases import ledger_id_of
from graphforget.service.rendering import render
from graphforget.service.security import OpenService
from graphforget.service.states import FINAL, MEANINGS, OPEN, WORDS
from graphforget.service.tables import Delivery, Event, Model, Part, Release, SubjectRequest
from graphforget.service.tokens import ADMIN, APPROVE, READ
from graphforget.service.web.sessions import SignedIn

router = APIRouter(include_in_schema=False)
NAMES_SHOWN_TO = (APPROVE, ADMIN)


@router.get("/")
def start() -> RedirectResponse:
    return RedirectResponse("/page/queue", 303)


@router.get("/page/sign-in")
def sign_in_form() -> HTMLResponse:
    return render("sign_in", None, failed=False)


@router.get("/page/queue")
def queue(
    service: OpenService,
    visitor: SignedIn,
    state: Annotated[str, Query(max_length=20)] = "",
    first: Annotated[int, Query(ge=0, le=10**9)] = 0,
) -> Response:
    if not visitor.may(READ, *NAMES_SHOWN_TO):
        return RedirectResponse("/page/new", 303)  # who only submits
    with service.database.read() as session:
        rows = queue_rows(session, service, state=state or None, first=first)
        counts = health_of(session, service)
    return render(
        "queue",
        visitor,
        rows=rows,
        counts=counts,
        state=state,
        first=first,
        page=PAGE,
        states={name: WORDS[name] for name in (*OPEN, *FINAL)},
    )


@router.get("/page/new")
def new_form(service: OpenService, visitor: SignedIn) -> HTMLResponse:
    visitor.need("submit")
    with service.database.read() as session:
        models = list(session.scalars(select(Model).order_by(Model.name)))
    return render("new", visitor, models=models, error=None)


@router.get("/page/requests/{id}")
def one_request(id: Id, service: OpenService, visitor: SignedIn) -> HTMLResponse:
    with service.database.read() as session:
        parts = selectinload(SubjectRequest.parts)
        request = session.get(
            SubjectRequest,
            id,
            options=[parts.selectinload(Part.model), parts.selectinload(Part.release).selectinload(Release.purges)],
        )
        own = request is not None and request.token_id == visitor.token.id
        if request is None or not (own or visitor.may(READ, *NAMES_SHOWN_TO)):
            raise HTTPException(404, "there is no such request")
        events = list(session.scalars(select(Event).where(Event.request_id == id).order_by(Event.id)))
        told = list(session.scalars(select(Delivery).where(Delivery.request_id == id).order_by(Delivery.id)))
    return render(
        "request",
        visitor,
        request=request,
        events=events,
        deliveries=told,
        is_open=request.state in OPEN,
        names_shown=visitor.may(*NAMES_SHOWN_TO),
        plans_shown=visitor.may(READ, *NAMES_SHOWN_TO),
        now=service.now,
        next_round=service.next_round,
    )


@router.get("/page/models")
def models(service: OpenService, visitor: SignedIn) -> HTMLResponse:
    visitor.need(READ)
    with service.database.read() as session:
        listed = list(session.scalars(select(Model).order_by(Model.name)))
        query = select(Release).options(selectinload(Release.purges)).order_by(Release.id.desc()).limit(PAGE)
        releases = list(session.scalars(query.options(selectinload(Release.model))))
    return render("models", visitor, models=[(model, _budget(model)) for model in listed], releases=releases)


def _budget(model: Model) -> dict[str, Any]:
    """What the ledger of a model says of its releases."""
    try:
        history = read_history(model.run)
        last = history.ledger.last_release
        certificate = None if last is None else history.ledger.certificates[last]
    except (InputError, Mismatch) as error:
        return {"problem": type(error).__name__, "requests": 0, "certificate": None, "releases": 0}
    return {
        "problem": None,
        "requests": len(history.entries),
        "releases": len(history.groups),
        "certificate": certificate,
    }


@router.get("/page/ledger")
def ledger(
    service: OpenService,
    visitor: SignedIn,
    model: Annotated[str, Query(max_length=80)] = "",
    search: Annotated[str, Query(max_length=200)] = "",
) -> HTMLResponse:
    visitor.need(READ)
    term, problem = search.strip(), None
    with service.database.read() as session:
        listed = list(session.scalars(select(Model).order_by(Model.name)))
        asked = session.get(SubjectRequest, term) if re.fullmatch(ANY_UUID, term) else None
    chosen = next((one for one in listed if one.name == model), listed[0] if listed else None)
    entries: Sequence[Entry] = ()
    if chosen is not None:
        try:
            entries = read_history(chosen.run).chain.entries
        except InputError as error:  # the message names a folder of the server
            problem = type(error).__name__
        if asked is not None:
            term = ledger_id_of(service, asked, chosen.id)
    wanted = [one for one in entries if term in one.request_id or term in one.certificate_digest]
    return render(
        "ledger",
        visitor,
        models=listed,
        chosen=chosen,
        search=search,
        problem=problem,
        entries=wanted[::-1][:PAGE],
        found=len(wanted),
        total=len(entries),
        head=entries[-1].hash if entries else None,
    )


@router.get("/page/releases/{digest}")
def release(digest: Digest, service: OpenService, visitor: SignedIn) -> HTMLResponse:
    visitor.need(READ, *NAMES_SHOWN_TO)
    with service.database.read() as session:
        found = release_of(session, digest)
        model, purges = found.model, found.purges
    certificate = Certificate.from_dict(found.certificate)
    return render(
        "release",
        visitor,
        release=found,
        model=model,
        purges=purges,
        certificate=certificate,
        meaning=MEANINGS[certificate.level],
        text=json.dumps(found.certificate, indent=2),
    )


@router.get("/page/releases/{digest}/certificate.json")
def download_certificate(digest: Digest, service: OpenService, visitor: SignedIn) -> Response:
    visitor.need(READ, *NAMES_SHOWN_TO)
    with service.database.read() as session:
        return certificate_file(release_of(session, digest))


@router.get("/page/releases/{digest}/attestation.json")
def download_attestation(digest: Digest, service: OpenService, visitor: SignedIn) -> Response:
    visitor.need(READ, *NAMES_SHOWN_TO)
    with service.database.read() as session:
        return attestation_file(release_of(session, digest, verified=True))


@router.get("/page/health")
def health(service: OpenService, visitor: SignedIn) -> HTMLResponse:
    visitor.need(READ)
    with service.database.read() as session:
        counts = health_of(session, service)
        stopped = list(session.scalars(select(Model).where(Model.alarm.is_not(None))))
        waiting = (Delivery.delivered.is_(None)) & (Delivery.attempts > 0)
        late = list(session.scalars(select(Delivery).where(waiting).order_by(Delivery.id).limit(PAGE)))
    return render("health", visitor, counts=counts, stopped=stopped, late=late)


@router.get("/docs")
def interface(request: Request) -> HTMLResponse:
    """The HTTP interface, in words. Its description for machines is at /openapi.json."""
    return render("interface", None, schema=request.app.openapi())
