"""Removes what has been kept for the set number of days: hashes of identities, plans, callbacks, old sessions."""

from __future__ import annotations

from typing import Any

from sqlalchemy import delete, null, select, update

from graphforget.service.service import Service
from graphforget.service.settings import DAY
from graphforget.service.tables import Delivery, Part, SubjectRequest, WebSession


def purge_expired(service: Service) -> int:
    """Returns how many requests lost the last trace of who they were about, and of what was held of them."""
    before = service.now - service.settings.keep_identities_days * DAY
    expired = (SubjectRequest.finished <= before) & SubjectRequest.content_hash.is_not(None)
    with service.database.write() as session:
        of_these = Part.request_id.in_(select(SubjectRequest.id).where(expired))
        session.execute(update(Part).where(of_these).values(plan=null()))  # it counts what was held of the person
        nothing: dict[str, Any] = {
            "identity_hashes": null(),
            "content_hash": None,
            "callback_urls": [],  # an address may name a person
        }
        purged: int = session.execute(update(SubjectRequest).where(expired).values(**nothing)).rowcount  # type: ignore[attr-defined]
        session.execute(delete(WebSession).where(WebSession.expires <= service.now))
        session.execute(delete(Delivery).where(Delivery.delivered <= before))
    return purged
