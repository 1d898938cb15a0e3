"""Nothing that is published tells what the requests of a list name, how they overlap, or how much each of them names.

How many requests there were is in the ledger, which has an entry for each of them, and nowhere else.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import test_two_worlds as worlds

import graphforget as gf
from cases import Run


def parts_of(request: gf.Request) -> list[gf.Request]:
    """A request for every thing that the request names."""
    return [
        *(gf.Request([node]) for node in request.nodes),
        *(gf.Request(edges=[edge]) for edge in request.edges),
        *(gf.Request(attributes={node: columns}) for node, columns in request.attributes.items()),
        *(gf.Request(labels=[node]) for node in request.labels),
    ]


def as_lists(first: worlds.World, second: worlds.World) -> tuple[worlds.World, worlds.World]:
    """Lists of as many requests: in one world they share everything out, in the other they all ask for the same."""
    parts = parts_of(first.request)
    parts += parts[:1] if len(parts) == 1 else []
    shared = worlds.World(first.graph, parts[0], tuple(parts[1:]))
    return shared, second._replace(more=(second.request,) * (len(parts) - 1))


def check(seed: int, model: str, tmp_path: Path, run: Run, key: Path) -> None:
    kind = worlds.KINDS[seed % len(worlds.KINDS)]
    documents = []
    for number, world in enumerate(as_lists(*worlds.two_worlds(seed, kind))):
        place = tmp_path / f"{seed}-{number}"
        place.mkdir()
        documents.append(worlds.published(world, place, model, run, key))
        assert len(documents[-1]["documents"]["ledger"]["entries"]) == 1 + len(world.more) > 1
    assert worlds.differences(documents[0], documents[1]) == [], (seed, model, kind)


@pytest.fixture
def key(tmp_path: Path) -> Path:
    gf.make_keys(tmp_path / "key")
    return tmp_path / "key"


@pytest.mark.parametrize(
    "model", ["sgc", *(pytest.param(name, marks=pytest.mark.long) for name in ("stacked", "gcn", "retrained sgc"))]
)
def test_what_is_published_of_a_list_is_the_same_in_two_worlds(model: str, tmp_path: Path, run: Run, key: Path) -> None:
    for seed in range(len(worlds.KINDS)):
        check(seed, model, tmp_path, run, key)


def test_only_the_ledger_tells_how_many_requests_a_certificate_answers(tmp_path: Path, run: Run, key: Path) -> None:
    one, other = worlds.two_worlds(3, "mixed")
    parts = parts_of(other.request)
    assert len(parts) > 2
    documents: list[dict[str, Any]] = []
    for number, world in enumerate((one, worlds.World(other.graph, parts[0], tuple(parts[1:])))):
        place = tmp_path / str(number)
        place.mkdir()
        documents.append(worlds.published(world, place, "sgc", run, key))
    for part in ("files", "sizes", "names", "weights", "codes"):
        assert worlds.differences(documents[0][part], documents[1][part]) == []
    assert worlds.differences(documents[0]["documents"]["ledger"], documents[1]["documents"]["ledger"]) != []
