"""Migrations with data in the tables, and two workers on one database."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import func, inspect, select
from sqlalchemy.exc import OperationalError

import graphforget as gf
from graphforget.certificates.ledger import Ledger
from graphforget.service import rounds
from graphforget.service.connectors.fides import CALLBACK_PATH
from graphforget.service.database import Database
from graphforget.service.leases import Holder, claim
from graphforget.service.notices import set_state
from graphforget.service.planning import approve
from graphforget.service.registration import register_model
from graphforget.service.service import open_service
from graphforget.service.states import COMPLETED, FINAL, PLANNED
from graphforget.service.tables import Base, Delivery, SubjectRequest
from graphforget.service.worker import Worker
from service_cases import Trial, request_body, start

Make = Callable[..., Trial]
T = TypeVar("T")


def count(database: Database, table: type[Base]) -> int:
    with database.read() as session:
        return session.scalar(select(func.count()).select_from(table)) or 0


Rows = dict[str, list[dict[str, Any]]]
NEW_IN_2: dict[str, dict[str, Any]] = {
    "models": {"purge_labels": [], "mlflow_name": None, "mlflow_version": None}
}  # what is there after 0001


def rows(database: Database) -> Rows:
    """All rows of all tables, with the columns that the tables have at their revision."""
    content: Rows = {}
    names = inspect(database.engine).get_table_names()
    with database.engine.connect() as connection:
        for table in Base.metadata.tables.values():
            if table.name in names:
                columns = [table.c[column["name"]] for column in inspect(connection).get_columns(table.name)]
                query = select(*columns).order_by(*table.primary_key)
                content[table.name] = [dict(row) for row in connection.execute(query).mappings()]
    return content


def full(trial: Trial) -> list[str]:
    """Fills all tables. Returns two requests that are completed, one that waits and one that is refused."""
    url = "https://tickets.example/status"
    ids = [trial.submit(f"patient-{number:04d}", status_callback_urls=[url]) for number in (17, 18)]
    trial.client.post("/page/sign-in", data={"token": trial.tokens["admin"]})
    trial.work()
    for id in ids:
        trial.decide(id)
    trial.next_round()
    waiting, refused = trial.submit("patient-0019", scope="admin"), trial.submit("patient-0020")
    trial.work()
    trial.decide(refused, "refuse", reason="ein Irrtum: \u00e4 \u4e2d")
    trial.client.post("/v2/purges/2/done", headers=trial.headers("approve"))
    register_model(trial.service, "patients", trial.service.home / "runs" / "patients", mlflow="readmission:7")
    return [*ids, waiting, refused]


def test_migrations_go_down_and_up_with_data_in_the_tables(new_trial: Make, database: str | None) -> None:
    trial = new_trial(database=database, callback_hosts=("tickets.example",))
    ids = full(trial)
    tables = trial.service.database
    before = rows(tables)
    assert set(before) == set(Base.metadata.tables)
    assert all(before.values())
    assert len(before["purges"]) == 3
    tables.downgrade("0001")
    at_1 = rows(tables)
    kept = {
        name: [{key: value for key, value in row.items() if key not in NEW_IN_2.get(name, ())} for row in listed]
        for name, listed in before.items()
        if name != "purges"
    }
    assert at_1 == kept
    assert set(before["models"][0]) - set(at_1["models"][0]) == set(NEW_IN_2["models"])
    tables.migrate()
    expected = before | {"models": [row | NEW_IN_2["models"] for row in before["models"]], "purges": []}
    assert rows(tables) == expected
    assert [trial.state(id) for id in ids] == ["completed", "completed", "planned", "refused"]
    trial.decide(ids[2])
    trial.next_round()
    assert trial.state(ids[2]) == "completed"  # the service goes on with its data
    tables.downgrade("base")
    assert set(inspect(tables.engine).get_table_names()) <= {"alembic_version"}
    tables.migrate()
    assert rows(tables) == {name: [] for name in before}


def test_the_migrations_make_the_tables_that_the_code_uses(new_trial: Make, database: str | None) -> None:
    trial = new_trial(database=database)
    with trial.service.database.engine.connect() as connection:
        assert compare_metadata(MigrationContext.configure(connection), Base.metadata) == []


def test_the_database_file_is_readable_by_its_owner_alone(new_trial: Make) -> None:
    home = new_trial().service.home
    for name in ("service.sqlite", "service.json", "signing.key", "identity.key", "response.key"):
        assert (home / name).stat().st_mode & 0o077 == 0, name


@pytest.mark.parametrize(
    "url", ["mysql://x/y", "no address", "sqlite+nothing", "sqlite+nothing:///x", "sqlite:////nowhere/x"]
)
def test_another_database_is_refused(url: str) -> None:
    with pytest.raises(gf.InputError, match="database"):
        Database(url)


def test_an_address_of_postgresql_without_a_driver_is_enough(postgres: Callable[[], str]) -> None:
    database = Database(postgres().replace("postgresql+psycopg://", "postgresql://"))
    database.migrate()
    assert database.has_tables
    database.close()


@pytest.mark.slow
def test_processes_that_start_at_once_migrate_a_database_once(new_trial: Make, database: str | None) -> None:
    trial = new_trial(database=database)
    home, log = trial.service.home, trial.service.home / "log.txt"
    trial.service.database.downgrade("base")
    started = [start("serve", "migrate", "--home", str(home), log=log) for _ in range(3)]
    assert [process.wait(timeout=60) for process in started] == [0] * 3, log.read_text()
    assert count(trial.service.database, SubjectRequest) == 0


def test_a_row_is_leased_to_one_worker_until_its_lease_ends(new_trial: Make, database: str | None) -> None:
    trial = new_trial(database=database)
    trial.submit("patient-0017")
    first, second = Holder(10), Holder(10)

    def claimed(holder: Holder, now: int) -> int:
        with trial.service.database.write() as session:
            order = SubjectRequest.received
            return len(claim(session, SubjectRequest, order=order, holder=holder, now=now, most=5))

    assert claimed(first, 100) == 1
    assert claimed(second, 105) == 0
    assert claimed(second, 111) == 1
    assert claimed(first, 112) == 0


def test_a_lease_is_renewed_after_the_database_was_away(new_trial: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    trial = new_trial()
    trial.submit("patient-0017")
    holder, tables = Holder(1), trial.service.database
    with tables.write() as session:
        (row,) = claim(
            session, SubjectRequest, order=SubjectRequest.received, holder=holder, now=trial.service.now, most=5
        )
    failed, write = threading.Event(), tables.write

    def broken() -> Any:
        if not failed.is_set():
            failed.set()
            raise OperationalError("", None, Exception("away"))
        return write()

    monkeypatch.setattr(tables, "write", broken)
    trial.clock.time += 100
    with holder.keeping(trial.service, SubjectRequest, row.id):
        assert failed.wait(10)
        time.sleep(1.0)
    with tables.read() as session:
        assert session.get_one(SubjectRequest, row.id).leased_until == trial.service.now + 1


@pytest.mark.slow
def test_two_workers_on_postgresql_never_answer_one_request_twice(
    new_trial: Make, postgres: Callable[[], str], tmp_path: Path
) -> None:
    """Their leases end while they work, so both often take themselves for the holder: the ledger decides."""
    trial = new_trial(database=postgres(), approve_losses=10**6, models=2)
    ids = [trial.submit(f"patient-{number:04d}") for number in range(60)]
    stop = threading.Event()
    clock = trial.clock
    services = [open_service(trial.service.home, clock=clock) for _ in range(2)]
    workers = [Worker(service, lease_seconds=1) for service in services]
    threads = [threading.Thread(target=worker.run, args=(stop,)) for worker in workers]
    for thread in threads:
        thread.start()
    try:
        deadline = time.monotonic() + 100
        while time.monotonic() < deadline:
            clock.time = trial.service.next_round
            time.sleep(0.5)
            with trial.service.database.read() as session:
                done = SubjectRequest.state.in_(FINAL)
                if session.scalar(select(func.count()).select_from(SubjectRequest).where(done)) == len(ids):
                    break
    finally:
        stop.set()
        for thread in threads:
            thread.join(timeout=60)
        for service in services:
            service.database.close()
    with trial.service.database.read() as session:
        assert Counter(session.scalars(select(SubjectRequest.state))) == {COMPLETED: len(ids)}
    for name in ("patients", "patients-2"):
        with Ledger(trial.service.home / "runs" / name / "ledger.sqlite", readonly=True) as ledger:
            found = sorted(entry.request_id for entry in ledger.entries())
        assert found == sorted(trial.ledger_id(id, name) for id in ids)


def test_a_request_ends_if_two_workers_answer_it_for_two_models_at_once(
    new_trial: Make, postgres: Callable[[], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither sees what the other one has not committed, so neither may look before the other one is done."""
    trial = new_trial(database=postgres(), approve_losses=10**6, models=2)
    id = trial.submit("patient-0017")
    trial.work()
    trial.clock.time = trial.service.next_round
    both, finish = threading.Barrier(2), rounds._finish

    def finish_together(*arguments: Any) -> None:
        with suppress(threading.BrokenBarrierError):  # the other one waits for a lock
            both.wait(timeout=0.5)
        both.reset()
        finish(*arguments)

    monkeypatch.setattr(rounds, "_finish", finish_together)
    threads = [threading.Thread(target=Worker(trial.service).step) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert trial.state(id) == "completed"


def meanwhile(act: Callable[[], T]) -> tuple[threading.Thread, list[T]]:
    """Starts something that has to wait for a transaction of the caller. The list then holds its result."""
    results: list[T] = []
    thread = threading.Thread(target=lambda: results.append(act()))
    thread.start()
    thread.join(timeout=1.0)
    assert thread.is_alive(), "it did not wait"
    return thread, results


def test_a_request_that_is_being_approved_is_not_cancelled(new_trial: Make, postgres: Callable[[], str]) -> None:
    """Else its controller would be told of a cancellation, and a round would answer it."""
    trial = new_trial(database=postgres())
    id = trial.submit("patient-0017")
    trial.work()
    with trial.service.database.write() as session:
        approve(session, trial.service, session.get_one(SubjectRequest, id, with_for_update=True), "somebody")
        session.flush()
        headers = trial.headers("submit")
        thread, results = meanwhile(lambda: trial.client.delete(f"/v2/requests/{id}", headers=headers).status_code)
    thread.join()
    assert (results, trial.state(id)) == ([409], "approved")


def test_a_request_whose_approval_is_being_taken_back_is_not_answered(
    new_trial: Make, postgres: Callable[[], str]
) -> None:
    trial = new_trial(database=postgres(), approve_losses=10**6)
    id = trial.submit("patient-0017")
    trial.work()
    trial.clock.time = trial.service.next_round
    with trial.service.database.write() as session:
        request = session.get_one(SubjectRequest, id, with_for_update=True)
        request.approved_by = request.approved = None
        set_state(session, trial.service, request, PLANNED)
        session.flush()
        thread, results = meanwhile(trial.worker.step)
    thread.join()
    assert (results, trial.state(id)) == ([0], "planned")
    assert not (trial.service.home / "runs" / "patients" / "ledger.sqlite").exists()


def test_the_same_request_from_two_callers_at_once_is_stored_once(new_trial: Make, postgres: Callable[[], str]) -> None:
    trial = new_trial(database=postgres())
    body = request_body("patient-0017")

    def post(_: int) -> int:
        return trial.client.post("/v2/requests", json=body, headers=trial.headers("submit")).status_code

    with ThreadPoolExecutor(8) as pool:
        assert set(pool.map(post, range(24))) == {201}
    assert count(trial.service.database, SubjectRequest) == 1


def test_fides_that_sends_an_erasure_several_times_at_once_is_called_back_once(
    new_trial: Make, postgres: Callable[[], str]
) -> None:
    trial = new_trial(database=postgres(), fides_url="https://fides.example")
    headers = trial.headers("submit") | {"reply-to": CALLBACK_PATH, "reply-to-token": "x"}

    def post(number: int) -> tuple[int, str]:
        body = {"request": f"pri_{number % 4}", "identity_value": "patient-0017"}
        response = trial.client.post("/v2/fides/erasures", json=body, headers=headers)
        return response.status_code, response.text

    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(post, range(64)))
    assert {code for code, _ in answers} == {202}
    assert len({text for _, text in answers}) == 4
    assert (count(trial.service.database, SubjectRequest), count(trial.service.database, Delivery)) == (4, 4)
