"""The databases of the service's tests: SQLite, and a real PostgreSQL."""

from __future__ import annotations

import os
import tempfile
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from service_cases import Trial, make_trial


@pytest.fixture(scope="session")
def postgres() -> Iterator[Callable[[], str]]:
    """A function that makes an empty database of a PostgreSQL server, and returns its address."""
    try:
        from pgserver import get_server  # type: ignore[attr-defined]
    except ImportError:
        if os.environ.get("CI") == "true":
            pytest.fail("pgserver is not installed, which brings PostgreSQL")
        pytest.skip("pgserver is not installed, which brings PostgreSQL")
    with tempfile.TemporaryDirectory(prefix="gf-pg-") as folder:  # short: the path of its socket is limited
        server = get_server(folder, cleanup_mode="stop")

        def new_database() -> str:
            name = f"test_{uuid.uuid4().hex[:12]}"
            server.psql(f"CREATE DATABASE {name};")
            return f"postgresql+psycopg://postgres@/{name}?host={folder}"

        yield new_database
        server.cleanup()


@pytest.fixture(params=["sqlite", "postgresql"])
def database(request: pytest.FixtureRequest) -> str | None:
    """The address of an empty database; None for SQLite in the folder of the service."""
    return None if request.param == "sqlite" else str(request.getfixturevalue("postgres")())


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Callable[..., Trial]]:
    """Makes services, which are closed at the end."""
    made: list[Trial] = []

    def new(**settings: Any) -> Trial:
        made.append(make_trial(tmp_path / f"service-{len(made)}", **settings))
        return made[-1]

    yield new
    for one in made:
        one.service.database.close()
