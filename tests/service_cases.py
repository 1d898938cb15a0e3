"""A service in a folder of a test: a clock that the test sets, a worker that takes steps, requests."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
from fastapi.testclient import TestClient
from sqlalchemy import select

import graphforget as gf
from cases import ENVIRONMENT
from graphforget.service.app import create_app
from graphforget.service.database import Database
from graphforget.service.registration import register_model
from graphforget.service.releases import ledger_id_of
from graphforget.service.service import Service, init_service, open_service
from graphforget.service.settings import DAY, Settings
from graphforget.service.tables import Model, SubjectRequest
from graphforget.service.tokens import make_token
from graphforget.service.worker import Worker

START = 1_790_000_000
PRINTED = r"Open (http://\S+)/ and sign in with this token: (gft_\S+)\n"


@dataclass
class Clock:
    """A clock that stands still."""

    time: float = START

    def __call__(self) -> float:
        return self.time


@dataclass
class Trial:
    """A service with a client, tokens and a worker."""

    service: Service
    clock: Clock
    worker: Worker
    tokens: dict[str, str]
    client: TestClient = field(init=False)

    def __post_init__(self) -> None:
        self.client = TestClient(create_app(self.service), raise_server_exceptions=False)

    def headers(self, scope: str = "admin") -> dict[str, str]:
        return {"Authorization": f"Bearer {self.tokens[scope]}"}

    def submit(self, *subjects: str, scope: str = "submit", **more: Any) -> str:
        """Submits a request and returns its id."""
        body = request_body(*subjects, **more)
        response = self.client.post("/v2/requests", json=body, headers=self.headers(scope))
        assert response.status_code == 201, response.text
        return str(response.json()["subject_request_id"])

    def decide(self, id: str, decision: str = "approve", **more: Any) -> None:
        body = {"decision": decision, **more}
        response = self.client.post(f"/v2/requests/{id}/decision", json=body, headers=self.headers("approve"))
        assert response.status_code == 200, response.text

    def status(self, id: str) -> dict[str, Any]:
        response = self.client.get(f"/v2/requests/{id}", headers=self.headers("read"))
        assert response.status_code == 200, response.text
        return dict(response.json())

    def state(self, id: str) -> str:
        return str(self.status(id)["extensions"]["graphforget"]["state"])

    def ledger_id(self, id: str, model: str = "patients") -> str:
        """The id of a request in the ledger of a model."""
        return ledger_id_in(self.service, id, model)

    def work(self) -> None:
        """Takes steps until there is nothing to do."""
        for _ in range(20):
            if not self.worker.step():
                return
        raise AssertionError("the worker does not come to an end")

    def next_round(self) -> None:
        self.clock.time = self.service.next_round
        self.work()


def ledger_id_in(service: Service, id: str, model: str) -> str:
    with service.database.read() as session:
        number = session.scalars(select(Model.id).where(Model.name == model)).one()
        return ledger_id_of(service, session.get_one(SubjectRequest, id), number)


def request_body(*subjects: str, id: str | None = None, extension: dict[str, Any] | None = None, **more: Any) -> Any:
    kind = more.pop("identity_type", "controller_customer_id")
    form = more.pop("identity_format", "raw")
    return {
        "regulation": "gdpr",
        "subject_request_id": id or str(uuid.uuid4()),
        "subject_request_type": "erasure",
        "submitted_time": "2026-09-20T10:00:00Z",
        "subject_identities": [
            {"identity_type": kind, "identity_value": subject, "identity_format": form} for subject in subjects
        ],
        **({"extensions": {"graphforget": extension}} if extension else {}),
        **more,
    }


@cache
def _trained(name: str) -> tuple[gf.Trained, gf.Graph]:
    graph = gf.load(name)
    return gf.train(graph, "sgc", sigma=0.01), graph


def copy_run(folder: Path, name: str = "patients") -> Path:
    """A new run directory of a model that is trained once for all tests."""
    trained, graph = _trained(name)
    gf.save_run(folder, trained, graph)
    return folder


def make_trial(home: Path, *, models: int = 1, lease_seconds: int = 60, **settings: Any) -> Trial:
    """A service with models of the patients graph, named patients, patients-2, ..."""
    settings.setdefault("round_seconds", DAY)
    database = settings.get("database")
    if database:
        old = Database(database)
        if old.has_tables:
            old.downgrade("base")
        old.close()
    shutil.rmtree(home, ignore_errors=True)
    init_service(home, Settings(**settings))
    clock = Clock()
    service = open_service(home, clock=clock)
    for number in range(1, models + 1):
        name = "patients" if number == 1 else f"patients-{number}"
        register_model(service, name, copy_run(home / "runs" / name))
    with service.database.write() as session:
        tokens = {
            scope: make_token(session, f"the {scope} token", [scope], now=service.now)
            for scope in ("submit", "approve", "read", "admin")
        }
    return Trial(service, clock, Worker(service, lease_seconds=lease_seconds), tokens)


def free_port() -> int:
    """A port of the loopback interface that nobody uses at the moment."""
    with socket.socket() as place:
        place.bind(("127.0.0.1", 0))
        return int(place.getsockname()[1])


def start(*arguments: str, log: Path) -> subprocess.Popen[bytes]:
    """Starts `graphforget` with these arguments in a process group of its own."""
    with log.open("ab") as file:
        command = [sys.executable, "-m", "graphforget", *arguments]
        return subprocess.Popen(command, stdout=file, stderr=file, env=ENVIRONMENT, start_new_session=True)


def wait_for(address: str, *, seconds: float = 60) -> None:
    """Waits until a service answers."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        try:
            if httpx.get(f"{address}/v2/health", trust_env=False).status_code == 200:
                return
        except httpx.TransportError:
            time.sleep(0.1)
    raise AssertionError(f"no service answers at {address}")


@contextmanager
def running_trial(home: Path, log: Path) -> Iterator[tuple[str, str]]:
    """`graphforget serve trial` as a process: the address and the token that it prints."""
    port = free_port()
    process = start("serve", "trial", "--port", str(port), "--home", str(home), log=log)
    try:
        deadline = time.monotonic() + 90
        while not (printed := re.search(PRINTED, log.read_text())):
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < deadline, "nothing was printed"
            time.sleep(0.1)
        address, token = printed.groups()
        assert address == f"http://127.0.0.1:{port}"
        wait_for(address)
        yield address, token
        process.terminate()
        assert process.wait(timeout=60) == 0
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


@dataclass
class Call:
    """What a stand-in was sent."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes
    time: float  # of a clock that never goes back
    answered: bool  # else the connection was closed instead

    @property
    def content(self) -> Any:
        return json.loads(self.body)


@dataclass
class StandIn:
    """Another service: it keeps what it is sent, and answers with the next of its codes, then with 200."""

    url: str = ""
    calls: list[Call] = field(default_factory=list)
    codes: list[int] = field(default_factory=list)
    pause: float = 0.0  # seconds before each answer
    lose_every: int = 0  # so many calls, it closes the connection instead of an answer

    @property
    def host(self) -> str:
        return self.url.removeprefix("http://")


@contextmanager
def standing_in() -> Iterator[StandIn]:
    """A stand-in that listens on a port of its own."""
    state, lock = StandIn(), threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            headers = {name.lower(): value for name, value in self.headers.items()}
            with lock:
                answered = not state.lose_every or (len(state.calls) + 1) % state.lose_every > 0
                call = Call(self.command, self.path, headers, body, time.monotonic(), answered)
                state.calls.append(call)
                code = state.codes.pop(0) if state.codes else 200
            time.sleep(state.pause)
            if not answered:
                self.close_connection = True
                return
            self.send_response(code)
            if code == 302:
                self.send_header("Location", "/elsewhere")
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", "2")
            self.end_headers()
            self.wfile.write(b"{}")

        def do_GET(self) -> None:
            """The client of MLflow first asks for the registered model."""
            found = self.path.startswith("/api/2.0/mlflow/registered-models/get?name=readmission")
            body = json.dumps({"registered_model": {"name": "readmission"}}).encode()
            self.send_response(200 if found else 404)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            """Silent."""

    class Server(ThreadingHTTPServer):
        def handle_error(self, *_: Any) -> None:
            """Silent: a sender may be killed."""

    server = Server(("127.0.0.1", 0), Handler)
    state.url = f"http://127.0.0.1:{server.server_port}"
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield state
    finally:
        server.shutdown()
        server.server_close()
