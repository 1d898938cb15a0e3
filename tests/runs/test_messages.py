"""Messages about files that are missing or do not fit: plain sentences, without error numbers."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

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


def test_the_path_of_a_key_is_no_key(run: Path, tmp_path: Path) -> None:
    private, public = gf.make_keys(tmp_path / "key")
    before = {path.name: path.read_bytes() for path in run.iterdir()}
    with pytest.raises(gf.InputError, match=r"the key is a PosixPath, a private key is needed as gf\.private_key"):
        gf.answer(run, gf.Request(nodes=[5]), key=private)  # type: ignore[call-overload]
    with pytest.raises(gf.InputError, match=r"the key is a str, a public key is needed as gf\.public_key"):
        gf.verify_run(run, key=str(public))  # type: ignore[arg-type]
    assert {path.name: path.read_bytes() for path in run.iterdir()} == before


def test_a_class_in_place_of_a_model_is_answered_with_what_to_write() -> None:
    graph = random_graph(3, nodes=20, edges=30)

    class MyGNN(torch.nn.Module):
        pass

    with pytest.raises(gf.InputError, match=r"the model is a class, .* MyGNN\(\.\.\.\) or gf\.stacked\(MyGNN\)"):
        gf.train(graph, MyGNN)  # type: ignore[arg-type]


@pytest.mark.parametrize("given", [{"epsilon": "1"}, {"delta": "x"}], ids=str)
def test_a_guarantee_that_is_text_is_bad_input(given: dict[str, Any]) -> None:
    with pytest.raises(gf.InputError, match="number"):
        gf.train(random_graph(3, nodes=20, edges=30), "sgc", **given)
