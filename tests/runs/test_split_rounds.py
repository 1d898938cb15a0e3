"""A round that splits because of one bad request publishes the same in two worlds that differ in what is deleted."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import test_batch_worlds as batches_of
import test_two_worlds as worlds

import graphforget as gf
from cases import Run
from graphforget.service import batches
from graphforget.service.batches import Asked, answer_batch
from graphforget.service.open_models import OpenModel

ROUND = "2026-09-21T00:00:00Z"
BAD = gf.Request(nodes=[0])  # of the nodes that stay
Place = Callable[[int], int]


def shared_out(world: worlds.World, count: int) -> list[gf.Request]:
    """What the world deletes as so many requests, the last of which has the rest."""
    parts = batches_of.parts_of(world.request)
    return [*parts[: count - 1], gf.Request.merge(parts[count - 1 :], world.graph)]


def published(world: worlds.World, requests: list[gf.Request], bad_at: int, place: Path, run: Run, key: Path) -> Any:
    """Everything that leaves the operator's hands in a round with a bad request at this place."""
    place.mkdir()
    folder = gf.save_run(place / "run", gf.train(world.graph, "sgc", seed=0), world.graph)
    asked = [*requests[:bad_at], BAD, *requests[bad_at:]]
    batch = [Asked(f"request {number}", request) for number, request in enumerate(asked)]
    failures = answer_batch(folder, batch, lambda: OpenModel(*gf.load_run(folder)), key=gf.private_key(key), made=ROUND)
    assert list(failures) == [f"request {bad_at}"]
    documents = {}
    for command in ("verify", "ledger"):
        ended = run(command, folder, "--json")
        assert ended.code == 0, ended.stderr
        documents[command] = json.loads(ended.stdout)
    return {
        "documents": documents,
        "files": {name: json.loads((folder / name).read_text()) for name in ("certificate.json", "outcome.json")},
        "names": sorted(path.name for path in folder.iterdir()),
        "sizes": {name: (folder / name).stat().st_size for name in worlds.PUBLIC_FILES},
    }


@pytest.fixture
def key(tmp_path: Path) -> Path:
    gf.make_keys(tmp_path / "key")
    return tmp_path / "key"


@pytest.mark.parametrize("kind", worlds.KINDS)
@pytest.mark.parametrize("place", [lambda n: 0, lambda n: n // 2, lambda n: n], ids=["first", "middle", "last"])
def test_what_a_split_round_publishes_is_the_same_in_two_worlds(
    kind: str, place: Place, tmp_path: Path, run: Run, key: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def answer(folder: Any, requests: Any, **given: Any) -> Any:
        if BAD in requests:
            raise gf.Refused("this one cannot be forgotten")
        return gf.answer(folder, requests, **given)

    monkeypatch.setattr(batches, "answer", answer)
    both = worlds.two_worlds(3, kind)
    count = min(len(batches_of.parts_of(world.request)) for world in both)
    listed = [
        published(world, shared_out(world, count), place(count), tmp_path / str(number), run, key)
        for number, world in enumerate(both)
    ]
    assert worlds.differences(listed[0], listed[1]) == []
