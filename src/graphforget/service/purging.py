"""The purge list: what a model cannot forget by itself, ticked off by a person after each release."""

from __future__ import annotations

from sqlalchemy.orm import Session

from graphforget.service.intake import Conflict
from graphforget.service.service import Service, record
from graphforget.service.tables import Purge


def tick_off(session: Session, service: Service, number: int, actor: str) -> Purge:
    """Raises `Conflict` if there is no such thing to purge, or if it was ticked off before."""
    purge = session.get(Purge, number, with_for_update=True)
    if purge is None:
        raise Conflict("there is no such thing to purge")
    if purge.done is not None:
        raise Conflict("it was ticked off before")
    purge.done, purge.done_by = service.now, actor
    record(session, service, actor, "purged", detail=f"release {purge.release_id}: {purge.label}")
    return purge
