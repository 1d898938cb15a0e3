"""Runs the migrations on the engine that the caller gives."""

from __future__ import annotations

from alembic import context
from sqlalchemy import text

from graphforget.service.tables import Base

LOCK = 7_206_115  # any number that is always the same

with context.config.attributes["engine"].execution_options(writes=True).connect() as connection:
    context.configure(connection=connection, target_metadata=Base.metadata, render_as_batch=True)
    with context.begin_transaction():
        if connection.dialect.name == "postgresql":  # two processes that start at once: the second one waits
            connection.execute(text(f"SELECT pg_advisory_xact_lock({LOCK})"))
        context.run_migrations()
