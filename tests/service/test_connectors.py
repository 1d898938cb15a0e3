"""Connectors against stand-ins that check the wire format: callbacks, webhooks, Fides and MLflow."""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import hmac
import json
import threading
import time
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding, rsa
from sqlalchemy import select, update

from cases import Run, RunJson
from graphforget.errors import Mismatch
from graphforget.service.connectors.fides import CALLBACK_PATH
from graphforget.service.connectors.webhook import WINDOW
from graphforget.service.registration import register_model
from graphforget.service.secret_files import write_secret
from graphforget.service.service import open_service
from graphforget.service.settings import DAY, Webhook
from graphforget.service.tables import Delivery, Release
from graphforget.service.worker import Worker
from service_cases import StandIn, Trial, request_body, standing_in

Make = Callable[..., Trial]
CONNECTOR = Path(__file__).parents[2] / "src/graphforget/service/connectors/fides_connector"
SECRET = b"a secret of a webhook"


@pytest.fixture
def stand_in() -> Iterator[StandIn]:
    with standing_in() as other:
        yield other


def deliver(trial: Trial) -> None:
    for _ in range(20):
        if not trial.worker.deliver():
            return


def test_every_change_of_state_is_called_back_in_order_and_signed(new_trial: Make, stand_in: StandIn) -> None:
    trial = new_trial(callback_hosts=(stand_in.host,), insecure_callbacks=True)
    url = f"{stand_in.url}/status"
    id = trial.submit("patient-0017", status_callback_urls=[url])
    trial.work()
    trial.decide(id)
    trial.next_round()
    deliver(trial)
    assert [call.content["request_status"] for call in stand_in.calls] == ["pending", "in_progress", "completed"]
    key = x509.load_pem_x509_certificate(trial.service.secrets.certificate).public_key()
    assert isinstance(key, rsa.RSAPublicKey)
    for call in stand_in.calls:
        assert call.path == "/status"
        assert (call.content["subject_request_id"], call.content["status_callback_url"]) == (id, url)
        assert call.headers["x-opendsr-processor-domain"] == "127.0.0.1"
        signature = base64.b64decode(call.headers["x-opendsr-signature"])
        key.verify(signature, call.body, padding.PKCS1v15(), hashes.SHA256())
    assert stand_in.calls[-1].content["results_url"].endswith(f"/v2/requests/{id}/results")


def test_a_callback_that_fails_is_tried_again_with_growing_pauses_and_never_lost(
    new_trial: Make, stand_in: StandIn
) -> None:
    trial = new_trial(callback_hosts=(stand_in.host,), insecure_callbacks=True)
    stand_in.codes = [500, 302, 404, 429]
    trial.submit("nobody", status_callback_urls=[f"{stand_in.url}/status"])
    trial.work()  # completed at once: two messages
    pauses = []
    for _ in range(6):
        deliver(trial)
        with trial.service.database.read() as session:
            first = session.scalars(select(Delivery).order_by(Delivery.id)).first()
        assert first is not None
        if first.next_attempt is None:
            break
        pauses.append(first.next_attempt - trial.service.now)
        trial.clock.time = first.next_attempt
    assert pauses == [2, 4, 8, 16]
    deliver(trial)
    assert [call.content["request_status"] for call in stand_in.calls[4:]] == ["pending", "completed"]
    assert {call.path for call in stand_in.calls} == {"/status"}  # redirects are not followed
    count = len(stand_in.calls)
    deliver(trial)
    assert len(stand_in.calls) == count


def test_a_slow_receiver_gets_no_message_twice_from_two_workers(new_trial: Make, stand_in: StandIn) -> None:
    """The messages of a turn together take longer than a lease."""
    trial = new_trial(callback_hosts=(stand_in.host,), insecure_callbacks=True)
    ids = [trial.submit("nobody", status_callback_urls=[f"{stand_in.url}/status"]) for _ in range(5)]
    trial.work()
    stand_in.pause, began = 0.6, time.monotonic()
    service = open_service(trial.service.home, clock=lambda: trial.clock.time + time.monotonic() - began)
    workers = [Worker(service, lease_seconds=1) for _ in range(2)]

    def turns(worker: Worker) -> None:
        while time.monotonic() - began < 9 and len(stand_in.calls) < 12:
            if not worker.deliver():
                time.sleep(0.1)

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(turns, workers))
    service.database.close()
    sent = Counter((call.content["subject_request_id"], call.content["request_status"]) for call in stand_in.calls)
    assert sent == dict.fromkeys(((id, status) for id in ids for status in ("pending", "completed")), 1)


def test_a_message_that_another_worker_has_taken_over_is_not_sent(new_trial: Make, stand_in: StandIn) -> None:
    """A worker that stood still for longer than its lease goes on with its turn."""
    trial = new_trial(callback_hosts=(stand_in.host,), insecure_callbacks=True)
    for _ in range(2):
        trial.submit("patient-0017", status_callback_urls=[f"{stand_in.url}/status"])
    stand_in.pause = 1.0
    turn = threading.Thread(target=trial.worker.deliver)
    turn.start()
    while not stand_in.calls:
        time.sleep(0.01)
    with trial.service.database.write() as session:
        session.execute(update(Delivery).values(leased_by="another worker"))
    turn.join()
    assert len(stand_in.calls) == 1


ELSEWHERE = (
    "http://allowed.example/x",
    "https://other.example/x",
    "https://user@allowed.example/x",
    "https://@allowed.example/x",
    "https://allowed.example:8443/x",
    "https://allowed.example.other.example/x",
    "https://allowed.example\\@other.example/x",
    "https://other.example\\.allowed.example/x",
    "https://other.example/#@allowed.example",
    "https://[::1]/x",
    "https://allowed.example:port/x",
    "file:///etc/x",
    "//allowed.example/x",
    " https://allowed.example/x",
)


def test_callbacks_go_only_where_the_settings_allow(new_trial: Make) -> None:
    trial = new_trial(callback_hosts=("allowed.example",))
    ok = request_body("patient-0017", status_callback_urls=["https://allowed.example/x"])
    assert trial.client.post("/v2/requests", json=ok, headers=trial.headers("submit")).status_code == 201
    for url in ELSEWHERE:
        bad = request_body("patient-0017", status_callback_urls=[url])
        assert trial.client.post("/v2/requests", json=bad, headers=trial.headers("submit")).status_code == 400, url


def test_a_host_that_is_taken_out_of_the_settings_gets_nothing_more(new_trial: Make, stand_in: StandIn) -> None:
    trial = new_trial(callback_hosts=(stand_in.host,), insecure_callbacks=True)
    trial.submit("nobody", status_callback_urls=[f"{stand_in.url}/status"])
    stricter = dataclasses.replace(trial.service.settings, callback_hosts=())
    service = dataclasses.replace(trial.service, settings=stricter)
    assert Worker(service).deliver() == 1
    assert stand_in.calls == []
    with trial.service.database.read() as session:
        delivery = session.scalars(select(Delivery)).one()
    assert (delivery.delivered, delivery.attempts, delivery.error) == (None, 1, "InputError")
    trial.clock.time += 2
    deliver(trial)
    assert len(stand_in.calls) == 1  # it is in the settings again


def test_an_id_with_other_callbacks_is_a_conflict(new_trial: Make) -> None:
    """Else it would look accepted, and nobody would ever be called back there."""
    trial = new_trial(callback_hosts=("allowed.example",))
    body, headers = request_body("patient-0017"), trial.headers("submit")
    for urls, code in ((["a", "b"], 201), (["a", "b"], 201), (["a"], 409), ([], 409), (["a", "b", "a"], 201)):
        given = body | {"status_callback_urls": [f"https://allowed.example/{url}" for url in urls]}
        assert trial.client.post("/v2/requests", json=given, headers=headers).status_code == code


def test_an_address_that_is_given_twice_is_called_back_once(new_trial: Make, stand_in: StandIn) -> None:
    trial = new_trial(callback_hosts=(stand_in.host,), insecure_callbacks=True)
    trial.submit("patient-0017", status_callback_urls=[f"{stand_in.url}/status"] * 100)
    deliver(trial)
    assert len(stand_in.calls) == 1


def test_a_webhook_is_told_of_changes_with_an_hmac_of_time_and_body(new_trial: Make, stand_in: StandIn) -> None:
    trial = new_trial(webhooks=(Webhook(f"{stand_in.url}/hook", "webhook.key"),))
    write_secret(trial.service.home / "webhook.key", SECRET)
    id = trial.submit("nobody")
    trial.work()
    deliver(trial)
    (call,) = stand_in.calls
    assert (call.content["subject_request_id"], call.content["request_status"]) == (id, "completed")
    timestamp = call.headers["x-graphforget-timestamp"]
    assert int(timestamp) == trial.service.now
    expected = hmac.new(SECRET, timestamp.encode() + b"." + call.body, hashlib.sha256).hexdigest()
    assert call.headers["x-graphforget-signature"] == f"v1={expected}"


def signed_headers(now: int, body: bytes, secret: bytes = SECRET) -> dict[str, str]:
    digest = hmac.new(secret, b"%d." % now + body, hashlib.sha256).hexdigest()
    return {"X-Graphforget-Timestamp": str(now), "X-Graphforget-Signature": f"v1={digest}"}


def test_a_ticket_system_submits_with_a_signature_inside_the_window(new_trial: Make) -> None:
    trial = new_trial(incoming_webhook_secret_file="incoming.key")
    write_secret(trial.service.home / "incoming.key", SECRET)
    body, now = json.dumps(request_body("patient-0017")).encode(), trial.service.now

    def post(headers: dict[str, str], content: bytes = body) -> int:
        return trial.client.post("/v2/webhook", content=content, headers=headers).status_code

    assert post({}) == 401
    assert post(signed_headers(now, body, b"another secret, as long")) == 401
    assert post(signed_headers(now, body), body + b" ") == 401
    assert post(signed_headers(now - WINDOW - 1, body)) == 401
    assert post(signed_headers(now + WINDOW + 1, body)) == 401
    assert post(signed_headers(now, b"{}"), b"{}") == 400
    assert post(signed_headers(now, body)) == 201
    assert post(signed_headers(now, body)) == 201  # a replay inside the window changes nothing
    trial.work()
    queue = trial.client.get("/v2/queue", headers=trial.headers("read")).json()["requests"]
    assert len(queue) == 1


def test_a_webhook_has_the_limits_of_a_token(new_trial: Make) -> None:
    trial = new_trial(incoming_webhook_secret_file="incoming.key", requests_per_minute=3, logins_per_minute=2)
    write_secret(trial.service.home / "incoming.key", SECRET)
    body, now = json.dumps(request_body("patient-0017")).encode(), trial.service.now

    def post(secret: bytes) -> int:
        headers = signed_headers(now, body, secret)
        return trial.client.post("/v2/webhook", content=body, headers=headers).status_code

    assert [post(b"another secret, as long") for _ in range(4)] == [401, 401, 429, 429]
    assert [post(SECRET) for _ in range(4)] == [201, 201, 201, 429]


def test_a_secret_that_cannot_be_read_is_logged_and_looks_like_a_wrong_signature(
    new_trial: Make, caplog: pytest.LogCaptureFixture
) -> None:
    trial = new_trial(incoming_webhook_secret_file="incoming.key")
    body = json.dumps(request_body("patient-0017")).encode()
    headers = signed_headers(trial.service.now, body)
    assert trial.client.post("/v2/webhook", content=body, headers=headers).status_code == 401
    assert "the secret of the incoming webhook cannot be read" in caplog.text
    assert str(trial.service.home) not in caplog.text


def test_without_a_secret_there_is_no_incoming_webhook(new_trial: Make) -> None:
    assert new_trial().client.post("/v2/webhook", content=b"{}").status_code == 404


def packed(place: Path) -> dict[str, Any]:
    """The documents in a zip."""
    with zipfile.ZipFile(place) as package:
        assert package.testzip() is None
        return {name: yaml.safe_load(package.read(name)) for name in package.namelist()}


@pytest.mark.parametrize(
    ("kind", "identity", "category"),
    [("controller_customer_id", "external_id", "user.unique_id"), ("email", "email", "user.contact.email")],
)
def test_the_zip_for_fides_has_the_fields_that_fides_requires(
    kind: str, identity: str, category: str, tmp_path: Path, run_json: RunJson
) -> None:
    place = tmp_path / "connector.zip"
    assert run_json("serve", "fides", "--out", str(place), "--identity-type", kind)["connector"] == str(place)
    documents = packed(place)
    assert [sum(name.endswith(end) for name in documents) for end in ("config.yml", "dataset.yml")] == [1, 1]
    assert len(documents) == 2  # Fides takes no other file but a picture
    config = documents["config.yml"]["saas_config"]
    required = {"fides_key", "name", "type", "description", "version", "connector_params", "client_config"}
    assert required | {"test_request", "endpoints"} == set(config)
    (endpoint,) = config["endpoints"]
    delete = endpoint["requests"]["delete"]
    assert set(delete) == {"method", "path", "headers", "body", "param_values", "async_config"}
    assert delete["async_config"] == {"strategy": "callback"}
    assert [(one["name"], one["value"]) for one in delete["headers"]] == [
        ("reply-to", "<reply_to>"),
        ("reply-to-token", "<reply_to_token>"),
    ]
    assert delete["param_values"] == [{"name": identity, "identity": identity}]
    body = {"identity_type": kind, "identity_value": f"<{identity}>", "request": "<privacy_request_id>"}
    assert json.loads(delete["body"]) == body
    (dataset,) = documents["dataset.yml"]["dataset"]
    (collection,) = dataset["collections"]
    assert (dataset["fides_key"], collection["name"]) == (config["fides_key"], endpoint["name"])
    key = {"primary_key": True, "data_type": "string"}
    assert collection["fields"] == [{"name": identity, "data_categories": [category], "fidesops_meta": key}]
    first = place.read_bytes()
    run_json("serve", "fides", "--out", str(place), "--identity-type", kind)
    assert place.read_bytes() == first


def test_the_zip_for_fides_holds_the_files_of_the_package(tmp_path: Path, run: Run) -> None:
    place = tmp_path / "connector.zip"
    assert run("serve", "fides", "--out", place).code == 0
    with zipfile.ZipFile(place) as package:
        for name in package.namelist():
            assert package.read(name) == (CONNECTOR / name).read_bytes()
    for bad in (("--identity-type", "android_id"), ("--out", str(tmp_path)), ("--out", str(place / "below"))):
        assert run("serve", "fides", "--out", place, *bad).code == 2


@pytest.mark.parametrize("kind", ["controller_customer_id", "email"])
def test_fides_sends_what_the_connector_says_and_is_called_back_when_it_is_done(
    kind: str, new_trial: Make, stand_in: StandIn, tmp_path: Path, run_json: RunJson
) -> None:
    """The stand-in plays Fides: the call is built from the YAML in the zip."""
    trial = new_trial(fides_url=stand_in.url)
    register_model(trial.service, "patients", trial.service.home / "runs" / "patients", identity_type=kind)
    run_json("serve", "fides", "--out", str(tmp_path / "connector.zip"), "--identity-type", kind)
    config = packed(tmp_path / "connector.zip")["config.yml"]["saas_config"]
    delete = config["endpoints"][0]["requests"]["delete"]
    values = {
        f"<{delete['param_values'][0]['name']}>": "patient-0017",
        "<privacy_request_id>": "pri_6fe0d9a5",
        "<reply_to>": CALLBACK_PATH,
        "<reply_to_token>": "a.token.of.fides",
    }

    def filled(text: str) -> str:
        for name, value in values.items():
            text = text.replace(name, value)
        return text

    headers = {one["name"]: filled(one["value"]) for one in delete["headers"]} | trial.headers("submit")
    headers["Content-Type"] = "application/json"
    for _ in range(2):  # Fides retries
        response = trial.client.request(
            delete["method"], delete["path"], content=filled(delete["body"]), headers=headers
        )
        assert response.status_code == 202
    id = response.json()["subject_request_id"]
    trial.work()
    deliver(trial)
    assert stand_in.calls == []  # not before it is done
    trial.decide(id)
    trial.next_round()
    trial.clock.time += 10
    stand_in.codes = [503]
    deliver(trial)
    trial.clock.time += 10
    deliver(trial)
    assert [call.path for call in stand_in.calls] == [CALLBACK_PATH] * 2
    for call in stand_in.calls:
        assert call.headers["authorization"] == "Bearer a.token.of.fides"
        assert call.content == {}
    with trial.service.database.read() as session:
        assert session.scalars(select(Delivery)).one().secret is None  # the token is not kept


@pytest.mark.parametrize("reply", ["https://evil.example/x", "//evil.example", "/api/v1/other", None])
def test_fides_can_be_called_back_at_its_one_path_alone(new_trial: Make, reply: str | None) -> None:
    trial = new_trial(fides_url="https://fides.example")
    headers = trial.headers("submit") | {"reply-to-token": "x"} | ({"reply-to": reply} if reply else {})
    body = {"request": "pri_1", "identity_value": "patient-0017"}
    assert trial.client.post("/v2/fides/erasures", json=body, headers=headers).status_code == 400


def test_fides_that_asks_again_with_a_new_token_is_called_back_with_that_one(
    new_trial: Make, stand_in: StandIn
) -> None:
    """A token of Fides expires, after 2.5 days by default. Who runs the request again in Fides sends a new one."""
    trial = new_trial(fides_url=stand_in.url)

    def erase(token: str) -> str:
        headers = trial.headers("submit") | {"reply-to": CALLBACK_PATH, "reply-to-token": token}
        body = {"request": "pri_1", "identity_value": "patient-0017"}
        response = trial.client.post("/v2/fides/erasures", json=body, headers=headers)
        assert response.status_code == 202
        return str(response.json()["subject_request_id"])

    id = erase("first")
    trial.work()
    assert erase("second") == id
    deliver(trial)
    assert stand_in.calls == []  # it is still held
    trial.decide(id)
    trial.next_round()
    stand_in.codes = [403]
    trial.clock.time += 10
    deliver(trial)
    trial.clock.time += 1
    erase("second")
    deliver(trial)
    assert len(stand_in.calls) == 1  # the same token again brings nothing forward
    erase("third")
    trial.clock.time += 5
    deliver(trial)
    erase("fourth")  # it has arrived
    trial.clock.time += DAY
    deliver(trial)
    assert [call.headers["authorization"] for call in stand_in.calls] == ["Bearer second", "Bearer third"]
    with trial.service.database.read() as session:
        assert session.scalars(select(Delivery)).one().secret is None


@pytest.mark.parametrize("changed", [None, "https://fides.example"])
def test_a_fides_server_that_is_taken_out_of_the_settings_gets_no_token(
    new_trial: Make, stand_in: StandIn, changed: str | None
) -> None:
    trial = new_trial(fides_url=f"{stand_in.url}/")
    headers = trial.headers("submit") | {"reply-to": CALLBACK_PATH, "reply-to-token": "x"}
    body = {"request": "pri_1", "identity_value": "nobody"}
    assert trial.client.post("/v2/fides/erasures", json=body, headers=headers).status_code == 202
    trial.work()
    service = dataclasses.replace(
        trial.service, settings=dataclasses.replace(trial.service.settings, fides_url=changed)
    )
    trial.clock.time += DAY
    assert Worker(service).deliver() == 1
    assert stand_in.calls == []
    with trial.service.database.read() as session:
        delivery = session.scalars(select(Delivery)).one()
    assert (delivery.delivered, delivery.attempts, delivery.error) == (None, 1, "InputError")
    trial.clock.time += DAY
    deliver(trial)
    assert [call.headers["authorization"] for call in stand_in.calls] == ["Bearer x"]  # it is in the settings again


def test_a_release_is_written_as_tags_of_the_version_in_mlflow(new_trial: Make, stand_in: StandIn) -> None:
    pytest.importorskip("mlflow")
    trial = new_trial(mlflow_url=stand_in.url, approve_losses=10**6)
    register_model(trial.service, "patients", trial.service.home / "runs" / "patients", mlflow="readmission:7")
    id = trial.submit("patient-0017")
    trial.work()
    trial.next_round()
    stand_in.codes = [503]
    assert trial.worker.deliver() == 1
    assert len(stand_in.calls) == 1  # the client of MLflow does not try again: other messages would wait for it
    trial.clock.time += 2
    deliver(trial)
    assert {call.path for call in stand_in.calls} == {"/api/2.0/mlflow/model-versions/set-tag"}
    results = trial.client.get(f"/v2/requests/{id}/results", headers=trial.headers("read")).json()
    round = results["certificates"][0]["round"]
    tags = {call.content["key"]: call.content["value"] for call in stand_in.calls}
    assert {(call.content["name"], call.content["version"]) for call in stand_in.calls} == {("readmission", "7")}
    assert (tags["graphforget.level"], tags["graphforget.round"]) == ("certified", round)
    assert len(tags["graphforget.certificate_digest"]) == 64
    assert tags["graphforget.certificate_url"].endswith(f"{tags['graphforget.certificate_digest']}/certificate")


def test_an_mlflow_server_that_is_taken_out_of_the_settings_gets_no_tags(new_trial: Make, stand_in: StandIn) -> None:
    pytest.importorskip("mlflow")
    trial = new_trial(mlflow_url=stand_in.url, approve_losses=10**6)
    register_model(trial.service, "patients", trial.service.home / "runs" / "patients", mlflow="readmission:7")
    trial.submit("patient-0017")
    trial.work()
    trial.next_round()
    other = dataclasses.replace(trial.service.settings, mlflow_url="http://127.0.0.1:9")
    trial.clock.time += DAY
    assert Worker(dataclasses.replace(trial.service, settings=other)).deliver() == 1
    assert stand_in.calls == []


def test_nothing_attests_a_release_before_it_is_verified(new_trial: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    from graphforget.service import releases

    def fails(*_: Any, **__: Any) -> None:
        raise Mismatch("the weights do not fit")

    trial = new_trial(mlflow_url="http://127.0.0.1:9", approve_losses=10**6)
    run = trial.service.home / "runs" / "patients"
    register_model(trial.service, "patients", run, mlflow="readmission:7")
    id = trial.submit("patient-0017")
    trial.work()
    with monkeypatch.context() as patched:
        patched.setattr(releases, "verify_run", fails)
        trial.next_round()
    assert trial.state(id) == "batched"
    with trial.service.database.read() as session:
        release = session.scalars(select(Release)).one()
        assert list(session.scalars(select(Delivery))) == []
    assert release.attestation == {}
    path = f"/v2/releases/{release.certificate_digest}/attestation"
    assert trial.client.get(path, headers=trial.headers("read")).status_code == 404
    register_model(trial.service, "patients", run, mlflow="readmission:7")  # a person has looked at it
    trial.next_round()
    assert trial.state(id) == "completed"
    assert trial.client.get(path, headers=trial.headers("read")).json()["signatures"]
    with trial.service.database.read() as session:
        assert [one.kind for one in session.scalars(select(Delivery))] == ["mlflow"]


def test_a_callback_that_fides_refuses_is_not_delivered_and_is_on_the_health_page(
    new_trial: Make, stand_in: StandIn
) -> None:
    trial = new_trial(fides_url=stand_in.url)
    stand_in.codes = [400] * 6
    headers = trial.headers("submit") | {"reply-to": CALLBACK_PATH, "reply-to-token": "x"}
    body = {"request": "pri_1", "identity_value": "nobody"}
    assert trial.client.post("/v2/fides/erasures", json=body, headers=headers).status_code == 202
    trial.work()
    for _ in range(6):
        trial.clock.time += DAY
        deliver(trial)
    with trial.service.database.read() as session:
        delivery = session.scalars(select(Delivery)).one()
    assert (delivery.attempts, delivery.delivered, delivery.error) == (6, None, "HTTP 400")
    trial.client.post("/page/sign-in", data={"token": trial.tokens["read"]})
    assert "HTTP 400" in trial.client.get("/page/health").text
