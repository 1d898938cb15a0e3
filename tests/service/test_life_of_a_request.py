"""From a POST to a certificate, through everything that can happen to a request on the way."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import graphforget as gf
from graphforget.service.service import as_time
from service_cases import Trial, make_trial


@pytest.fixture
def trial(tmp_path: Path) -> Iterator[Trial]:
    made = make_trial(tmp_path / "service")
    yield made
    made.service.database.close()


def test_a_request_is_planned_approved_answered_in_the_next_round_and_certified(trial: Trial) -> None:
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
