"""How many requests the service accepts and answers: a server and a worker, the patients and the Cora models.

    OMP_NUM_THREADS=1 GRAPHFORGET_DATA=DATA python benchmarks/service.py

It prints one JSON object: requests accepted a minute, and the minutes until all are answered and verified. It fails
unless each request ended once, in a final state, and is in the ledgers once if a model held something of it.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import tempfile
import time
import uuid
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
from sqlalchemy import func, select
from sqlalchemy.orm import selectinload

import graphforget as gf
from graphforget.certificates.ledger import Ledger
from graphforget.service.registration import register_model
from graphforget.service.releases import ledger_id_of
from graphforget.service.service import Service, init_service, open_service
from graphforget.service.settings import Settings
from graphforget.service.states import FINAL
from graphforget.service.tables import Event, Part, Release, SubjectRequest
from graphforget.service.tokens import make_token

CLIENTS = 4
FEWER = 0.3  # of the nodes are deleted at most, so that there is a model to the end


def requests_of(graphs: dict[str, gf.Graph], count: int, seed: int) -> list[dict[str, Any]]:
    """People, attributes and relations of both graphs, people that ask again, and people whom no model holds."""
    draw = random.Random(seed)
    names = {name: list(graph.subject_ids or map(str, graph.numbers.tolist())) for name, graph in graphs.items()}
    leaving = {name: draw.sample(who, int(FEWER * len(who))) for name, who in names.items()}
    bodies = []
    for _ in range(count):
        model = draw.choice(list(graphs))
        subject, kind = draw.choice(names[model]), draw.random()
        extension: dict[str, Any] = {"model": model}
        if kind < 0.25:
            subject = draw.choice(leaving[model])
        elif kind < 0.5:
            extension |= {"attributes": True}
        elif kind < 0.65:
            row = graphs[model].row(subject)
            near = graphs[model].edge_index[0][graphs[model].edge_index[1] == row].tolist()
            extension |= {"edges": [names[model][other] for other in near[:2]] or [names[model][0]]}
        elif kind < 0.8:
            column = (graphs[model].column_names or ["3"])[0]
            extension |= {"columns": [column]}
        else:
            subject = f"nobody-{draw.randrange(10**6)}"
        bodies.append(_body(subject, extension))
    return bodies


def _body(subject: str, extension: dict[str, Any]) -> dict[str, Any]:
    identity = {"identity_type": "controller_customer_id", "identity_value": subject, "identity_format": "raw"}
    return {
        "regulation": "gdpr",
        "subject_request_id": str(uuid.uuid4()),
        "subject_request_type": "erasure",
        "submitted_time": "2026-01-31T12:00:00Z",
        "subject_identities": [identity],
        "extensions": {"graphforget": extension},
    }


@contextmanager
def processes(home: Path, port: int) -> Iterator[None]:
    """The server and the worker, as an operator starts them."""
    logs = (home / "log.txt").open("w")
    command = [sys.executable, "-m", "graphforget", "serve", "--home", str(home), "--port", str(port)]
    started = subprocess.Popen(command, stdout=logs, stderr=logs)
    try:
        for _ in range(600):
            try:
                httpx.get(f"http://127.0.0.1:{port}/v2/health")
                break
            except httpx.TransportError:
                time.sleep(0.1)
        yield
    finally:
        started.terminate()
        started.wait(timeout=60)
        logs.close()


def submit(port: int, token: str, bodies: list[dict[str, Any]]) -> float:
    """Submits all requests. Returns the seconds that it took."""
    started = time.perf_counter()

    def post_some(some: list[dict[str, Any]]) -> None:
        headers = {"Authorization": f"Bearer {token}"}
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", headers=headers, timeout=60) as client:
            for body in some:
                client.post("/v2/requests", json=body).raise_for_status()

    with ThreadPoolExecutor(CLIENTS) as pool:
        list(pool.map(post_some, [bodies[start::CLIENTS] for start in range(CLIENTS)]))
    return time.perf_counter() - started


def wait_until_answered(service: Service, count: int, *, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        with service.database.read() as session:
            done = select(func.count()).select_from(SubjectRequest).where(SubjectRequest.state.in_(FINAL))
            if session.scalar(done) == count:
                return
        time.sleep(1)
    raise SystemExit(f"not all requests are answered after {seconds:.0f} seconds")


def summary(service: Service, runs: dict[str, Path], submitted: list[str]) -> dict[str, Any]:
    """The results, after a check that each request ended once."""
    with service.database.read() as session:
        rows: Any = session.execute(select(SubjectRequest.id, SubjectRequest.state, SubjectRequest.result)).all()
        ends: Any = session.execute(select(Event.request_id, Event.action).where(Event.action.in_(FINAL))).all()
        query = select(Part).options(selectinload(Part.request))
        parts = list(session.scalars(query))
        releases = session.scalar(select(func.count()).select_from(Release))
    entries: list[str] = []
    for run in runs.values():
        with Ledger(run / "ledger.sqlite", readonly=True) as ledger:
            entries += [entry.request_id for entry in ledger.entries()]
    check_ended_once(submitted, {id: state for id, state, _ in rows}, Counter(map(tuple, ends)))
    released = [ledger_id_of(service, part.request, part.model_id) for part in parts if part.release_id is not None]
    once = Counter(entries) == Counter(released) == dict.fromkeys(released, 1)
    once = once and set(Counter(part.request_id for part in parts).values()) == {1}  # each names one model
    if not once:
        raise SystemExit("a request was answered not at all, or more than once")
    results = Counter(f"{state} {result or ''}".strip() for _, state, result in rows)
    return {
        "results": dict(sorted(results.items())),
        "releases": releases,
        "ledger_entries": len(entries),
        "each_answered_once": once,
    }


def check_ended_once(submitted: list[str], states: dict[str, str], ends: Counter[tuple[str, str]]) -> None:
    """Each request that was submitted is there, in a final state, and came to that end once and to no other."""
    if len(set(submitted)) != len(submitted) or set(submitted) != set(states):
        raise SystemExit(f"{len(submitted)} requests were submitted, {len(states)} are there, or others")
    if not set(states.values()) <= set(FINAL):
        raise SystemExit("not all requests are in a final state")
    if ends != dict.fromkeys(states.items(), 1):
        raise SystemExit("a request ended more than once, or otherwise than its state says")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=10_000)
    parser.add_argument("--round-seconds", type=int, default=60)
    parser.add_argument("--models", default="patients,cora")
    parser.add_argument("--port", type=int, default=18_080)
    parser.add_argument("--database", default=None)
    parser.add_argument("--most-minutes", type=float, default=30.0)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="graphforget-benchmark-") as folder:
        home = Path(folder)
        settings = Settings(
            base_url=f"http://127.0.0.1:{given.port}",
            database=given.database,
            round_seconds=given.round_seconds,
            approve_losses=10**9,
            requests_per_minute=10**6,
        )
        init_service(home, settings)
        service = open_service(home)
        graphs = {name: gf.load(name) for name in given.models.split(",")}
        runs = {name: home / "runs" / name for name in graphs}
        for name, graph in graphs.items():
            gf.save_run(runs[name], gf.train(graph, "sgc", sigma=0.01 if name == "patients" else None), graph)
            register_model(service, name, runs[name])
        with service.database.write() as session:
            token = make_token(session, "benchmark", ["submit"], now=service.now)
        bodies = requests_of(graphs, given.requests, seed=7)
        with processes(home, given.port):
            started = time.perf_counter()
            seconds = submit(given.port, token, bodies)
            wait_until_answered(service, len(bodies), seconds=60 * given.most_minutes)
            total = time.perf_counter() - started
        result = {
            "requests": len(bodies),
            "accepted_a_minute": round(60 * len(bodies) / seconds),
            "minutes_until_all_answered": round(total / 60, 2),
            **summary(service, runs, [body["subject_request_id"] for body in bodies]),
        }
        for run in runs.values():
            gf.verify_run(run, key=gf.public_key(home / "signing.key.pub"))
        service.database.close()
    print(json.dumps(result))


if __name__ == "__main__":
    main()
