"""Who is signed in on the page, and the protection of its forms."""

from __future__ import annotations

import hmac
import secrets
from dataclasses import dataclass
from typing import Annotated
from urllib.parse import urlsplit

from fastapi import Depends, Form, Request
from starlette.exceptions import HTTPException

from graphforget.service.security import service_of
from graphforget.service.service import Service
from graphforget.service.tables import Token, WebSession
from graphforget.service.tokens import allows, find_token, is_valid, token_hash

HOURS = 8
LOGIN = "/page/sign-in"


class NotSignedIn(Exception):
    """The page needs somebody who is signed in."""


@dataclass(frozen=True)
class Visitor:
    """Somebody who is signed in."""

    token: Token
    csrf: str

    @property
    def name(self) -> str:
        return self.token.name

    def may(self, *scopes: str) -> bool:
        return allows(self.token, *scopes)

    def need(self, *scopes: str) -> None:
        """Raises an error 403 unless the visitor has one of these scopes."""
        if not self.may(*scopes):
            raise HTTPException(403, f"your token does not have the scope {' or '.join(scopes)}")


def cookie_name(service: Service) -> str:
    """The prefix makes a browser accept the cookie over TLS alone, from this host alone."""
    return "__Host-graphforget" if service.settings.is_secure else "graphforget"


def sign_in(service: Service, secret: str) -> str | None:
    """The value of a new session's cookie; None if the token is not valid."""
    with service.database.write() as session:
        token = find_token(session, secret.strip(), now=service.now)
        if token is None:
            return None
        cookie = secrets.token_urlsafe(32)
        ends = service.now + HOURS * 3600
        row = WebSession(hash=token_hash(cookie), token_id=token.id, csrf=secrets.token_urlsafe(32), expires=ends)
        session.add(row)
        return cookie


def sign_out(service: Service, cookie: str) -> None:
    with service.database.write() as session:
        row = session.get(WebSession, token_hash(cookie))
        if row is not None:
            session.delete(row)


def visitor(request: Request) -> Visitor:
    """A dependency: who is signed in. A token that was revoked ends its sessions."""
    service = service_of(request)
    cookie = request.cookies.get(cookie_name(service))
    if cookie:
        with service.database.read() as session:
            row = session.get(WebSession, token_hash(cookie))
            if row is not None and row.expires > service.now and is_valid(row.token, service.now):
                request.app.state.requests.check(f"token-{row.token_id}")
                return Visitor(row.token, row.csrf)
    raise NotSignedIn


def same_origin(request: Request) -> None:
    """Raises an error 403 for a form that another site sent."""
    service = service_of(request)
    origin = request.headers.get("origin")
    ours = urlsplit(service.settings.base_url).netloc, request.headers.get("host")
    if origin is not None and origin.partition("://")[2] not in ours:
        raise HTTPException(403, "the form was sent from another site")


def checked_visitor(
    request: Request,
    current: Annotated[Visitor, Depends(visitor)],
    csrf: Annotated[str, Form(max_length=200)] = "",
) -> Visitor:
    """A dependency: who is signed in and has sent a form of this page."""
    same_origin(request)
    if not hmac.compare_digest(csrf.encode("utf-8", "replace"), current.csrf.encode()):
        raise HTTPException(403, "the form is too old or was not sent from this page")
    return current


SignedIn = Annotated[Visitor, Depends(visitor)]
Sender = Annotated[Visitor, Depends(checked_visitor)]
