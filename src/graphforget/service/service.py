"""What the parts of the service share: settings, secrets, database and clock."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from sqlalchemy.orm import Session

from graphforget.errors import InputError
from graphforget.files import error_reason
from graphforget.service.database import Database, database_url
from graphforget.service.secret_files import Secrets, make_secrets, read_secrets
from graphforget.service.settings import FILE, Settings, read_settings, write_settings
from graphforget.service.tables import Event

POLICY = "policy"  # the actor of what no person decided
WORKER = "worker"


@dataclass(frozen=True)
class Service:
    """An open service."""

    home: Path
    settings: Settings
    secrets: Secrets
    database: Database
    clock: Callable[[], float] = time.time

    @property
    def now(self) -> int:
        return int(self.clock())

    @property
    def round(self) -> int:
        """The start of the present round. What was approved before it is answered in it."""
        return self.now // self.settings.round_seconds * self.settings.round_seconds

    @property
    def next_round(self) -> int:
        return self.round + self.settings.round_seconds

    def url(self, path: str) -> str:
        return f"{self.settings.base_url}{path}"


def init_service(home: Path, settings: Settings | None = None) -> None:
    """Makes the folder of a service with settings, secrets and tables. What exists already is left alone."""
    try:
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{home} is not a folder that can be written to: {error_reason(error)}") from error
    if settings is not None or not (home / FILE).exists():
        write_settings(home, settings or Settings())
    make_secrets(home, read_settings(home))
    database = Database(database_url(home, read_settings(home)))
    try:
        database.migrate()
    finally:
        database.close()


def open_service(home: Path, *, clock: Callable[[], float] = time.time) -> Service:
    """Raises `InputError` if the folder holds no service, or one that is not set up completely."""
    settings = read_settings(home)
    return Service(home, settings, read_secrets(home, settings), Database(database_url(home, settings)), clock)


def record(
    session: Session,
    service: Service,
    actor: str,
    action: str,
    *,
    request_id: str | None = None,
    detail: str | None = None,
) -> None:
    """Adds to the events who did what. No argument may name a subject."""
    session.add(Event(time=service.now, actor=actor, action=action, request_id=request_id, detail=detail))


def as_time(seconds: int) -> str:
    """Seconds since 1970 as a time of RFC 3339."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
