"""The page without a browser: sessions, forms, scopes and headers."""

from __future__ import annotations

import re
import sqlite3
import uuid
from collections.abc import Iterator
from html import escape
from pathlib import Path
from urllib.parse import quote
from xml.etree import ElementTree

import pytest

import graphforget as gf
from cases import Run, random_graph
from graphforget.certificates.levels import NOT_COVERED
from graphforget.service.registration import register_model
from graphforget.service.service import as_time
from graphforget.service.settings import DAY
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


@pytest.mark.parametrize("columns", [1, 2])
def test_a_graph_with_few_attributes_has_a_picture(trial: Trial, tmp_path: Path, columns: int) -> None:
    graph = random_graph(3, nodes=30, edges=40)
    narrow = graph.x.to_dense()[:, :columns].to_sparse_csr()
    small = gf.Graph.create(x=narrow, edges=graph.edge_index, y=graph.y, train_mask=graph.train_mask)
    gf.save_run(tmp_path / "small", gf.train(small, "sgc"), small)
    register_model(trial.service, "small", tmp_path / "small")
    id = trial.submit("4")
    trial.work()
    sign_in(trial)
    (address,) = re.findall(r'src="([^"]+footprint.svg)"', trial.client.get(f"/page/requests/{id}").text)
    picture = trial.client.get(address)
    assert picture.status_code == 200
    assert ElementTree.fromstring(picture.content).tag == "{http://www.w3.org/2000/svg}svg"


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
    for origin in ("https://evil.example", "null", "http://[", "http://testserver@evil.example", "http://testserver:1"):
        path, other = f"/page/requests/{id}/approve", {"Origin": origin}
        assert trial.client.post(path, data={"csrf": csrf}, headers=other).status_code == 403, origin
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


def answered(trial: Trial, *subjects: str) -> list[str]:
    """Requests that are answered in a round each."""
    ids = []
    for subject in subjects:
        ids.append(trial.submit(subject))
        trial.work()
        trial.decide(ids[-1])
        trial.next_round()
    sign_in(trial)
    return ids


def test_a_plan_shows_its_cost_and_what_is_not_covered(trial: Trial) -> None:
    id = trial.submit("patient-0017")
    trial.work()
    response = trial.client.get(f"/v2/requests/{id}/plan", headers=trial.headers("read"))
    plan = response.json()["models"][0]["plan"]
    assert plan["seconds"] > 0
    assert plan["not_covered"] == list(NOT_COVERED)
    sign_in(trial)
    page = trial.client.get(f"/page/requests/{id}").text
    assert f"<dt>Expected seconds</dt><dd>{plan['seconds']:.2f}</dd>" in page
    shown = dict(re.findall("<dt>([^<]*)</dt><dd>([^<]*)</dd>", page))
    names = {"People to delete": "nodes", "Relations to delete": "edges", "Attribute values": "values"}
    names |= {"Level": "level", "Method": "method", "Releases left": "releases_left"}
    assert {name: shown[name] for name in names} == {name: str(plan[key]) for name, key in names.items()}
    assert shown["Training losses"] == f"{plan['training_nodes']} go, {plan['affected']} may change"
    uncovered = page.split("What is not covered</summary>")[1].split("</details>")[0]
    assert re.findall("<li>(.*?)</li>", uncovered) == [escape(line) for line in NOT_COVERED]
    assert len(NOT_COVERED) > 3


def searched(trial: Trial, words: str) -> list[str]:
    """The ids of the entries of the ledger that the page shows for a search."""
    page = trial.client.get("/page/ledger", params={"search": words})
    assert page.status_code == 200
    shown = re.findall(r'data-label="Request">([^<]*)<', page.text)
    assert f"{len(shown)} of 2 entries" in page.text
    return shown


def test_the_ledger_is_searched_by_request_and_by_digest(trial: Trial) -> None:
    first, second = answered(trial, "patient-0017", "patient-0018")
    entry, other = trial.ledger_id(first), trial.ledger_id(second)
    assert searched(trial, "") == [other, entry]
    assert searched(trial, first) == searched(trial, f" {first} ") == searched(trial, entry) == [entry]
    assert searched(trial, second) == [other]
    page = trial.client.get("/page/ledger", params={"search": first}).text
    (digest,) = re.findall(r"/page/releases/([0-9a-f]{64})", page)
    assert searched(trial, digest) == searched(trial, digest[:12]) == [entry]
    for unknown in (str(uuid.uuid4()), "0" * 64, "patient-0017", "%", "_", "\x00", "' or 1=1 --"):
        assert searched(trial, unknown) == []


def test_certificates_and_attestations_are_downloaded_from_the_page(trial: Trial, tmp_path: Path, run: Run) -> None:
    answered(trial, "patient-0017")
    (address,) = set(re.findall(r'href="(/page/releases/[0-9a-f]{64})"', trial.client.get("/page/models").text))
    links = re.findall(r'href="([^"]+\.json)"', trial.client.get(address).text)
    assert links == [f"{address}/certificate.json", f"{address}/attestation.json"]
    place = trial.service.home / "runs" / "patients"
    for link in links:
        name = link.rpartition("/")[2].removesuffix(".json")
        response = trial.client.get(link)
        assert response.headers["content-disposition"].startswith(f'attachment; filename="{name}-')
        same = trial.client.get(f"/v2/releases/{address[-64:]}/{name}", headers=trial.headers("read"))
        assert response.content == same.content
        (tmp_path / f"{name}.json").write_bytes(response.content)
    assert (tmp_path / "certificate.json").read_bytes() == (place / "certificate.json").read_bytes()
    key, released = trial.service.home / "signing.key.pub", place / "released.safetensors"
    checked = run("verify", tmp_path / "attestation.json", "--key", key, "--released", released)
    assert (checked.code, checked.stderr) == (0, "")
    trial.client.cookies.clear()
    for link in links:
        assert trial.client.get(link, follow_redirects=False).status_code == 303
    for other in ("outcome", "attestation", "..%2F..%2Fservice"):
        digest = "0" * 64 if other == "attestation" else address[-64:]
        sign_in(trial)
        assert trial.client.get(f"/page/releases/{digest}/{other}.json").status_code == 404


def test_a_request_is_refused_on_the_page_with_a_reason(trial: Trial) -> None:
    id, reason = trial.submit("patient-0017"), "the identity could not be <confirmed>"
    trial.work()
    csrf = sign_in(trial)
    for missing in ("", "  ", "a\x07"):
        form = {"csrf": csrf, "reason": missing}
        assert trial.client.post(f"/page/requests/{id}/refuse", data=form).status_code == 400
    assert trial.state(id) == "planned"
    page = trial.client.post(f"/page/requests/{id}/refuse", data={"csrf": csrf, "reason": reason})
    assert page.url.path == f"/page/requests/{id}"
    assert f"Reason: {escape(reason)}" in page.text
    assert trial.status(id)["extensions"]["graphforget"] == {"state": "refused", "reason": reason}
    assert "patient-0017" not in page.text
    again = trial.client.post(f"/page/requests/{id}/approve", data={"csrf": csrf})
    assert (again.status_code, trial.state(id)) == (409, "refused")


def test_overdue_requests_have_a_tag_and_come_first(trial: Trial) -> None:
    asked = as_time(trial.service.now - DAY), as_time(trial.service.now - 40 * DAY)
    ids = [trial.submit("patient-0017", submitted_time=when) for when in asked]
    sign_in(trial)
    page = trial.client.get("/page/queue").text
    rows = re.findall(r"<tr>\s*<td data-label.*?</tr>", page, flags=re.DOTALL)
    assert [id in row for id, row in zip(reversed(ids), rows, strict=True)] == [True, True]
    since = as_time(trial.service.now - 10 * DAY)[:10]
    assert [f'<span class="tag bad">overdue since {since}</span>' in row for row in rows] == [True, False]
    assert '<strong class="bad">1</strong> overdue' in page
    tags = ['<span class="tag bad">overdue</span>' in trial.client.get(f"/page/requests/{id}").text for id in ids]
    assert tags == [False, True]


SEARCHES = {"zero": "\x00", "half": "\ud800", "long": "x" * 200, "id": "00000000-0000-4000-8000-000000000000"}


@pytest.mark.parametrize("search", SEARCHES.values(), ids=SEARCHES)
def test_no_search_makes_an_error_500(tmp_path: Path, database: str | None, search: str) -> None:
    """PostgreSQL takes no zero bytes in a text."""
    trial = make_trial(tmp_path / "service", database=database)
    sign_in(trial)
    words = quote(search.encode("utf-8", "surrogatepass"))
    for page in (f"/page/ledger?search={words}", f"/page/ledger?model={words[:80]}", f"/page/queue?state={words[:20]}"):
        assert trial.client.get(page).status_code == 200
    trial.service.database.close()


def test_a_ledger_that_is_damaged_is_said_and_is_no_error_500(trial: Trial) -> None:
    id, _ = answered(trial, "patient-0017", "patient-0018")
    file = trial.service.home / "runs" / "patients" / "ledger.sqlite"
    with sqlite3.connect(file) as connection:
        (trigger,) = connection.execute("select sql from sqlite_master where name = 'no_update'").fetchone()
        connection.execute("drop trigger no_update")
        connection.execute("update entries set level = 'exact'")
        connection.execute(trigger)
    connection.close()
    pages = ("/page/ledger", "/page/models", f"/page/requests/{id}", "/page/models/1/epsilon.svg")
    codes = {page: trial.client.get(page).status_code for page in pages}
    assert codes == dict(zip(pages, (200, 200, 200, 404), strict=True))
    page = trial.client.get("/page/ledger").text
    assert "cannot be read (BrokenChain)" in page
    assert str(trial.service.home) not in page
