"""The HTTP interface: wire format, signatures, tokens, limits, errors and logs."""

from __future__ import annotations

import base64
import io
import json
import logging
import re
import stat
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import schemathesis
from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding, rsa
from fastapi.testclient import TestClient
from hypothesis import HealthCheck, given, settings
from schemathesis import GenerationMode
from schemathesis.checks import CHECKS

import graphforget as gf
from graphforget.service.api import connectors, opendsr, opengdpr
from graphforget.service.api import operations as operations_api
from graphforget.service.app import create_app
from graphforget.service.connectors.webhook import SIGNATURE, TIMESTAMP, signature
from graphforget.service.secret_files import read_secrets, write_secret
from graphforget.service.security import LARGEST_BODY, RateLimit
from graphforget.service.service import open_service
from graphforget.service.settings import Settings, read_settings, write_settings
from graphforget.service.tables import Release, SubjectRequest, Token
from graphforget.service.tokens import make_token, revoke_token
from service_cases import Trial, request_body

Make = Callable[..., Trial]


def test_discovery_says_what_is_supported(new_trial: Make) -> None:
    client = new_trial().client
    content = client.get("/discovery").json()
    assert content == client.get("/v2/discovery").json()
    assert content["supported_subject_request_types"] == ["erasure"]
    assert {"identity_type": "email", "identity_format": "sha256"} in content["supported_identities"]


def test_answers_are_signed_with_the_key_of_the_published_certificate(new_trial: Make) -> None:
    trial = new_trial()
    body = request_body("patient-0017")
    response = trial.client.post("/v2/requests", json=body, headers=trial.headers("submit"))
    assert response.status_code == 201
    pem = trial.client.get("/v2/certificate.pem").content
    key = x509.load_pem_x509_certificate(pem).public_key()
    assert isinstance(key, rsa.RSAPublicKey)
    signature = base64.b64decode(response.headers["X-OpenDSR-Signature"])
    key.verify(signature, response.content, padding.PKCS1v15(), hashes.SHA256())
    with pytest.raises(InvalidSignature):
        key.verify(signature, response.content + b" ", padding.PKCS1v15(), hashes.SHA256())
    assert response.headers["X-OpenDSR-Processor-Domain"] == trial.service.settings.domain
    content = response.json()
    assert json.loads(base64.b64decode(content["encoded_request"])) == body
    assert content["expected_completion_time"] == "2026-10-20T10:00:00Z"  # 30 days after the person asked


@pytest.mark.parametrize(
    ("scope", "call", "code"),
    [
        (None, ("GET", "/v2/queue"), 401),
        ("submit", ("GET", "/v2/queue"), 403),
        ("read", ("GET", "/v2/queue"), 200),
        ("read", ("POST", "/v2/requests"), 403),
        ("approve", ("POST", "/v2/requests"), 403),
        ("submit", ("POST", "/v2/requests/{id}/decision"), 403),
        ("read", ("POST", "/v2/requests/{id}/decision"), 403),
        ("admin", ("POST", "/v2/requests/{id}/decision"), 200),
        ("read", ("DELETE", "/v2/requests/{id}"), 403),
    ],
)
def test_a_token_allows_its_scopes_and_nothing_else(
    new_trial: Make, scope: str | None, call: tuple[str, str], code: int
) -> None:
    trial = new_trial()
    id = trial.submit("patient-0017")
    trial.work()
    body = {"decision": "approve"} if "decision" in call[1] else request_body("patient-0018")
    headers = {} if scope is None else trial.headers(scope)
    given: Any = {"json": body} if call[0] == "POST" else {}
    assert trial.client.request(call[0], call[1].format(id=id), headers=headers, **given).status_code == code


def test_who_only_submits_sees_only_their_own_requests(new_trial: Make) -> None:
    trial = new_trial()
    id = trial.submit("patient-0017", scope="admin")
    assert trial.client.get(f"/v2/requests/{id}", headers=trial.headers("submit")).status_code == 404
    assert trial.client.get(f"/v2/requests/{id}", headers=trial.headers("read")).status_code == 200


def test_tokens_are_stored_as_hashes_and_end_when_they_are_revoked_or_expire(new_trial: Make) -> None:
    trial = new_trial()
    service = trial.service
    with service.database.write() as session:
        short = make_token(session, "short", ["read"], now=service.now, days=1)
        rows = list(session.query(Token))
        assert not any(secret in str(vars(row)) for row in rows for secret in trial.tokens.values())
        with pytest.raises(gf.InputError, match="scopes"):
            make_token(session, "x", ["everything"], now=service.now)
    headers = {"Authorization": f"Bearer {short}"}
    assert trial.client.get("/v2/queue", headers=headers).status_code == 200
    trial.clock.time += 86_400
    assert trial.client.get("/v2/queue", headers=headers).status_code == 401
    with service.database.write() as session:
        revoke_token(session, "the read token", now=service.now)
    assert trial.client.get("/v2/queue", headers=trial.headers("read")).status_code == 401


def test_too_many_requests_are_told_to_come_again_later(new_trial: Make) -> None:
    trial = new_trial(requests_per_minute=5)
    codes = [trial.client.get("/v2/queue", headers=trial.headers("read")) for _ in range(7)]
    assert [one.status_code for one in codes] == [200] * 5 + [429] * 2
    assert int(codes[-1].headers["Retry-After"]) >= 1
    wrong = [trial.client.get("/v2/queue", headers={"Authorization": "Bearer x"}).status_code for _ in range(15)]
    assert wrong[-1] == 429  # guesses are limited, too


def guesses(trial: Trial, *, peer: str, forwarded: list[str]) -> list[int]:
    """The codes of wrong tokens that come from `peer`, each with what it says of who sent it."""
    client = TestClient(create_app(trial.service), client=(peer, 40_000))
    wrong = {"Authorization": "Bearer x"}
    sent = ({**wrong, "X-Forwarded-For": one} if one else wrong for one in forwarded)
    return [client.get("/v2/queue", headers=headers).status_code for headers in sent]


def test_callers_behind_a_trusted_proxy_are_counted_one_by_one(new_trial: Make) -> None:
    trial = new_trial(logins_per_minute=2, trusted_proxies=("10.0.0.0/24",))
    people = [f"192.0.2.{number}" for number in range(5)]
    assert guesses(trial, peer="10.0.0.7", forwarded=people) == [401] * 5
    same = ["192.0.2.9"] * 3
    assert guesses(trial, peer="10.0.0.7", forwarded=same) == [401, 401, 429]
    invented = [f"198.51.100.{number}, 192.0.2.9" for number in range(3)]  # only what the proxy added counts
    assert guesses(trial, peer="10.0.0.7", forwarded=invented) == [401, 401, 429]
    assert guesses(trial, peer="10.0.0.7", forwarded=[""] * 3) == [401, 401, 429]


@pytest.mark.parametrize("proxies", [(), ("10.0.0.7", "::1")])
def test_nobody_else_is_believed_about_who_sent_a_request(new_trial: Make, proxies: tuple[str, ...]) -> None:
    trial = new_trial(logins_per_minute=2, trusted_proxies=proxies)
    people = [f"192.0.2.{number}" for number in range(4)]
    assert guesses(trial, peer="10.0.0.8", forwarded=people) == [401, 401, 429, 429]


def test_a_bucket_is_refilled() -> None:
    now = [0.0]
    limit = RateLimit(60, clock=lambda: now[0])
    for _ in range(60):
        limit.check("a")
    with pytest.raises(Exception, match="429"):
        limit.check("a")
    limit.check("b")
    now[0] += 1.5
    limit.check("a")


def test_every_response_has_secure_headers(new_trial: Make) -> None:
    trial = new_trial(base_url="https://forget.example.org")
    for path in ("/v2/health", "/page/sign-in", "/nowhere", "/docs", "/static/style.css"):
        headers = trial.client.get(path).headers
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert "default-src 'none'" in headers["Content-Security-Policy"]
        assert "max-age" in headers["Strict-Transport-Security"]
    answer = trial.client.post("/page/sign-in", data={"token": trial.tokens["read"]}, follow_redirects=False)
    cookie = answer.headers["set-cookie"].lower()
    assert all(word in cookie for word in ("secure", "httponly", "samesite=strict", "__host-"))
    kept = {"Cookie": answer.headers["set-cookie"].partition(";")[0]}
    csrf = trial.client.get("/page/queue", headers=kept).text.split('name="csrf" value="')[1].partition('"')[0]
    left = trial.client.post("/page/sign-out", data={"csrf": csrf}, headers=kept, follow_redirects=False)
    gone = left.headers["set-cookie"].lower()
    assert all(word in gone for word in ("secure", "max-age=0", "__host-"))  # without "secure" no browser removes it


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b'{"regulation": "gdpr"}',
        json.dumps(request_body("bell\x07")).encode(),
        json.dumps(request_body("half \ud800 pair")).encode(),
        json.dumps(request_body("x" * 600)).encode(),
        json.dumps(request_body("patient-0017") | {"subject_request_type": "access"}).encode(),
        json.dumps(request_body("patient-0017", extension={"unknown": 1})).encode(),
        json.dumps(request_body("patient-0017", extension={"model": "no such model"})).encode(),
        json.dumps(request_body("patient-0017", status_callback_urls=["https://10.0.0.1/x"])).encode(),
        json.dumps(request_body("patient-0017", id="patient-0017")).encode(),
        json.dumps(request_body("patient-0017") | {"dry_run": True}).encode(),
        json.dumps(request_body("patient-0017") | {"model": "patients"}).encode(),
        json.dumps(request_body("patient-0017") | {"columns": ["mean radius"]}).encode(),
        json.dumps(request_body("patient-0017") | {"edges": ["patient-0018"]}).encode(),
        json.dumps(request_body("patient-0017") | {"attributes": True}).encode(),
        json.dumps(request_body("patient-0017") | {"extensions": {"dry_run": True}}).encode(),
    ],
)
def test_a_bad_body_is_an_error_400_that_repeats_nothing_of_it(new_trial: Make, body: bytes) -> None:
    trial = new_trial()
    headers = trial.headers("submit") | {"Content-Type": "application/json"}
    response = trial.client.post("/v2/requests", content=body, headers=headers)
    assert response.status_code == 400
    assert response.json()["error"]["code"] == 400
    assert "patient" not in response.text
    assert "10.0.0.1" not in response.text


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"subject_request_type": "access"}, "body.subject_request_type is not 'erasure'"),
        ({"subject_request_id": "1"}, "body.subject_request_id is not a random UUID (version 4) in lower case"),
        ({"subject_identities": []}, "body.subject_identities has fewer than 1 entries"),
        ({"submitted_time": "yesterday"}, "body.submitted_time is not a time such as 2026-01-31T12:00:00Z"),
        ({"columns": ["age"]}, "body has a field that belongs into extensions.graphforget"),
        ({"extensions": {"graphforget": {"ada": 1}}}, "body.extensions.graphforget has a field that is not known"),
        ({"regulation": None}, "body.regulation is not 'gdpr' or 'ccpa'"),
    ],
)
def test_a_bad_body_is_told_in_one_sentence(new_trial: Make, change: dict[str, Any], sentence: str) -> None:
    trial = new_trial()
    body = request_body("patient-0017") | change
    answer = trial.client.post("/v2/requests", json=body, headers=trial.headers("submit")).json()
    assert answer["error"]["message"].startswith(f"the request is not valid: {sentence}")
    assert "ada" not in json.dumps(answer)


def test_a_body_that_is_no_json_and_an_address_that_is_none_are_told(new_trial: Make) -> None:
    trial = new_trial()
    headers = trial.headers("submit") | {"Content-Type": "application/json"}
    broken = trial.client.post("/v2/requests", content=b"{", headers=headers)
    assert broken.json()["error"]["message"] == "the request is not valid: body is not JSON"
    wrong = trial.client.get("/v2/requests/1", headers=headers)
    assert wrong.json()["error"]["message"] == "the request is not valid: path.id is not a UUID in lower case"
    assert trial.client.get("/nowhere").json()["error"]["message"] == "there is no such address"


@pytest.mark.parametrize("path", ["/v2/requests", "/v1/opengdpr_requests", "/v2/webhook", "/page/sign-in"])
@pytest.mark.parametrize("in_pieces", [False, True])
def test_a_large_body_is_refused(new_trial: Make, path: str, in_pieces: bool) -> None:
    trial = new_trial(incoming_webhook_secret_file="incoming.key")
    kind = "application/x-www-form-urlencoded" if path.startswith("/page/") else "application/json"
    headers = trial.headers("submit") | {"Content-Type": kind}
    pieces = [b"x" * 1000] * (LARGEST_BODY // 1000 + 1)
    response = trial.client.post(path, content=iter(pieces) if in_pieces else b"".join(pieces), headers=headers)
    assert response.status_code == 413
    assert "more than 65,536 bytes" in response.text
    assert "default-src 'none'" in response.headers["Content-Security-Policy"]


def test_no_log_line_and_no_public_document_names_a_person(new_trial: Make, caplog: pytest.LogCaptureFixture) -> None:
    trial = new_trial(approve_losses=10**6)
    with caplog.at_level(logging.DEBUG):
        id = trial.submit("patient-0017")
        trial.client.get("/v2/requests/patient-0017?who=patient-0017", headers=trial.headers("read"))
        trial.work()
        trial.next_round()
        certificate = trial.client.get(f"/v2/requests/{id}/results", headers=trial.headers("submit")).text
    assert caplog.records
    ours = [record for record in caplog.records if not record.name.startswith(("httpx", "asyncio"))]
    assert not any("patient-0017" in record.getMessage() for record in ours)
    assert "patient-0017" not in certificate
    for name in ("certificate.json", "outcome.json", "ledger.sqlite"):
        assert b"patient-0017" not in (trial.service.home / "runs" / "patients" / name).read_bytes()


def test_the_signing_key_comes_from_a_file_of_mode_600_or_from_a_command(new_trial: Make, tmp_path: Path) -> None:
    home = new_trial().service.home
    key = home / "signing.key"
    key.chmod(0o644)
    with pytest.raises(gf.InputError, match="read by others"):
        read_secrets(home, read_settings(home))
    key.chmod(stat.S_IRUSR | stat.S_IWUSR)
    expected = read_secrets(home, read_settings(home)).signing.public_key()
    moved = key.rename(tmp_path / "elsewhere")
    code = f"print(open({str(moved)!r}).read())"
    write_settings(home, Settings(signing_key_command=(sys.executable, "-c", code)))
    assert read_secrets(home, read_settings(home)).signing.public_key() == expected
    write_settings(home, Settings(signing_key_command=("false",)))
    with pytest.raises(gf.InputError, match="no private key"):
        read_secrets(home, read_settings(home))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("round_seconds", 0),
        ("deadline_days", -1),
        ("base_url", "forget"),
        ("approve_losses", -1),
        ("nothing", 1),
        ("trusted_proxies", ["*"]),
        ("callback_hosts", ["Tickets.example.org"]),
        ("callback_hosts", ["https://tickets.example.org"]),
        ("callback_hosts", ["[::1]:8443"]),
    ],
)
def test_wrong_settings_are_refused(new_trial: Make, name: str, value: Any) -> None:
    home = new_trial().service.home
    content = json.loads((home / "service.json").read_text()) | {name: value}
    (home / "service.json").write_text(json.dumps(content))
    with pytest.raises(gf.InputError, match=name):
        open_service(home)


CONFORMS = ("not_a_server_error", "status_code_conformance", "content_type_conformance", "response_schema_conformance")
WITHOUT_INPUT = (
    "/v1/discovery",
    "/v2/discovery",
    "/v2/certificate.pem",
    "/v2/health",
)  # nothing of them can be invalid


OPERATIONS, WITH_NAMES = 20, 10  # of the description, and of these with a name in the path
SECRET = b"a secret of a webhook"

Described = tuple[Trial, list[Any], dict[str, list[Any]]]


def generated(cases: Any, examples: int, call: Callable[[Any], int]) -> Counter[int]:
    """Makes generated calls, and returns how often each code came."""
    codes: Counter[int] = Counter()

    @settings(max_examples=examples, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(case=cases)
    def send(case: Any) -> None:
        codes[call(case)] += 1

    send()
    return codes


def send_generated(trial: Trial, cases: Any, examples: int) -> set[int]:
    """Sends generated calls, and returns their codes. Answers must be as described, and none an error 500."""
    checks = [check for check in CHECKS.get_all() if check.__name__ in CONFORMS]
    assert len(checks) == len(CONFORMS)

    def call(case: Any) -> int:
        response = case.call(headers=trial.headers("admin"))
        case.validate_response(response, checks=checks)
        return int(response.status_code)

    return set(generated(cases, examples, call))


@pytest.fixture
def described(new_trial: Make) -> Described:
    """A service with every connector, the operations of its description, and names of things that it holds."""
    trial = new_trial(
        requests_per_minute=10**6,
        logins_per_minute=1000,
        incoming_webhook_secret_file="incoming.key",
        fides_url="https://fides.example",
    )
    write_secret(trial.service.home / "incoming.key", SECRET)
    answered, planned, refused = (trial.submit(f"patient-{number:04d}") for number in (17, 18, 19))
    trial.work()
    trial.decide(answered)
    trial.decide(refused, "refuse", reason="a mistake")
    trial.next_round()
    with trial.service.database.read() as session:
        digest = session.query(Release).one().certificate_digest
    schema = schemathesis.openapi.from_asgi("/openapi.json", create_app(trial.service))
    listed: list[Any] = list(schema.get_all_operations())
    operations = [one.ok() for one in listed]
    new: list[Any] = [*opendsr.router.routes, *operations_api.router.routes, *connectors.router.routes]
    old: list[Any] = list(opengdpr.router.routes)
    expected = {f"{verb} /v2{one.path}" for one in new for verb in one.methods}
    expected |= {f"{verb} /v1{one.path}" for one in old for verb in one.methods}
    assert {one.label for one in operations} == expected
    assert len(operations) == OPERATIONS
    return trial, operations, {"id": [answered, planned, refused], "digest": [digest], "number": [1]}


@pytest.mark.slow
@pytest.mark.parametrize("mode", list(GenerationMode))
def test_generated_requests_never_make_an_error_500(described: Described, mode: GenerationMode) -> None:
    """Schemathesis sends valid or invalid requests to every operation of the description."""
    trial, operations, _ = described
    codes: dict[str, set[int]] = {}
    for operation in operations:
        if mode is GenerationMode.POSITIVE or operation.path not in WITHOUT_INPUT:
            codes[operation.label] = send_generated(trial, operation.as_strategy(generation_mode=mode), 20)
    assert all(codes.values())
    assert len(codes) == OPERATIONS - (0 if mode is GenerationMode.POSITIVE else len(WITHOUT_INPUT))


@pytest.mark.slow
@pytest.mark.parametrize("mode", list(GenerationMode))
def test_generated_bodies_with_a_valid_signature_never_make_an_error_500(
    described: Described, mode: GenerationMode
) -> None:
    """Without the signature no generated body would come further than the check of it."""
    trial, operations, _ = described
    (operation,) = (one for one in operations if one.path == "/v2/webhook")
    documented = {int(code) for code in operation.definition.raw["responses"]}

    def call(case: Any) -> int:
        content = case.body if isinstance(case.body, bytes) else json.dumps(case.body, default=str).encode()
        timestamp = trial.service.now
        headers = {TIMESTAMP: str(timestamp), SIGNATURE: signature(SECRET, timestamp, content)}
        answers = [trial.client.post("/v2/webhook", content=content, headers=headers) for _ in range(2)]
        assert answers[0].status_code in documented - {401, 403, 404}, answers[0].text
        assert answers[0].content == answers[1].content  # a replay changes nothing
        return answers[0].status_code

    codes = generated(operation.as_strategy(generation_mode=mode), 100, call)
    if mode is GenerationMode.POSITIVE:
        assert codes[201] > 10
    else:
        assert codes[400] > 50


@pytest.mark.slow
def test_generated_requests_about_what_is_there_never_make_an_error_500(described: Described) -> None:
    """The service holds an answered request, one that waits and a refused one, a release and its purges."""
    trial, operations, known = described
    codes: dict[str, set[int]] = {}
    for operation in operations:
        for name in re.findall(r"{(\w+)}", operation.path):
            for value in known[name]:
                cases = operation.as_strategy(path_parameters={name: value})
                codes.setdefault(operation.label, set()).update(send_generated(trial, cases, 3))
    assert len(codes) == sum("{" in one.path for one in operations) == WITH_NAMES
    assert all(min(some) < 300 for label, some in codes.items() if label.startswith("GET")), codes
    assert not any(404 in some for some in codes.values()), codes


def test_the_interface_is_described_for_people_and_machines(new_trial: Make) -> None:
    client = new_trial().client
    schema = client.get("/openapi.json").json()
    assert {"/v2/discovery", "/v2/requests", "/v2/requests/{id}"} <= set(schema["paths"])
    page = client.get("/docs").text
    assert "POST /v2/requests" in page
    assert "<script" not in page
    assert "http://" not in page.replace("http://127.0.0.1", "")


def test_unexpected_errors_show_neither_message_nor_values(new_trial: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    trial = new_trial()
    from graphforget.service.api import operations

    def broken(*_: Any, **__: Any) -> None:
        raise RuntimeError("patient-0017 is in this message")

    monkeypatch.setattr(operations, "queue_rows", broken)
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    logging.getLogger("graphforget").addHandler(handler)
    try:
        response = trial.client.get("/v2/queue", headers=trial.headers("read"))
    finally:
        logging.getLogger("graphforget").removeHandler(handler)
    assert response.status_code == 500
    assert "patient" not in response.text + stream.getvalue()
    assert "RuntimeError" in stream.getvalue()


def test_who_approves_sees_the_plan_and_cancels_for_others(new_trial: Make) -> None:
    trial = new_trial()
    id = trial.submit("patient-0017", scope="admin")
    trial.work()
    path = f"/v2/requests/{id}/plan"
    codes = {scope: trial.client.get(path, headers=trial.headers(scope)).status_code for scope in trial.tokens}
    assert codes == {"submit": 403, "approve": 200, "read": 200, "admin": 200}
    with trial.service.database.write() as session:
        both = make_token(session, "both", ["submit", "approve"], now=trial.service.now)
    headers = {"Authorization": f"Bearer {both}"}
    assert trial.client.delete(f"/v2/requests/{id}", headers=headers).status_code == 202


def test_plans_are_for_who_may_read_or_approve(new_trial: Make) -> None:
    """They count what a model holds of a person."""
    trial = new_trial()
    rehearsal = request_body("patient-0017", extension={"dry_run": True})
    refused = trial.client.post("/v2/requests", json=rehearsal, headers=trial.headers("submit"))
    assert (refused.status_code, refused.json()["error"]["message"]) == (
        403,
        "a dry run needs a token with the scope read",
    )
    id = trial.submit("patient-0017", scope="admin", extension={"dry_run": True})
    trial.work()
    with trial.service.database.write() as session:  # as if it had been accepted from who only submits
        submitter = session.query(Token).filter(Token.name == "the submit token").one()
        session.get_one(SubjectRequest, id).token_id = submitter.id
    path = f"/v2/requests/{id}/results"
    assert "plan" not in trial.client.get(path, headers=trial.headers("submit")).text
    assert trial.client.get(path, headers=trial.headers("read")).json()["plans"][0]["plan"]["nodes"] == 1
