"""The public names: a change of this list is a change of the public interface."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import graphforget as gf

ROOT = Path(__file__).resolve().parents[1]
CONSTANTS = ("DATASETS", "METHODS", "MODELS")  # collections have no docstring of their own
NAMES = [
    "AbsenceProof",
    *("Answer", "Audit", "Certificate", "Constants", "DATASETS", "FloorMissed", "Footprint", "Graph", "InputError"),
    *(
        "Inspection",
        "Loss",
        "METHODS",
        "MODELS",
        "Method",
        "Mismatch",
        "Objective",
        "Outcome",
        "PaperSets",
        "Plan",
        "Predictions",
    ),
    *("Reach", "Recipe", "Refused", "Release", "Request", "Trained", "UpdatePlan", "Verification"),
    *(
        "adopt",
        "answer",
        "audit",
        "audit_run",
        "boosted",
        "compare",
        "export_released",
        "footprint",
        "inspect",
        "linearised",
        "load",
        "load_released",
    ),
    *(
        "load_run",
        "make_keys",
        "paper_sets",
        "plan",
        "plan_update",
        "plan_update_run",
        "predict_run",
        "private_key",
        "prove_absence",
        "public_key",
        "releases_so_far",
    ),
    *("save_outcome", "save_run", "signed", "stacked", "synthetic", "train", "unlearn"),
    *("update", "update_run", "verify", "verify_absence", "verify_run"),
]


@pytest.fixture(scope="module")
def documentation() -> str:
    return "\n".join(path.read_text() for path in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))))


def test_the_public_names_are_exactly_these() -> None:
    assert sorted(NAMES) == NAMES
    assert sorted(vars(gf)["__all__"]) == NAMES
    assert set(NAMES) <= set(dir(gf))


@pytest.mark.parametrize("name", NAMES)
def test_a_public_name_resolves_and_is_documented(name: str, documentation: str) -> None:
    value = getattr(gf, name)
    if name not in CONSTANTS:
        text = inspect.getdoc(value) or ""
        assert text, f"{name} has no docstring"
        assert not text.startswith(f"{name}("), f"{name} has only the docstring that dataclasses make"
    assert re.search(rf"\bgf\.{name}\b", documentation), f"gf.{name} is in neither README.md nor docs/*.md"


def test_the_documentation_names_nothing_that_is_not_public(documentation: str) -> None:
    assert set(re.findall(r"\bgf\.([A-Za-z_]\w*)", documentation)) - set(NAMES) == set()


def test_another_name_is_an_attribute_error() -> None:
    for name in ("no_such_name", "SGC"):
        with pytest.raises(AttributeError, match=name):
            getattr(gf, name)


ANYTHING: Any = None


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda folder: gf.load(ANYTHING), "the dataset is a NoneType, a name or a path is needed"),
        (lambda folder: gf.inspect(ANYTHING, columns=3), "the module is a NoneType, a torch.nn.Module is needed"),
        (lambda folder: gf.verify(*3 * [ANYTHING]), "the certificate is a NoneType, a graphforget.Certificate is need"),
        (lambda folder: gf.save_run(folder / "run", *2 * [ANYTHING]), "the model is a NoneType, a graphforget.Trained"),
        (lambda folder: gf.update(*3 * [ANYTHING]), "the model is a NoneType, a graphforget.Trained is needed"),
    ],
)
def test_arguments_of_another_kind_are_one_sentence(tmp_path: Path, call: Callable[[Path], object], words: str) -> None:
    with pytest.raises(gf.InputError, match=f"^{words}"):
        call(tmp_path)
    assert not list(tmp_path.iterdir())
