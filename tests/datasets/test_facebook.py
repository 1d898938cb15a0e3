"""The graph of Facebook pages has its published content, and other files are refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from graphforget.datasets.facebook import KINDS, read_facebook
from graphforget.datasets.registry import load
from graphforget.errors import InputError

FILES = {
    "facebook_edges.csv": "id_1,id_2\n0,2\n1,1\n2,1\n1,2\n",
    "facebook_features.json": json.dumps({"2": [0], "0": [3, 1, 3], "1": []}),
    "facebook_target.csv": 'id,facebook_id,page_name,page_type\n0,7,"A, é",tvshow\n1,8,B,company\n2,9,C,tvshow\n',
}


def written(folder: Path, **changes: str) -> Path:
    for name, content in FILES.items():
        (folder / name).write_text(changes.get(name.split(".")[0], content), encoding="utf-8")
    return folder


def test_published_classes(raw_data: Path) -> None:
    if not (raw_data / "facebook_large" / "raw").is_dir():
        pytest.skip("the raw files of facebook_large are absent")
    graph = load("facebook-large")
    counts = dict(zip(graph.class_names or (), torch.bincount(graph.y).tolist(), strict=True))
    assert counts == {"company": 6_495, "government": 6_880, "politician": 5_768, "tvshow": 3_327}
    attributes = graph.x.crow_indices().diff()
    assert (int(attributes.min()), int(attributes.max())) == (3, 31)
    assert any("179 self-loops" in note for note in graph.notes)


def test_reader(tmp_path: Path) -> None:
    graph = read_facebook(written(tmp_path), "pages", columns=4)
    assert graph.x.to_dense().tolist() == [[0, 1, 0, 1], [0, 0, 0, 0], [1, 0, 0, 0]]
    assert graph.edge_index.T.tolist() == [[2, 0], [2, 1], [0, 2], [1, 2]]
    assert [KINDS[label] for label in graph.y] == ["tvshow", "company", "tvshow"]
    assert any("1 self-loop was" in note for note in graph.notes)


@pytest.mark.parametrize(
    "changes",
    [
        {"facebook_edges": "id_1,id_2\n0,x\n"},
        {"facebook_edges": "id_1\n0\n"},
        {"facebook_features": "{"},
        {"facebook_features": json.dumps({"0": [1], "1": []})},
        {"facebook_features": json.dumps({"0": [4], "1": [], "2": []})},
        {"facebook_features": json.dumps({"0": [-1], "1": [], "2": []})},
        {"facebook_features": json.dumps({"0": [0.5], "1": [], "2": []})},
        {"facebook_target": FILES["facebook_target.csv"].replace("tvshow", "shop")},
        {"facebook_target": FILES["facebook_target.csv"].replace("\n1,", "\n3,")},
    ],
)
def test_reader_refuses_other_files(tmp_path: Path, changes: dict[str, str]) -> None:
    with pytest.raises(InputError, match="does not hold the files that MUSAE published"):
        read_facebook(written(tmp_path, **changes), "pages", columns=4)


def test_edge_to_nowhere_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError):
        read_facebook(written(tmp_path, facebook_edges="id_1,id_2\n0,9\n"), "pages", columns=4)
