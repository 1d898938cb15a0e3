"""Fixtures that several test files share."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

CHECKOUT = Path(__file__).resolve().parents[1]


@pytest.fixture
def raw_data(monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder with the raw files of the five public datasets, which `load` then finds by itself."""
    folder = Path(os.environ.get("GRAPHFORGET_DATA") or CHECKOUT.parent / "shared" / "data")
    for name in ("Cora", "CiteSeer", "PubMed", "CS", "Physics"):
        if not (folder / name / "raw").is_dir():
            pytest.skip(f"the raw files of {name} are not in {folder}, set GRAPHFORGET_DATA to their folder")
    monkeypatch.setenv("GRAPHFORGET_DATA", str(folder))
    return folder


@pytest.fixture(scope="module")
def one_thread() -> Iterator[None]:
    """Small tensors gain nothing by more, and on a busy machine lose a lot."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
