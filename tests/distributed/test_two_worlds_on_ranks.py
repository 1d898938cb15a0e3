"""What ranks publish for two graphs that differ in the deleted data alone."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

import graphforget as gf
from distributed_cases import on_ranks, result_of, sharded

MAY_DIFFER = ("id", "made", "digests", "signature", "follows")
PUBLIC = ("certificate.json", "outcome.json", "released.safetensors")


def published(graph: gf.Graph, folder: Path, model: str) -> dict[str, Any]:
    """Everything public about a request for node 17, but for what is random or a commitment."""
    folder.mkdir()
    shards = sharded(graph, folder, 2)[2]
    (folder / "request.json").write_text(json.dumps({"nodes": [17]}))
    run = folder / "run"
    result_of(on_ranks(2, "train", "--data", shards, "--model", model, "--sigma", "0.1", "--out", run, "--json"))
    result_of(on_ranks(2, "unlearn", run, folder / "request.json", "--in-place", "--json"))
    certificate = json.loads((run / "certificate.json").read_text())
    files = {name: (run / name).stat().st_size for name in PUBLIC}
    return {
        "certificate": {name: value for name, value in certificate.items() if name not in MAY_DIFFER},
        "outcome": sorted(json.loads((run / "outcome.json").read_text())),
        "files": files,
        "names": sorted(path.name for path in run.iterdir()),
    }


@pytest.mark.slow
@pytest.mark.parametrize("model", ["sgc", pytest.param("stacked-gcn", marks=pytest.mark.long)])
def test_documents_do_not_depend_on_deleted_data(model: str, tmp_path: Path) -> None:
    first = gf.synthetic(nodes=400, edges=1600, columns=6, classes=3, train=0.7)
    x, y, train, test = first.x.clone(), first.y.clone(), first.train_mask.clone(), first.test_mask.clone()
    x[17] = -5 * x[17]
    y[17] = (y[17] + 1) % 3
    train[17], test[17] = not bool(train[17]), not bool(test[17])  # an empty and a larger footprint of its own
    second = dataclasses.replace(first, x=x, y=y, train_mask=train, test_mask=test)
    request = gf.Request(nodes=[17])
    assert first.digest != second.digest
    assert first.without(request).digest == second.without(request).digest
    assert published(first, tmp_path / "first", model) == published(second, tmp_path / "second", model)
