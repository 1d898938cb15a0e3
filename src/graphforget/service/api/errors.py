"""Errors as OpenDSR words them. No message repeats what a caller sent: that may name a person."""

from __future__ import annotations

import logging
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from starlette.exceptions import HTTPException

from graphforget.errors import InputError
from graphforget.service.api.schemas import ANY_UUID, UUID4, ErrorBody
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
NOT_FOUND = "Not Found"  # starlette's words for an address without a route
PATTERNS = {UUID4: "is not a random UUID (version 4) in lower case", ANY_UUID: "is not a UUID in lower case"}
WORDS = {  # of pydantic's errors, with what the schema asks for
    "missing": "is missing",
    "json_invalid": "is not JSON",
    "literal_error": "is not {expected}",
    "extra_forbidden": "has a field that is not known",
    "too_short": "has fewer than {min_length} entries",
    "too_long": "has more than {max_length} entries",
    "string_too_short": "is empty",
    "string_too_long": "has more than {max_length} characters",
    "string_type": "is not text",
    "list_type": "is not a list",
    "bool_type": "is neither true nor false",
    "bool_parsing": "is neither true nor false",
    "model_attributes_type": "is not a JSON object",
    "timezone_aware": "has no time zone",
    "datetime_from_date_parsing": "is not a time such as 2026-01-31T12:00:00Z",
    "datetime_parsing": "is not a time such as 2026-01-31T12:00:00Z",
    "datetime_type": "is not a time such as 2026-01-31T12:00:00Z",
}
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
    problems = [{"domain": _place(one), "reason": "invalid", "message": _sentence(one)} for one in error.errors()[:20]]
    first = problems[0]
    return _answer(request, 400, f"the request is not valid: {first['domain']} {first['message']}", problems)


def _place(problem: Any) -> str:
    """Where in the request it is. The name of an unknown field is what the caller sent, so it is left out."""
    place = problem["loc"]
    if problem["type"] == "extra_forbidden":
        place = place[:-1]
    elif problem["type"] == "json_invalid":
        place = place[:1]
    return ".".join(str(part) for part in place[:6])


def _sentence(problem: Any) -> str:
    """What is wrong, after the name of the place. Only what the schema says: never what the caller sent."""
    kind, context = problem["type"], problem.get("ctx", {})
    if kind == "value_error":  # one of our own sentences
        return str(context["error"])
    if kind == "string_pattern_mismatch":
        return PATTERNS.get(context["pattern"], "does not have the needed form")
    return WORDS.get(kind, "does not have the needed form").format(**context)


async def _http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    detail = "there is no such address" if error.detail == NOT_FOUND else str(error.detail)
    return _answer(request, error.status_code, detail, None, **(error.headers or {}))


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
