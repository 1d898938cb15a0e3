"""Who may do what, how often, and with which headers."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Annotated, Any

from fastapi import Depends, Request
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from graphforget.service.service import Service
from graphforget.service.tables import Token
from graphforget.service.tokens import allows, find_token

LARGEST_BODY = 2**16  # bytes
MOST_CALLERS = 10_000  # that are remembered for their rates
POLICY = "; ".join(
    (
        "default-src 'none'",
        "style-src 'self'",
        "img-src 'self'",
        "form-action 'self'",
        "frame-ancestors 'none'",
        "base-uri 'none'",
    )
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
    "Cache-Control": "no-store",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}
bearer = HTTPBearer(auto_error=False, description="A token of 'graphforget serve token'.")


class RateLimit:
    """A bucket of tokens for each caller, refilled over a minute."""

    def __init__(self, per_minute: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._per_minute, self._clock = per_minute, clock
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()
        self._lock = threading.Lock()

    def check(self, caller: str) -> None:
        """Raises an error 429 if this caller has come too often."""
        with self._lock:
            now = self._clock()
            left, last = self._buckets.pop(caller, (float(self._per_minute), now))
            left = min(self._per_minute, left + (now - last) * self._per_minute / 60)
            self._buckets[caller] = (left - 1 if left >= 1 else left), now
            while len(self._buckets) > MOST_CALLERS:
                self._buckets.popitem(last=False)
        if left < 1:
            wait = str(max(1, round((1 - left) * 60 / self._per_minute)))
            raise HTTPException(429, "too many requests", {"Retry-After": wait})


def service_of(request: Request) -> Service:
    service: Service = request.app.state.service
    return service


OpenService = Annotated[Service, Depends(service_of)]


def address_of(request: Request) -> str:
    return request.client.host if request.client else "unknown"


def require(*scopes: str) -> Callable[..., Token]:
    """A dependency: the token of the caller, which must have one of these scopes."""

    def caller(
        request: Request, given: Annotated[HTTPAuthorizationCredentials | None, Depends(bearer)] = None
    ) -> Token:
        service = service_of(request)
        token: Token | None = None
        if given is not None:
            with service.database.read() as session:
                token = find_token(session, given.credentials, now=service.now)
        if token is None:
            request.app.state.failures.check(address_of(request))
            raise HTTPException(401, "a valid bearer token is needed", {"WWW-Authenticate": "Bearer"})
        request.app.state.requests.check(f"token-{token.id}")
        if not allows(token, *scopes):
            raise HTTPException(403, f"a token with the scope {' or '.join(scopes)} is needed")
        return token

    return caller


class SecureHeaders:
    """ASGI middleware: secure headers on every response. It is outside of all others."""

    def __init__(self, app: ASGIApp, *, secure: bool) -> None:
        self._app = app
        headers = HEADERS | ({"Strict-Transport-Security": "max-age=31536000"} if secure else {})
        self._headers = [(name.lower().encode(), value.encode()) for name, value in headers.items()]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                given: list[Any] = list(message.get("headers", []))
                names = {name.lower() for name, _ in given}
                message["headers"] = given + [pair for pair in self._headers if pair[0] not in names]
            await send(message)

        await self._app(scope, receive, guarded)


class BodyLimit:
    """ASGI middleware: no body that is too large. It is inside of all others, where an error becomes its answer."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._app(scope, _limited(receive) if scope["type"] == "http" else receive, send)


def _limited(receive: Receive) -> Receive:
    size = 0

    async def limited() -> Message:
        nonlocal size
        message = await receive()
        size += len(message.get("body", b""))
        if size > LARGEST_BODY:
            raise HTTPException(413, f"the body has more than {LARGEST_BODY:,} bytes")
        return message

    return limited
