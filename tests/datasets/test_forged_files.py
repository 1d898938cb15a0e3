"""Files that name tensors, edge types or counts that no graph can be made of: one sentence, before memory is taken."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch_geometric.data import Data, HeteroData

import graphforget as gf

SPARSE = torch.ones(2).to_sparse()
NO_DATA = torch.empty(5, 2, device="meta")
QUANTISED = torch.zeros(5, 2).to(torch.float8_e4m3fn)
PLAIN = "is not a tensor of its size"


def typed() -> HeteroData:
    data = HeteroData()
    data["a"].x, data["a"].y = torch.ones(5, 2), torch.tensor([0, 1, 0, 1, 0])
    data["b"].x = torch.ones(4, 2)
    data["a", "to", "b"].edge_index = torch.tensor([[0, 1], [2, 3]])
    return data


def refused(data: Any, path: Path, *, target: str | None, sentence: str) -> None:
    torch.save(data, path)
    with pytest.raises(gf.InputError) as caught:
        gf.load(path, target=target)
    assert sentence in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("y", torch.ones(5).to_sparse()), ("train_mask", torch.ones(5, dtype=torch.bool).to_sparse())),
        *(("edge_index", torch.ones(2, 2, dtype=torch.int64).to_sparse()), ("edge_weight", SPARSE)),
        *(("x", NO_DATA), ("x", QUANTISED), ("edge_weight", torch.ones(2, device="meta"))),
    ],
)
def test_tensors_that_cannot_be_computed_with_are_refused(name: str, value: torch.Tensor, tmp_path: Path) -> None:
    plain = {"x": torch.ones(5, 2), "edge_index": torch.tensor([[0, 1], [2, 3]]), "y": torch.tensor([0, 1, 0, 1, 0])}
    refused(Data(**plain | {name: value}), tmp_path / "one.pt", target=None, sentence=PLAIN)
    data = typed()
    setattr(data["a", "to", "b"] if name.startswith("edge") else data["a"], name, value)
    refused(data, tmp_path / "typed.pt", target="a", sentence=PLAIN)


def test_attributes_without_rows_are_refused(tmp_path: Path) -> None:
    data = typed()
    data["b"].x = torch.tensor(1.0)
    refused(data, tmp_path / "file.pt", target="a", sentence="its number of nodes is unknown")


@pytest.mark.parametrize("key", [("a", 5, "b"), ("a", None, "b"), ("a", "b"), "ab", (1, "x", 2)])
def test_an_edge_type_is_three_names(key: Any, tmp_path: Path) -> None:
    data = typed()
    data._edge_store_dict[key] = data["a", "to", "b"]
    refused(data, tmp_path / "file.pt", target="a", sentence="three names are needed")


def test_a_small_file_cannot_name_more_nodes_or_columns_than_memory_holds(tmp_path: Path) -> None:
    data = typed()
    for number in range(3):
        data[f"many{number}"].num_nodes = 2**23
    refused(data, tmp_path / "nodes.pt", target="a", sentence="25,165,824 nodes have no attributes")
    data = typed()
    for number in range(3):
        parts = torch.tensor([0, 1]), torch.tensor([0]), torch.ones(1)
        data[f"wide{number}"].x = torch.sparse_csr_tensor(*parts, (1, 2**23))
    refused(data, tmp_path / "columns.pt", target="a", sentence="columns together, up to 16,777,216")
