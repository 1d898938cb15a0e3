"""The names of OpenGDPR 1.0: paths, headers of answers and callbacks, and no regulation."""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding, rsa

from service_cases import StandIn, Trial, request_body, standing_in

Make = Callable[..., Trial]
V1, V2 = "x-opengdpr", "x-opendsr"


def body_v1(*subjects: str, **more: Any) -> dict[str, Any]:
    body: dict[str, Any] = request_body(*subjects, **more)
    del body["regulation"]
    return body


def check_signed(trial: Trial, headers: Mapping[str, str], content: bytes, prefix: str) -> None:
    """Signed with the service's key, under the names of one version alone."""
    lower = {name.lower(): value for name, value in headers.items()}
    names = {name for name in lower if name.startswith((V1, V2))}
    assert names == {f"{prefix}-processor-domain", f"{prefix}-signature"}
    assert lower[f"{prefix}-processor-domain"] == trial.service.settings.domain
    key = x509.load_pem_x509_certificate(trial.service.secrets.certificate).public_key()
    assert isinstance(key, rsa.RSAPublicKey)
    key.verify(base64.b64decode(lower[f"{prefix}-signature"]), content, padding.PKCS1v15(), hashes.SHA256())


def test_a_request_of_version_1_is_answered_and_called_back_with_the_names_of_version_1(new_trial: Make) -> None:
    with standing_in() as controller:
        trial = new_trial(callback_hosts=(controller.host,), insecure_callbacks=True)
        url, headers = f"{controller.url}/status", trial.headers("submit")
        body = body_v1("patient-0017", status_callback_urls=[url])
        submitted = trial.client.post("/v1/opengdpr_requests", json=body, headers=headers)
        assert submitted.status_code == 201
        check_signed(trial, submitted.headers, submitted.content, V1)
        at = f"/v1/opengdpr_requests/{body['subject_request_id']}"
        trial.work()
        trial.decide(body["subject_request_id"])
        trial.next_round()
        status = trial.client.get(at, headers=headers)
        check_signed(trial, status.headers, status.content, V1)
        assert (status.json()["request_status"], status.json()["api_version"]) == ("completed", "1.0")
        while trial.worker.deliver():
            pass
        check_callbacks(trial, controller, url)
        path = status.json()["results_url"].removeprefix(trial.service.settings.base_url)
        assert trial.client.get(path, headers=headers).json()["certificates"]


def check_callbacks(trial: Trial, controller: StandIn, url: str) -> None:
    assert [call.content["request_status"] for call in controller.calls] == ["pending", "in_progress", "completed"]
    for call in controller.calls:
        check_signed(trial, call.headers, call.body, V1)
        assert (call.content["status_callback_url"], call.content["api_version"]) == (url, "1.0")


def test_a_request_of_version_1_is_cancelled_by_its_old_path(new_trial: Make) -> None:
    trial = new_trial()
    body = body_v1("patient-0017")
    trial.client.post("/opengdpr_requests", json=body, headers=trial.headers("submit"))
    at = f"/opengdpr_requests/{body['subject_request_id']}"
    answer = trial.client.delete(at, headers=trial.headers("submit"))
    assert (answer.status_code, answer.json()["api_version"]) == (202, "1.0")
    check_signed(trial, answer.headers, answer.content, V1)
    assert trial.state(body["subject_request_id"]) == "cancelled"
    assert trial.client.delete(at, headers=trial.headers("submit")).status_code == 409


def test_both_versions_are_one_service(new_trial: Make) -> None:
    """The same id is the same request, whichever path it is sent to and asked for."""
    with standing_in() as controller:
        trial = new_trial(callback_hosts=(controller.host,), insecure_callbacks=True)
        headers = trial.headers("submit")
        new = request_body("patient-0017", status_callback_urls=[f"{controller.url}/status"])
        old = {name: value for name, value in new.items() if name != "regulation"}
        first = trial.client.post("/v2/requests", json=new, headers=headers)
        assert first.status_code == 201
        again = trial.client.post("/v1/opengdpr_requests", json=old, headers=headers)
        assert again.status_code == 201
        check_signed(trial, again.headers, again.content, V1)
        changed = old | {"regulation": "ccpa"}
        assert trial.client.post("/v1/opengdpr_requests", json=changed, headers=headers).status_code == 409
        for path, names in (("/v1/opengdpr_requests", V1), ("/v2/requests", V2)):
            status = trial.client.get(f"{path}/{new['subject_request_id']}", headers=headers)
            check_signed(trial, status.headers, status.content, names)
        trial.worker.deliver()
        (call,) = controller.calls
        check_signed(trial, call.headers, call.body, V2)  # of the version that it first came in by
    queue = trial.client.get("/v2/queue", headers=trial.headers("read")).json()["requests"]
    assert [row["id"] for row in queue] == [new["subject_request_id"]]


def test_version_2_still_needs_a_regulation(new_trial: Make) -> None:
    trial = new_trial()
    answer = trial.client.post("/v2/requests", json=body_v1("patient-0017"), headers=trial.headers("submit"))
    assert (answer.status_code, "regulation is missing" in answer.text) == (400, True)


def test_discovery_is_the_same_everywhere(new_trial: Make) -> None:
    client = new_trial().client
    found = [client.get(f"{version}/discovery") for version in ("", "/v1", "/v2")]
    assert [one.status_code for one in found] == [200] * 3
    assert found[0].json() == found[1].json() == found[2].json()
    assert found[0].json()["api_version"] == "2.0"


SCOPES = (
    (None, "POST", 401),
    ("read", "POST", 403),
    ("approve", "POST", 403),
    ("submit", "POST", 201),
    (None, "GET", 401),
    ("approve", "GET", 403),
    ("read", "GET", 200),
    ("submit", "GET", 404),  # of somebody else
    (None, "DELETE", 401),
    ("read", "DELETE", 403),
    ("submit", "DELETE", 404),
    ("admin", "DELETE", 202),
)


@pytest.mark.parametrize("prefix", ["/v1", ""])
def test_the_old_paths_ask_for_the_same_scopes(new_trial: Make, prefix: str) -> None:
    trial = new_trial()
    id = trial.submit("patient-0017", scope="admin")
    for scope, verb, code in SCOPES:
        path = f"{prefix}/opengdpr_requests" + ("" if verb == "POST" else f"/{id}")
        given: Any = {"json": body_v1("patient-0018")} if verb == "POST" else {}
        headers = {} if scope is None else trial.headers(scope)
        answer = trial.client.request(verb, path, headers=headers, **given)
        assert answer.status_code == code, (scope, verb)


def test_the_old_paths_share_the_limits_of_the_new_ones(new_trial: Make) -> None:
    trial = new_trial(requests_per_minute=3, logins_per_minute=2)
    paths = ("/v2/requests", "/v1/opengdpr_requests", "/opengdpr_requests", "/v1/opengdpr_requests")
    codes = [
        trial.client.post(path, json=request_body("nobody"), headers=trial.headers("submit")).status_code
        for path in paths
    ]
    assert codes == [201, 201, 201, 429]
    wrong = {"Authorization": "Bearer x"}
    codes = [trial.client.post(path, json=request_body("nobody"), headers=wrong).status_code for path in paths]
    assert codes == [401, 401, 429, 429]


def test_a_bad_body_of_version_1_is_an_error_400_that_repeats_nothing_of_it(new_trial: Make) -> None:
    trial = new_trial()
    for change in (
        {"subject_request_type": "access"},
        {"subject_request_id": "patient-0017"},
        {"regulation": "patient-0017"},
        {"columns": ["mean radius"]},
        {"status_callback_urls": ["https://10.0.0.1/patient-0017"]},
    ):
        body = body_v1("patient-0017") | change
        answer = trial.client.post("/v1/opengdpr_requests", json=body, headers=trial.headers("submit"))
        assert (answer.status_code, answer.json()["error"]["code"]) == (400, 400)
        assert not any(words in answer.text for words in ("patient-0017", "10.0.0.1", "mean radius"))
