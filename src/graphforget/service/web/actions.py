"""What people do on the page: sign in, submit, approve, refuse, cancel, tick off."""

from __future__ import annotations

import uuid
from typing import Annotated

from fastapi import APIRouter, Form, Path, Request
from fastapi.responses import RedirectResponse, Response
from sqlalchemy import select
from starlette.exceptions import HTTPException

from graphforget.errors import InputError
from graphforget.service.api.opendsr import Id
from graphforget.service.identities import TYPES
from graphforget.service.intake import Submission, accept_once, cancel
from graphforget.service.planning import approve, refuse
from graphforget.service.purging import tick_off
from graphforget.service.rendering import render
from graphforget.service.security import OpenService, address_of
from graphforget.service.service import Service
from graphforget.service.tables import Model, SubjectRequest, Token
from graphforget.service.tokens import APPROVE, SUBMIT
from graphforget.service.web.sessions import (
    HOURS,
    LOGIN,
    Sender,
    cookie_name,
    same_origin,
    sign_in,
    sign_out,
)

router = APIRouter(prefix="/page", include_in_schema=False)
Field = Annotated[str, Form(max_length=500)]


@router.post("/sign-in")
def enter(request: Request, service: OpenService, token: Field = "") -> Response:
    same_origin(request)
    request.app.state.failures.check(address_of(request))
    cookie = sign_in(service, token)
    if cookie is None:
        return render("sign_in", None, code=401, failed=True)
    response = RedirectResponse("/page/queue", 303)
    response.set_cookie(
        cookie_name(service),
        cookie,
        max_age=HOURS * 3600,
        httponly=True,
        secure=service.settings.is_secure,
        samesite="strict",
    )
    return response


@router.post("/sign-out")
def leave(request: Request, service: OpenService, visitor: Sender) -> Response:
    sign_out(service, request.cookies.get(cookie_name(service), ""))
    response = RedirectResponse(LOGIN, 303)
    secure = service.settings.is_secure  # a browser ignores what else it is told about a cookie with this prefix
    response.delete_cookie(cookie_name(service), httponly=True, secure=secure, samesite="strict")
    return response


# Longer than 50 lines because each field of the form is an argument.
@router.post("/new")
def submit(
    service: OpenService,
    visitor: Sender,
    subject: Field = "",
    identity_type: Field = TYPES[0],
    regulation: Field = "gdpr",
    what: Field = "person",
    names: Annotated[str, Form(max_length=5000)] = "",
    model: Field = "",
    dry_run: Field = "",
) -> Response:
    visitor.need(SUBMIT)
    listed = [name.strip() for name in names.replace("\n", ",").split(",") if name.strip()]
    try:
        _check_form(subject, identity_type, regulation, what, listed)
        given = Submission(
            id=str(uuid.uuid4()),
            source="page",
            regulation=regulation,
            identities=[{"identity_type": identity_type, "identity_value": subject.strip(), "identity_format": "raw"}],
            scope={
                **({"models": [model]} if model else {}),
                **({"attributes": True} if what == "attributes" else {}),
                **({what: listed} if what in ("columns", "edges") else {}),
            },
            submitted=service.now,
            dry_run=bool(dry_run),
        )
        request = accept_once(service, given, visitor.token)
    except InputError as error:
        with service.database.read() as session:
            models = list(session.scalars(select(Model).order_by(Model.name)))
        return render("new", visitor, code=400, models=models, error=str(error))
    return RedirectResponse(f"/page/requests/{request.id}", 303)


def _check_form(subject: str, identity_type: str, regulation: str, what: str, names: list[str]) -> None:
    if not subject.strip() or not subject.strip().isprintable():
        raise InputError("Enter who the request is about.")
    if identity_type not in TYPES or regulation not in ("gdpr", "ccpa"):
        raise InputError("Choose a kind of name and a law from the lists.")
    if what not in ("person", "attributes", "columns", "edges"):
        raise InputError("Choose what to erase from the list.")
    if what in ("columns", "edges") and not names:
        raise InputError("List the attributes or the other people, separated by commas.")
    if len(names) > 100 or not all(name.isprintable() for name in names):
        raise InputError("List at most 100 names of characters that can be printed.")


@router.post("/requests/{id}/{action}")
def decide(
    id: Id,
    action: Annotated[str, Path(pattern="^(approve|refuse|cancel)$")],
    service: OpenService,
    visitor: Sender,
    reason: Field = "",
) -> Response:
    visitor.need(SUBMIT if action == "cancel" else APPROVE)
    _decide(service, id, action, visitor.token, reason.strip())
    return RedirectResponse(f"/page/requests/{id}", 303)


def _decide(service: Service, id: str, action: str, token: Token, reason: str) -> None:
    with service.database.write() as session:
        request = session.get(SubjectRequest, id, with_for_update=True)
        if request is None:
            raise HTTPException(404, "there is no such request")
        if action == "approve":
            approve(session, service, request, token.name)
        elif action == "cancel":
            cancel(session, service, request, token)
        elif not reason or not reason.isprintable():
            raise InputError("a refusal needs a reason")
        else:
            refuse(session, service, request, token.name, reason)


@router.post("/purges/{number}/{digest}")
def purged(
    number: Annotated[int, Path(ge=1, le=2**53)],
    digest: Annotated[str, Path(pattern="^[0-9a-f]{64}$")],
    service: OpenService,
    visitor: Sender,
) -> Response:
    visitor.need(APPROVE)
    with service.database.write() as session:
        tick_off(session, service, number, visitor.name)
    return RedirectResponse(f"/page/releases/{digest}", 303)
