"""Messages about files that are missing or do not fit: plain sentences, without error numbers."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import graphforget as gf
from cases import random_graph
from graphforget.runs.layout import ANNEX, CERTIFICATE, LEDGER, MODEL_FILES, OUTCOME, RELEASED

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def answered(tmp_path_factory: pytest.TempPathFactory) -> Path:
    graph = random_graph(3, nodes=40, edges=60, unlabelled=0)
    folder = tmp_path_factory.mktemp("answered") / "run"
    gf.save_run(folder, gf.train(graph, model="sgc", sigma=0.03), graph)
    gf.answer(folder, gf.Request(nodes=[4]))
    return folder


@pytest.fixture
def run(answered: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(answered, tmp_path / "run"))


@pytest.mark.parametrize("name", [*MODEL_FILES, CERTIFICATE, OUTCOME, ANNEX, LEDGER, RELEASED])
@pytest.mark.parametrize("listed", [True, False], ids=["with a checksum", "without"])
def test_a_missing_file_is_named_in_a_plain_sentence(run: Path, name: str, listed: bool) -> None:
    (run / name).unlink()
    if not listed:
        content = json.loads((run / "run.json").read_text())
        content["sha256"].pop(name, None)
        (run / "run.json").write_text(json.dumps(content))
    with pytest.raises(gf.Mismatch) as error:
        gf.verify_run(run)
    assert not re.search(r"Errno|\n", str(error.value))


READERS: dict[str, Callable[[Path], object]] = {
    "a certificate": gf.Certificate.read,
    "a private key": gf.private_key,
    "a public key": gf.public_key,
    "a run": gf.load_run,
    "a released model": gf.load_released,
}


@pytest.mark.parametrize("name", READERS)
def test_a_path_that_does_not_exist(tmp_path: Path, name: str) -> None:
    with pytest.raises(gf.InputError, match="does not exist|is missing") as error:
        READERS[name](tmp_path / "nothing")
    assert "Errno" not in str(error.value)


def test_two_objectives_that_differ_look_different(run: Path) -> None:
    content = json.loads((run / "run.json").read_text())
    content["objective"] *= 1 + 2e-6
    (run / "run.json").write_text(json.dumps(content))
    with pytest.raises(gf.InputError) as error:
        gf.load_run(run)
    values = re.search(r"the objective is (\S+) instead of (\S+)$", str(error.value))
    assert values is not None
    assert values[1] != values[2]
