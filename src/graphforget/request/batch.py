"""One request, or a list of requests that are answered together."""

from __future__ import annotations

from typing import Any

from graphforget.errors import InputError
from graphforget.request.request import Request


def as_requests(given: Any) -> tuple[Request, ...]:
    """The requests of a list or tuple; of a single request a tuple of one.

    Raises:
        InputError: The list is empty, or holds something else than requests.
    """
    requests = tuple(given) if isinstance(given, list | tuple) else (given,)
    if not requests:
        raise InputError("the list of requests is empty, at least one is needed")
    for number, request in enumerate(requests, start=1):
        if not isinstance(request, Request):
            which = "the request" if len(requests) == 1 else f"request {number} of {len(requests)}"
            raise InputError(f"{which} is a {type(request).__name__}, a graphforget.Request is needed")
    return requests
