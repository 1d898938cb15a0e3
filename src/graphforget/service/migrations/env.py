"""Runs the migrations on the engine that the caller gives."""

from __future__ import annotations

from alembic import context

from graphforget.service.tables import Base

with context.config.attributes["engine"].execution_options(writes=True).connect() as connection:
    context.configure(connection=connection, target_metadata=Base.metadata, render_as_batch=True)
    with context.begin_transaction():
        context.run_migrations()
