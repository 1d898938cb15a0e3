"""Messages about a request to other services: they are stored with the change that they tell of, and sent later."""

from __future__ import annotations

from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from graphforget.service.connectors.opendsr import V2, Version, version_of
from graphforget.service.service import Service, as_time
from graphforget.service.states import COMPLETED, FINAL, OPENDSR
from graphforget.service.tables import Delivery, SubjectRequest

HELD_SECONDS = 5  # the receiver refuses a callback that comes before it has seen the answer to its own call


def status_body(service: Service, request: SubjectRequest, version: Version = V2) -> dict[str, Any]:
    """The status of a request, as OpenDSR words it."""
    body: dict[str, Any] = {
        "api_version": version.api_version,
        "controller_id": controller_id(request),
        "expected_completion_time": as_time(request.due),
        "subject_request_id": request.id,
        "request_status": OPENDSR[request.state],
        "extensions": {"graphforget": _more(request)},
    }
    if request.state == COMPLETED:
        body["results_url"] = service.url(f"/v2/requests/{request.id}/results")
    return body


def controller_id(request: SubjectRequest) -> str:
    return request.source if request.token_id is None else f"token-{request.token_id}"


def _more(request: SubjectRequest) -> dict[str, Any]:
    """What OpenDSR has no field for."""
    more = {"state": request.state, "result": request.result, "reason": request.reason}
    return {name: value for name, value in more.items() if value is not None}


def set_state(session: Session, service: Service, request: SubjectRequest, state: str) -> None:
    """Moves a request on. Who asked to be told of the change will be told, whatever happens."""
    changed = OPENDSR[request.state] != OPENDSR[state]
    request.state = state
    if state in FINAL:
        _release_held(session, service, request)
    if not changed:
        return
    call_back(session, service, request)
    body = status_body(service, request)
    for webhook in service.settings.webhooks:
        enqueue(session, service, "webhook", webhook.url, body, request_id=request.id)


def call_back(session: Session, service: Service, request: SubjectRequest) -> None:
    """Tells the controller, in the words of the version of OpenDSR that the request came in by."""
    version = version_of(request.source)
    body = status_body(service, request, version)
    for url in request.callback_urls:
        enqueue(session, service, version.source, url, body | {"status_callback_url": url}, request_id=request.id)


def enqueue(
    session: Session,
    service: Service,
    kind: str,
    url: str,
    body: dict[str, Any],
    *,
    request_id: str | None = None,
    secret: str | None = None,
    held: bool = False,
) -> None:
    """Stores a message to send. One that is `held` waits for `release_held`."""
    now = service.now
    session.add(
        Delivery(
            kind=kind,
            request_id=request_id,
            url=url,
            body=body,
            secret=secret,
            created=now,
            attempts=0,
            next_attempt=None if held else now,
        )
    )


def renew_secret(session: Session, service: Service, request: SubjectRequest, secret: str) -> None:
    """Gives a message that has not arrived the newest token of its receiver: the one before may have expired."""
    old = Delivery.delivered.is_(None) & (Delivery.secret != secret)
    for delivery in session.scalars(select(Delivery).where(Delivery.request_id == request.id, old).with_for_update()):
        delivery.secret = secret
        if delivery.next_attempt is not None:  # it is not held any more
            delivery.next_attempt = service.now + HELD_SECONDS


def _release_held(session: Session, service: Service, request: SubjectRequest) -> None:
    """Lets the messages go that waited for the end of a request: a callback of Fides, which knows success alone."""
    waiting = (Delivery.request_id == request.id) & Delivery.next_attempt.is_(None) & Delivery.delivered.is_(None)
    for delivery in session.scalars(select(Delivery).where(waiting)):
        if request.state == COMPLETED:
            delivery.next_attempt = service.now + HELD_SECONDS
        else:
            delivery.secret, delivery.error = None, f"not sent, the request is {request.state}"
