"""The page without a browser: sessions, forms, scopes and headers."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

import pytest

from graphforget.service.tokens import revoke_token
from service_cases import Trial, make_trial

PAGES = ("/page/queue", "/page/new", "/page/models", "/page/ledger", "/page/health")


@pytest.fixture
def trial(tmp_path: Path) -> Iterator[Trial]:
    made = make_trial(tmp_path / "service", logins_per_minute=5)
    yield made
    made.service.database.close()


def sign_in(trial: Trial, scope: str = "admin") -> str:
    """Signs in, and returns the value that protects forms."""
    response = trial.client.post("/page/sign-in", data={"token": trial.tokens[scope]}, follow_redirects=False)
    assert response.status_code == 303
    page = trial.client.get("/page/health" if scope == "read" else "/page/new")
    return str(re.findall(r'name="csrf" value="([^"]+)"', page.text)[0])


def test_every_page_needs_somebody_who_is_signed_in(trial: Trial) -> None:
    for page in PAGES:
        response = trial.client.get(page, follow_redirects=False)
        assert (response.status_code, response.headers["location"]) == (303, "/page/sign-in")


def test_every_page_is_there_for_an_administrator(trial: Trial) -> None:
    sign_in(trial)
    for page in PAGES:
        assert trial.client.get(page).status_code == 200


def test_pictures_are_images_of_their_own(trial: Trial) -> None:
    sign_in(trial)
    id = trial.submit("patient-0017")
    trial.work()
    page = trial.client.get(f"/page/requests/{id}").text
    (address,) = re.findall(r'src="([^"]+footprint.svg)"', page)
    picture = trial.client.get(address)
    assert picture.headers["content-type"].startswith("image/svg+xml")
    assert ElementTree.fromstring(picture.content).tag == "{http://www.w3.org/2000/svg}svg"
    trial.decide(id)
    trial.next_round()
    sign_in(trial)  # the day is over
    (address,) = re.findall(r'src="([^"]+epsilon.svg)"', trial.client.get("/page/models").text)
    assert ElementTree.fromstring(trial.client.get(address).content).tag == "{http://www.w3.org/2000/svg}svg"


def test_a_certificate_begins_in_plain_words(trial: Trial) -> None:
    id = trial.submit("patient-0017")
    trial.work()
    trial.decide(id)
    trial.next_round()
    sign_in(trial)
    (address,) = set(re.findall(r'href="(/page/releases/[0-9a-f]{64})"', trial.client.get("/page/models").text))
    page = trial.client.get(address).text
    always_shown = re.sub(r"<details>.*?</details>", "", page, flags=re.DOTALL)
    assert "without the deleted data and has the same noise" in always_shown
    assert "checks were made after the release" in always_shown
    assert not any(word in always_shown for word in ("indistinguishable from the optimum", "tolerance", "N(0,"))
    assert "tolerance" in page


def test_a_form_without_the_value_of_its_session_changes_nothing(trial: Trial) -> None:
    csrf = sign_in(trial)
    id = trial.submit("patient-0017")
    trial.work()
    for form in ({}, {"csrf": "x"}, {"csrf": csrf[:-1]}):
        assert trial.client.post(f"/page/requests/{id}/approve", data=form).status_code == 403
    other = {"Origin": "https://evil.example"}
    assert trial.client.post(f"/page/requests/{id}/approve", data={"csrf": csrf}, headers=other).status_code == 403
    assert trial.state(id) == "planned"
    assert trial.client.post(f"/page/requests/{id}/approve", data={"csrf": csrf}).status_code == 200
    assert trial.state(id) == "approved"


def test_who_may_only_read_sees_no_name_and_decides_nothing(trial: Trial) -> None:
    csrf = sign_in(trial, "read")
    id = trial.submit("patient-0017")
    trial.work()
    page = trial.client.get(f"/page/requests/{id}").text
    assert "patient-0017" not in page
    assert "footprint.svg" not in page
    for action in ("approve", "refuse", "cancel"):
        form = {"csrf": csrf, "reason": "none"}
        assert trial.client.post(f"/page/requests/{id}/{action}", data=form).status_code == 403
    assert trial.client.get("/page/new").status_code == 403


def test_signing_out_and_revoking_end_a_session(trial: Trial) -> None:
    csrf = sign_in(trial)
    cookies = dict(trial.client.cookies)
    trial.client.post("/page/sign-out", data={"csrf": csrf})
    trial.client.cookies.update(cookies)
    assert trial.client.get("/page/queue", follow_redirects=False).status_code == 303
    trial.client.cookies.clear()
    sign_in(trial)
    with trial.service.database.write() as session:
        revoke_token(session, "the admin token", now=trial.service.now)
    assert trial.client.get("/page/queue", follow_redirects=False).status_code == 303


def test_wrong_tokens_are_limited(trial: Trial) -> None:
    codes = [trial.client.post("/page/sign-in", data={"token": "x"}).status_code for _ in range(7)]
    assert codes == [401] * 5 + [429] * 2


def test_what_people_enter_is_shown_as_text(trial: Trial) -> None:
    csrf = sign_in(trial)
    code = "<script>alert(1)</script>"
    form = {"csrf": csrf, "subject": code, "what": "person"}
    page = trial.client.post("/page/new", data=form).text
    assert code not in page
    assert "&lt;script&gt;" in page
    found = trial.client.get("/page/ledger", params={"search": code})
    assert found.status_code == 200
    assert code not in found.text


@pytest.mark.parametrize(
    "form",
    [
        {"subject": " "},
        {"subject": "a\x07"},
        {"subject": "a", "what": "columns"},
        {"subject": "a", "what": "all"},
        {"subject": "a", "identity_type": "name"},
        {"subject": "a", "model": "no such model"},
    ],
)
def test_a_wrong_form_is_shown_again_with_a_sentence(trial: Trial, form: dict[str, str]) -> None:
    csrf = sign_in(trial)
    response = trial.client.post("/page/new", data={"csrf": csrf, **form})
    assert response.status_code == 400
    assert 'role="alert"' in response.text


def test_errors_on_the_page_are_pages(trial: Trial) -> None:
    sign_in(trial)
    missing = trial.client.get("/page/requests/00000000-0000-4000-8000-000000000000")
    assert (missing.status_code, missing.headers["content-type"]) == (404, "text/html; charset=utf-8")
    assert "<h1>" in missing.text


def test_who_only_submits_sees_and_cancels_their_own_requests_alone(trial: Trial) -> None:
    csrf = sign_in(trial, "submit")
    assert trial.client.get("/page/queue").url.path == "/page/new"
    own, other = trial.submit("patient-0017"), trial.submit("patient-0018", scope="admin")
    assert trial.client.get(f"/page/requests/{own}").status_code == 200
    assert trial.client.get(f"/page/requests/{other}").status_code == 404
    assert trial.client.post(f"/page/requests/{other}/cancel", data={"csrf": csrf}).status_code == 403
    assert trial.client.post(f"/page/requests/{own}/cancel", data={"csrf": csrf}).status_code == 200
    assert (trial.state(own), trial.state(other)) == ("cancelled", "received")


def test_who_only_submits_sees_no_plan(trial: Trial) -> None:
    id = trial.submit("patient-0017")
    trial.work()
    sign_in(trial, "submit")
    assert "People to delete" not in trial.client.get(f"/page/requests/{id}").text
    trial.client.cookies.clear()
    sign_in(trial, "read")
    assert "People to delete" in trial.client.get(f"/page/requests/{id}").text
