"""kill -9 of the server and of workers at random points under load.

Every accepted request is answered exactly once, its controller is told of it, and no log names a person.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

import httpx
import pytest
from sqlalchemy import func, select

import graphforget as gf
from cases import ENVIRONMENT
from graphforget.certificates.ledger import Ledger
from graphforget.service.service import Service, open_service
from graphforget.service.states import FINAL
from graphforget.service.tables import Delivery, Event, Part, Release, SubjectRequest
from service_cases import Call, Trial, free_port, ledger_id_in, request_body, standing_in, start, wait_for

ROOT = Path(__file__).parents[2]
KILLS = 30


class Killed:
    """The processes of a service, which are killed and started again."""

    def __init__(self, home: Path, port: int, workers: int) -> None:
        log = home / "log.txt"
        self.starts: list[Callable[[], subprocess.Popen[bytes]]] = [
            lambda: start("serve", "api", "--home", str(home), "--port", str(port), log=log)
        ]
        worker = lambda: start("serve", "worker", "--home", str(home), "--lease-seconds", "2", log=log)  # noqa: E731
        self.starts += [worker] * workers
        self.processes = [begin() for begin in self.starts]
        self.times: list[float] = []  # when a worker was killed

    def kill(self, which: int) -> None:
        os.killpg(self.processes[which].pid, signal.SIGKILL)
        self.processes[which].wait(timeout=30)
        if which:
            self.times.append(time.monotonic())
        self.processes[which] = self.starts[which]()

    def stop(self) -> None:
        for process in self.processes:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait(timeout=30)


class Load(threading.Thread):
    """Submits requests without a pause. One that gets no answer is submitted again, under the same id."""

    def __init__(self, address: str, token: str, callback: str) -> None:
        super().__init__(daemon=True)
        self.callback = callback
        self.address, self.headers = address, {"Authorization": f"Bearer {token}"}
        self.accepted: list[str] = []
        self.errors: Counter[str] = Counter()
        self.over = threading.Event()

    def run(self) -> None:
        draw = random.Random(5)
        with httpx.Client(base_url=self.address, headers=self.headers, timeout=10, trust_env=False) as client:
            while not self.over.wait(0.25):
                subject = f"patient-{draw.randrange(569):04d}"
                body = request_body(subject, extension={"attributes": True}, status_callback_urls=[self.callback])
                while not self.over.is_set():
                    try:
                        response = client.post("/v2/requests", json=body)
                    except httpx.TransportError:
                        time.sleep(0.2)
                        continue
                    if response.status_code == 201:
                        self.accepted.append(body["subject_request_id"])
                        break
                    self.errors[str(response.status_code)] += 1
                    time.sleep(0.2)


def work_done(service: Service) -> int:
    """Grows with everything that a worker plans and answers."""
    with service.database.read() as session:
        planned = session.scalar(select(func.count()).select_from(Part)) or 0
        answered = select(func.count()).select_from(Part).where(Part.release_id.is_not(None))
        return planned + (session.scalar(answered) or 0)


def wait_for_work(service: Service, before: int, *, seconds: float = 30) -> None:
    """Waits until a worker has started and is at work, so that a kill hits it there."""
    deadline = time.monotonic() + seconds
    while work_done(service) <= before and time.monotonic() < deadline:
        time.sleep(0.05)


def wait_until(count: Any, service: Service, message: str, *, seconds: float) -> None:
    """Waits until a query counts no rows any more."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        with service.database.read() as session:
            if session.scalar(count) == 0:
                return
        time.sleep(0.5)
    raise AssertionError(message)


def check_answered_once(service: Service, accepted: list[str]) -> None:
    """By the database, by the ledger, and by a verification of the run directory."""
    run = service.home / "runs" / "patients"
    with service.database.read() as session:
        rows: Any = session.execute(select(SubjectRequest.id, SubjectRequest.state, SubjectRequest.result)).all()
        parts = Counter(session.scalars(select(Part.request_id)))
        ends = Counter(session.scalars(select(Event.request_id).where(Event.action.in_(FINAL))))
    stored = {id: (state, result) for id, state, result in rows}
    assert set(accepted) <= set(stored)
    assert set(stored.values()) == {("completed", "forgotten")}
    assert parts == ends == dict.fromkeys(stored, 1)
    with Ledger(run / "ledger.sqlite", readonly=True) as ledger:
        entries = [entry.request_id for entry in ledger.entries()]
    assert sorted(entries) == sorted(ledger_id_in(service, id, "patients") for id in stored)
    gf.verify_run(run, key=gf.public_key(service.home / "signing.key.pub"))


def check_called_back(calls: list[Call], accepted: list[str], kills: list[float]) -> int:
    """Every change of state arrived, in order. Returns how many arrived again because a kill lost an answer.

    A worker sends one message at a time, so that a kill can lose one answer.
    """
    arrivals: dict[str, dict[str, list[Call]]] = {}
    for call in calls:
        content = call.content
        arrivals.setdefault(content["subject_request_id"], {}).setdefault(content["request_status"], []).append(call)
    assert set(accepted) <= set(arrivals)
    for by_status in arrivals.values():
        assert list(by_status) == ["pending", "in_progress", "completed"]
    repeated = [pair for by_status in arrivals.values() for same in by_status.values() for pair in pairwise(same)]
    unused = sorted(kills)
    lost_by_kills = [(first.time, again.time) for first, again in repeated if first.answered]
    for first, again in sorted(lost_by_kills, key=lambda pair: pair[1]):
        cause = next((kill for kill in unused if first <= kill <= again), None)
        assert cause is not None, "a message was sent again although its answer had arrived"
        unused.remove(cause)
    return len(lost_by_kills)


@pytest.mark.long
@pytest.mark.parametrize(("kind", "workers"), [("sqlite", 1), ("postgresql", 2)])
def test_every_accepted_request_is_answered_exactly_once_and_called_back(
    kind: str, workers: int, new_trial: Callable[..., Trial], request: pytest.FixtureRequest
) -> None:
    database = request.getfixturevalue("postgres")() if kind == "postgresql" else None
    with standing_in() as controller:
        controller.lose_every = 17
        port = free_port()
        address = f"http://127.0.0.1:{port}"
        settings: Any = {"base_url": address, "database": database, "round_seconds": 2, "approve_losses": 10**6}
        trial = new_trial(**settings, callback_hosts=(controller.host,), insecure_callbacks=True)
        load = Load(address, trial.tokens["submit"], f"{controller.url}/status")
        killed, releases = under_kills(trial.service.home, port, workers, load)
    repeats = check_called_back(controller.calls, load.accepted, killed.times)
    assert len(load.accepted) > 20
    assert releases >= KILLS // 6, "the kills came too fast to hit work"
    assert not load.errors
    lost = sum(not call.answered for call in controller.calls)
    assert lost > 3
    print(f"{kind}: {len(load.accepted)} accepted, {releases} releases between {KILLS} kills")
    print(f"{len(controller.calls)} callbacks, {lost} answers lost by the controller, {repeats} by kills")
    check_answered_once(trial.service, load.accepted)
    log = (trial.service.home / "log.txt").read_text()
    assert "POST /requests 201" in log
    assert "patient-" not in log.lower()


def under_kills(home: Path, port: int, workers: int, load: Load) -> tuple[Killed, int]:
    """Kills processes until all requests are answered and told. Returns how many releases there were between kills."""
    draw, service = random.Random(11), open_service(home)
    killed = Killed(home, port, workers)
    try:
        wait_for(load.address)
        load.start()
        before = work_done(service)
        for _ in range(KILLS):
            which = draw.choice([0, *range(1, workers + 1), *range(1, workers + 1)])
            if which:
                wait_for_work(service, before)
            time.sleep(draw.uniform(0.0, 2.0))
            killed.kill(which)
            before = work_done(service)
        with service.database.read() as session:
            releases = session.scalar(select(func.count()).select_from(Release)) or 0
        load.over.set()
        load.join(timeout=60)
        unanswered = select(func.count()).select_from(SubjectRequest).where(SubjectRequest.state.not_in(FINAL))
        wait_until(unanswered, service, "not all requests were answered", seconds=120)
        unsent = select(func.count()).select_from(Delivery).where(Delivery.delivered.is_(None))
        wait_until(unsent, service, "not all callbacks were delivered", seconds=60)
    finally:
        load.over.set()
        killed.stop()
        service.database.close()
    return killed, releases


@pytest.mark.long
def test_a_thousand_requests_are_accepted_and_answered_in_time(raw_data: Path) -> None:
    """The short version of benchmarks/service.py: 500 accepted a minute, and 10,000 answered in 30 minutes."""
    command = [sys.executable, str(ROOT / "benchmarks" / "service.py"), "--requests", "1000", "--round-seconds", "10"]
    command += ["--port", str(free_port()), "--most-minutes", "3"]
    environment = ENVIRONMENT | {"GRAPHFORGET_DATA": str(raw_data)}
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=400)
    assert ran.returncode == 0, ran.stderr[-2000:]
    result = json.loads(ran.stdout)
    assert result["accepted_a_minute"] >= 500
    assert result["each_answered_once"]
    assert set(result["results"]) == {"completed forgotten", "completed nothing_held"}
