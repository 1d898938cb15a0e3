"""The command `graphforget serve` and its own commands."""

from __future__ import annotations

import dataclasses
import json
import socket
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

import typer

from graphforget.cli.console import say
from graphforget.cli.options import AsJson, Run
from graphforget.errors import InputError
from graphforget.files import error_reason

Home = Annotated[
    Path,
    typer.Option("--home", envvar="GRAPHFORGET_SERVICE", help="The folder of the service, as 'serve init' makes it."),
]
Host = Annotated[str, typer.Option(help="The address to listen on. TLS is the proxy's.")]
Port = Annotated[int, typer.Option(min=1, max=65535, help="The port to listen on.")]
HOME = Path("graphforget-service")
NEEDED = ("fastapi", "uvicorn", "sqlalchemy", "alembic", "httpx", "multipart")


def _check_installed() -> None:
    missing = [name for name in NEEDED if find_spec(name) is None]
    if missing:
        raise InputError(f"{missing[0]} is not installed, 'pip install graphforget[service]' installs it")


def serve(
    context: typer.Context, home: Home = HOME, host: Host = "127.0.0.1", port: Port = 8080, as_json: AsJson = False
) -> None:
    """Answer deletion requests over HTTP: an interface (OpenDSR), a worker and a web page, until it is stopped.

    \b
    graphforget serve init --home service
    graphforget serve model patients runs/one --home service
    graphforget serve token privacy-office --scope admin --home service
    graphforget serve --home service
    """
    if context.invoked_subcommand is not None:
        return
    _check_installed()
    from graphforget.service.processes import serve_all

    _started(home, host, port, as_json)
    serve_all(home, host=host, port=port)


def init(
    home: Home = HOME,
    base_url: Annotated[
        str, typer.Option(help="The address of the service as callers see it.")
    ] = "http://127.0.0.1:8080",
    database: Annotated[
        str | None, typer.Option(help="Such as postgresql+psycopg://user@host/name; by default SQLite in the folder.")
    ] = None,
    round_seconds: Annotated[int, typer.Option(help="The time between two rounds of answers.")] = 86_400,
    deadline_days: Annotated[int, typer.Option(help="The days until a request is overdue.")] = 30,
    approve_losses: Annotated[
        int | None, typer.Option(help="Approve proven plans that change at most so many losses. By default a person.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Make the folder of a service: settings, keys and tables. A folder that holds one is left as it is."""
    _check_installed()
    from graphforget.service.service import init_service
    from graphforget.service.settings import FILE, Settings

    if (home / FILE).exists():
        raise InputError(f"{home} holds a service already, edit its {FILE}")
    settings = Settings(
        base_url=base_url,
        database=database,
        round_seconds=round_seconds,
        deadline_days=deadline_days,
        approve_losses=approve_losses,
    )
    init_service(home, settings)
    _done({"home": str(home), "settings": dataclasses.asdict(settings)}, f"The service is in {home}.", as_json)


def model(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The name of the model in the service.")],
    run: Run,
    home: Home = HOME,
    identity_type: Annotated[
        str, typer.Option(help="What the subject ids are: controller_customer_id, email, ...")
    ] = "controller_customer_id",
    purge: Annotated[
        list[str] | None, typer.Option(help="What a person has to purge after each release. May be repeated.")
    ] = None,
    mlflow: Annotated[
        str | None, typer.Option(metavar="NAME:VERSION", help="Its version in an MLflow registry.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Register a run directory with the service, or register it again after an alarm."""
    from graphforget.service.registration import PURGE, register_model

    with _service(home) as service:
        register_model(service, name, run, identity_type=identity_type, purge=purge or PURGE, mlflow=mlflow)
    _done({"model": name, "run": str(run)}, f"The model {name!r} is registered.", as_json)


def token(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Who uses the token.")],
    scope: Annotated[
        list[str] | None, typer.Option(help="submit, approve, read or admin. May be repeated.", show_default="read")
    ] = None,
    days: Annotated[int | None, typer.Option(min=1, help="The days until it expires.")] = None,
    revoke: Annotated[bool, typer.Option("--revoke", help="Revoke the token with this name instead.")] = False,
    home: Home = HOME,
    as_json: AsJson = False,
) -> None:
    """Make a bearer token. It is printed once; only its hash is stored."""
    from graphforget.service.tokens import make_token, revoke_token

    with _service(home) as service, service.database.write() as session:
        if revoke:
            revoke_token(session, name, now=service.now)
            secret = None
        else:
            secret = make_token(session, name, scope or ["read"], now=service.now, days=days)
    message = f"The token {name!r} is revoked." if secret is None else f"The token of {name!r}, shown once: {secret}"
    _done({"name": name, "token": secret}, message, as_json)


def api(home: Home = HOME, host: Host = "127.0.0.1", port: Port = 8080, as_json: AsJson = False) -> None:
    """Run the HTTP server alone, without a worker."""
    _check_installed()
    from graphforget.service.processes import serve_http

    _started(home, host, port, as_json)
    serve_http(home, host=host, port=port)


def worker(
    home: Home = HOME,
    lease_seconds: Annotated[int, typer.Option(min=1, help="After so long another worker takes over.")] = 60,
    parent: Annotated[int | None, typer.Option(hidden=True, help="Stop when this process has ended.")] = None,
    as_json: AsJson = False,
) -> None:
    """Run a worker alone. With PostgreSQL there may be several."""
    _check_installed()
    from graphforget.service.processes import run_worker

    _done({"home": str(home)}, "The worker works until it is stopped.", as_json)
    run_worker(home, lease_seconds=lease_seconds, parent=parent)


def migrate(
    to: Annotated[str, typer.Option(help="The revision; 'base' removes all tables.")] = "head",
    down: Annotated[bool, typer.Option("--down", help="Go down to the revision instead of up.")] = False,
    home: Home = HOME,
    as_json: AsJson = False,
) -> None:
    """Move the tables of the database to a revision. 'serve' itself moves them up to the newest."""
    with _service(home) as service:
        (service.database.downgrade if down else service.database.migrate)(to)
    _done({"revision": to}, f"The tables are at revision {to}.", as_json)


def fides(
    out_file: Annotated[Path, typer.Option("--out", help="The zip file to write.")] = Path("graphforget-fides.zip"),
    identity_type: Annotated[
        str, typer.Option(help="What the subject ids of the models are: controller_customer_id or email.")
    ] = "controller_customer_id",
    as_json: AsJson = False,
) -> None:
    """Write the connector that Fides registers: a zip with its configuration and its data set. It holds no secret."""
    _check_installed()
    from graphforget.files import write_atomic
    from graphforget.service.connectors.fides import connector_package

    content = connector_package(identity_type)
    if out_file.exists() and not out_file.is_file():
        raise InputError(f"{out_file} is not a file that can be written")
    try:
        write_atomic(out_file, content)
    except OSError as error:
        raise InputError(f"{out_file} cannot be written: {error_reason(error)}") from error
    _done({"connector": str(out_file), "identity_type": identity_type}, f"Written to {out_file}.", as_json)


def trial(
    port: Port = 8080,
    home: Annotated[Path | None, typer.Option(help="A new folder; by default a temporary one.")] = None,
    as_json: AsJson = False,
) -> None:
    """Try the service on the patients graph: trains a model, prints a token, and serves with rounds of 15 seconds."""
    _check_installed()
    from graphforget.service.processes import serve_all
    from graphforget.service.settings import FILE
    from graphforget.service.trial import make_trial

    if home is not None and (home / FILE).exists():
        raise InputError(f"{home} holds a service already, a trial needs a new folder")
    _check_port("127.0.0.1", port)
    place = home or Path(tempfile.mkdtemp(prefix="graphforget-service-"))
    secret = make_trial(place, port=port)
    _done(
        {"home": str(place), "token": secret, "page": f"http://127.0.0.1:{port}/"},
        f"Open http://127.0.0.1:{port}/ and sign in with this token: {secret}\nThe folder of the service is {place}.",
        as_json,
    )
    serve_all(place, host="127.0.0.1", port=port)


def _service(home: Path) -> Any:
    """A service that is closed at the end."""
    _check_installed()
    from contextlib import contextmanager

    from graphforget.service.database import usable_database
    from graphforget.service.service import open_service

    @contextmanager
    def opened() -> Any:
        service = open_service(home)
        try:
            with usable_database():
                yield service
        finally:
            service.database.close()

    return opened()


def _check_port(host: str, port: int) -> None:
    """Raises `InputError` if nothing can listen there, such as where another service does."""
    try:
        socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET).close()
    except OSError as error:
        raise InputError(f"nothing can listen on {host}:{port}: {error_reason(error)}") from error


def _started(home: Path, host: str, port: int, as_json: bool) -> None:
    """Says where the server listens. Raises `InputError` before that if there is no service, or no free port."""
    with _service(home):
        _check_port(host, port)
    _done({"home": str(home), "address": f"http://{host}:{port}/"}, f"Listens on http://{host}:{port}/.", as_json)


def _done(content: dict[str, Any], sentence: str, as_json: bool) -> None:
    if as_json:
        print(json.dumps(content), flush=True)
    else:
        say(sentence)


SUBCOMMANDS: dict[Any, str] = {  # each with an example
    init: "graphforget serve init --home service --round-seconds 3600",
    model: "graphforget serve model patients runs/one --home service",
    token: "graphforget serve token ticket-system --scope submit --home service",
    api: "graphforget serve api --home service --port 8080",
    worker: "graphforget serve worker --home service",
    migrate: "graphforget serve migrate --home service",
    fides: "graphforget serve fides --out connector.zip --identity-type email",
    trial: "graphforget serve trial",
}
serve_app = typer.Typer(
    name="serve",
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    epilog="Example: graphforget serve --home service",
)
serve_app.callback(invoke_without_command=True)(serve)
for command, example in SUBCOMMANDS.items():
    serve_app.command(command.__name__, epilog=f"Example: {example}")(command)
