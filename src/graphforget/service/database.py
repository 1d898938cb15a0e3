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
from sqlalchemy import Engine, create_engine, event, inspect
from sqlalchemy.engine import Connection, make_url
from sqlalchemy.exc import ArgumentError
from sqlalchemy.orm import Session

from graphforget.errors import InputError
from graphforget.files import error_reason
from graphforget.service.settings import DATABASE, Settings

WAIT = 30  # seconds for another process to finish writing
HEAD = "head"


def database_url(home: Path, settings: Settings) -> str:
    return settings.database or f"sqlite:///{(home / DATABASE).absolute()}"


@contextmanager
def _known_revision(revision: str) -> Iterator[None]:
    """Alembic's error of a revision that it does not know, as one sentence."""
    try:
        yield
    except CommandError as error:
        raise InputError(f"the tables cannot be moved to revision {revision!r}: {error_reason(error)}") from error


class Database:
    """Sessions of one database. `read` and `write` are one transaction each."""

    def __init__(self, url: str) -> None:
        try:
            backend = make_url(url).get_backend_name()
        except ArgumentError as error:
            raise InputError("the database address cannot be read, one such as sqlite:///file is needed") from error
        if backend not in ("sqlite", "postgresql"):
            raise InputError(f"the database is {backend!r}, sqlite or postgresql+psycopg is needed")
        self.url, self.is_sqlite = url, backend == "sqlite"
        options: dict[str, Any] = {"connect_args": {"timeout": WAIT}} if self.is_sqlite else {"pool_pre_ping": True}
        if self.is_sqlite and (path := make_url(url).database):
            os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))  # it holds identities: never readable by others
        self.engine: Engine = create_engine(url, hide_parameters=True, **options)
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
        with _known_revision(revision):
            command.upgrade(self._alembic(), revision)

    def downgrade(self, revision: str) -> None:
        with _known_revision(revision):
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
