"""Sends the stored messages: signed, in order, again and again with growing pauses until they arrive."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping

import httpx
from sqlalchemy import select
from sqlalchemy.orm import aliased

from graphforget.service.connectors.fides import deliver_to_fides
from graphforget.service.connectors.mlflow import deliver_to_mlflow
from graphforget.service.connectors.opendsr import V1, V2, deliver_to_controller
from graphforget.service.connectors.webhook import deliver_to_webhook
from graphforget.service.leases import Holder, claim, give_back
from graphforget.service.service import Service
from graphforget.service.tables import Delivery

MOST = 20  # messages of one turn
TIMEOUT = httpx.Timeout(10.0, connect=3.0)
FIRST_PAUSE, LONGEST_PAUSE = 2, 6 * 3600  # seconds
Send = Callable[[Service, httpx.Client, Delivery], None]
SENDERS: Mapping[str, Send] = {
    V1.source: deliver_to_controller,
    V2.source: deliver_to_controller,
    "webhook": deliver_to_webhook,
    "fides": deliver_to_fides,
    "mlflow": deliver_to_mlflow,
}
log = logging.getLogger(__name__)


def deliver_due(service: Service, holder: Holder) -> int:
    """Sends the messages that are due. Returns how many there were."""
    earlier = aliased(Delivery)
    before = select(earlier.id).where(
        earlier.request_id == Delivery.request_id,
        earlier.url == Delivery.url,
        earlier.delivered.is_(None),
        earlier.id < Delivery.id,
    )
    with service.database.write() as session:
        due = claim(
            session,
            Delivery,
            Delivery.delivered.is_(None),
            Delivery.next_attempt <= service.now,
            ~before.exists(),
            order=Delivery.next_attempt,
            holder=holder,
            now=service.now,
            most=MOST,
        )
    if not due:
        return 0
    # A receiver may be slow. If a lease ended meanwhile, another worker would send the same message again.
    keeping = holder.keeping(service, Delivery, *(delivery.id for delivery in due))
    with keeping, httpx.Client(timeout=TIMEOUT, follow_redirects=False, trust_env=False) as client:
        for delivery in due:
            if _is_ours(service, delivery, holder):
                _attempt(service, client, delivery, holder)
    return len(due)


def _is_ours(service: Service, delivery: Delivery, holder: Holder) -> bool:
    """Whether nobody has taken the message over, from a process that stood still for longer than its lease."""
    with service.database.read() as session:
        return session.scalar(select(Delivery.leased_by).where(Delivery.id == delivery.id)) == holder.name


def _attempt(service: Service, client: httpx.Client, delivery: Delivery, holder: Holder) -> None:
    error: str | None = None
    try:
        SENDERS[delivery.kind](service, client, delivery)
    except Exception as failure:  # whatever a receiver or a connector does, the message is kept
        error = type(failure).__name__
        if isinstance(failure, httpx.HTTPStatusError):
            error = f"HTTP {failure.response.status_code}"
        log.warning("delivery %d of kind %s failed: %s", delivery.id, delivery.kind, error)
    with service.database.write() as session:
        row = session.get_one(Delivery, delivery.id)
        row.attempts += 1
        row.error = error
        if error is None:
            row.delivered, row.next_attempt, row.secret = service.now, None, None
        else:
            row.next_attempt = service.now + min(LONGEST_PAUSE, FIRST_PAUSE * 2 ** min(row.attempts - 1, 20))
        give_back(row, holder)
