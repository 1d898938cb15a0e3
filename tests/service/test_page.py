"""The page without a browser: sessions, forms, scopes and headers."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

import pytest

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
