"""Leases on rows: one worker at a time works on a row, and after a crash another one takes it over."""

from __future__ import annotations

import logging
import secrets
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from sqlalchemy import or_, select, update
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.orm import Session
from sqlalchemy.sql.elements import ColumnElement

from graphforget.service.tables import Base

if TYPE_CHECKING:
    from graphforget.service.service import Service

Row = TypeVar("Row", bound=Base)
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Holder:
    """Who holds leases, and for how long each lasts if it is not renewed."""

    seconds: int = 60
    name: str = field(default_factory=lambda: secrets.token_hex(8))

    @contextmanager
    def keeping(self, service: Service, kind: type[Base], *keys: Any) -> Iterator[None]:
        """Renews the leases of rows while something long happens. A row that was given back stays free."""
        over = threading.Event()

        def renew() -> None:
            table: Any = kind
            mine = table.id.in_(keys) & (table.leased_by == self.name)
            while not over.wait(max(self.seconds / 3, 0.2)):
                try:
                    with service.database.write() as session:
                        session.execute(update(kind).where(mine).values(leased_until=service.now + self.seconds))
                except SQLAlchemyError as error:  # the database is away: it is tried again
                    log.error("a lease could not be renewed: %s", type(error).__name__)

        thread = threading.Thread(target=renew, daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()


def claim(
    session: Session,
    kind: type[Row],
    *conditions: ColumnElement[bool],
    order: Any,
    holder: Holder,
    now: int,
    most: int,
) -> list[Row]:
    """Up to `most` rows that nobody holds a lease on; from now on `holder` does.

    The session is a writing one. PostgreSQL skips rows that another worker is claiming; SQLite has one writer.
    """
    table: Any = kind
    free = or_(table.leased_until.is_(None), table.leased_until < now)
    query = select(kind).where(free, *conditions).order_by(order).limit(most).with_for_update(skip_locked=True)
    rows = list(session.scalars(query))
    for row in rows:
        leased: Any = row
        leased.leased_by, leased.leased_until = holder.name, now + holder.seconds
    return rows


def give_back(row: Any, holder: Holder) -> None:
    """Ends a lease, unless somebody else has taken it over."""
    if row.leased_by == holder.name:
        row.leased_by = row.leased_until = None
