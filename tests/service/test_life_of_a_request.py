"""From a POST to a certificate, through everything that can happen to a request on the way."""

from __future__ import annotations

import dataclasses
import hashlib
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from sqlalchemy import select

import graphforget as gf
from graphforget.certificates.ledger import Ledger
from graphforget.runs import absent
from graphforget.service import batches, planning
from graphforget.service.identities import SubjectNames, without_names
from graphforget.service.registration import register_model
from graphforget.service.releases import ledger_id_of
from graphforget.service.rounds import answer_due
from graphforget.service.service import as_time
from graphforget.service.settings import DAY
from graphforget.service.tables import Model, Release, SubjectRequest
from service_cases import START, Trial, copy_run, request_body

Make = Callable[..., Trial]


def ledger_ids(trial: Trial, name: str = "patients") -> list[str]:
    with Ledger(trial.service.home / "runs" / name / "ledger.sqlite", readonly=True) as ledger:
        return [entry.request_id for entry in ledger.entries()]


def stored(trial: Trial, id: str) -> SubjectRequest:
    with trial.service.database.read() as session:
        return session.get_one(SubjectRequest, id)


def plans(trial: Trial, id: str) -> list[dict[str, Any]]:
    response = trial.client.get(f"/v2/requests/{id}/plan", headers=trial.headers("read"))
    return list(response.json()["models"])


def more(trial: Trial, id: str) -> dict[str, Any]:
    return dict(trial.status(id)["extensions"]["graphforget"])


def test_a_request_is_planned_approved_answered_in_the_next_round_and_certified(
    new_trial: Make, database: str | None
) -> None:
    trial = new_trial(database=database)
    id = trial.submit("patient-0017")
    assert trial.status(id)["request_status"] == "pending"
    trial.work()
    assert trial.state(id) == "planned"
    trial.decide(id)
    trial.work()
    assert trial.status(id)["request_status"] == "in_progress"  # it waits for the round
    trial.next_round()
    status = trial.status(id)
    assert (status["request_status"], status["extensions"]["graphforget"]["result"]) == ("completed", "forgotten")
    path = status["results_url"].removeprefix(trial.service.settings.base_url)
    results = trial.client.get(path, headers=trial.headers("submit")).json()
    certificate = gf.Certificate.from_dict(results["certificates"][0]["certificate"])
    assert certificate.level == "certified"
    run = trial.service.home / "runs" / "patients"
    assert gf.Certificate.read(run / "certificate.json").digest == certificate.digest
    assert certificate.made == as_time(trial.service.round)  # the round, and not the moment
    gf.verify_run(run, key=gf.public_key(trial.service.home / "signing.key.pub"))
    with pytest.raises(gf.InputError, match="not in the graph"):
        gf.load_run(run)[1].row("patient-0017")


def test_all_due_requests_of_a_round_are_one_release_in_the_order_of_their_ids(new_trial: Make) -> None:
    trial = new_trial(approve_losses=10**6)
    ids = [trial.submit(f"patient-{number:04d}") for number in range(20, 26)]
    trial.work()
    trial.next_round()
    assert ledger_ids(trial) == sorted(trial.ledger_id(id) for id in ids)
    with trial.service.database.read() as session:
        assert len(list(session.scalars(select(Release)))) == 1


def test_what_is_approved_after_a_round_began_waits_for_the_next_one(new_trial: Make) -> None:
    trial = new_trial(approve_losses=10**6)
    trial.next_round()
    trial.clock.time += 5
    id = trial.submit("patient-0017")
    trial.work()
    assert trial.state(id) == "approved"
    trial.next_round()
    assert trial.state(id) == "completed"


def test_a_person_whom_no_model_holds_is_completed_as_nothing_held(new_trial: Make) -> None:
    trial = new_trial()
    id = trial.submit("somebody-else")
    trial.work()
    assert (trial.state(id), more(trial, id)["result"]) == ("completed", "nothing_held")


def grown(trial: Trial, *newcomers: str) -> gf.Graph:
    """The graph of the patients model with newcomers, who have the attributes of the first patient."""
    graph = gf.load_run(trial.service.home / "runs" / "patients")[1]
    n, k = graph.num_nodes, len(newcomers)
    rows = torch.cat([torch.arange(n), torch.zeros(k, dtype=torch.int64)])
    masks = {name: getattr(graph, name)[rows] for name in ("train_mask", "val_mask", "test_mask")}
    names = (*(graph.subject_ids or ()), *newcomers)
    return gf.Graph.create(
        x=graph.x.to_dense()[rows],
        edges=graph.edge_index,
        y=graph.y[rows],
        subject_ids=names,
        column_names=graph.column_names,
        class_names=graph.class_names,
        **masks,
    )


def test_who_asks_while_absent_is_not_brought_in_by_a_later_update(new_trial: Make) -> None:
    trial = new_trial()
    run = trial.service.home / "runs" / "patients"
    before = gf.load_run(run)[0].state_summary()
    asked = [trial.submit("newcomer-1"), trial.submit("newcomer-2", scope="admin", extension={"dry_run": True})]
    trial.work()
    assert [more(trial, id)["result"] for id in asked] == ["nothing_held", "nothing_held"]
    assert "newcomer" not in (run / "absent.json").read_text()
    assert gf.load_run(run)[0].state_summary() == before  # the model and its certificate stay as they are
    with pytest.raises(gf.Refused, match=r"1 deleted item \(1 node\)"):
        gf.update_run(run, grown(trial, " Newcomer-1"))
    expected = gf.plan_update_run(run, grown(trial, "newcomer-1"))
    assert (expected.level, expected.deleted_again) == (None, {"node": 1})
    assert gf.update_run(run, grown(trial, "newcomer-2")).outcome is not None  # a rehearsal changes nothing
    assert not (run / "absent.json").exists()
    gf.verify_run(run)
    with pytest.raises(gf.Refused, match=r"1 deleted item \(1 node\)"):  # the release took the list over
        gf.update_run(run, grown(trial, "newcomer-1"))


def test_who_is_absent_in_one_of_two_models_is_kept_out_of_it_once_the_request_is_answered(new_trial: Make) -> None:
    trial = new_trial(models=2)
    second = trial.service.home / "runs" / "patients-2"
    gf.answer(second, gf.Request(nodes=["patient-0018"]))
    smaller = gf.load_run(second)[1]
    gf.update_run(second, smaller.without(gf.Request(nodes=["patient-0017"])))  # no request asked for it
    refused, asked = trial.submit("patient-0017"), trial.submit("patient-0017", "patient-0021")
    trial.work()
    trial.decide(refused, "refuse", reason="a mistake")
    assert not (second / "absent.json").exists()
    trial.decide(asked)
    trial.next_round()
    assert trial.state(asked) == "completed"
    with pytest.raises(gf.Refused):
        gf.update_run(second, smaller)


def test_who_is_absent_and_asks_together_with_somebody_who_is_not_is_kept_out(new_trial: Make) -> None:
    trial = new_trial(approve_losses=10**6)
    run = trial.service.home / "runs" / "patients"
    id = trial.submit("patient-0017", "newcomer-1")
    trial.work()
    trial.next_round()
    assert more(trial, id)["result"] == "forgotten"
    with pytest.raises(gf.Refused, match=r"1 deleted item \(1 node\)"):
        gf.update_run(run, grown(trial, "newcomer-1"))
    gf.verify_run(run)


def test_a_full_list_of_who_is_kept_out_blocks_nobody_who_is_held(
    new_trial: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else whoever may submit could fill the list, until no release of the model can be written."""
    trial = new_trial(approve_losses=10**6)
    run = trial.service.home / "runs" / "patients"
    first = trial.submit("newcomer-1", "newcomer-2")
    trial.work()
    monkeypatch.setattr(absent, "MOST", 4)
    more_names, held = trial.submit("newcomer-3", "newcomer-4", "newcomer-5"), trial.submit("patient-0017", "unknown-1")
    known = trial.submit("newcomer-2")  # is on the list already
    trial.work()
    assert [more(trial, id)["result"] for id in (first, known)] == ["nothing_held"] * 2
    assert (trial.state(more_names), "is full" in more(trial, more_names)["reason"]) == ("refused", True)
    trial.next_round()
    assert more(trial, held)["result"] == "forgotten"
    listed = gf.load_run(run)[0].never_again
    assert listed is not None
    assert listed.size <= 4
    monkeypatch.setattr(absent, "MOST", 3)
    trial.next_round()
    late = trial.submit("patient-0018", "unknown-2")
    trial.work()
    trial.next_round()
    assert more(trial, late)["result"] == "forgotten"  # they were held, and are gone
    gf.verify_run(run)


def test_a_request_that_names_too_many_pairs_is_refused(new_trial: Make) -> None:
    """Each pair is hashed for each model, so a small body would fill memory and disk."""
    trial = new_trial()
    names = [f"other-{number}" for number in range(100)]
    for people, code in ((10, 201), (11, 400)):
        body = request_body(*names[:people], extension={"edges": names})
        assert trial.client.post("/v2/requests", json=body, headers=trial.headers("submit")).status_code == code


def test_only_the_models_that_hold_the_person_answer(new_trial: Make) -> None:
    trial = new_trial(models=2, approve_losses=10**6)
    first = trial.submit("patient-0017", extension={"model": "patients-2"})
    trial.work()
    trial.next_round()
    both = trial.submit("patient-0017")  # the second model has forgotten them
    trial.work()
    trial.next_round()
    assert ledger_ids(trial, "patients-2") == [trial.ledger_id(first, "patients-2")]
    assert ledger_ids(trial) == [trial.ledger_id(both)]
    assert more(trial, both)["result"] == "forgotten"


def test_the_policy_approves_small_plans_and_leaves_large_ones_to_a_person(new_trial: Make) -> None:
    trial = new_trial(approve_losses=12)
    small = trial.submit("patient-0017", extension={"columns": ["mean radius"]})
    trial.work()
    with trial.service.database.read() as session:
        plan = session.get_one(SubjectRequest, small).parts[0].plan
    assert plan is not None
    large = plan["training_nodes"] + plan["affected"] > 12
    assert trial.state(small) == ("planned" if large else "approved")
    trial.service.database.close()
    generous = new_trial(approve_losses=plan["training_nodes"] + plan["affected"])
    id = generous.submit("patient-0017", extension={"columns": ["mean radius"]})
    generous.work()
    assert generous.state(id) == "approved"
    strict = new_trial(approve_losses=plan["training_nodes"] + plan["affected"] - 1)
    id = strict.submit("patient-0017", extension={"columns": ["mean radius"]})
    strict.work()
    assert strict.state(id) == "planned"


def plans_of_levels(monkeypatch: pytest.MonkeyPatch, *levels: str) -> None:
    """The next plans have these levels. No built-in model has a plan of a lower level than certified today."""
    left: list[Any] = list(levels)

    def planned(*arguments: Any, **given: Any) -> gf.Plan:
        return dataclasses.replace(gf.plan(*arguments, **given), level=left.pop(0))

    monkeypatch.setattr(planning, "plan", planned)


@pytest.mark.parametrize(
    ("levels", "state"),
    [
        (["exact"], "approved"),
        (["certified"], "approved"),
        (["conditional"], "planned"),
        (["empirical"], "planned"),
        (["certified", "exact"], "approved"),
        (["certified", "conditional"], "planned"),
        (["empirical", "exact"], "planned"),
    ],
)
def test_the_policy_never_approves_what_is_not_proven(
    new_trial: Make, monkeypatch: pytest.MonkeyPatch, levels: list[str], state: str
) -> None:
    trial = new_trial(approve_losses=10**9, models=len(levels))
    plans_of_levels(monkeypatch, *levels)
    id = trial.submit("patient-0017")
    trial.work()
    assert trial.state(id) == state
    trial.next_round()
    assert trial.state(id) == ("completed" if state == "approved" else "planned")
    assert (trial.service.home / "runs" / "patients" / "ledger.sqlite").exists() == (state == "approved")


def test_an_unproven_plan_of_a_model_that_comes_later_takes_the_approval_back(
    new_trial: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    trial = new_trial(approve_losses=10**9)
    id = trial.submit("patient-0017")
    trial.work()
    assert stored(trial, id).approved_by == "policy"
    plans_of_levels(monkeypatch, "conditional")
    register_second(trial)
    trial.work()
    assert (trial.state(id), stored(trial, id).approved_by) == ("planned", None)


def test_one_bad_request_in_a_batch_does_not_fail_the_others(new_trial: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """The bad one is refused when the batch is answered, and not before."""
    trial = new_trial(approve_losses=10**6)
    good = [trial.submit(f"patient-{number:04d}") for number in (20, 21, 22)]
    bad = trial.submit("patient-0033")
    trial.work()

    def answer(run: Any, requests: Any, **given: Any) -> Any:
        if any("patient-0033" in request.nodes for request in requests):
            raise gf.Refused("node 'patient-0033' cannot be forgotten")
        return gf.answer(run, requests, **given)

    monkeypatch.setattr(batches, "answer", answer)
    trial.next_round()
    assert [trial.state(id) for id in good] == ["completed"] * 3
    assert trial.status(bad)["request_status"] == "cancelled"  # never completed
    assert more(trial, bad) == {"state": "refused", "reason": "patients: node [erased] cannot be forgotten"}
    assert sorted(ledger_ids(trial)) == sorted(map(trial.ledger_id, good))


@pytest.mark.parametrize("form", ["raw", "sha256"])
def test_a_refusal_names_nobody_also_if_the_request_gave_a_hash(
    form: str, new_trial: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    trial = new_trial(approve_losses=10**6)
    name, other = "patient-0033", "patient-0020"
    value = name if form == "raw" else hashlib.sha256(name.encode()).hexdigest()
    bad, good = trial.submit(value, identity_format=form), trial.submit(other)
    trial.work()

    def answer(run: Any, requests: Any, **given: Any) -> Any:
        if any(name in request.nodes for request in requests):
            listed = [node for request in requests for node in request.nodes]
            raise gf.Refused(f"nodes {listed} cannot be forgotten")
        return gf.answer(run, requests, **given)

    monkeypatch.setattr(batches, "answer", answer)
    trial.next_round()
    assert (trial.state(bad), trial.state(good)) == ("refused", "completed")
    for scope in ("submit", "read"):  # a reason that holds for the whole batch would name the other one, too
        text = trial.client.get(f"/v2/requests/{bad}", headers=trial.headers(scope)).text
        assert "nodes [[erased]] cannot be forgotten" in text
        assert not any(named in text for named in (name, other, value))


@pytest.mark.parametrize(
    ("text", "names", "expected"),
    [
        ("node 7 of 17 nodes", ["7"], "node [erased] of 17 nodes"),
        ("node 'a' and a node", ["a"], "node [erased] and [erased] node"),
        ("edge ('anna', 'annabel')", ["anna", "annabel"], "edge ([erased], [erased])"),
    ],
)
def test_names_are_taken_out_of_messages(text: str, names: list[str], expected: str) -> None:
    assert without_names(text, names) == expected


def test_a_batch_that_would_take_all_training_nodes_answers_what_it_can(new_trial: Make) -> None:
    trial = new_trial(approve_losses=10**9)
    graph = gf.load_run(trial.service.home / "runs" / "patients")[1]
    assert graph.subject_ids is not None
    everybody = list(graph.subject_ids)
    ids = [trial.submit(*everybody[start : start + 100]) for start in range(0, len(everybody), 100)]
    trial.work()
    trial.next_round()
    states = [trial.state(id) for id in ids]
    assert "completed" in states
    assert set(states) <= {"completed", "refused"}
    assert len(ledger_ids(trial)) == states.count("completed")


def test_a_release_under_the_floor_refuses_the_batch_and_is_in_the_ledger(new_trial: Make) -> None:
    trial = new_trial(approve_losses=10**6)
    graph = gf.load("patients")
    run = trial.service.home / "runs" / "floor"
    gf.save_run(run, gf.train(graph, "sgc", sigma=0.01, floor=0.9999), graph)
    register_model(trial.service, "floor", run)
    id = trial.submit("patient-0017", extension={"model": "floor"})
    trial.work()
    trial.next_round()
    assert trial.state(id) == "refused"
    assert "floor" in more(trial, id)["reason"]
    assert ledger_ids(trial, "floor") == [trial.ledger_id(id, "floor")]


def test_a_run_that_cannot_be_verified_stops_its_model_and_completes_nothing(new_trial: Make) -> None:
    trial = new_trial(approve_losses=10**6)
    id = trial.submit("patient-0017")
    trial.work()
    (trial.service.home / "runs" / "patients" / "weights.safetensors").write_bytes(b"damaged")
    trial.next_round()
    assert trial.state(id) == "batched"
    assert not trial.client.get("/v2/health").json()["ok"]
    with trial.service.database.read() as session:
        assert session.scalars(select(Model)).one().alarm


def test_a_dry_run_shows_the_plan_and_changes_nothing(new_trial: Make) -> None:
    trial = new_trial(approve_losses=10**6)
    id = trial.submit("patient-0017", scope="admin", extension={"dry_run": True})
    trial.work()
    trial.next_round()
    assert more(trial, id)["result"] == "rehearsed"
    plans = trial.client.get(f"/v2/requests/{id}/results", headers=trial.headers("read")).json()["plans"]
    assert plans[0]["plan"]["level"] == "certified"
    assert not (trial.service.home / "runs" / "patients" / "ledger.sqlite").exists()


def test_relations_attributes_and_hashed_identities_are_understood(new_trial: Make) -> None:
    trial = new_trial(approve_losses=10**6)
    graph = gf.load_run(trial.service.home / "runs" / "patients")[1]
    assert graph.subject_ids is not None
    u, v = (graph.subject_ids[row] for row in graph.edge_index[:, 0].tolist())
    edge = trial.submit(u, extension={"edges": [v, "nobody"]})
    attributes = trial.submit("patient-0100", extension={"attributes": True})
    hashed = trial.submit(hashlib.sha256(b"patient-0200").hexdigest(), identity_format="sha256")
    trial.work()
    trial.next_round()
    assert {trial.state(id) for id in (edge, attributes, hashed)} == {"completed"}
    retained = gf.load_run(trial.service.home / "runs" / "patients")[1]
    assert retained.num_nodes == graph.num_nodes - 1
    assert not retained.x[retained.row("patient-0100")].any()
    assert retained.row(u) not in retained.edge_index[0][retained.edge_index[1] == retained.row(v)].tolist()


def test_identities_become_keyed_hashes_and_are_purged_after_the_set_days(new_trial: Make) -> None:
    trial = new_trial(approve_losses=10**6, keep_identities_days=3, callback_hosts=("tickets.example",))
    url = "https://tickets.example/status/of-the-case"
    id, again = trial.submit("patient-0017", status_callback_urls=[url]), trial.submit("patient-0017")
    trial.work()
    assert stored(trial, id).identities is not None
    trial.next_round()
    one, two = stored(trial, id), stored(trial, again)
    assert (one.identities, one.scope) == (None, {})
    assert one.identity_hashes == two.identity_hashes
    assert one.identity_hashes is not None
    assert "patient-0017" not in str(one.identity_hashes)
    trial.clock.time += 2 * DAY
    trial.worker._purged = 0
    trial.work()
    assert stored(trial, id).identity_hashes is not None
    assert plans(trial, id)[0]["plan"]["nodes"] == 1
    assert (stored(trial, id).identity_hashes is not None, stored(trial, id).callback_urls) == (True, [url])
    trial.clock.time += 2 * DAY
    trial.worker._purged = 0
    trial.work()
    assert (stored(trial, id).identity_hashes, stored(trial, id).content_hash) == (None, None)
    assert plans(trial, id) == [{"model": "patients", "state": "verified", "plan": None}]
    results = trial.client.get(f"/v2/requests/{id}/results", headers=trial.headers("read"))
    assert results.json()["certificates"][0]["ledger_id"] is None
    assert stored(trial, id).callback_urls == []
    for file in trial.service.home.glob("service.sqlite*"):
        assert b"patient-0017" not in file.read_bytes() or file.name.endswith("-wal")


def test_a_pending_request_can_be_cancelled_and_a_batched_one_cannot(new_trial: Make) -> None:
    trial = new_trial()
    first, second = trial.submit("patient-0017"), trial.submit("patient-0018")
    trial.work()
    assert trial.client.delete(f"/v2/requests/{first}", headers=trial.headers("submit")).status_code == 202
    assert trial.status(first)["request_status"] == "cancelled"
    trial.decide(second)
    assert trial.client.delete(f"/v2/requests/{second}", headers=trial.headers("submit")).status_code == 409


def test_a_person_refuses_with_a_reason(new_trial: Make) -> None:
    trial = new_trial()
    id = trial.submit("patient-0017")
    trial.work()
    body = {"decision": "refuse"}
    bare = trial.client.post(f"/v2/requests/{id}/decision", json=body, headers=trial.headers("approve"))
    assert bare.status_code == 400
    trial.decide(id, "refuse", reason="the identity could not be confirmed")
    assert more(trial, id)["reason"] == "the identity could not be confirmed"
    trial.next_round()
    assert trial.state(id) == "refused"


def test_the_same_id_gets_the_same_answer_and_another_request_under_it_a_conflict(new_trial: Make) -> None:
    trial = new_trial(approve_losses=10**6)
    body = request_body("patient-0017")
    answers = [trial.client.post("/v2/requests", json=body, headers=trial.headers("submit")) for _ in range(2)]
    assert answers[0].json() == answers[1].json()
    other = request_body("patient-0018", id=body["subject_request_id"])
    assert trial.client.post("/v2/requests", json=other, headers=trial.headers("submit")).status_code == 409
    trial.work()
    trial.next_round()
    assert trial.client.post("/v2/requests", json=body, headers=trial.headers("submit")).json() == answers[0].json()
    trial.work()
    assert ledger_ids(trial) == [trial.ledger_id(body["subject_request_id"])]


def test_overdue_requests_come_first(new_trial: Make) -> None:
    trial = new_trial()
    asked = as_time(START - 20 * DAY), as_time(START - 40 * DAY), as_time(START - DAY)
    ids = [trial.submit("patient-0017", submitted_time=when) for when in asked]
    queue = trial.client.get("/v2/queue", headers=trial.headers("read")).json()["requests"]
    assert [row["id"] for row in queue] == [ids[1], ids[0], ids[2]]
    assert [row["overdue"] for row in queue] == [True, False, False]


def test_what_the_model_cannot_purge_is_ticked_off_by_a_person_and_recorded(new_trial: Make) -> None:
    trial = new_trial(approve_losses=10**6)
    trial.submit("patient-0017")
    trial.work()
    trial.next_round()
    with trial.service.database.read() as session:
        purges = session.scalars(select(Release)).one().purges
    assert [one.done for one in purges] == [None] * 3
    path = f"/v2/purges/{purges[0].id}/done"
    assert trial.client.post(path, headers=trial.headers("read")).status_code == 403
    done = trial.client.post(path, headers=trial.headers("approve"))
    assert done.json()["done_by"] == "the approve token"
    assert trial.client.post(path, headers=trial.headers("approve")).status_code == 409


def test_a_run_that_was_answered_on_the_command_line_goes_on_in_the_service(new_trial: Make) -> None:
    """One ledger, whoever answers."""
    trial = new_trial(approve_losses=10**6)
    key = gf.private_key(trial.service.home / "signing.key")
    gf.answer(trial.service.home / "runs" / "patients", gf.Request(nodes=["patient-0005"]), request_id="x", key=key)
    id = trial.submit("patient-0017")
    trial.work()
    trial.next_round()
    assert ledger_ids(trial) == ["x", trial.ledger_id(id)]


def test_a_run_that_cannot_be_read_refuses_nobody_and_delays_only_its_own_requests(new_trial: Make) -> None:
    trial = new_trial(models=2, approve_losses=10**6, lease_seconds=5)
    place = trial.service.home / "runs" / "patients"
    away = place.rename(trial.service.home / "away")
    waits = trial.submit("patient-0017", extension={"model": "patients"})
    goes_on = trial.submit("patient-0017", extension={"model": "patients-2"})
    trial.work()
    assert (trial.state(waits), trial.state(goes_on)) == ("received", "approved")
    away.rename(place)
    trial.next_round()  # the lease is over: it is planned now
    trial.next_round()
    assert (trial.state(waits), trial.state(goes_on)) == ("completed", "completed")


def test_an_id_that_the_ledger_already_holds_completes_nothing_by_itself(new_trial: Make) -> None:
    """Who submits chooses the id of the request. The ledger is public, so its ids are known."""
    trial = new_trial(approve_losses=10**6)
    run, known = trial.service.home / "runs" / "patients", "11111111-2222-4333-8444-555555555555"
    key = gf.private_key(trial.service.home / "signing.key")
    gf.answer(run, gf.Request(nodes=["patient-0005"]), request_id=known, key=key)
    trial.submit("patient-0017", id=known)
    trial.work()
    trial.next_round()
    assert more(trial, known)["result"] == "forgotten"
    with pytest.raises(gf.InputError, match="not in the graph"):
        gf.load_run(run)[1].row("patient-0017")


def test_ids_in_ledgers_are_of_the_request_its_content_and_the_model(new_trial: Make) -> None:
    """So ledgers cannot be linked, and an entry for other content under the same id is no answer."""
    trial = new_trial(models=2, approve_losses=10**6)
    id = trial.submit("patient-0017")
    trial.work()
    trial.next_round()
    assert len({id, *ledger_ids(trial), *ledger_ids(trial, "patients-2")}) == 3
    results = trial.client.get(f"/v2/requests/{id}/results", headers=trial.headers("read")).json()
    assert [one["ledger_id"] for one in results["certificates"]] == ledger_ids(trial) + ledger_ids(trial, "patients-2")
    one, other = stored(trial, id), stored(trial, id)
    other.content_hash = "0" * 64
    assert ledger_id_of(trial.service, one, 1) != ledger_id_of(trial.service, other, 1)


@pytest.mark.parametrize(
    ("models", "subject", "given", "reason"),
    [
        (0, "patient-0017", {}, "no model is registered"),
        (1, "patient-0017", {"identity_type": "email"}, "know people by controller_customer_id alone"),
        (1, "patient-0017", {"extension": {"columns": ["mean radius", "mean raduis"]}}, "column 2 .* is in no model"),
        (1, "Patient-0017 ", {}, "differs from one in the model only by case"),
        (1, hashlib.sha256(b"PATIENT-0017".lower()).hexdigest().upper(), {"identity_format": "sha256"}, None),
        (1, "patient-0017", {"extension": {"edges": ["Patient-0018"]}}, "differs from one in the model only by case"),
    ],
)
def test_what_cannot_be_looked_up_is_refused_and_never_nothing_held(
    new_trial: Make, models: int, subject: str, given: dict[str, Any], reason: str | None
) -> None:
    trial = new_trial(models=models)
    id = trial.submit(subject, **given)
    trial.work()
    if reason is None:
        assert trial.state(id) == "planned"  # digits of a hash may be large
        return
    assert trial.state(id) == "refused"
    assert re.search(reason, more(trial, id)["reason"])
    assert "patient-00" not in more(trial, id)["reason"].lower()


def test_the_hash_of_a_name_in_small_letters_is_near_a_name_in_large_ones() -> None:
    graph: Any = SimpleNamespace(subject_ids=("Ann@Example.org", "Bob"), relation_names=None)
    names = SubjectNames(graph)
    small = {"identity_type": "email", "identity_format": "sha256"}
    small["identity_value"] = hashlib.sha256(b"ann@example.org").hexdigest()
    assert names.matching([small], "email") == []
    assert names.has_near([small], "email")
    assert not names.has_near([small], "android_id")


def test_a_round_that_fails_again_and_again_stops_its_model_with_an_alarm(
    new_trial: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    trial = new_trial(approve_losses=10**6)
    id = trial.submit("patient-0017")
    trial.work()

    def answer(*_: Any, **__: Any) -> Any:
        raise RuntimeError("patient-0017 is in this message")

    with monkeypatch.context() as patched:
        patched.setattr(batches, "answer", answer)
        for healthy in (True, True, False):
            trial.next_round()
            assert trial.client.get("/v2/health").json()["ok"] is healthy
    assert trial.state(id) == "batched"
    with trial.service.database.read() as session:
        model = session.scalars(select(Model)).one()
    assert model.alarm == "its round failed 3 times in a row (RuntimeError)"
    register_model(trial.service, "patients", Path(model.run))
    trial.next_round()
    assert trial.state(id) == "completed"


def register_second(trial: Trial) -> None:
    register_model(trial.service, "second", copy_run(trial.service.home / "runs" / "second"))


@pytest.mark.parametrize("limit", [None, 10**6])
def test_a_model_that_is_registered_later_is_asked_before_a_request_completes(
    new_trial: Make, limit: int | None, database: str | None
) -> None:
    trial = new_trial(database=database, approve_losses=limit)
    id = trial.submit("patient-0017")
    named = trial.submit("patient-0018", extension={"model": "patients"})
    trial.work()
    if limit is None:
        trial.decide(id)
        trial.decide(named)
    register_second(trial)
    trial.work()
    assert (trial.state(id), trial.state(named)) == ("approved" if limit else "planned", "approved")
    if limit is None:
        trial.decide(id)  # the approval was of other plans
    trial.next_round()
    assert (trial.state(id), trial.state(named)) == ("completed", "completed")
    assert ledger_ids(trial, "second") == [trial.ledger_id(id, "second")]


def test_a_model_that_is_registered_during_a_round_does_not_let_a_request_complete(new_trial: Make) -> None:
    trial = new_trial()
    id = trial.submit("patient-0017")
    trial.work()
    trial.decide(id)
    trial.clock.time = trial.service.next_round
    register_second(trial)
    answer_due(trial.service, trial.worker.models, trial.worker.holder, Counter())
    assert trial.state(id) == "batched"
    trial.work()
    assert (trial.state(id), "second: the model was registered" in more(trial, id)["reason"]) == ("refused", True)
