"""The HTTP application."""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.openapi.utils import get_openapi
from fastapi.responses import RedirectResponse
from fastapi.staticfiles import StaticFiles
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

from graphforget.service.api import connectors, opendsr, opengdpr, operations
from graphforget.service.api.errors import install_errors, unexpected
from graphforget.service.open_models import OpenModels
from graphforget.service.security import BodyLimit, RateLimit, SecureHeaders
from graphforget.service.service import Service
from graphforget.service.web import actions, pages, pictures
from graphforget.service.web.sessions import LOGIN, NotSignedIn

log = logging.getLogger(__name__)
TITLE = "graphforget request service"


def create_app(service: Service) -> FastAPI:
    """The application of an open service."""
    app = FastAPI(title=TITLE, version="2.0", docs_url=None, redoc_url=None, redirect_slashes=False)
    app.state.service = service
    app.state.models = OpenModels()  # for the pictures
    app.state.requests = RateLimit(service.settings.requests_per_minute)
    app.state.failures = RateLimit(service.settings.logins_per_minute)
    for router in (opendsr.router, operations.router, connectors.router):
        app.include_router(router, prefix="/v2")
    app.include_router(opengdpr.router, prefix="/v1")
    for router in (opendsr.router, opengdpr.router):  # they name the paths without a version, too
        app.include_router(router, include_in_schema=False)
    for router in (pages.router, actions.router, pictures.router):
        app.include_router(router)
    app.mount("/static", StaticFiles(directory=Path(__file__).parent / "static"))
    install_errors(app)
    app.add_exception_handler(NotSignedIn, lambda *_: RedirectResponse(LOGIN, 303))
    app.add_middleware(BodyLimit)
    app.middleware("http")(_log_request)
    app.add_middleware(SecureHeaders, secure=service.settings.is_secure)
    if service.settings.trusted_proxies:  # of nobody else the header is read
        app.add_middleware(ProxyHeadersMiddleware, trusted_hosts=list(service.settings.trusted_proxies))
    app.openapi = lambda: _openapi(app)  # type: ignore[method-assign]
    return app


async def _log_request(request: Request, call: Callable[[Request], Awaitable[Response]]) -> Response:
    """One line a request: the route and not the address, which holds what the caller sent."""
    started = time.perf_counter()
    try:
        response = await call(request)
    except Exception as error:
        response = unexpected(request, error)
    route = getattr(request.scope.get("route"), "path", "-")
    milliseconds = 1000 * (time.perf_counter() - started)
    log.info("%s %s %d %.0f ms", request.method, route, response.status_code, milliseconds)
    return response


def _openapi(app: FastAPI) -> dict[str, Any]:
    """The description of the interface. Errors of validation are 400 here, as OpenDSR asks, and not 422."""
    if app.openapi_schema is None:
        schema = get_openapi(title=app.title, version=app.version, routes=app.routes)
        for path in schema["paths"].values():
            for operation in path.values():
                operation["responses"].pop("422", None)
        for name in ("HTTPValidationError", "ValidationError"):
            schema["components"]["schemas"].pop(name, None)
        app.openapi_schema = schema
    return app.openapi_schema
