"""Errors as OpenDSR words them. No message repeats what a caller sent: that may name a person."""

from __future__ import annotations

import logging
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from starlette.exceptions import HTTPException

from graphforget.errors import InputError
from graphforget.service.api.schemas import ErrorBody
from graphforget.service.intake import Conflict, Forbidden
from graphforget.service.rendering import render

ERRORS: dict[int | str, dict[str, Any]] = {
    400: {"model": ErrorBody, "description": "The request cannot be read, or asks for what is not possible."},
    401: {"model": ErrorBody, "description": "No token, or one that is not valid."},
    403: {"model": ErrorBody, "description": "The token does not allow this."},
    404: {"model": ErrorBody, "description": "There is no such thing."},
    405: {"model": ErrorBody, "description": "The address has no such method."},
    409: {"model": ErrorBody, "description": "Not possible in the present state."},
    413: {"model": ErrorBody, "description": "The body is too large."},
    429: {"model": ErrorBody, "description": "Too many requests; Retry-After says when to come again."},
}
PAGE = "/page/"  # what people look at
log = logging.getLogger(__name__)


def error_body(code: int, message: str, problems: list[dict[str, str]] | None = None) -> dict[str, Any]:
    listed = problems or [{"domain": "graphforget", "reason": _REASONS.get(code, "error"), "message": message}]
    return {"error": {"code": code, "message": message, "errors": listed}}


_REASONS = {400: "invalid", 401: "unauthorized", 403: "forbidden", 404: "not_found", 409: "conflict", 429: "rate"}


def install_errors(app: FastAPI) -> None:
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, _http)
    app.add_exception_handler(InputError, _input)


def _answer(
    request: Request, code: int, message: str, problems: list[dict[str, str]] | None = None, **headers: str
) -> Response:
    """JSON for programs, and a page for people."""
    if request.url.path.startswith(PAGE):
        response: Response = render("error", None, code=code, message=message)
        response.headers.update(headers)
        return response
    return JSONResponse(error_body(code, message, problems), status_code=code, headers=headers)


async def _invalid(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    problems = [
        {"domain": ".".join(str(part)[:40] for part in one["loc"][:6]), "reason": "invalid", "message": one["type"]}
        for one in error.errors()[:20]
    ]
    return _answer(request, 400, "the request is not valid", problems)


async def _http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return _answer(request, error.status_code, str(error.detail), None, **(error.headers or {}))


async def _input(request: Request, error: Exception) -> Response:
    code = 409 if isinstance(error, Conflict) else 403 if isinstance(error, Forbidden) else 400
    return _answer(request, code, str(error))


def unexpected(request: Request, error: Exception) -> Response:
    """The message of an unknown error may hold anything, so only its type and place are written to the log."""
    trace, place = error.__traceback__, ""
    while trace is not None:
        place = f"{trace.tb_frame.f_code.co_filename}:{trace.tb_lineno}"
        trace = trace.tb_next
    log.error("unexpected %s at %s", type(error).__name__, place)
    return _answer(request, 500, "an unexpected error, see the log of the service")
