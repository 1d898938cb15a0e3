"""A person of a heterogeneous graph asks by their name, without the type before it."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch_geometric.data import HeteroData

import graphforget as gf
from graphforget.service.registration import register_model
from hetero_cases import TARGET, random_data
from service_cases import Trial

Make = Callable[..., Trial]


def library(*authors: str) -> gf.Graph:
    """Papers, and these authors after eight others."""
    data: HeteroData = random_data(4, papers=30)
    data["author"].x = torch.cat([data["author"].x, torch.ones(len(authors), 2, dtype=torch.float64)])
    edges = data["author", "writes", TARGET].edge_index
    new = torch.tensor([[8 + place, place] for place in range(len(authors))], dtype=torch.int64).view(-1, 2).T
    data["author", "writes", TARGET].edge_index = torch.cat([edges, new], dim=1)
    names = {"author": [*map(str, range(8)), *authors], TARGET: [f"p{row}" for row in range(30)]}
    return gf.Graph.from_hetero(data, target=TARGET, subject_ids=names)


def with_library(trial: Trial, graph: gf.Graph) -> Path:
    run = gf.save_run(trial.service.home / "runs" / "library", gf.train(graph, sigma=0.05), graph)
    register_model(trial.service, "library", run)
    return run


def answered(trial: Trial, *names: str, **more: Any) -> dict[str, Any]:
    id = trial.submit(*names, **more)
    trial.work()
    trial.next_round()
    return dict(trial.status(id)["extensions"]["graphforget"])


def test_nobody_who_is_held_is_told_that_nothing_is(new_trial: Make) -> None:
    trial = new_trial(models=0, approve_losses=10**6)
    run = with_library(trial, library("Zelda"))
    sha256 = hashlib.sha256(b"Zelda").hexdigest()
    for name, form in (("Zelda", "raw"), ("zelda", "raw"), (sha256, "sha256")):
        more = answered(trial, name, identity_format=form)
        assert (more["state"], "the type before it" in more.get("reason", "")) == ("refused", True)
    assert answered(trial, "Somebody")["result"] == "nothing_held"
    assert answered(trial, "author:Zelda")["result"] == "forgotten"
    assert "author:Zelda" not in (gf.load_run(run)[1].subject_ids or ())
    assert answered(trial, "Zelda")["result"] == "nothing_held"


@pytest.mark.parametrize("extension", [{}, {"attributes": True}, {"edges": ["p0"]}])
def test_who_asks_while_absent_is_kept_out_whatever_the_type(new_trial: Make, extension: dict[str, Any]) -> None:
    trial = new_trial(models=0, approve_losses=10**6)
    run = with_library(trial, library())
    others = {"extension": {"edges": ["paper:p0"]}} if "edges" in extension else {"extension": extension}
    assert answered(trial, "Zelda", **others)["result"] == "nothing_held"
    with pytest.raises(gf.Refused, match="would bring back 1 deleted item"):
        gf.update_run(run, library("Zelda"))
    assert gf.update_run(run, library("Yves")).outcome is not None
