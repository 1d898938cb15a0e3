"""The queue of requests, as the page and the interface show it."""

from __future__ import annotations

from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from graphforget.service.service import Service, as_time
from graphforget.service.settings import DAY
from graphforget.service.states import FINAL, OPEN, WORDS
from graphforget.service.tables import SubjectRequest

PAGE = 50  # rows


def queue_rows(session: Session, service: Service, *, state: str | None = None, first: int = 0) -> list[dict[str, Any]]:
    """Open requests by their deadline, so overdue ones come first; with a state, those in it, the newest first."""
    query = select(SubjectRequest).offset(first).limit(PAGE)
    if state in FINAL:
        query = query.where(SubjectRequest.state == state).order_by(SubjectRequest.finished.desc(), SubjectRequest.id)
    else:
        wanted = (state,) if state in OPEN else OPEN
        query = query.where(SubjectRequest.state.in_(wanted)).order_by(SubjectRequest.due, SubjectRequest.id)
    return [_row(service, request) for request in session.scalars(query)]


def _row(service: Service, request: SubjectRequest) -> dict[str, Any]:
    left = (request.due - service.now) // DAY
    is_open = request.state in OPEN
    return {
        "id": request.id,
        "state": request.state,
        "words": WORDS[request.state],
        "result": request.result,
        "received": as_time(request.received),
        "due": as_time(request.due),
        "days_left": left if is_open else None,
        "overdue": is_open and request.due < service.now,
        "dry_run": request.dry_run,
    }
