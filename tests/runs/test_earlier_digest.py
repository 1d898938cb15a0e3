"""Run directories with the graph digest of an earlier version: they are read, verified, and go on with the new one."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path

import pytest

import graphforget as gf
from graphforget.certificates.issue import EARLIER_GRAPH
from graphforget.graph.digest import digest_of_format_3
from graphforget.runs.write import rewrite_checksums

ARCHIVE = Path(__file__).parents[1] / "data" / "run-digest-3.tar.xz"  # by make_run_digest_3.py beside it
pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """The runs `fresh` and `answered`, which has forgotten person-07, and the signer's `key.pub`."""
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(tmp_path, filter="data")
    return tmp_path


def stored_digest(run: Path) -> str:
    return str(json.loads((run / "run.json").read_text())["graph_digest"])


@pytest.mark.parametrize("name", ["fresh", "answered"])
def test_it_is_read_and_goes_on_with_the_digest_of_this_version(name: str, place: Path) -> None:
    trained, graph = gf.load_run(place / name)
    assert stored_digest(place / name) == digest_of_format_3(graph) != graph.digest == trained.graph_digest
    gf.answer(place / name, gf.Request(nodes=["person-11"]))
    trained, graph = gf.load_run(place / name)
    assert stored_digest(place / name) == graph.digest == trained.graph_digest
    assert gf.verify_run(place / name).checks


def test_its_certificate_is_verified_by_the_algorithm_that_it_names(place: Path) -> None:
    certificate = gf.Certificate.read(place / "answered" / "certificate.json")
    assert certificate.algorithms["graph"] == EARLIER_GRAPH
    checks = gf.verify_run(place / "answered", key=gf.public_key(place / "key.pub")).checks
    assert any(check.result.startswith("the salted digest of 29 nodes") for check in checks)


def test_a_graph_that_fits_neither_digest_is_damaged(place: Path) -> None:
    run = place / "fresh"
    names = json.loads((run / "graph.json").read_text())
    names["subject_ids"][3] = "somebody else"
    (run / "graph.json").write_text(json.dumps(names))
    rewrite_checksums(run)
    with pytest.raises(gf.InputError, match="is damaged: its graph is not the one that the model was trained on"):
        gf.load_run(run)
