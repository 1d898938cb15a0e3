"""The database of the service: SQLite in one file, or PostgreSQL by its address."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from alembic import command
from alembic.config import Config
from alembic.util.exc import CommandError
from sqlalchemy import URL, Engine, create_engine, event, inspect
from sqlalchemy.engine import Connection, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError
from sqlalchemy.orm import Session

from graphforget.errors import InputError
from graphforget.files import error_reason
from graphforget.service.settings import DATABASE, Settings

WAIT = 30  # seconds for another process to finish writing
HEAD = "head"
PSYCOPG, SQLITE = "postgresql+psycopg", "sqlite"
DRIVERS = {"postgresql": PSYCOPG, PSYCOPG: PSYCOPG, SQLITE: SQLITE, "sqlite+pysqlite": SQLITE}


def database_url(home: Path, settings: Settings) -> str:
    return settings.database or f"sqlite:///{(home / DATABASE).absolute()}"


@contextmanager
def _known_revision(revision: str) -> Iterator[None]:
    """Alembic's error of a revision that it does not know, as one sentence."""
    try:
        yield
    except CommandError as error:
        raise InputError(f"the tables cannot be moved to revision {revision!r}: {error_reason(error)}") from error


@contextmanager
def usable_database() -> Iterator[None]:
    """An error of the database as one sentence, for commands that cannot go on without it."""
    try:
        yield
    except DBAPIError as error:  # its first line alone: the rest is the statement
        reason = str(error.orig).partition("\n")[0]
        raise InputError(f"the database cannot be used: {reason}") from error


def _address(url: str) -> URL:
    """The address with the driver that is installed. Raises `InputError` if it is of another database."""
    try:
        address = make_url(url)
    except ArgumentError as error:
        raise InputError("the database address cannot be read, one such as sqlite:///file is needed") from error
    address = address.set(drivername=DRIVERS.get(address.drivername, address.drivername))
    if address.drivername not in DRIVERS.values():
        raise InputError(f"the database is {address.drivername!r}, sqlite or postgresql+psycopg is needed")
    return address


def _make_private(path: str) -> None:
    """Makes the file if it is missing. It holds identities: it is never readable by others."""
    try:
        os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
    except OSError as error:
        raise InputError(f"the database {path} cannot be opened: {error_reason(error)}") from error


class Database:
    """Sessions of one database. `read` and `write` are one transaction each."""

    def __init__(self, url: str) -> None:
        address = _address(url)
        self.url, self.is_sqlite = url, address.drivername == SQLITE
        options: dict[str, Any] = {"connect_args": {"timeout": WAIT}} if self.is_sqlite else {"pool_pre_ping": True}
        if self.is_sqlite and (path := address.database):
            _make_private(path)
        self.engine: Engine = create_engine(address, hide_parameters=True, **options)
        if self.is_sqlite:
            event.listen(self.engine, "connect", _prepare_sqlite)
            event.listen(self.engine, "begin", _begin_sqlite)

    @contextmanager
    def read(self) -> Iterator[Session]:
        with Session(self.engine, expire_on_commit=False) as session:
            yield session

    @contextmanager
    def write(self) -> Iterator[Session]:
        """A transaction that is committed at the end, or not at all."""
        engine = self.engine.execution_options(writes=True)
        with Session(engine, expire_on_commit=False) as session, session.begin():
            yield session

    def migrate(self, revision: str = HEAD) -> None:
        """Moves the tables up to a revision, with everything in them."""
        with usable_database(), _known_revision(revision):
            command.upgrade(self._alembic(), revision)

    def downgrade(self, revision: str) -> None:
        with usable_database(), _known_revision(revision):
            command.downgrade(self._alembic(), revision)

    @property
    def has_tables(self) -> bool:
        return "alembic_version" in inspect(self.engine).get_table_names()

    def _alembic(self) -> Config:
        config = Config()
        config.set_main_option("script_location", str(Path(__file__).parent / "migrations").replace("%", "%%"))
        config.attributes["engine"] = self.engine
        return config

    def close(self) -> None:
        self.engine.dispose()


def _prepare_sqlite(connection: Any, _record: Any) -> None:
    connection.isolation_level = None  # the transactions begin in `_begin_sqlite`
    for statement in (
        "journal_mode = WAL",
        "synchronous = FULL",
        "foreign_keys = ON",
        "secure_delete = ON",  # identities are overwritten with zeros
    ):
        connection.execute(f"PRAGMA {statement}")


def _begin_sqlite(connection: Connection) -> None:
    """A writer takes its lock at once: two writers that have both read would end in a deadlock."""
    writes = connection.get_execution_options().get("writes", False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")
