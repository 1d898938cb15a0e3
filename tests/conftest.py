"""Fixtures that several test files share."""

from __future__ import annotations

import itertools
import json
import os
import sys
import tempfile
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import Tensor

from cases import Ran, Run, RunJson
from graphforget.cli import app as cli
from graphforget.privacy.noise import noise

if TYPE_CHECKING:
    from service_cases import Trial

CHECKOUT = Path(__file__).resolve().parents[1]


@pytest.fixture
def raw_data(monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder with the raw files of the five public datasets, which `load` then finds by itself."""
    folder = Path(os.environ.get("GRAPHFORGET_DATA") or CHECKOUT.parent / "shared" / "data")
    for name in ("Cora", "CiteSeer", "PubMed", "CS", "Physics"):
        if not (folder / name / "raw").is_dir():
            pytest.skip(f"the raw files of {name} are not in {folder}, set GRAPHFORGET_DATA to their folder")
    monkeypatch.setenv("GRAPHFORGET_DATA", str(folder))
    return folder


@pytest.fixture(scope="module")
def one_thread() -> Iterator[None]:
    """Small tensors gain nothing by more, and on a busy machine lose a lot."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(autouse=True)
def repeatable_generators() -> None:
    """What a test draws from torch's own generator does not depend on the tests before it.

    The noise of the package does not come from this generator.
    """
    torch.manual_seed(0)


@pytest.fixture
def repeatable_objective_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    """The noise in the objective differs from training to training, and is the same in every run of the tests.

    For tests of numbers that depend on the draw. Without this fixture the noise comes from the operating system.
    """
    draws = itertools.count(1000)

    def drawn(*, size: int, sigma: float, seed: int | None = None) -> Tensor:
        return noise(size=size, sigma=sigma, seed=next(draws) if seed is None else seed)

    monkeypatch.setattr("graphforget.training.fit.noise", drawn)


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """`main` with these arguments, as a process would end; a warning would stand on standard error too."""

    def call(*arguments: str | Path) -> Ran:
        monkeypatch.setattr(sys, "argv", ["graphforget", *map(str, arguments)])
        capsys.readouterr()
        code = 0
        try:
            cli.main()
        except SystemExit as end:
            code = int(end.code or 0)
        return Ran(code, *capsys.readouterr())

    return call


@pytest.fixture
def run_json(run: Run) -> RunJson:
    """The object that a command prints with --json; the command has to succeed."""

    def call(*arguments: str) -> dict[str, Any]:
        ran = run(*arguments, "--json")
        assert (ran.code, ran.stderr) == (0, ""), arguments
        return json.loads(ran.stdout)

    return call


# -- the request service ----------------------------------------------------------------------------------------------


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
        for statement in ("ALTER SYSTEM SET fsync = off", "SELECT pg_reload_conf()"):  # no test pulls the plug
            server.psql(f"{statement};")

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
def new_trial(tmp_path: Path) -> Iterator[Callable[..., Trial]]:
    """Makes request services in folders of the test, which are closed at the end."""
    from service_cases import make_trial

    made: list[Trial] = []

    def new(**settings: Any) -> Trial:
        made.append(make_trial(tmp_path / f"service-{len(made)}", **settings))
        return made[-1]

    yield new
    for one in made:
        one.service.database.close()
